// What was said, as data. What is there is never replaced by less: an answer that could not be saved stays readable as long as the page is
// open (contract D9b). An entry that changes is a new object, so that what shows it can tell.

/**
 * @typedef {{key: string, kind: "user"|"assistant"|"tool", text: string, live: boolean, complete: boolean, state: string, name: string,
 *   status: string}} Entry
 */

const RANK = { started: 0, called: 1, returned: 2 };

export class Transcript {
  /** @type {Entry[]} In order. */
  entries = [];
  #keys = new Set();

  clear() {
    this.entries = [];
    this.#keys.clear();
  }

  /** Items that come before all others. @param {object[]} items */
  older(items) {
    const before = items.map(entryOf).filter((entry) => !this.#keys.has(entry.key));
    before.forEach((entry) => this.#keys.add(entry.key));
    this.entries = [...before, ...this.entries];
    return before.length;
  }

  /** Items in order as the gateway has them now, up to the last. @param {object[]} items */
  latest(items) {
    let place = -1;
    for (const item of items) {
      const entry = entryOf(item);
      if (this.#keys.has(entry.key)) place = this.#change(entry);
      else {
        this.#keys.add(entry.key);
        place = place < 0 ? this.entries.length : place + 1;
        this.entries = [...this.entries.slice(0, place), entry, ...this.entries.slice(place)];
      }
    }
  }

  /** One entry as it is now, at the end when it is new. @param {Partial<Entry> & {key: string, kind: string}} changed */
  put(changed) {
    const entry = { text: "", live: false, complete: true, state: "accepted", name: "", status: "", ...changed };
    if (this.#keys.has(entry.key)) return void this.#change(entry);
    this.#keys.add(entry.key);
    this.entries = [...this.entries, entry];
  }

  /** A message that was typed here gets the key of its run. @param {string} from @param {string} to */
  rekey(from, to) {
    if (from === to || !this.#keys.has(from)) return;
    if (this.#keys.has(to)) return this.remove(from);
    this.#keys.delete(from);
    this.#keys.add(to);
    this.entries = this.entries.map((entry) => (entry.key === from ? { ...entry, key: to } : entry));
  }

  /** @param {string} key */
  remove(key) {
    this.#keys.delete(key);
    this.entries = this.entries.filter((entry) => entry.key !== key);
  }

  /** Nothing is arriving any more. */
  settle() {
    this.entries = this.entries.map((entry) => (entry.live ? { ...entry, live: false } : entry));
  }

  #change(entry) {
    const place = this.entries.findLastIndex((one) => one.key === entry.key);
    const known = this.entries[place];
    const merged = { ...known, ...entry };
    if (entry.text.length < known.text.length) merged.text = known.text;
    if ((RANK[known.status] ?? -1) > (RANK[entry.status] ?? -1)) merged.status = known.status;
    if (Object.keys(merged).some((name) => merged[name] !== known[name])) this.entries = this.entries.with(place, merged);
    return place;
  }
}

function entryOf(item) {
  const shared = { text: item.text ?? "", live: false, complete: item.complete ?? true, state: "accepted", name: "", status: "" };
  if (item.type === "tool") return { ...shared, key: item.item_id, kind: "tool", name: item.name, status: item.status };
  if (item.role === "user") return { ...shared, key: `user:${item.run_id}`, kind: "user", state: item.state };
  return { ...shared, key: item.item_id, kind: "assistant" };
}
