// The chat page: its one state, what the buttons do, and what runs do to it. The protocol is in gateway-client.js, what is shown in views.js,
// the words in words.js, what was said in transcript.js.
import { COPIED, copyText } from "./copying.js";
import { GatewayClient, Outbox, ProblemError, Unreachable, isUnderWay } from "./gateway-client.js";
import { html, render } from "./preact-htm.js";
import { Transcript } from "./transcript.js";
import { NEW, Page, SHOWN } from "./views.js";
import { CONNECTION, blockedNotice, problemNotice, runNotice } from "./words.js";

const $ = (id) => document.getElementById(id);
const client = new GatewayClient();
const transcript = new Transcript();
const messages = new Outbox(sessionStorage, "gateway.unanswered");
const decisions = new Outbox(sessionStorage, "gateway.undecided");
/** Tabs of one browser tell each other that a conversation changed. */
const tabs = new BroadcastChannel("gateway.conversations");
const STEP = 40;
const NEAR = 400;

const state = {
  screen: "starting",
  demo: document.documentElement.dataset.demo === "on",
  users: [],
  signInProblem: "",
  me: null,
  apps: [],
  appId: null,
  conversations: [],
  nextConversations: null,
  conversation: null,
  run: null,
  usage: null,
  /** What is shown of the transcript begins here. */
  from: 0,
  older: null,
  loadingOlder: false,
  /** What is being opened: "app", "conversation" or nothing. */
  opening: null,
  busy: false,
  typing: false,
  notice: null,
  question: null,
  expired: false,
  decisionProblem: "",
  dialog: null,
  dialogProblem: "",
  sideOpen: false,
  copied: null,
  get entries() {
    return transcript.entries;
  },
  get canSend() {
    return this.appId !== null && !this.busy && !this.opening && !this.question && !this.conversation?.blocked;
  },
};
let leaving = new AbortController();
let drawing = 0;
let listsAsked = 0;
let expiry = 0;

// ---- showing -------------------------------------------------------------------------------------------------------------------------

/** Show the state now. Whoever reads at the end stays at the end; whoever reads further up keeps their place. */
function draw() {
  clearTimeout(drawing);
  drawing = 0;
  const before = $("scroller");
  const atEnd = !before || (before.scrollHeight - before.scrollTop - before.clientHeight < 80 && state.from + SHOWN >= transcript.entries.length);
  if (atEnd) state.from = Math.max(0, transcript.entries.length - SHOWN);
  const anchor = before && !atEnd ? anchorOf(before) : null;
  render(html`<${Page} state=${state} act=${act} />`, $("page"));
  const scroller = $("scroller");
  if (!scroller) return;
  if (atEnd) scroller.scrollTop = scroller.scrollHeight;
  else if (anchor) {
    const kept = scroller.querySelector(`[data-key="${anchor.key}"]`);
    if (kept) scroller.scrollTop += kept.getBoundingClientRect().top - anchor.top;
  }
}

/** Show the state soon: pieces of an answer come faster than anybody reads. */
function drawSoon() {
  drawing ||= setTimeout(draw, 30);
}

function anchorOf(scroller) {
  const top = scroller.getBoundingClientRect().top;
  for (const node of $("transcript").children) {
    const box = node.getBoundingClientRect();
    if (box.bottom > top) return { key: node.dataset.key, top: box.top };
  }
  return null;
}

/** Said by screen readers when they are free; the pieces of an answer are not. */
function announce(text) {
  $("announcer").textContent = text;
}

/** A button that is gone with what it did leaves its focus nowhere: on to the message, or, where that opens a keyboard, to the title. */
function keepFocus() {
  if (document.activeElement === document.body) $(matchMedia("(pointer: coarse)").matches ? "title" : "text")?.focus();
}

function say(notice) {
  state.notice = notice;
  if (notice?.warn) announce(notice.text);
}

const plain = (text, warn = true, steps = []) => ({ text, warn, steps });

// ---- starting ------------------------------------------------------------------------------------------------------------------------

async function start() {
  draw();
  tabs.addEventListener("message", ({ data }) => data === state.conversation?.conversation_id && lookAgain());
  document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && lookAgain());
  if (document.documentElement.dataset.session !== "on") return showSignIn();
  try {
    await enter();
  } catch (error) {
    await showSignIn(error instanceof ProblemError && error.problem.code === "unauthenticated" ? "" : textOf(error));
  }
}

async function enter() {
  [state.me, state.apps] = await Promise.all([client.me(), client.apps()]);
  const place = placeOfAddress();
  const available = state.apps.filter((one) => one.available);
  // Who comes without an address talks: an application that asks for approval is for one task, and is chosen for it.
  const app = state.apps.find((one) => one.app_id === place.appId) ?? available.find((one) => !one.human_input) ?? available[0] ?? state.apps[0];
  state.screen = "chat";
  if (!app) return draw();
  await open(app.app_id, app.app_id === place.appId ? place.conversationId : null);
  await sendPending();
}

async function showSignIn(problem = "") {
  leave();
  Object.assign(state, { screen: "sign-in", signInProblem: problem, dialog: null, appId: null });
  draw();
  if (!state.demo) return;
  try {
    state.users = (await client.json("GET", "/demo/users")).users;
  } catch (error) {
    state.signInProblem = textOf(error);
  }
  draw();
}

// ---- places: an application, a conversation --------------------------------------------------------------------------------------------

function placeOfAddress() {
  const [, appId = null, , conversationId = null] = /^#app\/([0-9a-f-]{36})(\/c\/([0-9a-f-]{36}))?$/.exec(location.hash) ?? [];
  return { appId, conversationId };
}

function remember() {
  const place = state.conversation ? `#app/${state.appId}/c/${state.conversation.conversation_id}` : `#app/${state.appId}`;
  if (location.hash !== place) history.replaceState(null, "", place);
  document.title = `${state.conversation?.title ?? NEW} · Agents`;
}

/** Stop watching. The run goes on; its answer is kept. */
function leave() {
  leaving.abort();
  leaving = new AbortController();
  Object.assign(state, { busy: false, typing: false, run: null, opening: null });
  ask(null);
}

/** An application, and a conversation or none. Nothing can be sent until it is open: what opens late would wipe the message off. */
async function open(appId, conversationId) {
  leave();
  const { signal } = leaving;
  Object.assign(state, { appId, conversations: [], nextConversations: null, usage: null, opening: conversationId ? "conversation" : "app" });
  if (!conversationId) blank();
  draw();
  await Promise.all([loadConversations(), loadUsage(), conversationId ? openConversation(conversationId) : null]);
  // Whoever has gone on to another place meanwhile is opening that one.
  if (!conversationId && !signal.aborted) {
    state.opening = null;
    say(appNotice());
  }
  draw();
}

async function loadConversations({ more = false } = {}) {
  const { appId } = state;
  const turn = ++listsAsked;
  try {
    const page = await client.conversations(appId, more ? state.nextConversations : null);
    if (appId !== state.appId || turn !== listsAsked) return;
    state.conversations = more ? [...state.conversations, ...page.conversations] : page.conversations;
    state.nextConversations = page.next;
  } catch (error) {
    fault(error);
  }
}

async function loadUsage() {
  const { appId } = state;
  const usage = await client.usage(appId).catch(() => null); // what is left is told beside: the page works without
  if (appId === state.appId) state.usage = usage;
}

/** Nothing is open. */
function blank() {
  transcript.clear();
  Object.assign(state, { conversation: null, from: 0, older: null, notice: null });
  remember();
}

function appNotice() {
  const app = state.apps.find((one) => one.app_id === state.appId);
  return app && !app.available ? plain("This application is not available at the moment. Its conversations stay readable.") : null;
}

async function openConversation(conversationId, { focus = false, last = null } = {}) {
  leave();
  const { signal } = leaving;
  // Looked at again, a conversation keeps what is on the screen: an answer that is not saved is nowhere else.
  if (state.conversation?.conversation_id !== conversationId) blank();
  Object.assign(state, { opening: "conversation", notice: null });
  draw();
  try {
    const [conversation, page] = await Promise.all([
      client.conversation(state.appId, conversationId),
      client.items(state.appId, conversationId, { signal }),
    ]);
    if (signal.aborted) return;
    if (transcript.entries.length === 0) state.older = page.next;
    transcript.latest(page.items);
    Object.assign(state, { conversation, opening: null, from: Math.max(0, transcript.entries.length - SHOWN) });
    remember();
    draw();
    $("scroller").scrollTop = $("scroller").scrollHeight;
    if (focus) $("title").focus();
    const active = conversation.active_run;
    if (active && isUnderWay(active)) return void follow(client.watch(state.appId, active.run_id, signal), signal);
    settled(active ?? last);
  } catch (error) {
    if (signal.aborted) return;
    state.opening = null;
    if (error instanceof ProblemError && error.problem.code === "not_found") {
      blank();
      say(plain("That conversation is not there, or is not yours."));
    } else {
      fault(error);
    }
  }
  draw();
}

/** Another tab sent something, or this one was away: pick up what is under way, keep what is shown. */
async function lookAgain() {
  const { conversation, busy, opening, screen } = state;
  if (screen === "chat" && conversation && !busy && !opening) await openConversation(conversation.conversation_id);
}

async function loadOlder() {
  if (!state.older || state.loadingOlder) return;
  const { signal } = leaving;
  state.loadingOlder = true;
  draw();
  try {
    const page = await client.items(state.appId, state.conversation.conversation_id, { cursor: state.older, signal });
    state.older = page.next;
    state.from = Math.max(0, state.from + transcript.older(page.items) - STEP);
  } catch (error) {
    if (!signal.aborted) fault(error);
  }
  state.loadingOlder = false;
  draw();
}

function scrolled() {
  const { scrollTop, scrollHeight, clientHeight } = $("scroller");
  const last = transcript.entries.length - SHOWN;
  if (scrollTop < NEAR && state.from > 0) state.from = Math.max(0, state.from - STEP);
  else if (scrollTop < NEAR && state.older) return void loadOlder();
  else if (scrollHeight - scrollTop - clientHeight < NEAR && state.from < last) state.from = Math.min(last, state.from + STEP);
  else return;
  draw();
}

// ---- sending and watching --------------------------------------------------------------------------------------------------------------

async function send(text) {
  if (!text.trim() || !state.canSend) return;
  $("text").value = "";
  await submit(messages.put({ subject: state.me.subject, appId: state.appId, conversationId: state.conversation?.conversation_id ?? null, text }));
}

/** After a reload: a message that was never answered is sent again under its id. If it had arrived, this joins its run. */
async function sendPending() {
  const { pending } = messages;
  if (!pending) return;
  // One person's unanswered message is never sent as another's who signs in here later.
  if (pending.subject !== state.me.subject || !state.apps.some((app) => app.app_id === pending.appId)) return messages.drop();
  if (pending.appId !== state.appId || pending.conversationId !== (state.conversation?.conversation_id ?? null)) {
    await open(pending.appId, pending.conversationId);
  }
  if (!state.busy) await submit(pending);
}

async function submit(message) {
  leave();
  const { signal } = leaving;
  transcript.put({ key: `pending:${message.submissionId}`, kind: "user", text: message.text });
  Object.assign(state, { notice: null, from: Math.max(0, transcript.entries.length - SHOWN) });
  announce("Message sent.");
  draw();
  $("scroller").scrollTop = $("scroller").scrollHeight;
  await follow(client.submit(state.appId, message, signal), signal, { message });
}

async function decide(decision, comment) {
  if (state.busy || !state.question) return;
  const { run_id: runId, interrupt_id: interruptId } = state.question;
  const made = decisions.put({ appId: state.appId, runId, interruptId, decision, ...(comment.trim() && { comment }) });
  const { signal } = leaving;
  state.decisionProblem = "";
  announce(decision === "approve" ? "Approved." : "Rejected.");
  await follow(client.decide(state.appId, made, signal), signal, { decision: made });
  keepFocus();
}

/** Show what a run says until it ends. `sent`: the message or the decision that made it, when it was sent just now. */
async function follow(events, signal, sent = {}) {
  Object.assign(state, { busy: true, typing: true });
  draw();
  try {
    for await (const event of events) {
      if (signal.aborted) return;
      await happened(event, sent, signal);
      drawSoon();
    }
  } catch (error) {
    if (!signal.aborted) fault(error);
  }
  if (signal.aborted) return;
  Object.assign(state, { busy: false, typing: false });
  transcript.settle();
  draw();
}

async function happened(event, sent, signal) {
  switch (event.type) {
    case "run":
      return heard(event.run, sent);
    case "text":
      return transcript.put({ key: event.itemId, kind: "assistant", text: event.text, complete: event.complete, live: true });
    case "tool":
      return transcript.put({ key: event.itemId, kind: "tool", name: event.name, status: event.status, live: true });
    case "items":
      return transcript.latest(event.items);
    case "connection":
      if (event.state === "retrying") say(plain(CONNECTION.retrying));
      else if (event.state === "open") say(state.run ? runNotice(state.run) : null);
      else if (event.state === "polling") state.typing = false;
      return;
    case "problem":
      return refused(event.problem, sent);
    case "unanswered":
      if (sent.message) giveBack(sent.message);
      return say(plain(CONNECTION.unanswered, true, ["send-again"]));
    case "end":
      return ended(event.run, event.settled, signal);
    default:
  }
}

function heard(run, { message, decision }) {
  const first = state.run?.run_id !== run.run_id;
  const marked = !first && stageOf(state.run) === stageOf(run);
  state.run = run;
  if (message) {
    // Answered: from here on the run speaks for the message.
    transcript.rekey(`pending:${message.submissionId}`, `user:${run.run_id}`);
    messages.drop(message.submissionId);
  }
  if (decision) {
    decisions.drop(decision.submissionId);
    ask(null);
  }
  if (!state.conversation) {
    const title = (message?.text ?? NEW).trim().split(/\s+/).join(" ").slice(0, 60);
    state.conversation = { conversation_id: run.conversation_id, title, active_run: run, blocked: "run_active" };
    remember();
  }
  if (first) tabs.postMessage(run.conversation_id);
  if (!marked) loadConversations().then(drawSoon);
  say(runNotice(run));
}

/** What the list of conversations says of a run that is under way. */
function stageOf(run) {
  return run.execution === "unknown" || run.persistence === "pending" ? `${run.execution} ${run.persistence}` : "";
}

/** The run is over, or looking at it is. Items as they were saved come over what was seen; nothing that was seen is lost. */
async function ended(run, isSettled, signal) {
  transcript.settle();
  state.typing = false;
  if (!isSettled) return say(plain(CONNECTION.unsettled, true, ["refresh"]));
  announce(run?.execution === "succeeded" ? "The answer is complete." : "The task has ended. See the notice above the message field.");
  try {
    const [conversation, page] = await Promise.all([
      client.conversation(state.appId, run.conversation_id),
      client.items(state.appId, run.conversation_id, { signal }),
      loadConversations(),
      loadUsage(),
    ]);
    if (signal.aborted) return;
    state.conversation = conversation;
    transcript.latest(page.items);
    remember();
    settled(run);
  } catch (error) {
    if (!signal.aborted) settled(run, error);
  }
}

/** Whether there can be a next message, and what is to be said about the last run. */
function settled(run, error = null) {
  state.run = run;
  const blocked = state.conversation?.blocked ?? null;
  const waiting = state.conversation?.active_run?.execution === "waiting" ? state.conversation.active_run : run;
  ask(waiting?.execution === "waiting" && !waiting.answered_by ? waiting.interrupt : null);
  // An incomplete answer that was accepted is nothing to speak of any more.
  const accepted = run?.execution === "succeeded" && run.persistence === "incomplete" && blocked !== "incomplete_answer";
  const last = run && !accepted ? runNotice(run) : null;
  if (error) say(plain(textOf(error), true, ["check-again"]));
  else if (state.question) say(null);
  else say(blocked && !last?.warn ? blockedNotice(blocked) : last ?? appNotice());
}

/** Show a question, and notice when its time is over. */
function ask(question) {
  clearTimeout(expiry);
  const left = question?.expires_at ? Date.parse(question.expires_at) - Date.now() : Infinity;
  if (question && state.question?.interrupt_id !== question.interrupt_id) announce(`A decision is asked of you: ${question.title}`);
  Object.assign(state, { question, expired: left <= 0, decisionProblem: "" });
  if (left > 0 && left < 2 ** 31) {
    expiry = setTimeout(() => {
      state.expired = true;
      announce("The time for this decision is over.");
      draw();
    }, left);
  }
}

function refused(problem, { message, decision }) {
  // After a 5xx it is not known what became of it: the id is kept, and sending again is safe. All else is an answer.
  const answered = problem.status < 500 && problem.retry !== "same-submission";
  if (message) {
    giveBack(message);
    if (answered) messages.drop(message.submissionId);
  }
  if (decision) {
    if (answered) decisions.drop(decision.submissionId);
    if (problem.code === "interrupt_expired") state.expired = true;
    else state.decisionProblem = problemNotice(problem).text;
    if (problem.code === "interrupt_not_pending") setTimeout(lookAgain);
    return announce(state.decisionProblem || problem.detail);
  }
  state.run = problem.run_id ? { run_id: problem.run_id } : null;
  say(problemNotice(problem));
}

/** The message goes back to its field, to be changed or sent again. */
function giveBack(message) {
  transcript.remove(`pending:${message.submissionId}`);
  if (!$("text").value) $("text").value = message.text;
}

// ---- what the notices offer ------------------------------------------------------------------------------------------------------------

const steps = {
  "new-conversation": () => act.startNew(),
  "check-again": () => (state.conversation ? openAgain(state.conversation.conversation_id) : act.startNew()),
  refresh: () => withRun((run) => client.refresh(state.appId, run.run_id)),
  acknowledge: () => withRun((run) => client.acknowledge(state.appId, run.run_id)),
  "send-again": () => send($("text").value),
  "send-as-new": () => send(transcript.entries.findLast((entry) => entry.kind === "user")?.text ?? ""),
  "show-run": showBlockingRun,
  "sign-in": () => showSignIn(),
};

/** Look at a conversation once more, and at what the list says of it. */
function openAgain(conversationId, options) {
  return Promise.all([openConversation(conversationId, options), loadConversations()]);
}

/** Do something about the run, then look at its conversation again. */
async function withRun(act) {
  const run = state.run ?? state.conversation?.active_run;
  if (!run) return steps["check-again"]();
  try {
    const last = await act(run);
    await openAgain(run.conversation_id, { last });
    keepFocus();
  } catch (error) {
    fault(error);
    draw();
  }
}

async function showBlockingRun() {
  try {
    const run = await client.run(state.appId, state.run.run_id);
    await openConversation(run.conversation_id, { focus: true });
  } catch (error) {
    if (error instanceof ProblemError && error.problem.code === "not_found") {
      say(plain("That task belongs to another application. Choose it in the menu to see it."));
    } else {
      fault(error);
    }
    draw();
  }
}

function fault(error) {
  if (error instanceof ProblemError && error.problem.code === "unauthenticated") return showSignIn("Your session is over. Sign in again.");
  say(plain(textOf(error), true, state.conversation ? ["check-again"] : []));
}

function textOf(error) {
  if (error instanceof ProblemError) return error.problem.detail;
  return error instanceof Unreachable ? "The gateway cannot be reached. Check the connection and try again." : "This page met an unexpected fault. Reload it.";
}

// ---- what the buttons do ---------------------------------------------------------------------------------------------------------------

const act = {
  scrolled,
  decide,
  send: () => send($("text").value),
  step: (step) => steps[step](),
  skip(event) {
    event.preventDefault();
    $("text")?.focus();
  },
  async signIn(subject) {
    try {
      await client.json("POST", "/demo/session", { subject });
      await enter();
      $("text")?.focus();
    } catch (error) {
      state.signInProblem = textOf(error);
      draw();
    }
  },
  async signOut() {
    leave();
    messages.drop();
    decisions.drop();
    blank();
    history.replaceState(null, "", "#"); // whoever comes next begins at their own place
    await client.json("DELETE", "/demo/session").catch(() => null);
    await showSignIn();
  },
  toggleSide() {
    state.sideOpen = !state.sideOpen;
    draw();
  },
  async chooseApp(appId) {
    state.sideOpen = false;
    await open(appId, null);
    $("text").focus();
  },
  startNew() {
    leave();
    blank();
    Object.assign(state, { sideOpen: false });
    say(appNotice());
    draw();
    $("text").focus();
  },
  async openConversation(conversationId) {
    state.sideOpen = false;
    await openConversation(conversationId, { focus: true });
  },
  async moreConversations() {
    await loadConversations({ more: true });
    draw();
  },
  async copy(key, text) {
    const said = await copyText(text, document.querySelector(`[data-key="${key}"] .body`));
    if (said === COPIED) state.copied = key;
    announce(said);
    draw();
  },
  openDialog(dialog) {
    Object.assign(state, { dialog, dialogProblem: "" });
    draw();
  },
  closeDialog() {
    state.dialog = null;
    draw();
  },
  async rename(title) {
    try {
      const renamed = await client.rename(state.appId, state.conversation.conversation_id, title);
      state.conversation = { ...state.conversation, title: renamed.title };
      state.conversations = state.conversations.map((one) => (one.conversation_id === renamed.conversation_id ? renamed : one));
      state.dialog = null;
      remember();
    } catch (error) {
      state.dialogProblem = error instanceof ProblemError && error.problem.code === "text_too_long" ? "A title has at most 200 characters." : textOf(error);
    }
    draw();
  },
  async remove() {
    try {
      const receipt = await client.remove(state.appId, state.conversation.conversation_id);
      state.dialog = null;
      act.startNew();
      await loadConversations();
      const kept = receipt.not_deleted.map((part) => part.detail).join(" ");
      say(plain(`Deleted. ${kept}${receipt.active_run_id ? " The task that was running goes on." : ""}`, false));
      announce("Conversation deleted.");
    } catch (error) {
      state.dialogProblem = textOf(error);
    }
    draw();
  },
};

await start();
