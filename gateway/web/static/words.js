// What states mean to a person, and what to do next. The sentences of reasons come from the gateway's own table (/static/reasons.js).
import { REASONS } from "/static/reasons.js";

/**
 * @typedef {"new-conversation"|"check-again"|"refresh"|"acknowledge"|"send-again"|"show-run"|"sign-in"|"send-as-new"} Step
 * @typedef {{text: string, warn: boolean, steps: Step[]}} Notice
 */

const notice = (text, warn = false, ...steps) => ({ text, warn, steps });
const reason = (code, otherwise) => (code && REASONS[code]) || otherwise;

/** Labels of the buttons that a notice can offer. @type {Record<Step, string>} */
export const STEPS = {
  "new-conversation": "New conversation",
  "check-again": "Check again",
  refresh: "Refresh status",
  acknowledge: "Accept it and go on",
  "send-again": "Send again",
  "send-as-new": "Send it as a new message",
  "show-run": "Show what is being answered",
  "sign-in": "Sign in",
};

/** @param {import("./gateway-client.js").Run} run @returns {Notice|null} */
export function runNotice(run) {
  switch (run.execution) {
    case "reserved":
    case "dispatched":
      return notice("Your message is on its way to the agent.");
    case "running":
      return notice("The agent is answering. You may leave this page: the answer is kept.");
    case "unknown":
      return run.attention === "operator"
        ? notice(`${reason(run.reason, "How this task ended is not known.")} An operator has to settle it; until then this conversation waits.`, true, "refresh", "new-conversation")
        : notice(reason(run.reason, "How this task ended is not known yet. It is being looked up."), true, "refresh");
    case "waiting":
      return run.answered_by ? notice("Your decision is on its way to the agent.") : null; // the question is shown, with its form
    case "released":
      return notice(reason(run.reason, "Your message was not sent to the agent."), true, "send-as-new");
    case "failed":
      return notice(reason(run.reason, "The agent stopped with an error."), true);
    case "closed":
      return closed(run);
    case "succeeded":
      if (run.persistence === "pending") return notice(reason("save_failed", "The answer is still being saved."), true, "refresh");
      if (run.persistence === "incomplete") return notice(reason("incomplete_answer", "The answer is incomplete."), true, "acknowledge", "new-conversation");
      return null;
    default:
      return notice("This task is in a state that this page does not know. Reload the page.", true, "check-again");
  }
}

function closed(run) {
  const { outcome, reason: why } = run.resolution ?? {};
  const said = (text) => (why ? `${text} The operator's reason: “${why}”` : text);
  if (outcome === "not_executed") return notice(said("An operator found that your message was never carried out. It cost nothing."), true, "send-as-new");
  if (outcome === "succeeded") return notice(said("An operator found that this task was carried out. Its answer may be incomplete here."), true);
  return notice(said("An operator closed this task: it did not succeed."), true);
}

/** @param {string} code @returns {Notice} Why a conversation takes no new message. */
export function blockedNotice(code) {
  const text = reason(code, "This conversation takes no new message.");
  if (code === "run_active" || code === "save_pending") return notice(text, true, "check-again");
  return notice(text, true, "new-conversation");
}

/** @param {import("./gateway-client.js").Problem} problem @returns {Notice} */
export function problemNotice(problem) {
  if (problem.code === "quota_exhausted") return notice(`Your quota is used up. ${untilWhen(problem.quota?.resets_at)}`, true, "send-again");
  if (problem.code === "user_busy") return notice("Another message of yours is still being answered. This one can be sent when that is over.", true, ...busySteps(problem));
  const text = problem.blocked && problem.code === "conversation_blocked" ? reason(problem.blocked, problem.detail) : problem.detail;
  switch (problem.code) {
    case "unauthenticated":
      return notice("You are signed out. Sign in; your message is kept.", true, "sign-in");
    case "moderation_refused":
      return notice(`The message was not taken, and cost nothing. ${problem.advice ?? "Change it and send it again."}`, true);
    case "conversation_blocked":
    case "binding_invalidated":
    case "task_already_done":
      return notice(text, true, "new-conversation");
    default:
  }
  switch (problem.retry) {
    case "same-submission":
    case "later":
      return notice(text, true, "send-again");
    case "poll-run":
      return notice(text, true, ...busySteps(problem));
    case "operator":
      return notice(text, true);
    default: // never, new-submission: the text goes back to the field, to be changed
      return notice(text, true);
  }
}

function busySteps(problem) {
  return problem.run_id ? ["show-run", "send-again"] : ["send-again"];
}

function untilWhen(time) {
  return time ? `You can send again ${moment(time)}.` : "Try again later.";
}

/** @param {string} time RFC 3339 @returns {string} "at 14:05", or with the day when it is another one. */
export function moment(time) {
  const at = new Date(time);
  const clock = at.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" });
  return at.toDateString() === new Date().toDateString() ? `at ${clock}` : `on ${at.toLocaleDateString(undefined, { day: "numeric", month: "long" })} at ${clock}`;
}

const WINDOWS = { hour: "this hour", day: "today", month: "this month" };

/** @param {{unlimited: boolean, quotas: object[]}|null} usage @returns {string} What is left. */
export function quotaLine(usage) {
  if (!usage) return "";
  if (usage.unlimited) return "No limit on tasks.";
  const [tightest] = usage.quotas;
  const whose = { user: "", group: ` for your group ${tightest.group}`, app: " for everybody here" }[tightest.scope] ?? "";
  const when = WINDOWS[tightest.window] ?? `in ${tightest.window}`;
  const again = tightest.remaining === 0 && tightest.resets_at ? ` More ${moment(tightest.resets_at)}.` : "";
  return `${tightest.remaining} of ${tightest.limit} tasks left ${when}${whose}.${again}`;
}

/** @param {string} state The state of a user's message. @returns {string} */
export function messageState(state) {
  if (state === "not_sent") return "Not sent. It cost nothing.";
  if (state === "failed") return "Refused by the agent service.";
  return "";
}

/** @param {string} status The status of a tool step. @returns {string} */
export function toolState(status) {
  return { started: "is starting", called: "is at work", returned: "is done" }[status] ?? "";
}

export const CONNECTION = {
  retrying: "The connection is interrupted. Trying again; nothing is sent twice.",
  polling: "Waiting for the outcome.",
  unanswered: "The gateway cannot be reached, so it is not known whether your message arrived. Sending it again is safe: nothing is done twice.",
  unsettled: "The outcome is still open. Look again later.",
};
