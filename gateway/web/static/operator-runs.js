// Runs, by what they wait for.
import { Choice, Id, PagedTable, RunLink, Time, address, useDesk, usePages } from "./operator-parts.js";
import { html } from "./preact-htm.js";

const STATES = [
  ["unresolved", "Unresolved"],
  ["attention", "Only an operator can settle"],
  ["active", "Active"],
  ["waiting", "Waiting for a decision"],
  ["all", "All"],
];

const COLUMNS = [
  { title: "Run", cell: (run) => html`<${RunLink} id=${run.run_id} />` },
  { title: "Application", cell: (run) => run.app_name },
  { title: "Owner", cell: (run) => run.subject },
  { title: "State", cell: (run) => `${run.execution}, ${run.persistence}` },
  { title: "Reason", cell: (run) => run.reason },
  { title: "Since", cell: (run) => html`<${Time} at=${run.since_at} />` },
];

function View({ query }) {
  const filter = { state: "unresolved", ...query };
  const choose = (changed) => {
    location.hash = address("runs", null, { ...query, ...changed });
  };
  return html`
    <div class="filters"><${Choice} label="State" name="state" value=${filter.state} options=${STATES} onChange=${(state) => choose({ state })} /></div>
    <${Runs} key=${JSON.stringify(filter)} filter=${filter} />`;
}

function Runs({ filter }) {
  const { client } = useDesk();
  const pages = usePages((cursor, signal) => client.read("/runs", { ...filter, cursor }, signal), "runs");
  return html`<${PagedTable} caption="Runs" columns=${COLUMNS} pages=${pages} keyOf=${(run) => run.run_id} empty="No run is in this state." />`;
}

export const section = { name: "runs", title: "Runs", about: "All runs, and what they wait for.", View };
