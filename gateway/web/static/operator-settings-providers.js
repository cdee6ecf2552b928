// Providers: the services that host applications.
import { Id, Time, useDesk, usePages } from "./operator-parts.js";
import { Ask, Card, Cards, Says, TextField, changed } from "./operator-settings.js";
import { html } from "./preact-htm.js";

function View() {
  const { client } = useDesk();
  const pages = usePages((cursor, signal) => client.read("/providers", { cursor }, signal), "providers");
  const change = async (provider, body) => {
    if (Object.keys(body).length === 0) return "Nothing was changed.";
    pages.put(await client.act("PATCH", `/providers/${provider.provider_id}`, body), "provider_id");
    return "Changed.";
  };
  const create = async (values) => {
    await client.act("POST", "/providers", { name: values.get("name"), base_url: values.get("base_url") });
    await pages.reload();
    return "The provider was made.";
  };
  return html`
    <${Ask} label="New provider" question=${() => creation(create)} />
    <${Cards} pages=${pages} empty="There is no provider yet.">${(provider) => html`<${Card} key=${provider.provider_id} title=${provider.name}
      tags=${provider.enabled ? [] : ["Switched off"]}
      facts=${[
        ["Base URL", provider.base_url],
        ["Id", html`<${Id} value=${provider.provider_id} what=${`the id of ${provider.name}`} />`],
        ["Changed", html`<${Time} at=${provider.updated_at} />`],
      ]}
      acts=${[
        { label: "Rename", question: () => renaming(provider, change) },
        { label: "Move", question: () => moving(provider, change) },
        { label: provider.enabled ? "Switch off" : "Switch on", question: () => toggle(provider, change) },
      ]} />`}<//>`;
}

const URL_HINT = "Without credentials, query or fragment. HTTPS, unless its host is trusted in the settings.";

function creation(create) {
  return {
    title: "New provider",
    label: "Make it",
    body: html`<${TextField} label="Name" name="name" required /><${TextField} label="Base URL" name="base_url" required hint=${URL_HINT} />`,
    perform: create,
  };
}

function renaming(provider, change) {
  return {
    title: `Rename ${provider.name}`,
    label: "Save",
    body: html`<${TextField} label="Name" name="name" value=${provider.name} required />`,
    perform: (values) => change(provider, changed(provider, { name: values.get("name") })),
  };
}

function moving(provider, change) {
  return {
    title: `Move ${provider.name}`,
    label: "Move it",
    danger: true,
    body: html`
      <${Says} warn>Another address ends the conversations of all its applications for good: they stay readable and take no new message, also when the old
        address comes back. Another host drops their tokens as well.<//>
      <${TextField} label="Base URL" name="base_url" value=${provider.base_url} required hint=${URL_HINT} />`,
    perform: (values) => change(provider, changed(provider, { base_url: values.get("base_url") })),
  };
}

function toggle(provider, change) {
  if (!provider.enabled) {
    return {
      title: `Switch ${provider.name} on`,
      label: "Switch it on",
      body: html`<${Says}>Its applications take new messages again, as far as they are switched on themselves.<//>`,
      perform: () => change(provider, { enabled: true }),
    };
  }
  return {
    title: `Switch ${provider.name} off`,
    label: "Switch it off",
    danger: true,
    body: html`<${Says}>Nobody can send a message to any of its applications until it is switched on again. Runs that are under way finish, and history stays readable.<//>`,
    perform: () => change(provider, { enabled: false }),
  };
}

export const section = { name: "providers", title: "Providers", about: "The services that host applications.", View };
