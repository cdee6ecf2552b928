// Accounts: our own groups and roles of people, and who is suspended. What their tokens claim besides is not here.
import { Id, Time, address, useDesk, usePages } from "./operator-parts.js";
import { Ask, Card, Cards, LinesField, Says, TextField, Tick, changed, linesOf, listed } from "./operator-settings.js";
import { html } from "./preact-htm.js";

const OPERATOR = "operator";

function View({ query: { from = "" } }) {
  const find = (event) => {
    event.preventDefault();
    location.hash = address("accounts", null, { from: event.currentTarget.elements.from.value.trim() });
  };
  return html`
    <form class="filters" role="search" onSubmit=${find}>
      <${TextField} label="From subject" name="from" value=${from} />
      <button class="quiet" type="submit">Find</button>
    </form>
    <${Accounts} key=${from} from=${from} />`;
}

function Accounts({ from }) {
  const { client, me } = useDesk();
  const pages = usePages((cursor, signal) => client.read("/accounts", { subject_from: from, cursor }, signal), "accounts");
  const change = async (account, body) => {
    if (Object.keys(body).length === 0) return "Nothing was changed.";
    pages.put(await client.act("PATCH", `/accounts/${account.account_id}`, body), "account_id");
    return "Changed.";
  };
  const create = async (values) => {
    await client.act("POST", "/accounts", { subject: values.get("subject"), ...rights(values, []) });
    await pages.reload();
    return "The account was made.";
  };
  return html`
    <${Ask} label="New account" question=${() => creation(create)} />
    <${Cards} pages=${pages} empty=${from ? "There is no subject from there on." : "Nobody was here yet."}>${(account) => html`<${Card} key=${account.account_id} title=${account.subject}
      tags=${[account.state !== "active" && "Suspended", account.roles.includes(OPERATOR) && "Operator"].filter(Boolean)}
      facts=${[
        ["Groups", listed(account.groups)],
        ["Id", html`<${Id} value=${account.account_id} what=${`the id of ${account.subject}`} />`],
        ["Since", html`<${Time} at=${account.created_at} />`],
      ]}
      acts=${[
        { label: "Groups and roles", question: () => naming(account, change, account.subject === me.subject) },
        { label: account.state === "active" ? "Suspend" : "Activate", question: () => toggle(account, change, account.subject === me.subject) },
      ]} />`}<//>`;
}

function rights(values, roles) {
  const others = roles.filter((role) => role !== OPERATOR);
  return { groups: linesOf(values, "groups"), roles: values.get("operator") === null ? others : [...others, OPERATOR] };
}

function Rights({ groups = [], roles = [] }) {
  return html`<${LinesField} label="Groups" name="groups" values=${groups} /><${Tick} label="Operator" name="operator" checked=${roles.includes(OPERATOR)} />`;
}

function creation(create) {
  return {
    title: "New account",
    label: "Make it",
    body: html`<${TextField} label="Subject" name="subject" required hint="What the person's tokens say." /><${Rights} />`,
    perform: create,
  };
}

function naming(account, change, mine) {
  return {
    title: `Groups and roles of ${account.subject}`,
    label: "Save",
    body: html`
      <${Rights} groups=${account.groups} roles=${account.roles} />
      ${mine && html`<${Says} warn>This is you. Without the role you may no longer be let in here.<//>`}
      <${Says}>They count besides those that a token claims. Who loses a group no longer sees its applications, and a stream that they watch ends.<//>`,
    perform: (values) => change(account, changed(account, rights(values, account.roles))),
  };
}

function toggle(account, change, mine) {
  if (account.state !== "active") {
    return {
      title: `Activate ${account.subject}`,
      label: "Activate",
      body: html`<${Says}>The person can send messages and read history again.<//>`,
      perform: () => change(account, { state: "active" }),
    };
  }
  return {
    title: `Suspend ${account.subject}`,
    label: "Suspend",
    danger: true,
    body: html`
      ${mine && html`<${Says} warn>This is you: you lock yourself out.<//>`}
      <${Says}>The person is refused from the next request on, and a stream that they watch ends. Runs that are under way finish and are saved.<//>`,
    perform: () => change(account, { state: "suspended" }),
  };
}

export const section = { name: "accounts", title: "Accounts", about: "People, with the groups and roles that they have here.", View };
