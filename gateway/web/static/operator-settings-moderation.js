// Moderation: who is asked about messages before they are sent.
import { Choice, Field, Loaded, Time, useDesk, useLoaded } from "./operator-parts.js";
import { Ask, Card, Says, TextField } from "./operator-settings.js";
import { html, useState } from "./preact-htm.js";

const KINDS = [
  ["local", "local: the rules of this gateway"],
  ["openai", "openai: a service that speaks OpenAI's moderation API"],
  ["webhook", "webhook: a service of your own"],
];
const TOKENS = {
  readable: "token is set",
  none: "no token",
  no_key: "its token is under a key that this gateway does not have",
  damaged: "its token cannot be read: set it again",
  not_checked: "its token was not looked at",
};
const MOST = 8;

function View() {
  const { client } = useDesk();
  const chains = useLoaded((signal) => client.read("/moderation", {}, signal));
  const apps = useLoaded((signal) => client.read("/apps", { limit: 200 }, signal).then((page) => page.apps));
  const set = async (body) => {
    chains.put(await client.act("POST", "/moderation", body));
    return "The chain is set. It counts from the next message on.";
  };
  return html`
    <${Loaded} of=${apps}>${(known) => html`<${Ask} label="Set a chain" question=${() => setting(null, known, set)} />`}<//>
    <${Loaded} of=${chains}>${({ chains: found }) => html`<div class="cards">${found.map((chain) => html`<${Chain} key=${`${chain.app_id}/${chain.since}`} chain=${chain} set=${set} />`)}</div>`}<//>`;
}

const nameOf = (chain) => chain.app ?? (chain.since ? "All other applications" : "From the settings");

function Chain({ chain, set }) {
  const asked = chain.moderators.map(({ moderator, token }) => html`<li key=${moderator}>${moderator}${token && ` (${TOKENS[token] ?? token})`}</li>`);
  return html`<${Card} title=${nameOf(chain)}
    facts=${[["Since", chain.since && html`<${Time} at=${chain.since} />`], ["Asks", asked.length ? html`<ol class="asked">${asked}</ol>` : "Nobody: every message passes."]]}
    acts=${chain.since ? [{ label: "Change", question: () => setting(chain, [], set) }] : []} />`;
}

function setting(chain, apps, set) {
  return {
    title: chain ? `Who is asked: ${nameOf(chain)}` : "Who is asked about messages",
    label: "Set it",
    danger: true,
    body: html`
      ${!chain && html`<${Choice} label="Of which application" name="app_id" value="" options=${[["", "All that have none of their own"], ...apps.map((app) => [app.app_id, app.name])]} />`}
      <${Moderators} chain=${chain} />
      <${Says}>One that cannot be reached refuses every message. It counts from the next message on.<//>`,
    perform: (values) => set({ app_id: (chain ? chain.app_id : values.get("app_id")) || null, ...chainOf(values) }),
  };
}

/** @param {FormData} values */
function chainOf(values) {
  const what = values.get("what");
  if (what !== "chain") return { moderators: [what] };
  const places = values.getAll("place");
  const moderators = places.map((place) => {
    const url = values.get(`url-${place}`)?.trim();
    return values.get(`kind-${place}`) + (url ? `:${url}` : "");
  });
  const tokens = places.map((place) => values.get(`token-${place}`)).filter((token) => token !== null);
  return { moderators, ...(tokens.some(Boolean) && { tokens }) };
}

function rowOf({ moderator }, place) {
  const [kind, ...url] = moderator.split(":");
  return { place, kind, url: url.join(":") };
}

function Moderators({ chain }) {
  const nobody = chain && chain.moderators.every(({ moderator }) => moderator === "none");
  const [what, setWhat] = useState(nobody ? "none" : "chain");
  const [rows, setRows] = useState(chain && !nobody ? chain.moderators.map(rowOf) : [{ place: 0, kind: "local", url: "" }]);
  const options = [["chain", "These moderators"], ["none", "Nobody: every message passes"], ["default", "As for the others: take this chain away"]];
  const change = (row, changed) => setRows(rows.map((one) => (one === row ? { ...one, ...changed } : one)));
  return html`
    <${Choice} label="What happens" name="what" value=${what} options=${options} onChange=${setWhat} />
    ${what === "none" && html`<${Says} warn>Messages then reach the agent unread.<//>`}
    ${what === "chain" && rows.map((row, index) => html`<fieldset key=${row.place}>
      <legend>Moderator ${index + 1}</legend>
      <input type="hidden" name="place" value=${row.place} />
      <${Choice} label="Kind" name=${`kind-${row.place}`} value=${row.kind} options=${KINDS} onChange=${(kind) => change(row, { kind })} />
      ${row.kind !== "local" && html`
        <${Field} label="URL"><input name=${`url-${row.place}`} required defaultValue=${row.url} autocomplete="off" spellcheck="false" /><//>
        <${TextField} label="Token" name=${`token-${row.place}`} type="password" hint="Empty for all services: each keeps the one that it has. It is never shown." />`}
      ${rows.length > 1 && html`<p class="actions"><button class="small quiet" type="button" onClick=${() => setRows(rows.filter((one) => one !== row))}>Take it out<span class="visually-hidden">: moderator ${index + 1}</span></button></p>`}
    </fieldset>`)}
    ${what === "chain" && rows.length < MOST && html`<p class="actions"><button class="small quiet" type="button"
      onClick=${() => setRows([...rows, { place: 1 + Math.max(...rows.map((row) => row.place)), kind: "webhook", url: "" }])}>Add a moderator</button></p>`}`;
}

export const section = { name: "moderation", title: "Moderation", about: "Who is asked about messages before they are sent.", View };
