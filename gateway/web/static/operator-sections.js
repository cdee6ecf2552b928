// The sections of the console, in the order of the menu. A new one is a module that exports `section`, and a line here.
//
// A section is {name, title, about, View}. `name` begins its address: #name, #name/ID, #name?query. `View` is a component and gets
// {id, query}: what stands in the address after the name. `hidden`: not in the menu. What all of them use is in operator-parts.js.
import { section as attention } from "./operator-attention.js";
import { section as audit } from "./operator-audit.js";
import { section as live } from "./operator-live.js";
import { section as run } from "./operator-run.js";
import { section as runs } from "./operator-runs.js";
import { section as accounts } from "./operator-settings-accounts.js";
import { section as apps } from "./operator-settings-apps.js";
import { section as moderation } from "./operator-settings-moderation.js";
import { section as providers } from "./operator-settings-providers.js";
import { section as quotas } from "./operator-settings-quotas.js";

export const SECTIONS = [attention, runs, run, apps, providers, accounts, quotas, moderation, audit, live];
