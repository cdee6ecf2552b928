// One run: its state in words, what it is in the way of, what is recorded about it, and what an operator can do now.
import { Facts, Id, Loaded, RunLink, Time, address, useDesk, useLoaded } from "./operator-parts.js";
import { Attention, EXECUTION_NAMES, Marked, OUTCOME_NAMES, State } from "./operator-run-words.js";
import { html, useState } from "./preact-htm.js";
import { EVIDENCE, EXECUTION, FAULTS, OBSTACLES, OUTCOMES, PERSISTENCE, REASON_NOTES } from "/static/operator-tables.js";
import { REASONS } from "/static/reasons.js";

function View({ id }) {
  const { client } = useDesk();
  const run = useLoaded((signal) => client.read(`/runs/${id}`, {}, signal), { everySeconds: nextLook });
  const [did, setDid] = useState("");
  const act = async (path, body, said) => {
    let after;
    try {
      after = await client.act("POST", `/runs/${id}/${path}`, body);
    } finally {
      await run.reload(); // a refusal, too, says that the run is not as it is shown
    }
    setDid(said(after));
    return said(after);
  };
  return html`<p><a href=${address("runs")}>All runs</a></p>
    <${Loaded} of=${run}>${(shown) => html`
      ${did && html`<div class="notice"><p>${did} See <a href=${address("audit")}>the trail</a>.</p></div>`}
      <${Verdict} run=${shown} />
      <${Acts} run=${shown} act=${act} />
      <${Blocks} run=${shown} />
      <${TimeLine} run=${shown} />
      <${Texts} run=${shown} />
      <${About} run=${shown} />`}<//>`;
}

/** When to look again: when the gateway says so, and when an act becomes possible. 0: nothing changes by itself any more. */
function nextLook(run) {
  if (!run) return 0;
  const opening = run.acts.resolve.filter((one) => one.allowed_from).map((one) => Math.max(2, (Date.parse(one.allowed_from) - Date.now()) / 1000 + 1));
  const looks = [run.poll_after_seconds, ...opening].filter(Boolean);
  return looks.length ? Math.min(...looks) : 0;
}

function Block({ title, name, children }) {
  return html`<section class="block" aria-labelledby=${name}><h3 id=${name}>${title}</h3>${children}</section>`;
}

function Verdict({ run }) {
  return html`<${Block} title="What is known" name="verdict">
    <p class="verdict"><strong><${State} run=${run} /></strong> <${Attention} run=${run} /></p>
    <ul class="sentences">
      <li><${Marked} text=${EXECUTION[run.execution] ?? ""} /></li>
      <li><${Marked} text=${PERSISTENCE[run.persistence] ?? ""} /></li>
      ${run.reason && html`<li><${Marked} text=${REASON_NOTES[run.reason] ?? ""} /> <code class="faint">${run.reason}</code></li>`}
      ${run.resolution && html`<li>${OUTCOME_NAMES[run.resolution.outcome]}, said ${run.resolved_by} <${Time} at=${run.resolved_at} />: “${run.resolution.reason}”</li>`}
      ${run.acknowledged_at && html`<li>Its owner accepted the incomplete answer <${Time} at=${run.acknowledged_at} />.</li>`}
    </ul>
    <${Facts} facts=${[
      ["Owner", run.subject],
      ["Application", run.app_name],
      ["Made", html`<${Time} at=${run.created_at} />`],
      ["Changed", html`<${Time} at=${run.updated_at} />`],
    ]} />
  <//>`;
}

function Blocks({ run }) {
  const { conversation, slots, app_changes } = run.blocks;
  return html`<${Block} title="What is blocked by it" name="blocks">
    ${conversation || slots || app_changes
      ? html`<ul class="sentences">
          ${conversation && html`<li>Its conversation takes no message. Its owner reads: “${REASONS[conversation] ?? conversation}” <code class="faint">${conversation}</code></li>`}
          ${slots && html`<li>One slot of its owner and one of the application ${run.app_name}.</li>`}
          ${app_changes && html`<li>Changes of the application's service and assistant.</li>`}
        </ul>
        <p>${ending(run)}</p>`
      : html`<p>Nothing.</p>`}
  <//>`;
}

/** What can end it, without an operator. */
function ending(run) {
  if (run.lease_live) return "A replica is at work on it; it ends with that.";
  if (run.next_lookup_at) return html`It may end by itself: the service is asked again <${Time} at=${run.next_lookup_at} />.`;
  if (run.persistence === "pending") return "It may end by itself: the replicas try again and again to save the answer.";
  if (run.execution === "waiting") {
    return run.interrupt?.expires_at ? html`Its owner can decide until <${Time} at=${run.interrupt.expires_at} />.` : "It ends when its owner decides.";
  }
  if (run.attention === "operator") return "It does not end by itself.";
  return run.execution === "succeeded" ? "It ends when its owner accepts the incomplete answer, or goes on in another conversation." : "It may end by itself.";
}

// ---- what is recorded ----------------------------------------------------------------------------------------------------------------

function TimeLine({ run }) {
  const begun = Date.parse(run.created_at);
  return html`<${Block} title="Evidence, oldest first" name="evidence">
    ${run.evidence.length === 0 && html`<p>Nothing is recorded yet.</p>`}
    <ol class="time-line">${run.evidence.map((fact, index) => html`<li key=${index}>
      <p class="faint"><time datetime=${fact.at} title=${fact.at}>${clock(fact.at)}</time> · ${later((Date.parse(fact.at) - begun) / 1000)} · <code>${fact.kind}</code></p>
      <p><${Marked} text=${EVIDENCE[fact.kind] ?? "This page does not know this kind."} /></p>
      <${Facts} facts=${Object.entries(fact.detail).map(([name, value]) => [name, value !== null && html`<${Detail} fact=${fact} name=${name} value=${value} />`])} />
    </li>`)}</ol>
  <//>`;
}

function Detail({ fact, name, value }) {
  const notes = { detail: FAULTS, reason: fact.kind === "resolved" ? {} : REASON_NOTES, outcome: fact.kind === "resolved" ? OUTCOMES : {} }[name] ?? {};
  const note = Object.hasOwn(notes, value) ? notes[value] : null;
  return html`<span><code>${plain(value)}</code>${note && html` <${Marked} text=${note} />`}</span>`;
}

/** A value in one line; of several counts those that are not 0. */
function plain(value) {
  if (typeof value === "number") return String(Number.isInteger(value) ? value : Number(value.toPrecision(3)));
  if (typeof value !== "object") return String(value);
  return Object.entries(value).filter(([, one]) => one !== null && one !== 0).map(([name, one]) => `${name} ${plain(one)}`).join(", ");
}

function clock(at) {
  return new Date(at).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

function later(seconds) {
  return `${seconds < 0 ? "−" : "+"}${Math.abs(seconds).toFixed(Math.abs(seconds) < 100 ? 2 : 0)} s`;
}

// ---- what can be done ----------------------------------------------------------------------------------------------------------------

function Acts({ run, act }) {
  const desk = useDesk();
  const { lookup, retry_save, resolve } = run.acts;
  const [first] = resolve;
  // Where the same stands in the way of each outcome for good, one line says it.
  const together = !resolve.some((one) => one.allowed || one.allowed_from || one.why !== first.why);
  return html`<${Block} title="What you can do" name="acts">
    <ul class="acts">
      <${Possible} label="Ask the service" text="One look-up more than the budget, now. It executes nothing." why=${lookup ? null : whyNoLookUp(run)}
        ask=${() => desk.ask(lookingUp(run, act))} />
      <${Possible} label="Save now" text="Another try at saving the stored answer. It executes nothing." why=${retry_save ? null : "No stored answer waits to be saved."}
        ask=${() => desk.ask(saving(act))} />
      ${together
        ? html`<${Possible} label="Resolve" text="Say what became of it." why=${OBSTACLES[first.why]} />`
        : resolve.map((one) => html`<${Possible} key=${one.outcome} label=${`Resolve: ${OUTCOME_NAMES[one.outcome].toLowerCase()}`} text=${OUTCOMES[one.outcome]} danger
            why=${one.allowed ? null : OBSTACLES[one.why]} from=${one.allowed_from} ask=${() => desk.ask(resolving(run, one.outcome, act))} />`)}
    </ul>
  <//>`;
}

/** An act: its button, or why not and from when on. */
function Possible({ label, text, why, from = null, danger = false, ask }) {
  return html`<li>
    ${why === null
      ? html`<button class=${danger ? "danger" : "quiet"} type="button" onClick=${ask}>${label}</button>`
      : html`<strong class="faint">${label}</strong>`}
    <p>${why === null ? text : html`${from ? "Not yet" : "Not possible"}: ${why}${from && html` It is possible <${Time} at=${from} />.`}`}</p>
  </li>`;
}

function whyNoLookUp(run) {
  if (run.execution !== "unknown") return "Only a run whose outcome is not known is looked up.";
  if (run.lease_live) return "A replica is at work on it.";
  return "The service's own id of the run is not known, so there is nothing to ask by. Look for it in the service's log, by its time.";
}

const state = (run) => `It is now: ${EXECUTION_NAMES[run.execution] ?? run.execution}.`;

function lookingUp(run, act) {
  return {
    title: "Ask the service",
    label: "Ask now",
    body: html`<p>The service is asked once how the run is: ${run.lookups} look-ups were made so far. If it says how the run ended, that is it.</p>
      <p>The look-up is recorded under your name.</p>`,
    perform: () => act("lookup", undefined, (after) => {
      if (after.lookups === run.lookups) return `It was not asked: that is not possible any more. ${state(after)}`;
      const last = after.evidence.findLast((fact) => fact.kind === "looked_up" || fact.kind === "native_verdict");
      return `The service was asked.${last ? ` It says: ${last.detail.status ?? last.detail.outcome}.` : ""} ${state(after)}`;
    }),
  };
}

function saving(act) {
  return {
    title: "Save now",
    label: "Save now",
    body: html`<p>The stored answer is written into the history, if that can be done. The try is recorded under your name.</p>`,
    perform: () => act("retry-save", undefined, (after) =>
      after.persistence === "pending" ? "It could not be saved yet; the replicas try again." : `The answer was saved. ${state(after)}`),
  };
}

function resolving(run, outcome, act) {
  const name = OUTCOME_NAMES[outcome].toLowerCase();
  const closes = run.execution === "unknown" || run.execution === "waiting";
  return {
    title: `Resolve: ${name}`,
    label: `Resolve as ${name}`,
    danger: true,
    reason: { label: "Reason", hint: "How you know. The run's owner reads it, and it is in the trail." },
    body: html`<p>${OUTCOMES[outcome]}</p>
      ${run.blocks.slots && html`<p class="problem">Its slots and its conversation become free. If the service still works on it, a second run can work beside it: look there first.</p>`}
      ${!closes && html`<p>The run stays as it ended. Its answer is no longer waited for; what is stored stays as evidence.</p>`}
      <p>This is said once and for good.</p>`,
    perform: (values) => act("resolve", { outcome, reason: values.get("reason") }, (after) => `Resolved: ${name}. ${state(after)}`),
  };
}

// ---- its texts -----------------------------------------------------------------------------------------------------------------------

function Texts({ run }) {
  const { client } = useDesk();
  const [asked, setAsked] = useState(false);
  if (run.conversation_deleted) return html`<${Block} title="Message and answer" name="texts"><p>Its owner deleted the conversation: nobody is shown its text.</p><//>`;
  return html`<${Block} title="Message and answer" name="texts">
    ${asked
      ? html`<${Text} load=${(signal) => client.read(`/runs/${run.run_id}`, { text: "true" }, signal)} />`
      : html`<p>What was written and answered is its owner's. That you read it is recorded in <a href=${address("audit")}>the trail</a>.</p>
        <p class="actions"><button class="quiet" type="button" onClick=${() => setAsked(true)}>Show the text, which is recorded</button></p>`}
  <//>`;
}

function Text({ load }) {
  const read = useLoaded(load);
  return html`<${Loaded} of=${read}>${({ message, snapshot }) => html`
    <h4>Message</h4>
    ${message === null ? html`<p>None: it carries a decision.</p>` : html`<pre class="said">${message}</pre>`}
    <h4>Answer${snapshot && !snapshot.complete && ", as far as it is known"}</h4>
    ${snapshot === null && html`<p>Nothing is stored.</p>`}
    ${snapshot?.items.map((item) => item.type === "tool"
      ? html`<p key=${item.item_id}>Tool <code>${item.name}</code>, ${item.status}</p>`
      : html`<pre key=${item.item_id} class="said">${item.text}</pre>`)}`}<//>`;
}

function About({ run }) {
  const stored = run.stored;
  return html`<${Block} title="Details" name="details">
    <${Facts} facts=${[
      ["Run", html`<${Id} value=${run.run_id} what="run" />`],
      ["Conversation", html`<${Id} value=${run.conversation_id} what="conversation" />${run.conversation_deleted && " (deleted by its owner)"}`],
      ["Submission", html`<code>${run.submission_id}</code>`],
      ["Application", html`<a href=${address("runs", null, { state: "all", app_id: run.app_id })}>Its runs</a>`],
      ["Carries", run.kind === "resume" ? "A decision" : "A message"],
      ["Answered by", run.answered_by && html`<${RunLink} id=${run.answered_by} />`],
      ["May have been sent since", run.fence_at && html`<${Time} at=${run.fence_at} />`],
      ["Seen at work since", run.started_at && html`<${Time} at=${run.started_at} />`],
      ["Not known since", run.unknown_at && html`<${Time} at=${run.unknown_at} />`],
      ["Over since", run.finished_at && html`<${Time} at=${run.finished_at} />`],
      ["The service's id", run.native_run_id_known ? "Known" : "Not known"],
      ["The service calls it", run.native_status && html`<code>${run.native_status}</code>`],
      ["Look-ups", String(run.lookups)],
      ["Stored answer", stored && html`${stored.complete ? "Complete" : "Not complete"}, ${stored.bytes} bytes, SHA-256 <code>${stored.sha256}</code>`],
    ]} />
  <//>`;
}

export const section = { name: "run", title: "One run", under: "runs", hidden: true, View };
