// The list of messages and tool steps. Text goes in as text nodes only; what is there already is never replaced by less (an answer that
// could not be saved stays readable as long as the page is open).
import { messageState, toolState } from "./words.js";

const RANK = { started: 0, called: 1, returned: 2 };

export class Transcript {
  /** @param {HTMLOListElement} list @param {HTMLElement} scroller */
  constructor(list, scroller) {
    this.list = list;
    this.scroller = scroller;
    /** @type {Map<string, {node: HTMLElement, text?: Text, note?: HTMLElement, status?: string}>} */
    this.entries = new Map();
  }

  get empty() {
    return this.entries.size === 0;
  }

  clear() {
    this.entries.clear();
    this.list.replaceChildren();
  }

  /** An Item of the interface, from the history or a snapshot. */
  item(item) {
    if (item.type === "tool") this.tool(item.item_id, item.name, item.status, false);
    else if (item.role === "user") this.user(`user:${item.run_id}`, item.text, messageState(item.state), item.state);
    else this.assistant(item.item_id, item.text, item.complete, false);
  }

  /** A message that was typed here; `key` changes once its run is known. */
  user(key, text, note, state = "accepted") {
    const entry = this.#entry(key, () => this.#message("user", "You"));
    entry.node.classList.toggle("not-sent", state === "not_sent");
    entry.node.classList.toggle("failed", state === "failed");
    this.#append(entry, text);
    this.#note(entry, "state", note);
  }

  /** @param {string} from @param {string} to */
  rekey(from, to) {
    const entry = this.entries.get(from);
    if (!entry || from === to) return;
    this.entries.delete(from);
    if (this.entries.has(to)) entry.node.remove();
    else this.entries.set(to, entry);
  }

  remove(key) {
    this.entries.get(key)?.node.remove();
    this.entries.delete(key);
  }

  assistant(key, text, complete, live) {
    const entry = this.#entry(key, () => this.#message("assistant", "Agent"));
    this.#append(entry, text);
    entry.node.classList.toggle("live", live && !complete);
    this.#note(entry, "cut", complete || live ? "" : "This part is incomplete.");
  }

  tool(key, name, status, live) {
    const entry = this.#entry(key, () => {
      const node = element("li", "tool");
      node.append(element("span", "", "Tool "), element("code", "", name), " ", element("span", "tool-state"));
      return { node, note: node.lastElementChild, status: "" };
    });
    if ((RANK[entry.status] ?? -1) > RANK[status]) return;
    entry.status = status;
    entry.node.classList.toggle("returned", status === "returned");
    entry.node.classList.toggle("live", live);
    entry.note.textContent = toolState(status);
  }

  /** Nothing is arriving any more. */
  settle() {
    for (const node of this.list.querySelectorAll(".live")) node.classList.remove("live");
  }

  scrollToEnd() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  #entry(key, make) {
    let entry = this.entries.get(key);
    if (!entry) {
      entry = make();
      this.entries.set(key, entry);
      this.#following(() => this.list.append(entry.node));
    }
    return entry;
  }

  #message(kind, speaker) {
    const node = element("li", `message ${kind}`);
    const body = element("span", "body");
    const text = document.createTextNode("");
    body.append(text);
    node.append(element("span", "visually-hidden", `${speaker}: `), body);
    return { node, text };
  }

  #append(entry, text) {
    const known = entry.text.data;
    if (text.length <= known.length) return;
    this.#following(() => {
      if (text.startsWith(known)) entry.text.appendData(text.slice(known.length));
      else entry.text.data = text;
    });
  }

  #note(entry, className, text) {
    if (!entry.note && text) {
      entry.note = element("span", className);
      entry.node.append(entry.note);
    }
    if (entry.note) entry.note.textContent = text;
  }

  /** Keeps the end in view when it was in view: who reads further up is left alone. */
  #following(change) {
    const atEnd = this.scroller.scrollHeight - this.scroller.scrollTop - this.scroller.clientHeight < 80;
    change();
    if (atEnd) this.scrollToEnd();
  }
}

/** @param {string} tag @param {string} className @param {string} [text] */
export function element(tag, className = "", text = "") {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text) node.textContent = text;
  return node;
}
