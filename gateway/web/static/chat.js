// The chat page: what is shown and what the buttons do. The protocol is in gateway-client.js, the words in words.js, the list of
// messages in transcript.js. One file although it is long: all of it turns on the one `state` below.
import { GatewayClient, ProblemError, Unreachable, isUnderWay, newSubmissionId } from "./gateway-client.js";
import { Transcript, element } from "./transcript.js";
import { CONNECTION, STEPS, blockedNotice, problemNotice, runNotice } from "./words.js";

const $ = (id) => document.getElementById(id);
const client = new GatewayClient();
const transcript = new Transcript($("transcript"), $("scroller"));
const demo = document.documentElement.dataset.demo === "on";
const PENDING = "gateway.pending";
const NEW = "New conversation";

const state = {
  apps: [],
  appId: /** @type {string|null} */ (null),
  conversations: [],
  cursor: null,
  conversation: null,
  run: null,
  /** The message that has no answer of the gateway yet: {appId, submissionId, text, conversationId}. */
  subject: null,
  pending: null,
  busy: false,
  leaving: new AbortController(),
};

// ---- starting ----------------------------------------------------------------------------------------------------------------------

start();

async function start() {
  wire();
  if (document.documentElement.dataset.session !== "on") return showSignIn();
  try {
    await enter(await client.me());
  } catch (error) {
    if (error instanceof ProblemError && error.problem.code === "unauthenticated") return showSignIn();
    showSignIn(textOf(error));
  }
}

async function enter(me) {
  state.subject = me.subject;
  $("who").textContent = me.subject;
  state.apps = await client.apps();
  composable(false);
  for (const id of ["who", "workspace", "toggle"]) $(id).hidden = false;
  $("sign-out").hidden = !demo;
  $("sign-in").hidden = true;
  const options = state.apps.map((app) => {
    const option = element("option", "", app.available ? app.name : `${app.name} (not available)`);
    option.value = app.app_id;
    return option;
  });
  $("app").replaceChildren(...options);
  $("app-field").hidden = state.apps.length === 0;
  const place = placeOfAddress();
  const first = state.apps.find((app) => app.app_id === place.appId) ?? state.apps.find((app) => app.available) ?? state.apps[0];
  if (!first) {
    $("welcome").textContent = "There is no application that you may use. Ask an operator.";
    composable(false);
    return;
  }
  await chooseApp(first.app_id, first.app_id === place.appId ? place.conversationId : null);
  await resumePending();
}

async function showSignIn(problem = "") {
  leave();
  for (const id of ["workspace", "who", "toggle", "sign-out", "app-field"]) $(id).hidden = true;
  $("sign-in").hidden = false;
  say($("sign-in-problem"), problem);
  if (!demo) {
    $("sign-in-text").textContent = "You are not signed in. Sign in through your web application, then load this page again.";
    return;
  }
  $("sign-in-text").textContent = "This is a demonstration. Choose who you want to be; nothing leaves this machine.";
  $("sign-in-form").hidden = false;
  try {
    const { users } = await client.json("GET", "/demo/users");
    $("users").replaceChildren(
      ...users.map((user) => {
        const button = element("button");
        button.type = "submit";
        button.value = user.subject;
        button.append(element("strong", "", user.subject), element("span", "faint", user.about));
        const entry = element("li");
        entry.append(button);
        return entry;
      }),
    );
  } catch (error) {
    say($("sign-in-problem"), textOf(error));
  }
}

async function signIn(subject) {
  say($("sign-in-problem"), "");
  try {
    await client.json("POST", "/demo/session", { subject });
    await enter(await client.me());
    $("text").focus();
  } catch (error) {
    say($("sign-in-problem"), textOf(error));
  }
}

async function signOut() {
  leave();
  sessionStorage.removeItem(PENDING);
  state.pending = null;
  history.replaceState(null, "", "#");
  try {
    await client.json("DELETE", "/demo/session");
  } finally {
    await showSignIn();
  }
}

// ---- places: an application, a conversation ------------------------------------------------------------------------------------------

function placeOfAddress() {
  const [, appId = null, , conversationId = null] = /^#app\/([0-9a-f-]{36})(\/c\/([0-9a-f-]{36}))?$/.exec(location.hash) ?? [];
  return { appId, conversationId };
}

function remember() {
  const place = state.conversation ? `#app/${state.appId}/c/${state.conversation.conversation_id}` : `#app/${state.appId}`;
  if (location.hash !== place) history.replaceState(null, "", place);
}

/** Stop watching. The run goes on; its answer is kept. */
function leave() {
  state.leaving.abort();
  state.leaving = new AbortController();
  state.busy = false;
  state.run = null;
}

async function chooseApp(appId, conversationId) {
  // Nothing can be sent until the place is open: what opens late would wipe the message off the screen and stop watching its run.
  leave();
  composable(false);
  state.appId = appId;
  $("app").value = appId;
  state.conversations = [];
  state.cursor = null;
  await loadConversations();
  if (conversationId) await openConversation(conversationId);
  else startNew();
}

async function loadConversations({ more = false } = {}) {
  try {
    const page = await client.conversations(state.appId, more ? state.cursor : null);
    state.conversations = more ? [...state.conversations, ...page.conversations] : page.conversations;
    state.cursor = page.next;
    listConversations();
  } catch (error) {
    showFault(error);
  }
}

function listConversations() {
  const current = state.conversation?.conversation_id;
  $("conversations").replaceChildren(
    ...state.conversations.map((conversation) => {
      const button = element("button");
      button.type = "button";
      button.append(element("span", "name", conversation.title));
      button.dataset.id = conversation.conversation_id;
      if (conversation.conversation_id === current) button.setAttribute("aria-current", "true");
      if (conversation.blocked) button.append(element("span", "mark", markOf(conversation)));
      const entry = element("li");
      entry.append(button);
      return entry;
    }),
  );
  $("no-conversations").hidden = state.conversations.length > 0;
  $("more").hidden = !state.cursor;
}

function markOf({ blocked, active_run: run }) {
  if (run?.execution === "unknown") return "outcome not known yet";
  return { run_active: "being answered", save_pending: "being saved", waiting_for_decision: "waits for you" }[blocked] ?? "needs attention";
}

function startNew() {
  leave();
  state.conversation = null;
  transcript.clear();
  showConversation();
  composable(true);
  showNotice(appNotice());
  remember();
}

function appNotice() {
  const app = state.apps.find((one) => one.app_id === state.appId);
  return app && !app.available ? { text: "This application is not available at the moment. Its conversations stay readable.", warn: true, steps: [] } : null;
}

async function openConversation(conversationId, { refocus = false } = {}) {
  leave();
  const { signal } = state.leaving;
  // Looked at again, a conversation keeps what is on the screen: an answer that is not saved is nowhere else.
  if (state.conversation?.conversation_id !== conversationId) transcript.clear();
  showNotice(null);
  composable(false);
  try {
    state.conversation = await client.conversation(state.appId, conversationId);
    showConversation();
    remember();
    for await (const items of client.items(state.appId, conversationId, signal)) items.forEach((item) => transcript.item(item));
    transcript.scrollToEnd();
    showConversation();
    if (refocus) $("title").focus();
    const active = state.conversation.active_run;
    if (active && isUnderWay(active)) await followRun(client.watch(state.appId, active.run_id, signal), signal);
    else settled(active);
  } catch (error) {
    if (signal.aborted) return;
    if (error instanceof ProblemError && error.problem.code === "not_found") {
      startNew();
      showNotice({ text: "That conversation is not there, or is not yours.", warn: true, steps: [] });
    } else {
      showFault(error);
    }
  }
}

function showConversation() {
  $("title").textContent = state.conversation?.title ?? NEW;
  $("actions").hidden = !state.conversation;
  $("welcome").hidden = !transcript.empty;
  const app = state.apps.find((one) => one.app_id === state.appId);
  $("welcome").textContent = app ? [app.name, app.description].filter(Boolean).join(": ") : "";
  document.title = `${state.conversation?.title ?? NEW} · Agents`;
  listConversations();
}

// ---- sending and watching ------------------------------------------------------------------------------------------------------------

async function send(text) {
  if (!text.trim() || state.busy) return;
  const conversationId = state.conversation?.conversation_id ?? null;
  const earlier = state.pending;
  // The same message, still unanswered, keeps its id; any other one gets its own, made once.
  const same = earlier && earlier.text === text && earlier.appId === state.appId && earlier.conversationId === conversationId;
  keepPending(same ? earlier : { subject: state.subject, appId: state.appId, submissionId: newSubmissionId(), text, conversationId });
  $("text").value = "";
  await submitPending();
}

/** After a reload: a message that was never answered is sent again under its id. If it had arrived, this joins its run. */
async function resumePending() {
  try {
    state.pending = JSON.parse(sessionStorage.getItem(PENDING) ?? "null");
  } catch {
    state.pending = null;
  }
  // One person's unanswered message is never sent as another's who signs in here later.
  if (state.pending && state.pending.subject !== state.subject) keepPending(null);
  if (!state.pending) return;
  const { appId, conversationId } = state.pending;
  if (!state.apps.some((app) => app.app_id === appId)) return keepPending(null);
  if (appId !== state.appId || conversationId !== (state.conversation?.conversation_id ?? null)) await chooseApp(appId, conversationId);
  if (!state.busy) await submitPending();
}

function keepPending(pending) {
  state.pending = pending;
  if (pending) sessionStorage.setItem(PENDING, JSON.stringify(pending));
  else sessionStorage.removeItem(PENDING);
}

async function submitPending() {
  const submission = state.pending;
  const key = `pending:${submission.submissionId}`;
  transcript.user(key, submission.text, "");
  $("welcome").hidden = true;
  transcript.scrollToEnd();
  announce("Message sent.");
  leave();
  const { signal } = state.leaving;
  await followRun(client.submit(state.appId, submission, signal), signal, submission);
}

/** Show what a run says until it ends. `submission`: the message that made it, when it was sent just now. */
async function followRun(events, signal, submission = null) {
  state.busy = true;
  composable(false);
  let ended = false;
  try {
    for await (const event of events) {
      if (signal.aborted) return;
      ended ||= ["end", "problem", "unanswered"].includes(event.type);
      await show(event, submission, signal);
    }
  } catch (error) {
    if (signal.aborted) return;
    showFault(error);
  } finally {
    if (!signal.aborted) {
      state.busy = false;
      transcript.settle();
      if (!ended) composable(true);
    }
  }
}

async function show(event, submission, signal) {
  switch (event.type) {
    case "run":
      return showRun(event.run, submission);
    case "text":
      return transcript.assistant(event.itemId, event.text, event.complete, true);
    case "tool":
      return transcript.tool(event.itemId, event.name, event.status, true);
    case "items":
      return event.items.forEach((item) => transcript.item(item));
    case "connection":
      if (event.state === "retrying") showNotice({ text: CONNECTION.retrying, warn: true, steps: [] });
      else if (event.state === "polling") transcript.settle();
      else if (event.state === "open") showNotice(state.run ? runNotice(state.run) : null);
      return;
    case "problem":
      return showProblem(event.problem, submission);
    case "unanswered":
      returnText(submission);
      return showNotice({ text: CONNECTION.unanswered, warn: true, steps: ["send-again"] });
    case "end":
      return finish(event.run, event.settled, signal);
    default:
  }
}

function showRun(run, submission) {
  const first = state.run?.run_id !== run.run_id;
  state.run = run;
  if (submission) {
    // Answered: from here on the run speaks for the message.
    transcript.rekey(`pending:${submission.submissionId}`, `user:${run.run_id}`);
    if (state.pending?.submissionId === submission.submissionId) keepPending(null);
  }
  if (!state.conversation) {
    state.conversation = { conversation_id: run.conversation_id, title: titleOf(submission?.text ?? NEW), active_run: run, blocked: "run_active" };
    remember();
    showConversation();
  }
  if (first) loadConversations();
  showNotice(runNotice(run));
}

function titleOf(text) {
  const line = text.trim().split(/\s+/).join(" ");
  return line.length > 60 ? `${line.slice(0, 59)}…` : line;
}

/** The run is over, or looking at it is. Items as they were saved come over what was seen; nothing that was seen is lost. */
async function finish(run, isSettled, signal) {
  transcript.settle();
  if (!isSettled) {
    showNotice({ text: CONNECTION.unsettled, warn: true, steps: ["check-again"] });
    return composable(false);
  }
  announce(run?.execution === "succeeded" ? "The answer is complete." : "The task has ended. See the notice above the message field.");
  try {
    state.conversation = await client.conversation(state.appId, run.conversation_id);
    for await (const items of client.items(state.appId, run.conversation_id, signal)) items.forEach((item) => transcript.item(item));
    await loadConversations();
    showConversation();
  } catch (error) {
    if (signal.aborted) return;
    if (!(error instanceof Unreachable)) showFault(error);
  }
  settled(run);
}

/** Whether there can be a next message, and what is to be said about the last run. */
function settled(run) {
  state.run = run;
  const blocked = state.conversation?.blocked ?? null;
  composable(blocked === null);
  const last = run ? runNotice(run) : null;
  showNotice(blocked && !(last && last.warn) ? blockedNotice(blocked) : last ?? appNotice());
}

function showProblem(problem, submission) {
  if (submission) returnText(submission);
  // A refusal is an answer: a reload does not send again. After a 5xx that is not known.
  if (problem.status < 500) sessionStorage.removeItem(PENDING);
  // What has to be changed gets a new id with its next sending; all else may be sent again as it is.
  if (problem.retry === "never" || problem.retry === "new-submission") keepPending(null);
  state.run = problem.run_id ? { run_id: problem.run_id } : null;
  composable(!["conversation_blocked", "binding_invalidated", "task_already_done", "account_inactive"].includes(problem.code));
  showNotice(problemNotice(problem));
}

function returnText(submission) {
  transcript.remove(`pending:${submission.submissionId}`);
  if (!$("text").value) $("text").value = submission.text;
  $("welcome").hidden = !transcript.empty;
  composable(true);
}

const steps = {
  "new-conversation": () => startNew(),
  "check-again": () => (state.conversation ? openConversation(state.conversation.conversation_id) : startNew()),
  "send-again": () => (state.pending ? send(state.pending.text) : send($("text").value)),
  "send-as-new": () => sendLastAgain(),
  "show-run": () => showBlockingRun(),
  "sign-in": () => showSignIn(),
};

function sendLastAgain() {
  const users = [...$("transcript").querySelectorAll(".user .body")];
  const last = users.at(-1);
  if (last) send(last.textContent);
}

async function showBlockingRun() {
  try {
    const run = await client.run(state.appId, state.run.run_id);
    await openConversation(run.conversation_id, { refocus: true });
  } catch (error) {
    if (error instanceof ProblemError && error.problem.code === "not_found") {
      showNotice({ text: "That task belongs to another application. Choose it above to see it.", warn: true, steps: [] });
    } else {
      showFault(error);
    }
  }
}

// ---- small things --------------------------------------------------------------------------------------------------------------------

function showFault(error) {
  if (error instanceof ProblemError && error.problem.code === "unauthenticated") return showSignIn("Your session is over. Sign in again.");
  composable(true);
  showNotice({ text: textOf(error), warn: true, steps: state.conversation ? ["check-again"] : [] });
}

function textOf(error) {
  if (error instanceof ProblemError) return error.problem.detail;
  return error instanceof Unreachable ? "The gateway cannot be reached. Check the connection and try again." : "This page met an unexpected fault. Reload it.";
}

function showNotice(shown) {
  $("notice").hidden = !shown;
  $("notice-text").textContent = shown?.text ?? "";
  $("notice").classList.toggle("warn", shown?.warn ?? false);
  $("notice-actions").replaceChildren(
    ...(shown?.steps ?? []).map((step) => {
      const button = element("button", "quiet", STEPS[step]);
      button.type = "button";
      button.addEventListener("click", () => steps[step]());
      return button;
    }),
  );
  if (shown?.warn) announce(shown.text);
}

function composable(on) {
  $("send").disabled = !on;
  $("composer").setAttribute("aria-busy", String(state.busy));
}

/** Said by screen readers when they are free; tokens of an answer are not. */
function announce(text) {
  $("announcer").textContent = text;
}

function say(node, text) {
  node.hidden = !text;
  node.textContent = text;
}

function openSide(open) {
  $("workspace").classList.toggle("side-open", open);
  $("toggle").setAttribute("aria-expanded", String(open));
}

async function renameConversation() {
  try {
    const renamed = await client.rename(state.appId, state.conversation.conversation_id, $("rename-text").value);
    state.conversation.title = renamed.title;
    state.conversations = state.conversations.map((one) => (one.conversation_id === renamed.conversation_id ? renamed : one));
    $("rename-dialog").close();
    showConversation();
  } catch (error) {
    const tooLong = error instanceof ProblemError && error.problem.code === "text_too_long";
    say($("rename-problem"), tooLong ? "A title has at most 200 characters." : textOf(error));
  }
}

async function deleteConversation() {
  try {
    const receipt = await client.remove(state.appId, state.conversation.conversation_id);
    $("delete-dialog").close();
    await loadConversations();
    startNew();
    const kept = receipt.not_deleted.map((part) => part.detail).join(" ");
    showNotice({ text: `Deleted. ${kept}${receipt.active_run_id ? " The task that was running goes on." : ""}`, warn: false, steps: [] });
    announce("Conversation deleted.");
    $("text").focus();
  } catch (error) {
    say($("delete-problem"), textOf(error));
  }
}

function wire() {
  const on = (id, kind, act) => $(id).addEventListener(kind, act);
  const submit = (id, act) =>
    on(id, "submit", (event) => {
      event.preventDefault();
      act(event);
    });
  submit("sign-in-form", (event) => signIn(event.submitter.value));
  submit("composer", () => send($("text").value));
  submit("rename-form", renameConversation);
  submit("delete-form", deleteConversation);
  on("sign-out", "click", signOut);
  on("app", "change", () => chooseApp($("app").value, null));
  on("new", "click", () => {
    startNew();
    openSide(false);
    $("text").focus();
  });
  on("more", "click", () => loadConversations({ more: true }));
  on("toggle", "click", () => openSide(!$("workspace").classList.contains("side-open")));
  on("conversations", "click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    openSide(false);
    openConversation(button.dataset.id, { refocus: true });
  });
  on("rename", "click", () => {
    $("rename-text").value = state.conversation.title;
    say($("rename-problem"), "");
    $("rename-dialog").showModal();
  });
  on("delete", "click", () => {
    $("delete-text").textContent = `“${state.conversation.title}” will no longer be shown here. What the agent service remembers is not deleted.`;
    say($("delete-problem"), "");
    $("delete-dialog").showModal();
  });
  on("rename-cancel", "click", () => $("rename-dialog").close());
  on("delete-cancel", "click", () => $("delete-dialog").close());
  on("text", "keydown", (event) => {
    // isComposing: the Enter that ends a word in an input method sends nothing.
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      if (!$("send").disabled) $("composer").requestSubmit();
    }
  });
}
