// What the chat page shows, as functions of its state. Text goes in as text only; no HTML of anybody's is ever made into elements.
import { blocks } from "./markdown.js";
import { Component, html } from "./preact-htm.js";
import { STEPS, messageState, moment, quotaLine, toolState } from "./words.js";

export const NEW = "New conversation";
/** Entries that are elements at once; older and newer ones come and go as one scrolls. */
export const SHOWN = 120;

/** The whole page. `act`: what the buttons do. */
export function Page({ state, act }) {
  if (state.screen === "starting") return html`<main class="sign-in"><p role="status">One moment …</p></main>`;
  return html`
    <a class="skip" href="#text" onClick=${act.skip}>Skip to the message field</a>
    <${Bar} state=${state} act=${act} />
    ${state.screen === "sign-in" ? html`<${SignIn} state=${state} act=${act} />` : html`<${Workspace} state=${state} act=${act} />`}
    <${Rename} state=${state} act=${act} /><${Delete} state=${state} act=${act} />`;
}

function Bar({ state, act }) {
  const inside = state.screen === "chat";
  return html`<header class="bar">
    ${inside && html`<button id="toggle" class="quiet" type="button" aria-expanded=${String(state.sideOpen)} aria-controls="side" onClick=${act.toggleSide}>Menu</button>`}
    <h1>Agents</h1>
    ${inside && html`<p id="who" class="who">${state.me.subject}</p>`}
    ${inside && state.me.operator && html`<a class="button" href="/operator">Console</a>`}
    ${inside && state.demo && html`<button id="sign-out" class="quiet" type="button" onClick=${act.signOut}>Sign out</button>`}
  </header>`;
}

function SignIn({ state, act }) {
  return html`<main class="sign-in">
    <h2 id="sign-in-title">Sign in</h2>
    ${state.demo && html`<p>This is a demonstration. Choose who you want to be; nothing leaves this machine.</p>`}
    ${!state.demo && !state.signInProblem && html`<p>You are not signed in. Sign in through your web application, then load this page again.</p>`}
    ${state.demo && html`<ul class="users" aria-labelledby="sign-in-title">
      ${state.users.map((user) => html`<li key=${user.subject}>
        <button type="button" onClick=${() => act.signIn(user.subject)}><strong>${user.subject}</strong><span class="faint">${user.about}</span></button>
      </li>`)}
    </ul>`}
    ${state.signInProblem && html`<p class="problem" role="alert">${state.signInProblem}${state.demo ? "" : " Load this page to try again."}</p>`}
  </main>`;
}

function Workspace({ state, act }) {
  return html`<div class=${state.sideOpen ? "workspace side-open" : "workspace"}>
    <${Side} state=${state} act=${act} />
    <main class="chat">
      <div class="chat-head">
        <h2 id="title" tabindex="-1">${state.conversation?.title ?? (state.opening === "conversation" ? "Opening …" : NEW)}</h2>
        ${state.conversation && html`<div class="actions">
          <button id="rename" class="quiet" type="button" onClick=${() => act.openDialog("rename")}>Rename</button>
          <button id="delete" class="quiet" type="button" onClick=${() => act.openDialog("delete")}>Delete</button>
        </div>`}
      </div>
      <${Messages} state=${state} act=${act} />
      <div class="foot">
        ${state.notice && html`<${Notice} notice=${state.notice} act=${act} />`}
        ${state.question && html`<${Question} state=${state} act=${act} />`}
        <${Composer} state=${state} act=${act} />
      </div>
    </main>
  </div>`;
}

function Side({ state, act }) {
  return html`<div id="side" class="side">
    <nav aria-labelledby="apps-title">
      <h2 id="apps-title" class="side-title">Applications</h2>
      <ul id="apps" class="choices">${state.apps.map((app) => html`<li key=${app.app_id}>
        <button type="button" aria-current=${app.app_id === state.appId ? "true" : undefined} onClick=${() => act.chooseApp(app.app_id)}>
          <span class="name">${app.name}</span>
          ${app.description && html`<span class="mark">${app.description}</span>`}
          ${!app.available && html`<span class="mark">Not available at the moment</span>`}
        </button>
      </li>`)}</ul>
    </nav>
    <nav aria-labelledby="conversations-title" class="of-conversations">
      <h2 id="conversations-title" class="side-title">Conversations</h2>
      <button id="new" class="primary" type="button" disabled=${!state.appId} onClick=${act.startNew}>${NEW}</button>
      <ul id="conversations" class="choices">${state.conversations.map((one) => html`<li key=${one.conversation_id}>
        <button type="button" aria-current=${one.conversation_id === state.conversation?.conversation_id ? "true" : undefined}
          onClick=${() => act.openConversation(one.conversation_id)}>
          <span class="name">${one.title}</span>${one.blocked && html`<span class="mark">${markOf(one)}</span>`}
        </button>
      </li>`)}</ul>
      ${state.conversations.length === 0 && html`<p class="faint">No conversations yet.</p>`}
      ${state.nextConversations && html`<button class="quiet" type="button" onClick=${act.moreConversations}>Show older ones</button>`}
    </nav>
  </div>`;
}

function markOf({ blocked, active_run: run }) {
  if (run?.execution === "unknown") return "outcome not known yet";
  if (Date.parse(run?.interrupt?.expires_at) <= Date.now()) return "its time is over";
  return { run_active: "being answered", save_pending: "being saved", waiting_for_decision: "waits for you" }[blocked] ?? "needs attention";
}

function Messages({ state, act }) {
  const app = state.apps.find((one) => one.app_id === state.appId);
  const shown = state.entries.slice(state.from, state.from + SHOWN);
  return html`<div id="scroller" class="scroller" tabindex="0" role="region" aria-label="Messages" onScroll=${act.scrolled}>
    ${state.entries.length === 0 && state.opening === "conversation" && html`<p class="faint earlier" role="status">One moment …</p>`}
    ${state.entries.length === 0 && state.opening !== "conversation" && html`<div class="welcome">
      <p class="welcome-name">${app ? app.name : "There is no application that you may use. Ask an operator."}</p>
      ${app?.description && html`<p>${app.description}</p>`}
    </div>`}
    ${(state.from > 0 || state.older) && html`<p class="faint earlier">${state.loadingOlder ? "Loading earlier messages …" : "Scroll up for earlier messages."}</p>`}
    <ol id="transcript" class="transcript">${shown.map((entry) => html`<${Entry} key=${entry.key} entry=${entry} copied=${state.copied === entry.key} act=${act} />`)}</ol>
    ${state.typing && html`<p class="typing" aria-hidden="true"><i></i><i></i><i></i></p>`}
  </div>`;
}

class Entry extends Component {
  shouldComponentUpdate(next) {
    return next.entry !== this.props.entry || next.copied !== this.props.copied;
  }

  render({ entry, copied, act }) {
    if (entry.kind === "tool") {
      const state = entry.status === "returned" ? "tool returned" : entry.live ? "tool live" : "tool";
      return html`<li class=${state} data-key=${entry.key}>Tool <code>${entry.name}</code> <span class="tool-state">${toolState(entry.status)}</span></li>`;
    }
    if (entry.kind === "user") {
      const note = messageState(entry.state);
      return html`<li class=${`message user ${entry.state.replace("_", "-")}`} data-key=${entry.key}>
        <span class="visually-hidden">You: </span><span class="body">${entry.text}</span>${note && html`<span class="state">${note}</span>`}
      </li>`;
    }
    return html`<li class=${entry.live && !entry.complete ? "message assistant live" : "message assistant"} data-key=${entry.key}>
      <span class="visually-hidden">Agent: </span><div class="body">${blocks(entry.text).map(block)}</div>
      ${!entry.complete && !entry.live && html`<span class="cut">This part is incomplete.</span>`}
      ${entry.text && !entry.live && html`<button class="copy quiet" type="button" onClick=${() => act.copy(entry.key, entry.text)}>${copied ? "Copied" : "Copy"}<span class="visually-hidden"> this answer</span></button>`}
    </li>`;
  }
}

function block(one) {
  switch (one.kind) {
    case "code":
      return html`<pre tabindex="0"><code>${one.text}</code></pre>`;
    case "heading":
      return html`<p class="heading">${one.parts.map(inlinePart)}</p>`;
    case "list": {
      const items = one.items.map((parts) => html`<li>${parts.map(inlinePart)}</li>`);
      return one.ordered ? html`<ol>${items}</ol>` : html`<ul>${items}</ul>`;
    }
    default:
      return html`<p>${one.parts.map(inlinePart)}</p>`;
  }
}

function inlinePart(part) {
  switch (part.kind) {
    case "code":
      return html`<code>${part.text}</code>`;
    case "strong":
      return html`<strong>${part.text}</strong>`;
    case "em":
      return html`<em>${part.text}</em>`;
    case "link":
      return html`<a href=${part.href} target="_blank" rel="noopener noreferrer nofollow">${part.text}</a>`;
    default:
      return part.text;
  }
}

function Notice({ notice, act }) {
  return html`<div id="notice" class=${notice.warn ? "notice warn" : "notice"}>
    <p id="notice-text">${notice.text}</p>
    ${notice.steps.length > 0 && html`<div class="actions">
      ${notice.steps.map((step) => html`<button key=${step} class="quiet" type="button" onClick=${() => act.step(step)}>${STEPS[step]}</button>`)}
    </div>`}
  </div>`;
}

/** What has just come is seen, also where the form is longer than the screen. */
const intoView = (node) => node?.scrollIntoView({ block: "nearest" });

function Question({ state: { question, busy, expired, decisionProblem }, act }) {
  const decide = (event) => {
    event.preventDefault();
    act.decide(event.submitter.value, event.currentTarget.elements.comment?.value ?? "");
  };
  return html`<form id="question" class="question" aria-labelledby="question-title" onSubmit=${decide}>
    <h3 id="question-title" tabindex="-1">${question.title}</h3>
    ${question.description && html`<p class="question-text">${question.description}</p>`}
    ${expired
      ? html`<p class="problem" role="alert">The time for this decision is over. Nothing was done; begin a new conversation to ask again.</p>
          <div class="actions"><button class="quiet" type="button" onClick=${() => act.step("new-conversation")}>${NEW}</button></div>`
      : html`${question.expires_at && html`<p class="faint">Open until ${moment(question.expires_at).replace(/^(at|on) /, "")}.</p>`}
          ${question.comment_max_chars > 0 && html`<label class="field">Comment (if you like)
            <textarea name="comment" rows="2" maxlength=${question.comment_max_chars} disabled=${busy}></textarea></label>`}
          ${decisionProblem && html`<p class="problem" role="alert" ref=${intoView}>${decisionProblem}</p>`}
          <div class="actions">
            <button class="primary" type="submit" value="approve" disabled=${busy}>Approve</button>
            <button class="danger" type="submit" value="reject" disabled=${busy}>Reject</button>
          </div>`}
  </form>`;
}

/** The text is the field's own: what somebody types is never written over. */
function Composer({ state, act }) {
  const submit = (event) => {
    event.preventDefault();
    act.send();
  };
  const key = (event) => {
    // isComposing: the Enter that ends a word in an input method sends nothing.
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event);
  };
  return html`<form id="composer" class="composer" aria-busy=${String(state.busy)} onSubmit=${submit}>
      <label class="visually-hidden" for="text">Message</label>
      <textarea id="text" rows="1" maxlength="16000" placeholder="Write a message" aria-describedby="hint" onKeyDown=${key}></textarea>
      <button id="send" class="primary" type="submit" disabled=${!state.canSend}>Send</button>
    </form>
    <p class="below"><span id="hint" class="faint">Enter sends, Shift and Enter makes a new line.</span><span id="quota" class="faint">${quotaLine(state.usage)}</span></p>`;
}

class Modal extends Component {
  componentDidMount() {
    if (this.props.open) this.base.showModal();
  }

  componentDidUpdate() {
    if (this.props.open && !this.base.open) this.base.showModal();
    if (!this.props.open && this.base.open) this.base.close();
  }

  render({ id, title, act, children, onSubmit }) {
    return html`<dialog id=${id} aria-labelledby=${`${id}-title`} onClose=${act.closeDialog}>
      <form onSubmit=${(event) => { event.preventDefault(); onSubmit(event.currentTarget.elements); }}>
        <h2 id=${`${id}-title`}>${title}</h2>
        ${children}
      </form>
    </dialog>`;
  }
}

function Rename({ state, act }) {
  const open = state.dialog === "rename";
  return html`<${Modal} id="rename-dialog" title="Rename conversation" open=${open} act=${act} onSubmit=${(fields) => act.rename(fields.title.value)}>
    <label class="field">Title ${open && html`<input name="title" maxlength="200" required autocomplete="off" defaultValue=${state.conversation?.title ?? ""} />`}</label>
    ${open && state.dialogProblem && html`<p class="problem" role="alert">${state.dialogProblem}</p>`}
    <div class="actions"><button class="quiet" type="button" onClick=${act.closeDialog}>Cancel</button><button class="primary" type="submit">Save</button></div>
  </${Modal}>`;
}

function Delete({ state, act }) {
  const open = state.dialog === "delete";
  return html`<${Modal} id="delete-dialog" title="Delete conversation" open=${open} act=${act} onSubmit=${act.remove}>
    <p>“${state.conversation?.title ?? ""}” will no longer be shown here. What the agent service remembers is not deleted.</p>
    ${open && state.dialogProblem && html`<p class="problem" role="alert">${state.dialogProblem}</p>`}
    <div class="actions"><button class="quiet" type="button" onClick=${act.closeDialog}>Keep it</button><button class="danger" type="submit">Delete</button></div>
  </${Modal}>`;
}
