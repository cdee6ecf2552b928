// What needs somebody first, each with its next step; the first section of the console.
import { AsOf, useOverview } from "./operator-live.js";
import { Loaded, PagedTable, RunLink, Time, address, age, lasting, useDesk, usePages } from "./operator-parts.js";
import { Marked, State } from "./operator-run-words.js";
import { html } from "./preact-htm.js";
import { REASON_NOTES } from "/static/operator-tables.js";
import { REASONS } from "/static/reasons.js";

/** Reasons that end a conversation for good: one run of each is a conversation that its owner has to begin anew. */
const ENDED = ["thread_gone", "interrupt_unsupported", "binding_invalidated"];
/** A save that is pending for longer is no passing thing. */
const LONG_PENDING_SECONDS = 60;

const COLUMNS = [
  { title: "Since", cell: (run) => html`<${Time} at=${run.since_at} />` },
  { title: "Run", cell: (run) => html`<${RunLink} id=${run.run_id} text="Open" /> <code class="faint">${run.run_id.slice(0, 8)}</code>` },
  { title: "Application", cell: (run) => run.app_name },
  { title: "Owner", cell: (run) => run.subject },
  { title: "What is known", cell: (run) => html`<${State} run=${run} /> ${run.reason && html`<${Marked} text=${REASON_NOTES[run.reason] ?? run.reason} />`}` },
  { title: "Next step", cell: nextStep },
];

function nextStep(run) {
  if (run.acts.retry_save) return "Try to save it again.";
  if (run.acts.lookup) return "Ask the service once more.";
  if (run.acts.resolve.some((one) => one.allowed)) return "Look at the service, then say what became of it.";
  const [from] = run.acts.resolve.map((one) => one.allowed_from).filter(Boolean).sort();
  return from ? html`Look at the service; it can be resolved <${Time} at=${from} />.` : "Open it: it says what is in the way.";
}

function View() {
  const overview = useOverview();
  return html`<${Loaded} of=${overview}>${(now) => {
      const matters = mattersOf(now);
      return html`
      <${AsOf} now=${now} />
      ${matters.length === 0 && html`<p class="empty">Nothing needs you. New work is taken, no run waits for an operator, and every answer is saved.</p>`}
      ${matters.length > 0 && html`<ul class="matters" aria-label="What needs somebody">
        ${matters.map((one) => html`<li key=${one.name} class=${one.urgent ? "notice warn" : "notice"}>
          <p><strong>${one.what}</strong> ${one.next}</p>
          ${one.href && html`<a class="button" href=${one.href}>${one.link}</a>`}
        </li>`)}
      </ul>`}
      ${now.attention_runs > 0 && html`<h3>Runs that only an operator can settle, the oldest first</h3>
        <${Runs} key=${now.attention_runs} />`}`;
    }}<//>`;
}

function Runs() {
  const { client } = useDesk();
  const pages = usePages((cursor, signal) => client.read("/runs", { state: "attention", order: "oldest", cursor }, signal), "runs");
  return html`<${PagedTable} caption="Runs that only an operator can settle" columns=${COLUMNS} pages=${pages} keyOf=${(run) => run.run_id} empty="None." />`;
}

/** What needs somebody, the most urgent first. */
function mattersOf(now) {
  const found = [];
  const put = (name, urgent, what, next, link, href) => found.push({ name, urgent, what, next, link, href });
  const runs = (state) => address("runs", null, { state, order: "oldest" });
  if (now.admission_closed) {
    const { actor, reason, closed_at: at } = now.admission_closed;
    put("closed", true, "Admission is closed: no replica takes new work.",
      html`${actor} closed it <${Time} at=${at} />: “${reason}”. Once you have reviewed: <code>gateway admission open --reason …</code>`, "The trail", address("audit"));
  }
  if (now.replicas.some((one) => !one.same_keys)) {
    put("keys", true, "Replicas have different keys.", "A token that one stores may not open at another. Give all of them the same key ring.", "The replicas", address("live"));
  }
  if (now.lost_replicas.length) {
    const [last] = now.lost_replicas;
    put("lost", false, `${count(now.lost_replicas.length, "replica")} fell silent without leaving.`,
      `The last one was heard of ${age(last.heartbeat_age_seconds)}: it was killed, or cannot reach the database. Its runs become unknown and are looked up. Look at its log.`, "The replicas", address("live"));
  }
  if (now.attention_runs) {
    put("attention", true, `${count(now.attention_runs, "run")} only an operator can settle.`, "Each holds slots or blocks its conversation until then; they are below.", null, null);
  }
  const settling = now.unresolved_runs - now.attention_runs;
  if (settling > 0) {
    put("unresolved", false, `${count(settling, "unresolved run")} may still be settled without you.`,
      "Each blocks its conversation. Look-ups and saving go on; come back to those that stay.", "Show them", runs("unresolved"));
  }
  if (now.saving.pending) {
    const { pending, oldest_seconds: seconds } = now.saving;
    put("saving", seconds > LONG_PENDING_SECONDS, `${count(pending, "answer")} not saved yet, the oldest for ${lasting(seconds)}.`,
      "Any replica saves from the stored bytes. If one stays, open its run: it says what to do.", "Show them", runs("unresolved"));
  }
  if (now.waiting_runs) {
    put("waiting", false, `${count(now.waiting_runs, "run")} waiting for a person's decision.`, "They hold no slot. Resolve one only when nobody will decide any more.", "Show them", runs("waiting"));
  }
  for (const app of now.apps.filter((one) => one.active_runs >= one.slots)) {
    put(`full-${app.app_id}`, app.unknown_runs >= app.slots, `All slots of ${app.name} are held.`,
      app.unknown_runs ? `${count(app.unknown_runs, "of its runs is", "of its runs are")} unknown: settle them, and people can send again.` : "People are told to try again shortly.",
      "Its runs", address("runs", null, { state: "active", app_id: app.app_id }));
  }
  const { by_reason: reasons, moderation_unavailable: unjudged, period_seconds: period } = now.refusals;
  if (unjudged) {
    put("moderation", true, `${count(unjudged, "message")} not taken within ${lasting(period)}, because moderation could not judge.`,
      "Moderation fails closed. Look at the moderator's service.", "The chain", address("moderation"));
  }
  for (const one of reasons.filter(({ reason }) => ENDED.includes(reason))) {
    put(`ended-${one.execution}-${one.reason}`, false, `${count(one.runs, "conversation")} ended for good within ${lasting(period)}: ${REASONS[one.reason]}`,
      REASON_NOTES[one.reason] ?? "", "Live numbers", address("live"));
  }
  return found;
}

function count(number, one, more = `${one}s`) {
  return `${number} ${number === 1 ? one : more}`;
}

export const section = { name: "attention", title: "Attention", about: "What needs somebody first, and the next step.", View };
