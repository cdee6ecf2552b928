// Copying a text for a person: to the clipboard, or, where a page may not, by selecting it for them.

/**
 * @param {string} text @param {Element} shown Where the text stands.
 * @returns {Promise<string>} What became of it, to be said.
 */
export async function copyText(text, shown) {
  try {
    await navigator.clipboard.writeText(text); // not there on plain HTTP
    return COPIED;
  } catch {
    getSelection().selectAllChildren(shown);
    return "The text is selected. Copy it as you do elsewhere.";
  }
}

export const COPIED = "Copied.";
