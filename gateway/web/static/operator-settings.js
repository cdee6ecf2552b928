// What the sections of the configuration share: cards with their acts, fields, and what the values of a form come to.
import { Facts, Field, Paged, useDesk } from "./operator-parts.js";
import { html } from "./preact-htm.js";

/**
 * A list that comes in pages, each row a card.
 * @param {{pages: ReturnType<typeof import("./operator-parts.js").usePages>, empty: string, children: (row: object) => unknown}} props
 */
export function Cards({ pages, empty, children }) {
  return html`<${Paged} pages=${pages} empty=${empty}>${(rows) => html`<div class="cards">${rows.map(children)}</div>`}<//>`;
}

/**
 * One thing that is configured. @param {{title: string, tags?: string[], facts: [string, unknown][], acts: Act[]}} props
 * @typedef {{label: string, name?: string, question: () => import("./operator-parts.js").Question}} Act `name`: where more than the label is
 *   needed to know the button.
 */
export function Card({ title, tags = [], facts, acts, children }) {
  const desk = useDesk();
  return html`<article class="block" aria-label=${title}>
    <h3>${title} ${tags.map((tag) => html`<span key=${tag} class="tag warn">${tag}</span> `)}</h3>
    <${Facts} facts=${facts} />
    ${children}
    <div class="actions">${acts.map(({ label, question }) => html`<button key=${label} class="quiet" type="button" onClick=${() => desk.ask(question())}>
      ${label}<span class="visually-hidden"> ${title}</span></button>`)}</div>
  </article>`;
}

/** A button that opens a dialog. @param {{label: string, question: () => Promise<import("./operator-parts.js").Question>|import("./operator-parts.js").Question}} props */
export function Ask({ label, question }) {
  const desk = useDesk();
  return html`<p class="actions"><button class="primary" type="button" onClick=${() => desk.ask(question())}>${label}</button></p>`;
}

/** @param {{label: string, name: string, value?: string, hint?: string, type?: string, required?: boolean}} props */
export function TextField({ label, name, value = "", hint, type = "text", required = false }) {
  return html`<${Field} label=${label} hint=${hint}>
    <input name=${name} type=${type} required=${required} min=${type === "number" ? 1 : undefined} defaultValue=${value} autocomplete=${type === "password" ? "new-password" : "off"} spellcheck="false" />
  <//>`;
}

/** Several names, one a line. @param {{label: string, name: string, values?: string[], hint?: string}} props */
export function LinesField({ label, name, values = [], hint = "One a line." }) {
  return html`<${Field} label=${label} hint=${hint}><textarea name=${name} rows="3" spellcheck="false" defaultValue=${values.join("\n")}></textarea><//>`;
}

/** @param {{label: string, name: string, checked: boolean}} props */
export function Tick({ label, name, checked }) {
  return html`<label class="option"><input type="checkbox" name=${name} defaultChecked=${checked} /><span>${label}</span></label>`;
}

/** What a dialog of the configuration does, in a sentence or two. @param {{warn?: boolean, children: unknown}} props */
export function Says({ warn = false, children }) {
  return html`<p class=${warn ? "problem" : ""}>${children}</p>`;
}

/** @param {FormData} values @param {string} name @returns {string[]} The lines of a field that say something. */
export function linesOf(values, name) {
  return values.get(name).split("\n").map((line) => line.trim()).filter(Boolean);
}

/** @param {object} row @param {object} wanted @returns {object} What of `wanted` is otherwise in `row`: what nobody touched is not sent. */
export function changed(row, wanted) {
  return Object.fromEntries(Object.entries(wanted).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(row[name])));
}

/** @param {string[]} names @returns {string|null} */
export function listed(names) {
  return names.length ? names.join(", ") : null;
}
