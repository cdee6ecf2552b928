// Runs, by what they wait for. The filters are in the address, under the names of GET /api/operator/runs.
import { Choice, PagedTable, RunLink, Time, address, lasting, useDesk, useLoaded, usePages } from "./operator-parts.js";
import { Attention, Marked, State } from "./operator-run-words.js";
import { html } from "./preact-htm.js";
import { REASON_NOTES } from "/static/operator-tables.js";

const STATES = [
  ["unresolved", "Unresolved"],
  ["attention", "Only an operator can settle"],
  ["active", "Active"],
  ["waiting", "Waiting for a decision"],
  ["all", "All"],
];
const ORDERS = [["newest", "Newest first"], ["oldest", "Oldest first"]];
const AGES = ["300", "3600", "86400", "604800"];
const ANY = "any";
const WITHIN = ["3600", "86400", "604800", "2592000"];
/** A list of all runs there are would read them all: so it begins with those of a day, until somebody asks for more. */
const WITHIN_OF = { all: "86400" };

const COLUMNS = [
  { title: "Run", cell: (run) => html`<${RunLink} id=${run.run_id} />` },
  { title: "Application", cell: (run) => run.app_name },
  { title: "Owner", cell: (run) => run.subject },
  { title: "State", cell: (run) => html`<${State} run=${run} /> <${Attention} run=${run} />` },
  { title: "Reason", cell: (run) => run.reason && html`<${Reason} code=${run.reason} />` },
  { title: "Since", cell: (run) => html`<${Time} at=${run.since_at} />` },
];

function Reason({ code }) {
  return html`<${Marked} text=${REASON_NOTES[code] ?? ""} /> <code class="faint">${code}</code>`;
}

function View({ query }) {
  const { client } = useDesk();
  const apps = useLoaded((signal) => client.read("/apps", { limit: 200 }, signal).then((page) => page.apps));
  const { state = "unresolved", app_id = "", order = "newest", older_than_seconds = "" } = query;
  const within = query.created_within_seconds ?? WITHIN_OF[state] ?? ANY;
  const choose = (changed) => {
    location.hash = address("runs", null, { ...query, ...changed });
  };
  const known = (apps.value ?? []).map((app) => [app.app_id, app.name]);
  const lengths = (seconds, chosen, text) => (seconds.includes(chosen) || !/^\d+$/.test(chosen) ? seconds : [...seconds, chosen]).map((one) => [one, text(lasting(Number(one)))]);
  const filter = { state, app_id, order, older_than_seconds, created_within_seconds: within === ANY ? "" : within };
  return html`
    <div class="filters">
      <${Choice} label="State" name="state" value=${state} options=${STATES} onChange=${(value) => choose({ state: value })} />
      <${Choice} label="Application" name="app_id" value=${app_id} options=${[["", "All"], ...withChosen(known, app_id)]} onChange=${(value) => choose({ app_id: value })} />
      <${Choice} label="Older than" name="older" value=${older_than_seconds}
        options=${[["", "Any age"], ...lengths(AGES, older_than_seconds, (length) => length)]} onChange=${(value) => choose({ older_than_seconds: value })} />
      <${Choice} label="Made" name="within" value=${within}
        options=${[...lengths(WITHIN, within, (length) => `In the last ${length.replace(/^1 /, "")}`), [ANY, state === "all" ? "At any time (reads every run)" : "At any time"]]}
        onChange=${(value) => choose({ created_within_seconds: value })} />
      <${Choice} label="Order" name="order" value=${order} options=${ORDERS} onChange=${(value) => choose({ order: value })} />
    </div>
    <${Runs} key=${JSON.stringify(filter)} filter=${filter} />`;
}

/** What an address names stays chosen, also where the list does not have it. */
function withChosen(options, chosen) {
  return chosen === "" || options.some(([value]) => value === chosen) ? options : [...options, [chosen, chosen]];
}

function Runs({ filter }) {
  const { client } = useDesk();
  const pages = usePages((cursor, signal) => client.read("/runs", { ...filter, cursor }, signal), "runs");
  return html`<${PagedTable} caption="Runs" columns=${COLUMNS} pages=${pages} keyOf=${(run) => run.run_id} empty="No run is like this." />`;
}

export const section = { name: "runs", title: "Runs", about: "All runs, and what they wait for.", View };
