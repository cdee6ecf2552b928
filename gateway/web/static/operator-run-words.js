// Short names of states for lists and headings. What a state means is said by the gateway's own tables (/static/operator-tables.js).
import { html } from "./preact-htm.js";

export const EXECUTION_NAMES = {
  reserved: "Admitted, not sent yet",
  dispatched: "On its way",
  running: "Running",
  unknown: "Outcome not known",
  waiting: "Waits for a decision",
  succeeded: "Succeeded",
  failed: "Failed",
  released: "Not sent",
  closed: "Closed by an operator",
};
export const PERSISTENCE_NAMES = {
  none: "nothing stored",
  partial: "stored in part",
  pending: "answer not saved yet",
  saved: "saved",
  incomplete: "answer incomplete",
};
export const OUTCOME_NAMES = { succeeded: "Succeeded", failed: "Failed", not_executed: "Not executed" };

/** The state of a run in words, and its codes. @param {{run: {execution: string, persistence: string, answered_by: string|null}}} props */
export function State({ run }) {
  const name = run.answered_by ? "Decided" : EXECUTION_NAMES[run.execution] ?? run.execution;
  return html`<span>${name}, ${PERSISTENCE_NAMES[run.persistence] ?? run.persistence}
    <code class="faint"> ${run.execution}/${run.persistence}</code></span>`;
}

/** Who has to act. @param {{run: {attention: string|null}}} props */
export function Attention({ run }) {
  if (run.attention === "operator") return html`<span class="tag warn">Needs an operator</span>`;
  return run.attention === "user" ? html`<span class="tag">Needs its owner</span>` : null;
}

/** A sentence of the tables, whose names of fields stand between backticks. @param {{text: string}} props */
export function Marked({ text }) {
  return text.split("`").map((part, index) => (index % 2 ? html`<code key=${index}>${part}</code>` : part));
}
