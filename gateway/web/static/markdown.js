// A small subset of Markdown, as data: paragraphs, headings, lists, code, emphasis, links. What is not in it stays the text that it was.
// Nothing in here becomes HTML: the page makes elements and text nodes of it. A link goes to http, https or mailto, or is none.

/** @typedef {{kind: "text"|"code", text: string}|{kind: "strong"|"em", text: string}|{kind: "link", text: string, href: string}} Inline */
/** @typedef {{kind: "paragraph"|"heading", parts: Inline[]}|{kind: "code", text: string}|{kind: "list", ordered: boolean, items: Inline[][]}} Block */

// Each alternative ends at a line's end or is bounded: a hostile text costs no more than a plain one.
const INLINE = /`([^`\n]+)`|\*\*([^*\n]+)\*\*|\*([^*\s][^*\n]*)\*|\[([^\]\n]{1,200})\]\(([^\s()]{1,2000})\)|(https?:\/\/[^\s<>"'`)\]]{1,2000})/g;
const FENCE = /^ {0,3}```/;
const HEADING = /^#{1,6} +/;
const BULLET = /^ {0,3}[-*] +/;
const NUMBER = /^ {0,3}\d{1,9}[.)] +/;
const SCHEMES = ["http:", "https:", "mailto:"];
/** A longer text is shown as it is: each piece of it would be an element, and a page has to stay quick. */
const LONGEST_FORMATTED = 50_000;

/** @param {string} text @returns {Block[]} */
export function blocks(text) {
  if (text.length > LONGEST_FORMATTED) return [{ kind: "paragraph", parts: [{ kind: "text", text }] }];
  const found = [];
  let paragraph = [];
  const close = () => {
    if (paragraph.length) found.push({ kind: "paragraph", parts: inline(paragraph.join("\n")) });
    paragraph = [];
  };
  const lines = text.split("\n");
  for (let at = 0; at < lines.length; at += 1) {
    const line = lines[at];
    if (FENCE.test(line)) {
      close();
      const from = at + 1;
      // A fence that is not closed yet: the answer is still being written.
      for (at = from; at < lines.length && !FENCE.test(lines[at]); at += 1);
      found.push({ kind: "code", text: lines.slice(from, at).join("\n") });
    } else if (!line.trim()) {
      close();
    } else if (HEADING.test(line)) {
      close();
      found.push({ kind: "heading", parts: inline(line.replace(HEADING, "")) });
    } else if (BULLET.test(line) || NUMBER.test(line)) {
      close();
      const marker = BULLET.test(line) ? BULLET : NUMBER;
      const last = found.at(-1);
      const item = inline(line.replace(marker, ""));
      if (last?.kind === "list" && last.ordered === (marker === NUMBER) && lines[at - 1]?.trim()) last.items.push(item);
      else found.push({ kind: "list", ordered: marker === NUMBER, items: [item] });
    } else {
      paragraph.push(line);
    }
  }
  close();
  return found;
}

/** @param {string} text @returns {Inline[]} */
export function inline(text) {
  const parts = [];
  let end = 0;
  const plain = (piece) => piece && parts.push({ kind: "text", text: piece });
  for (const match of text.matchAll(INLINE)) {
    const [whole, code, strong, em, label, target, bare] = match;
    plain(text.slice(end, match.index));
    end = match.index + whole.length;
    if (code !== undefined) parts.push({ kind: "code", text: code });
    else if (strong !== undefined) parts.push({ kind: "strong", text: strong });
    else if (em !== undefined) parts.push({ kind: "em", text: em });
    else {
      const address = bare === undefined ? target : withoutStops(bare);
      const href = safe(address);
      if (href === null) {
        end = match.index;
        continue;
      }
      parts.push({ kind: "link", text: label ?? address, href });
      if (bare !== undefined) end = match.index + address.length;
    }
  }
  plain(text.slice(end));
  return parts;
}

/** An address in a sentence, without the stops that end it. */
function withoutStops(address) {
  let end = address.length;
  while (".,;:!?".includes(address[end - 1])) end -= 1;
  return address.slice(0, end);
}

function safe(address) {
  try {
    const url = new URL(address);
    return SCHEMES.includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}
