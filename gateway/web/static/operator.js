// The operator's console: who is here, which section the address names, and what all sections share. A section is a module of its own
// (operator-sections.js); what it is made of is in operator-parts.js, calls and their refusals are in operator-client.js.
import { OperatorClient, wordsOf } from "./operator-client.js";
import { DeskContext, Dialog, Fault, address } from "./operator-parts.js";
import { SECTIONS } from "./operator-sections.js";
import { html, render, useEffect, useMemo, useRef, useState } from "./preact-htm.js";
import { MAX_REASON_CHARACTERS } from "/static/operator-tables.js";

const client = new OperatorClient();
const demo = document.documentElement.dataset.demo === "on";

function announce(text) {
  document.getElementById("announcer").textContent = text;
}

/** What the address names: a section, and what stands after its name. An address that names nothing is the first section. */
function placeOfAddress() {
  const [, name = "", id = "", search = ""] = /^#([a-z-]*)(?:\/([\w-]*))?(?:\?(.*))?$/.exec(location.hash) ?? [];
  const section = SECTIONS.find((one) => one.name === name) ?? SECTIONS[0];
  return { section, id, query: Object.fromEntries(new URLSearchParams(search)) };
}

function Console() {
  const [who, setWho] = useState({ screen: "starting", me: null, words: null });
  const [place, setPlace] = useState(placeOfAddress);
  const [question, setQuestion] = useState(null);

  const enter = async () => {
    try {
      const me = await client.me();
      setWho({ screen: me.operator ? "inside" : "no-operator", me, words: null });
    } catch (error) {
      const words = wordsOf(error);
      setWho({ screen: "sign-in", me: null, words: words.signedOut ? null : words });
    }
  };
  useEffect(() => {
    const moved = () => setPlace(placeOfAddress());
    addEventListener("hashchange", moved);
    if (document.documentElement.dataset.session === "on") enter();
    else setWho({ screen: "sign-in", me: null, words: null });
    return () => removeEventListener("hashchange", moved);
  }, []);
  const desk = useMemo(
    () => ({
      client,
      demo,
      me: who.me,
      announce,
      ask: setQuestion,
      signedOut: () => setWho({ screen: "sign-in", me: null, words: { text: "Your session is over.", next: "Sign in again.", runs: [] } }),
    }),
    [who.me],
  );
  const closed = (said) => {
    setQuestion(null);
    if (said === null) return;
    announce(said);
    // The button that opened the dialog may be gone with what it did.
    setTimeout(() => document.activeElement === document.body && document.getElementById("title")?.focus());
  };
  const signOut = async () => {
    await client.signOut().catch(() => null);
    setWho({ screen: "sign-in", me: null, words: null });
  };

  if (who.screen === "starting") return html`<main class="card"><p role="status">One moment …</p></main>`;
  return html`<${DeskContext.Provider} value=${desk}>
    <a class="skip" href="#title" onClick=${skip}>Skip to the section</a>
    <header class="bar">
      <h1>Operator's console</h1>
      ${who.me && html`<p class="who">${who.me.subject}</p>`}
      <a class="button" href="/">Chat</a>
      ${who.me && demo && html`<button class="quiet" type="button" onClick=${signOut}>Sign out</button>`}
    </header>
    ${who.screen === "sign-in" && html`<${SignIn} words=${who.words} enter=${enter} />`}
    ${who.screen === "no-operator" && html`<${NoOperator} me=${who.me} />`}
    ${who.screen === "inside" && html`<${Workspace} place=${place} />`}
    ${question && html`<${Dialog} question=${question} maxReason=${MAX_REASON_CHARACTERS} close=${closed} />`}
  <//>`;
}

function skip(event) {
  event.preventDefault();
  document.getElementById("title")?.focus();
}

function Workspace({ place: { section, id, query } }) {
  const title = useRef(null);
  const arrived = useRef(false);
  useEffect(() => {
    document.title = `${section.title} · Operator's console`;
    // Whoever went somewhere else reads on there; the first page of a visit begins at its top.
    if (arrived.current) title.current.focus();
    arrived.current = true;
    document.querySelector(".menu [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [section.name, id]);
  return html`<div class="workspace">
    <nav class="menu" aria-label="Sections"><ul>
      ${SECTIONS.filter((one) => !one.hidden).map((one) => html`<li key=${one.name}>
        <a href=${address(one.name)} aria-current=${(section.under ?? section.name) === one.name ? "page" : undefined}>${one.title}</a>
      </li>`)}
    </ul></nav>
    <main class="section">
      <div class="section-head"><h2 id="title" ref=${title} tabindex="-1">${section.title}</h2>${section.about && html`<p class="faint">${section.about}</p>`}</div>
      <${section.View} key=${`${section.name}/${id}`} id=${id} query=${query} />
    </main>
  </div>`;
}

function SignIn({ words, enter }) {
  const [users, setUsers] = useState([]);
  const [problem, setProblem] = useState(words);
  useEffect(() => setProblem(words), [words]);
  useEffect(() => {
    if (demo) client.demoUsers().then(setUsers, (error) => setProblem(wordsOf(error)));
  }, []);
  const signIn = async (subject) => {
    setProblem(null);
    try {
      await client.signIn(subject);
      await enter();
    } catch (error) {
      setProblem(wordsOf(error));
    }
  };
  return html`<main class="card">
    <h2 id="sign-in-title">Sign in</h2>
    ${demo && html`<p>This is a demonstration. The console is for its operator.</p>`}
    ${!demo && !problem && html`<p>You are not signed in. Sign in through your web application, then load this page again.</p>`}
    ${demo && html`<ul class="users" aria-labelledby="sign-in-title">${users.map((user) => html`<li key=${user.subject}>
      <button type="button" onClick=${() => signIn(user.subject)}><strong>${user.subject}</strong><span class="faint">${user.about}</span></button>
    </li>`)}</ul>`}
    ${problem && html`<${Fault} words=${problem} again=${demo ? undefined : enter} />`}
  </main>`;
}

function NoOperator({ me }) {
  return html`<main class="card">
    <h2>For operators only</h2>
    <p>You are signed in as <strong>${me.subject}</strong>, who is no operator.</p>
    <p>${demo
      ? "Sign out, and sign in as the demo's operator."
      : html`An operator can give you the role: <code>gateway accounts set SUBJECT --role operator</code>. Or your sign-in says it, in the claim of roles.`}</p>
    <p><a href="/">To the chat</a></p>
  </main>`;
}

render(html`<${Console} />`, document.getElementById("page"));
