// What the sections of the console are made of: what they share (`useDesk`), reading with paging or polling, tables, fields, ids, times.
// Text goes in as text only; no HTML of anybody's is ever made into elements.
import { COPIED, copyText } from "./copying.js";
import { wordsOf } from "./operator-client.js";
import { createContext, html, useContext, useEffect, useLayoutEffect, useRef, useState } from "./preact-htm.js";
import { moment } from "./words.js";

/** How often a page looks by itself before somebody has to show that they are there. */
const LOOKS = 240;

/**
 * What all sections share.
 * @typedef {object} Desk
 * @property {import("./operator-client.js").OperatorClient} client
 * @property {boolean} demo
 * @property {{subject: string}} me
 * @property {(text: string) => void} announce Said by screen readers.
 * @property {(question: Question) => void} ask Opens a dialog.
 * @property {() => void} signedOut Shows the sign-in; what is open comes back after it.
 */
/**
 * A dialog: what is to be done, its fields, and the act. The act's fault is shown in the dialog, and what was written stays there.
 * @typedef {object} Question
 * @property {string} title
 * @property {unknown} [body] What it does, in words; and fields of the form.
 * @property {string} label Of the button that does it.
 * @property {boolean} [danger]
 * @property {{label: string, hint?: string}} [reason] Asks for a reason, which is required; the field's name is `reason`.
 * @property {(values: FormData) => Promise<string|void>} perform Does it. Gives what is said when it is done.
 */
export const DeskContext = createContext(null);

/** @returns {Desk} */
export function useDesk() {
  return useContext(DeskContext);
}

/** The address of a section. @param {string} name @param {string|null} [id] @param {Record<string, string|null|undefined>} [query] */
export function address(name, id = null, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const search = new URLSearchParams(given).toString();
  return `#${name}${id ? `/${id}` : ""}${search ? `?${search}` : ""}`;
}

// ---- reading -------------------------------------------------------------------------------------------------------------------------

/**
 * Something that is read when the component appears, and again every so many seconds where that is said: not in a hidden tab, and not for
 * ever when nobody is there. Other things to read need another `key` of the component.
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} load
 * @param {{everySeconds?: number|((value: T|null) => number)}} [options] A function says it for what was read; 0: not again by itself.
 * @returns {{value: T|null, problem: import("./operator-client.js").Words|null, paused: boolean, reload: () => Promise<void>, put: (value: T) => void}}
 */
export function useLoaded(load, { everySeconds = 0 } = {}) {
  const desk = useDesk();
  const [state, setState] = useState({ value: null, problem: null, paused: false });
  const again = useRef(() => Promise.resolve());
  useEffect(() => {
    const leaving = new AbortController();
    const { signal } = leaving;
    let looks = 0;
    let timer = 0;
    let begun = 0;
    let last = null;
    const look = async () => {
      clearTimeout(timer);
      begun += 1;
      const mine = begun;
      const passed = () => signal.aborted || mine !== begun; // a look that began later knows better
      try {
        const value = await load(signal);
        if (passed()) return;
        last = value;
        setState({ value, problem: null, paused: false });
      } catch (error) {
        if (passed()) return;
        const problem = wordsOf(error);
        if (problem.signedOut) return desk.signedOut();
        setState((before) => ({ ...before, problem }));
      }
      const seconds = typeof everySeconds === "function" ? everySeconds(last) : everySeconds;
      if (seconds) timer = setTimeout(next, seconds * 1000);
    };
    const next = () => {
      if (document.visibilityState === "hidden") return; // the tab's coming back looks again
      looks += 1;
      if (looks <= LOOKS) return void look();
      setState((before) => ({ ...before, paused: true }));
    };
    const back = () => everySeconds && document.visibilityState === "visible" && look();
    const here = () => {
      looks = 0;
    };
    again.current = () => {
      looks = 0;
      return look();
    };
    look();
    document.addEventListener("visibilitychange", back);
    for (const sign of ["pointerdown", "keydown"]) document.addEventListener(sign, here);
    return () => {
      leaving.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", back);
      for (const sign of ["pointerdown", "keydown"]) document.removeEventListener(sign, here);
    };
  }, []);
  return { ...state, reload: () => again.current(), put: (value) => setState({ value, problem: null, paused: false }) };
}

/**
 * A list that comes in pages.
 * @param {(cursor: string|null, signal: AbortSignal) => Promise<{next: string|null}>} fetchPage @param {string} member Where its rows are.
 * @returns {{rows: object[]|null, next: string|null, loading: boolean, problem: import("./operator-client.js").Words|null,
 *   again: (() => Promise<void>)|null, more: () => Promise<void>, reload: () => Promise<void>, put: (row: object, id: string) => void}} `rows` is null before the first page;
 *   `again` asks once more for what the problem is about; an answer that is late is dropped; `put` shows a row as it is now, in the place of the one with the same `id`.
 */
export function usePages(fetchPage, member) {
  const desk = useDesk();
  const [state, setState] = useState({ rows: null, next: null, loading: true, problem: null, again: null });
  const leaving = useRef(null);
  const begun = useRef(0);
  const load = async (cursor) => {
    const { signal } = leaving.current;
    const turn = ++begun.current;
    const late = () => signal.aborted || turn !== begun.current;
    setState((now) => ({ ...now, loading: true, problem: null }));
    try {
      const page = await fetchPage(cursor, signal);
      if (late()) return;
      setState((now) => ({ ...now, rows: [...(cursor === null ? [] : now.rows), ...page[member]], next: page.next, loading: false }));
    } catch (error) {
      if (late()) return;
      const problem = wordsOf(error);
      if (problem.signedOut) return desk.signedOut();
      setState((now) => ({ ...now, loading: false, problem, again: () => load(cursor) }));
    }
  };
  useEffect(() => {
    leaving.current = new AbortController();
    load(null);
    return () => leaving.current.abort();
  }, []);
  const put = (row, id) => setState((now) => ({ ...now, rows: now.rows.map((one) => (one[id] === row[id] ? row : one)) }));
  return { ...state, more: () => load(state.next), reload: () => load(null), put };
}

// ---- showing -------------------------------------------------------------------------------------------------------------------------

/** A fault in words, with the runs that are in the way. @param {{words: import("./operator-client.js").Words, again?: () => void}} props */
export function Fault({ words, again }) {
  return html`<div class="notice warn" role="alert">
    <p>${words.text} ${words.next}
      ${words.runs.length > 0 && html`<span> In the way: ${words.runs.map((run) => html`<${RunLink} key=${run.run_id} id=${run.run_id} /> `)}</span>`}
    </p>
    ${again && html`<div class="actions"><button class="quiet" type="button" onClick=${again}>Try again</button></div>`}
  </div>`;
}

/** What was loaded, or that it is being loaded, or why it is not. Old values stay while a newer look fails. */
export function Loaded({ of, children }) {
  return html`
    ${of.problem && html`<${Fault} words=${of.problem} again=${of.reload} />`}
    ${of.paused && html`<div class="notice"><p>Nobody was here for a while: this is no longer kept up to date.</p>
      <div class="actions"><button class="quiet" type="button" onClick=${of.reload}>Go on</button></div></div>`}
    ${of.value === null ? !of.problem && html`<p class="faint" role="status">One moment …</p>` : children(of.value)}`;
}

/**
 * A table of a list that comes in pages; on a phone each row is a card.
 * @param {{caption: string, columns: {title: string, cell: (row: object) => unknown}[], pages: ReturnType<typeof usePages>,
 *   keyOf: (row: object) => string, empty: string}} props
 */
export function PagedTable({ caption, columns, pages, keyOf, empty }) {
  return html`<${Paged} pages=${pages} empty=${empty}>${(rows) => html`<${Table} caption=${caption} columns=${columns} rows=${rows} keyOf=${keyOf} />`}<//>`;
}

/** A list that comes in pages, however its rows are shown. @param {{pages: ReturnType<typeof usePages>, empty: string, children: (rows: object[]) => unknown}} props */
export function Paged({ pages, empty, children }) {
  const { rows, next, loading, problem } = pages;
  return html`
    ${rows && rows.length > 0 && children(rows)}
    ${rows && rows.length === 0 && !loading && html`<p class="empty">${empty}</p>`}
    ${problem && html`<${Fault} words=${problem} again=${pages.again} />`}
    ${loading && html`<p class="faint" role="status">One moment …</p>`}
    ${next && !loading && !problem && html`<p class="actions"><button class="quiet" type="button" onClick=${pages.more}>Show more</button></p>`}`;
}

/** @param {{caption: string, columns: {title: string, cell: (row: object) => unknown}[], rows: object[], keyOf: (row: object) => string}} props */
export function Table({ caption, columns, rows, keyOf }) {
  return html`<table class="table" role="table">
    <caption class="visually-hidden">${caption}</caption>
    <thead role="rowgroup"><tr role="row">${columns.map(({ title }) => html`<th key=${title} scope="col" role="columnheader">${title}</th>`)}</tr></thead>
    <tbody role="rowgroup">${rows.map((row) => html`<tr key=${keyOf(row)} role="row">
      ${columns.map(({ title, cell }) => html`<td key=${title} role="cell" data-title=${title}>${cell(row)}</td>`)}
    </tr>`)}</tbody>
  </table>`;
}

/** Facts with their names. @param {{facts: [string, unknown][]}} props What is null or undefined is left out. */
export function Facts({ facts }) {
  const given = facts.filter(([, value]) => value !== null && value !== undefined && value !== false);
  return html`<dl class="facts">${given.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/** An id that can be copied whole. @param {{value: string, what: string}} props `what`: whose id it is, for who does not see it. */
export function Id({ value, what }) {
  const desk = useDesk();
  const [copied, setCopied] = useState(false);
  const copy = async (event) => {
    const said = await copyText(value, event.currentTarget.previousElementSibling);
    setCopied(said === COPIED);
    desk.announce(said);
  };
  return html`<span class="id"><code>${value}</code>
    <button class="small quiet" type="button" onClick=${copy}>${copied ? "Copied" : "Copy"}<span class="visually-hidden"> ${what}</span></button></span>`;
}

/** @param {{id: string, text?: string}} props */
export function RunLink({ id, text }) {
  return html`<a href=${address("run", id)}>${text ?? html`<code>${id.slice(0, 8)}</code>`}</a>`;
}

/** A time: how long ago or ahead, and when exactly. @param {{at: string|null}} props RFC 3339. */
export function Time({ at }) {
  if (!at) return null;
  return html`<time datetime=${at} title=${at}>${age((Date.now() - Date.parse(at)) / 1000)} <span class="faint">(${moment(at).replace(/^(at|on) /, "")})</span></time>`;
}

const UNITS = [[86_400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];

/** @param {number} seconds @returns {string} "3 minutes ago", "in 3 minutes". */
export function age(seconds) {
  return seconds < 0 ? `in ${lasting(-seconds)}` : `${lasting(seconds)} ago`;
}

/** @param {number} seconds @returns {string} "3 minutes". */
export function lasting(seconds) {
  const [size, unit] = UNITS.find(([one]) => seconds >= one) ?? UNITS.at(-1);
  const count = Math.floor(seconds / size);
  return `${count} ${unit}${count === 1 ? "" : "s"}`;
}

// ---- forms ---------------------------------------------------------------------------------------------------------------------------

/** A labelled control. @param {{label: string, hint?: string, children: unknown}} props The control stands inside, so that it needs no id. */
export function Field({ label, hint, children }) {
  return html`<label class="field"><span>${label}</span>${children}${hint && html`<span class="faint">${hint}</span>`}</label>`;
}

/** @param {{label: string, name: string, value: string, options: [string, string][], onChange?: (value: string) => void, hint?: string}} props */
export function Choice({ label, name, value, options, onChange, hint }) {
  return html`<${Field} label=${label} hint=${hint}>
    <select name=${name} onChange=${onChange && ((event) => onChange(event.currentTarget.value))}>
      ${options.map(([one, text]) => html`<option key=${one} value=${one} selected=${one === value}>${text}</option>`)}
    </select>
  <//>`;
}

/** The open dialog. @param {{question: Question, maxReason: number, close: (said: string|null) => void}} props */
export function Dialog({ question, maxReason, close }) {
  const [state, setState] = useState({ busy: false, words: null });
  const dialog = useRef(null);
  const said = useRef(null);
  const busy = useRef(false);
  useLayoutEffect(() => dialog.current.showModal(), []);
  useEffect(() => {
    const leave = () => dialog.current.close(); // a link in it leads elsewhere
    addEventListener("hashchange", leave);
    return () => removeEventListener("hashchange", leave);
  }, []);
  useEffect(() => dialog.current.querySelector("[role=alert]")?.scrollIntoView({ block: "nearest" }), [state.words]);
  const submit = async (event) => {
    event.preventDefault();
    if (busy.current) return; // a double Enter is one act
    busy.current = true;
    const values = new FormData(event.currentTarget);
    setState({ busy: true, words: null });
    try {
      said.current = (await question.perform(values)) ?? "Done.";
      dialog.current.close();
    } catch (error) {
      busy.current = false;
      setState({ busy: false, words: wordsOf(error) });
    }
  };
  return html`<dialog ref=${dialog} aria-labelledby="dialog-title" onClose=${() => close(said.current)}>
    <form onSubmit=${submit} aria-busy=${String(state.busy)}>
      <h2 id="dialog-title">${question.title}</h2>
      ${question.body}
      ${question.reason && html`<${Field} label=${question.reason.label} hint=${question.reason.hint}>
        <textarea name="reason" rows="3" required maxlength=${maxReason}></textarea>
      <//>`}
      ${state.words && html`<${Fault} words=${state.words} />`}
      <div class="actions">
        <button class="quiet" type="button" onClick=${() => dialog.current.close()}>Cancel</button>
        <button class=${question.danger ? "danger" : "primary"} type="submit" disabled=${state.busy}>${question.label}</button>
      </div>
    </form>
  </dialog>`;
}
