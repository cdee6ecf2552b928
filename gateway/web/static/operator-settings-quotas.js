// Quotas: the rules in force, and who uses the most.
import { Choice, Loaded, Paged, Table, Time, useDesk, useLoaded, usePages } from "./operator-parts.js";
import { Ask, Says, TextField } from "./operator-settings.js";
import { html, useState } from "./preact-htm.js";

const SCOPES = [
  ["user", "Each person"],
  ["group", "All members of a group together"],
  ["app", "Everybody together"],
];
const WINDOWS = { hour: "an hour", day: "a day", month: "a month" };
const inWindow = (window) => WINDOWS[window] ?? `the last ${window}`;
const sentence = (rule) =>
  `${SCOPES.find(([scope]) => scope === rule.scope)?.[1] ?? rule.scope}: ${rule.limit} tasks in ${inWindow(rule.window)}`
  + `${rule.group ? `, group ${rule.group}` : ""}${rule.app ? `, application ${rule.app}` : ""}`;

function View() {
  const desk = useDesk();
  const { client } = desk;
  const pages = usePages((cursor, signal) => client.read("/quotas", { cursor }, signal), "quotas");
  const apps = useLoaded((signal) => client.read("/apps", { limit: 200 }, signal).then((page) => page.apps));
  const set = async (body) => {
    await client.act("POST", "/quotas", body);
    await pages.reload();
    return "The limit is set.";
  };
  const remove = async (rule) => {
    await client.act("DELETE", `/quotas/${rule.quota_rule_id}`);
    await pages.reload();
    return "The rule has ended.";
  };
  const columns = [
    { title: "Counts together", cell: (rule) => SCOPES.find(([scope]) => scope === rule.scope)?.[1] ?? rule.scope },
    { title: "Group", cell: (rule) => rule.group ?? "All" },
    { title: "Application", cell: (rule) => rule.app ?? "All" },
    { title: "Tasks", cell: (rule) => rule.limit },
    { title: "In", cell: (rule) => inWindow(rule.window) },
    { title: "Since", cell: (rule) => html`<${Time} at=${rule.created_at} />` },
    {
      title: "Acts",
      cell: (rule) => html`<span class="actions">
        <button class="small quiet" type="button" onClick=${() => desk.ask(limiting(rule, set))}>Change<span class="visually-hidden"> ${sentence(rule)}</span></button>
        <button class="small quiet" type="button" onClick=${() => desk.ask(ending(rule, remove))}>End<span class="visually-hidden"> ${sentence(rule)}</span></button>
      </span>`,
    },
  ];
  return html`
    <${Loaded} of=${apps}>${(known) => html`<${Ask} label="New rule" question=${() => creation(known, set)} />`}<//>
    <${Paged} pages=${pages} empty="There is no rule: the number of tasks is not limited.">
      ${(rows) => html`<${Table} caption="Quota rules" columns=${columns} rows=${rows} keyOf=${(rule) => rule.quota_rule_id} />`}
    <//>
    <${Heaviest} />`;
}

function Heaviest() {
  const [window, setWindow] = useState("1d");
  const options = [["1h", "One hour"], ["1d", "One day"], ["7d", "Seven days"], ["30d", "Thirty days"]];
  return html`<section class="block" aria-labelledby="heaviest">
    <h3 id="heaviest">Who uses the most</h3>
    <div class="filters"><${Choice} label="In the last" name="window" value=${window} options=${options} onChange=${setWindow} /></div>
    <${Usage} key=${window} window=${window} />
  </section>`;
}

function Usage({ window }) {
  const { client } = useDesk();
  const usage = useLoaded((signal) => client.read("/usage", { window, limit: 10 }, signal));
  const tasks = { title: "Tasks", cell: (row) => row.tasks };
  return html`<${Loaded} of=${usage}>${({ users, apps }) => users.length === 0
    ? html`<p class="empty">Nothing was asked.</p>`
    : html`
      <${Table} caption="People with the most tasks" columns=${[{ title: "Person", cell: (row) => row.subject }, tasks]} rows=${users} keyOf=${(row) => row.account_id} />
      <${Table} caption="Applications with the most tasks" columns=${[{ title: "Application", cell: (row) => row.name }, tasks]} rows=${apps} keyOf=${(row) => row.app_id} />`}<//>`;
}

const limitOf = (values) => Number(values.get("limit"));

function Limit({ value = "" }) {
  return html`<${TextField} label="Tasks" name="limit" type="number" value=${value} required />`;
}

function creation(apps, set) {
  return {
    title: "New rule",
    label: "Set it",
    body: html`
      <${Choice} label="Counts together" name="scope" value="user" options=${SCOPES} />
      <${Limit} />
      <${TextField} label="In" name="window" value="day" required hint="hour, day or month of the calendar; or one that slides, as 1h or 30d." />
      <${Choice} label="Of which application" name="app_id" value="" options=${[["", "All"], ...apps.map((app) => [app.app_id, app.name])]} />
      <${TextField} label="Of which group" name="group" hint="Empty: of everybody." />
      <${Says}>A rule that counts the same gets the new limit. What was used already counts.<//>`,
    perform: (values) =>
      set({
        scope: values.get("scope"),
        limit: limitOf(values),
        window: values.get("window"),
        app_id: values.get("app_id") || null,
        group: values.get("group").trim() || null,
      }),
  };
}

function limiting(rule, set) {
  const { scope, window, app_id, group } = rule;
  return {
    title: "Change the limit",
    label: "Save",
    body: html`<${Says}>${sentence(rule)}.<//><${Limit} value=${rule.limit} />`,
    perform: (values) => set({ scope, window, app_id, group, limit: limitOf(values) }),
  };
}

function ending(rule, remove) {
  return {
    title: "End the rule",
    label: "End it",
    danger: true,
    body: html`<${Says}>${sentence(rule)}.<//><${Says}>From now on it limits nobody. What was charged under it stays charged.<//>`,
    perform: () => remove(rule),
  };
}

export const section = { name: "quotas", title: "Quotas", about: "How many tasks people may send, and who sends the most.", View };
