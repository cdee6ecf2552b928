// The trail of operators' acts, and whether it is as it was written.
import { wordsOf } from "./operator-client.js";
import { Fault, Id, PagedTable, RunLink, Time, address, useDesk, usePages } from "./operator-parts.js";
import { html, useRef, useState } from "./preact-htm.js";

/** What is wrong with the first entry that is not as it was written. */
const BROKEN = {
  beginning_not_recorded: "The trail begins later than any entry of it says.",
  entry_missing_before: "An entry before it is missing.",
  previous_hash_differs: "It does not follow the entry before it.",
  hash_differs: "It was changed.",
};

const COLUMNS = [
  { title: "No.", cell: (entry) => entry.audit_id },
  { title: "When", cell: (entry) => html`<${Time} at=${entry.at} />` },
  { title: "Who", cell: (entry) => html`<span class="actor">${entry.actor}</span>` },
  { title: "Did", cell: (entry) => html`<span class="act">${entry.act.replaceAll("_", " ")} <code class="faint">${entry.act}</code></span>` },
  { title: "To", cell: target },
  { title: "Reason", cell: (entry) => entry.reason },
  { title: "Detail", cell: detail },
];

/** The section where each kind of target is seen; of the gateway as a whole, by what of it. */
const SECTION_OF = { provider: "providers", application: "apps", account: "accounts", quota_rule: "quotas" };
const SECTION_OF_GATEWAY = { admission: "attention", moderation: "moderation" };

function target({ target: { kind, id } }) {
  if (kind === "run") return html`run <${RunLink} id=${id} />`;
  const section = kind === "gateway" ? SECTION_OF_GATEWAY[id] : SECTION_OF[kind];
  const words = kind.replace("_", " ");
  return html`${section ? html`<a href=${address(section)}>${words}</a>` : words} <code>${id}</code>`;
}

function detail(entry) {
  const facts = Object.entries(entry.detail);
  return html`${facts.map(([name, value]) => html`<span class="fact" key=${name}>${name}: ${typeof value === "string" ? value : JSON.stringify(value)}</span>`)}
    <details><summary>Hash</summary><${Id} value=${entry.sha256} what="the hash" /></details>`;
}

function View() {
  const { client } = useDesk();
  const pages = usePages((cursor, signal) => client.read("/audit", { cursor }, signal), "audit");
  return html`
    <${Chain} />
    <${PagedTable} caption="Acts, newest first" columns=${COLUMNS} pages=${pages} keyOf=${(entry) => String(entry.audit_id)} empty="Nobody did anything yet." />`;
}

function Chain() {
  const { client, announce } = useDesk();
  const [state, setState] = useState({ busy: false, chain: null, words: null });
  const busy = useRef(false);
  const verify = async () => {
    if (busy.current) return;
    busy.current = true;
    setState({ busy: true, chain: null, words: null });
    try {
      const chain = await client.read("/audit/chain");
      setState({ busy: false, chain, words: null });
      announce(chain.broken ? "The trail is not as it was written." : "The trail is as it was written.");
    } catch (error) {
      setState({ busy: false, chain: null, words: wordsOf(error) });
    }
    busy.current = false;
  };
  const { chain, words } = state;
  return html`<section class="block" aria-labelledby="chain">
    <h3 id="chain">Is the trail as it was written?</h3>
    ${words && html`<${Fault} words=${words} />`}
    ${!chain && !words && html`<p>Each entry carries the hash of the one before. All of them are computed anew when you ask.</p>`}
    ${chain?.broken && html`<p class="notice warn"><span><strong>No: entry ${chain.broken.audit_id} is the first that is not.</strong> ${`${BROKEN[chain.broken.why]} The ${chain.entries} before it are as they were written.`} Find out who could write to the database past the gateway, and compare with a backup.</span></p>`}
    ${chain && !chain.broken && html`<p><strong>Yes: all ${chain.entries} entries are.</strong>
      ${chain.sha256 && html` The last one's hash, kept elsewhere, shows later whether entries are missing at the end: <${Id} value=${chain.sha256} what="the last hash" />`}</p>`}
    <div class="actions"><button class="quiet" type="button" aria-disabled=${String(state.busy)} onClick=${verify}>${state.busy ? "One moment …" : chain ? "Verify again" : "Verify the chain"}</button></div>
  </section>`;
}

export const section = { name: "audit", title: "Audit", about: "What operators did, newest first. Entries are only ever added.", View };
