// Live numbers: what is under way, the replicas and their keys, what came to nothing. Also what the section "Attention" reads.
import { Id, Loaded, Table, Time, address, age, lasting, useDesk, useLoaded } from "./operator-parts.js";
import { html, useEffect, useState } from "./preact-htm.js";
import { PROBLEMS } from "/static/operator-tables.js";
import { REASONS } from "/static/reasons.js";

const EVERY_SECONDS = 5;
/** Numbers that nobody could renew for so long are not those of now. */
const OLD_AFTER_SECONDS = 3 * EVERY_SECONDS;

/** The overview, kept up to date. `seen`: when it came, by the clock of this page, which need not be that of the gateway. */
export function useOverview() {
  const { client } = useDesk();
  return useLoaded((signal) => client.read("/overview", {}, signal).then((now) => ({ ...now, seen: performance.now() })), { everySeconds: EVERY_SECONDS });
}

/** Of when the numbers are, and that they are old where nothing newer comes: also when the gateway just does not answer. */
export function AsOf({ now }) {
  const [, look] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => look((before) => before + 1), EVERY_SECONDS * 1000);
    return () => clearInterval(timer);
  }, []);
  const seconds = (performance.now() - now.seen) / 1000;
  return seconds < OLD_AFTER_SECONDS
    ? html`<p class="faint">As of <${Time} at=${now.at} />; looked at again every ${EVERY_SECONDS} seconds while this tab is seen.</p>`
    : html`<p class="notice warn"><span><strong>This is old: it was read ${age(seconds)}.</strong> Nothing newer came from the gateway since.</span></p>`;
}

/** Slots in words, with a bar for the eye. */
function Slots({ app }) {
  return html`<span class="slots"><span class=${app.active_runs >= app.slots ? "tag warn" : "number"}>${app.active_runs} of ${app.slots}</span>
    <meter min="0" high=${app.slots - 0.5} max=${app.slots} value=${app.active_runs} aria-label=${`Slots of ${app.name} that are held`}></meter></span>`;
}

const number = (value) => html`<span class="number">${value}</span>`;

const APPS = [
  { title: "Application", cell: (app) => html`<a href=${address("runs", null, { app_id: app.app_id })}>${app.name}</a>${!app.enabled && html` <span class="tag">switched off</span>`}` },
  { title: "Active, of slots", cell: (app) => html`<${Slots} app=${app} />` },
  { title: "Outcome not known", cell: (app) => number(app.unknown_runs) },
  { title: "Unresolved", cell: (app) => number(app.unresolved_runs) },
  { title: "Not saved yet", cell: (app) => number(app.pending_saves) },
];

const REPLICAS = [
  { title: "Replica", cell: (replica) => html`<${Id} value=${replica.replica_id} what="the replica's id" />` },
  { title: "Started", cell: (replica) => html`<${Time} at=${replica.started_at} />` },
  { title: "Leases renewed", cell: (replica) => age(replica.heartbeat_age_seconds) },
  {
    title: "Keys",
    cell: (replica) => html`${replica.key_ids ? replica.key_ids.map((key) => html`<code key=${key}>${key} </code>`) : "not told"}
      ${replica.same_keys ? html`<span class="faint">those of the replica that answers</span>` : html`<span class="tag warn">not those of the replica that answers</span>`}`,
  },
];
const LOST = [...REPLICAS.slice(0, 2), { ...REPLICAS[2], title: "Last heard of" }];

const REFUSALS = [
  { title: "Runs", cell: (one) => number(one.runs) },
  { title: "What became of them", cell: (one) => (one.execution === "released" ? "Not sent" : "Failed") },
  { title: "Why", cell: (one) => html`${REASONS[one.reason] ?? ""} <code class="faint">${one.reason}</code>` },
];

const ADMISSIONS = [
  { title: "Submissions", cell: (one) => number(one.submissions) },
  { title: "Result", cell: (one) => html`${RESULTS[one.result] ?? PROBLEMS[one.result] ?? ""} <code class="faint">${one.result}</code>` },
];
const RESULTS = { admitted: "Admitted", replayed: "Sent again, and given the run that was there" };

function View() {
  const overview = useOverview();
  return html`<${Loaded} of=${overview}>${(now) => html`
    <ul class="numbers">
      <${Figure} value=${now.active_runs} name="active runs" href=${address("runs", null, { state: "active" })} />
      <${Figure} value=${now.waiting_runs} name="wait for a decision" href=${address("runs", null, { state: "waiting" })} />
      <${Figure} value=${now.unresolved_runs} name="unresolved" href=${address("runs")} />
      <${Figure} value=${now.attention_runs} name="only an operator can settle" href=${address("runs", null, { state: "attention" })} />
      <${Figure} value=${now.saving.pending} name=${now.saving.pending ? `not saved yet, the oldest for ${lasting(now.saving.oldest_seconds)}` : "not saved yet"} />
    </ul>
    <${AsOf} now=${now} />
    <${Part} title="Applications">
      ${now.apps.length === 0 && html`<p class="empty">There is none yet.</p>`}
      ${now.apps.length > 0 && html`<${Table} caption="Applications, the busiest first" columns=${APPS} rows=${now.apps} keyOf=${(app) => app.app_id} />`}
    <//>
    <${Part} title="Replicas">
      ${now.replicas.length === 0 && html`<p class="empty">None said within a lease that it lives.</p>`}
      ${now.replicas.length > 0 && html`<${Table} caption="Replicas that live" columns=${REPLICAS} rows=${now.replicas} keyOf=${(one) => one.replica_id} />`}
      ${now.lost_replicas.length > 0 && html`<p>Fell silent within ${lasting(now.refusals.period_seconds)} without leaving: killed, or cut off from the database.</p>
        <${Table} caption="Replicas that fell silent" columns=${LOST} rows=${now.lost_replicas} keyOf=${(one) => one.replica_id} />`}
    <//>
    <${Part} title=${`What came to nothing within ${lasting(now.refusals.period_seconds)}`}>
      <p>Texts that moderation refused: ${now.refusals.moderation_refused}; that it could not judge: ${now.refusals.moderation_unavailable}.</p>
      ${now.refusals.by_reason.length === 0
        ? html`<p class="empty">No run was released or failed.</p>`
        : html`<${Table} caption="Runs by reason" columns=${REFUSALS} rows=${now.refusals.by_reason} keyOf=${(one) => one.execution + one.reason} />`}
    <//>
    <${Part} title="Admissions of this replica">
      <p class="faint">Counted by the replica that answered, since it started. The metrics have those of all.</p>
      ${now.admissions.length === 0
        ? html`<p class="empty">None yet.</p>`
        : html`<${Table} caption="Admissions by result" columns=${ADMISSIONS} rows=${now.admissions} keyOf=${(one) => one.result} />`}
    <//>`}<//>`;
}

function Figure({ value, name, href }) {
  const said = html`<strong>${value}</strong> <span>${name}</span>`;
  return html`<li>${href ? html`<a href=${href}>${said}</a>` : said}</li>`;
}

function Part({ title, children }) {
  return html`<section class="part"><h3>${title}</h3>${children}</section>`;
}

export const section = { name: "live", title: "Live numbers", about: "All replicas, as far as the database knows them.", View };
