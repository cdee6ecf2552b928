// Applications: made, changed, switched off and on; their tokens, which go in and never come out.
import { Choice, Id, Loaded, Time, address, useDesk, useLoaded, usePages } from "./operator-parts.js";
import { Ask, Card, Cards, LinesField, Says, TextField, Tick, changed, linesOf, listed } from "./operator-settings.js";
import { html } from "./preact-htm.js";

/** Why users find it not available: the operators' routes say one word. */
const UNAVAILABLE = {
  app_disabled: "It, or its provider, is switched off, or it has no token.",
  backend_not_served: "Its backend is not served by this gateway.",
  token_none: "It has no token.",
  token_no_key: "Its token is encrypted under a key that this gateway does not have.",
  token_damaged: "Its token cannot be read. Set it again.",
  slots_held: "Runs whose outcome is not known hold all its slots.",
};
const TOKENS = {
  readable: "is set",
  none: "is not set",
  no_key: "is set, under a key that this gateway does not have",
  damaged: "cannot be read: set it again",
  not_checked: "was not looked at",
};
const VISIBILITY = [
  ["public", "Everybody who is signed in"],
  ["group", "Members of its groups"],
  ["private", "Its owner and its users"],
];
const seenBy = (visibility) => VISIBILITY.find(([one]) => one === visibility)?.[1] ?? visibility;

function View() {
  const { client } = useDesk();
  const pages = usePages((cursor, signal) => client.read("/apps", { cursor }, signal), "apps");
  const providers = useLoaded((signal) => client.read("/providers", { limit: 200 }, signal).then((page) => page.providers));
  const acts = {
    async change(app, body) {
      if (Object.keys(body).length === 0) return "Nothing was changed.";
      pages.put(await client.act("PATCH", `/apps/${app.app_id}`, body), "app_id");
      return "Changed.";
    },
    async setToken(app, token) {
      pages.put(await client.act("PUT", `/apps/${app.app_id}/token`, { token }), "app_id");
      return "The token was replaced.";
    },
    async create(body) {
      await client.act("POST", "/apps", body);
      await pages.reload();
      return "The application was made.";
    },
  };
  const known = providers.value ?? [];
  return html`
    <${Loaded} of=${providers}>${(found) => html`<${Ask} label="New application" question=${() => creation(found, acts)} />`}<//>
    <${Cards} pages=${pages} empty="There is no application yet.">${(app) => html`<${App} key=${app.app_id} app=${app} providers=${known} acts=${acts} />`}<//>`;
}

function App({ app, providers, acts }) {
  const { langchain, app_metadata: metadata = {} } = app.config;
  const tags = app.available ? [] : ["Not available"];
  const token = `${TOKENS[app.token] ?? app.token}${app.token_key_id ? `; key ${app.token_key_id}` : ""}; version ${app.token_version}`;
  return html`<${Card} title=${app.name} tags=${tags}
    facts=${[
      ["Not available because", app.unavailable && (UNAVAILABLE[app.unavailable] ?? app.unavailable)],
      ["What it is for", app.description || null],
      ["Provider", `${app.provider}${app.provider_enabled ? "" : " (switched off)"}`],
      ["Assistant", langchain?.assistant_id ?? `None: it is served by ${app.config.backend_type}.`],
      ["Asks for approval", langchain?.human_input && "Yes"],
      ["Seen by", seenBy(app.visibility)],
      ["Groups", listed(app.groups)],
      ["Owner", app.owner],
      ["Users", listed(app.users)],
      ["Tags", listed(metadata.tags ?? [])],
      ["Token", token],
      ["Id", html`<${Id} value=${app.app_id} what=${`the id of ${app.name}`} />`],
      ["Changed", html`<${Time} at=${app.updated_at} />`],
      ["Runs", html`<a href=${address("runs", null, { state: "all", app_id: app.app_id })}>Its runs</a>`],
    ]}
    acts=${[
      { label: "Edit", question: () => edit(app, acts) },
      { label: "Service", question: () => service(app, providers, acts) },
      { label: app.token === "none" ? "Set token" : "Replace token", question: () => token_(app, acts) },
      { label: app.enabled ? "Switch off" : "Switch on", question: () => toggle(app, acts) },
    ]} />`;
}

function People({ app = { visibility: "public", groups: [], users: [], owner: null } }) {
  return html`
    <${Choice} label="Seen by" name="visibility" value=${app.visibility} options=${VISIBILITY} />
    <${LinesField} label="Groups" name="groups" values=${app.groups} />
    <${TextField} label="Owner" name="owner" value=${app.owner ?? ""} hint="The subject of a person, or nobody." />
    <${LinesField} label="Users" name="users" values=${app.users} hint="Subjects of people, one a line." />`;
}

const peopleOf = (values) => ({
  visibility: values.get("visibility"),
  groups: linesOf(values, "groups"),
  owner: values.get("owner").trim() || null,
  users: linesOf(values, "users"),
});

function edit(app, acts) {
  return {
    title: `Edit ${app.name}`,
    label: "Save",
    body: html`
      <${TextField} label="Name" name="name" value=${app.name} required />
      <${TextField} label="What it is for" name="description" value=${app.description} />
      <${People} app=${app} />
      <${Says}>Who no longer sees it reads no history of it, and a stream that they watch ends.<//>`,
    perform: (values) => acts.change(app, changed(app, { name: values.get("name"), description: values.get("description"), ...peopleOf(values) })),
  };
}

function Service({ app, providers }) {
  const { langchain, app_metadata: metadata = {} } = app?.config ?? { langchain: {} };
  const options = providers.map((one) => [one.provider_id, one.name]);
  if (app && !providers.some((one) => one.provider_id === app.provider_id)) options.unshift([app.provider_id, app.provider]);
  return html`
    <${Choice} label="Provider" name="provider_id" value=${app?.provider_id ?? ""} options=${options} />
    ${langchain && html`<${TextField} label="Assistant" name="assistant" value=${langchain.assistant_id ?? ""} required />
      <${Tick} label="It asks people for approval (fixed once there is history)" name="human_input" checked=${langchain.human_input ?? false} />`}
    <${LinesField} label="Tags" name="tags" values=${metadata.tags} />
    <${TextField} label="Kind, for the web app" name="app_type" value=${metadata.app_type ?? "marketplace"} />
    <${Tick} label="Listed in the marketplace" name="is_marketplace_app" checked=${metadata.is_marketplace_app ?? true} />`;
}

function configOf(values, backend) {
  const ticked = (name) => values.get(name) !== null;
  const metadata = { app_type: values.get("app_type"), is_marketplace_app: ticked("is_marketplace_app"), tags: linesOf(values, "tags") };
  const langchain = values.get("assistant") === null ? {} : { langchain: { assistant_id: values.get("assistant"), human_input: ticked("human_input") } };
  return { backend_type: backend, ...langchain, app_metadata: metadata };
}

function service(app, providers, acts) {
  return {
    title: `The service of ${app.name}`,
    label: "Save",
    danger: true,
    body: html`
      <${Says} warn>Another provider or assistant ends its conversations for good: they stay readable and take no new message, also when the old value comes back.<//>
      <${Service} app=${app} providers=${providers} />`,
    perform: (values) => acts.change(app, changed(app, { provider_id: values.get("provider_id"), config: configOf(values, app.config.backend_type) })),
  };
}

function token_(app, acts) {
  return {
    title: `The token of ${app.name}`,
    label: "Replace it",
    body: html`
      <${Says}>The service is asked whether it takes the new one; only then the old one is replaced. It is stored encrypted and never shown again.<//>
      <${TextField} label="New token" name="token" type="password" required />`,
    perform: (values) => acts.setToken(app, values.get("token")),
  };
}

function toggle(app, acts) {
  if (!app.enabled) {
    return { title: `Switch ${app.name} on`, label: "Switch it on", body: html`<${Says}>It takes new messages again.<//>`, perform: () => acts.change(app, { enabled: true }) };
  }
  return {
    title: `Switch ${app.name} off`,
    label: "Switch it off",
    danger: true,
    body: html`<${Says}>Nobody can send it a message until it is switched on again. Runs that are under way finish, and history stays readable.<//>`,
    perform: () => acts.change(app, { enabled: false }),
  };
}

function creation(providers, acts) {
  return {
    title: "New application",
    label: "Make it",
    body: providers.length === 0
      ? html`<${Says} warn>It needs a provider: make one first.<//>`
      : html`
        <${TextField} label="Name" name="name" required />
        <${TextField} label="What it is for" name="description" />
        <${Service} providers=${providers} />
        <${People} />
        <${TextField} label="Token" name="token" type="password" hint="It may be set later: until then nobody can use it." />`,
    async perform(values) {
      if (providers.length === 0) return "Nothing was made.";
      const token = values.get("token");
      return acts.create({
        name: values.get("name"),
        description: values.get("description"),
        provider_id: values.get("provider_id"),
        config: configOf(values, "langchain"),
        ...peopleOf(values),
        ...(token && { token }),
      });
    },
  };
}

export const section = { name: "apps", title: "Applications", about: "What people can talk to, who sees it, and with which token.", View };
