"""markdown.js and transcript.js by themselves, in a real browser: the modules that are served, and no copy of them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from playwright.async_api import Page

from tests.browser.served import Served

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("browser")]

HTML = "<img src=x onerror=alert(1)><script>alert(2)</script>&lt;b&gt;"
HOSTILE = {
    "a bold text that does not end": "**a",
    "italics that do not end": "*a ",
    "code that does not end": "`a",
    "brackets": "[",
    "labels without an address": "[a](",
    "addresses of stops": "https://" + "." * 1900 + "a ",
    "stars": "*",
    "fences": "```\n",
    "numbers": "1. ",
    "headings": "# \n",
}


@pytest.fixture(scope="module")
async def page(served: Served, anyio_backend: str) -> AsyncIterator[Page]:
    """One page for all: the modules keep nothing."""
    async with served.visit() as visit:
        await visit.open()
        yield visit.page


async def blocks(page: Page, text: str) -> Any:
    script = """async (text) => {
      const { blocks } = await import("/static/markdown.js");
      return blocks(text);
    }"""
    return await page.evaluate(script, text)


def text(*pieces: str) -> list[dict[str, str]]:
    return [{"kind": "text", "text": piece} for piece in pieces]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("one\ntwo\n\nthree", [{"kind": "paragraph", "parts": text("one\ntwo")}, {"kind": "paragraph", "parts": text("three")}]),
        ("## Head", [{"kind": "heading", "parts": text("Head")}]),
        ("#Head", [{"kind": "paragraph", "parts": text("#Head")}]),
        ("- a\n- b", [{"kind": "list", "ordered": False, "items": [text("a"), text("b")]}]),
        (
            "1. a\n2) b\n- c",
            [
                {"kind": "list", "ordered": True, "items": [text("a"), text("b")]},
                {"kind": "list", "ordered": False, "items": [text("c")]},
            ],
        ),
        (
            "- a\n\n- b",
            [{"kind": "list", "ordered": False, "items": [text("a")]}, {"kind": "list", "ordered": False, "items": [text("b")]}],
        ),
        ("before\n```js\n**x**\n```\nafter", [
            {"kind": "paragraph", "parts": text("before")},
            {"kind": "code", "text": "**x**"},
            {"kind": "paragraph", "parts": text("after")},
        ]),
        ("```\nstill being\n\nwritten", [{"kind": "code", "text": "still being\n\nwritten"}]),
        ("```", [{"kind": "code", "text": ""}]),
        ("", []),
        (HTML, [{"kind": "paragraph", "parts": text(HTML)}]),
    ],
)  # fmt: skip
async def test_blocks(page: Page, source: str, expected: list[Any]) -> None:
    assert await blocks(page, source) == expected


async def test_inside_a_line(page: Page) -> None:
    cases: dict[str, list[dict[str, str]]] = {
        "a `b*c*` **d** *e*": [
            *text("a "),
            {"kind": "code", "text": "b*c*"},
            *text(" "),
            {"kind": "strong", "text": "d"},
            *text(" "),
            {"kind": "em", "text": "e"},
        ],
        "`<b>`": [{"kind": "code", "text": "<b>"}],
        "**a `b` c**": [{"kind": "strong", "text": "a `b` c"}],
        "*not* closed *here": [{"kind": "em", "text": "not"}, *text(" closed *here")],
        "2 * 3 * 4": text("2 * 3 * 4"),
        "[a](https://x.example/b?c=d#e)": [{"kind": "link", "text": "a", "href": "https://x.example/b?c=d#e"}],
        "see https://x.example/a, or not": [
            *text("see "),
            {"kind": "link", "text": "https://x.example/a", "href": "https://x.example/a"},
            *text(", or not"),
        ],
        "[**a**](mailto:a@x.example)": [{"kind": "link", "text": "**a**", "href": "mailto:a@x.example"}],
        "<https://x.example>": [*text("<"), {"kind": "link", "text": "https://x.example", "href": "https://x.example/"}, *text(">")],
    }
    for source, expected in cases.items():
        assert await blocks(page, source) == [{"kind": "paragraph", "parts": expected}], source


@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert(1)", "JaVaScRiPt:alert", "java\tscript:alert", "\x01javascript:alert", " javascript:alert",
        "data:text/html,x", "vbscript:x", "file:///etc/passwd", "blob:https://x.example/a", "//evil.example", "/operator",
        "\\\\evil.example", "https:// evil.example", "https://", "x", "javascript&#58;alert", "\u00a0https://x.example", "view-source:https://x.example",
    ],
)  # fmt: skip
async def test_what_is_no_address_of_the_web_is_no_link(page: Page, address: str) -> None:
    """It stays the text that it was, to the last character."""
    source = f"[a]({address})"
    (found,) = await blocks(page, source)
    for part in found["parts"]:  # an address of its own right inside of it may be one
        assert part["kind"] == "text" or part.get("href") == "https://x.example/", part
    assert "".join(part["text"] for part in found["parts"]) == source


async def test_any_text_keeps_its_words_and_links_only_to_the_web(page: Page) -> None:
    script = """async () => {
      const { blocks } = await import("/static/markdown.js");
      const pieces = ["*", "**", "`", "```", "\\n", "[", "](", ")", "https://", "javascript:", "a", " ", "<b>", "- ", "1. ", "# "];
      let seed = 7;
      const next = (below) => (seed = (seed * 48271) % 2147483647) % below;
      const wrong = [];
      for (let n = 0; n < 3000; n += 1) {
        const text = Array.from({ length: 1 + next(24) }, () => pieces[next(pieces.length)]).join("");
        const parts = blocks(text).flatMap((one) => one.parts ?? one.items?.flat() ?? [one]);
        let at = 0;
        for (const { text: shown, href } of parts) {
          if (href && !/^(https?:\\/\\/|mailto:)/.test(href)) wrong.push([text, href]);
          for (const character of shown) {
            at = text.indexOf(character, at) + 1;
            if (at === 0) { wrong.push([text, shown]); break; }
          }
        }
      }
      return wrong;
    }"""
    assert await page.evaluate(script) == []


@pytest.mark.parametrize("name", HOSTILE)
async def test_no_text_takes_longer_than_it_is_long(page: Page, name: str) -> None:
    """Ten times the longest text that is formatted, in lines of that length: a quadratic expression would take minutes."""
    script = """async (piece) => {
      const { blocks } = await import("/static/markdown.js");
      const text = piece.repeat(Math.ceil(49_000 / piece.length)).slice(0, 49_000);
      const before = performance.now();
      for (let n = 0; n < 10; n += 1) blocks(text);
      return performance.now() - before;
    }"""
    assert await page.evaluate(script, HOSTILE[name]) < 5000


async def test_a_text_that_is_too_long_for_elements_is_shown_as_it_is(page: Page) -> None:
    (only,) = await blocks(page, "**a**\n\n" * 20_000)
    assert only == {"kind": "paragraph", "parts": text("**a**\n\n" * 20_000)}


TRANSCRIPT = """async (steps) => {
  const { Transcript } = await import("/static/transcript.js");
  const transcript = new Transcript();
  for (const [name, ...given] of steps) transcript[name](...given);
  return transcript.entries.map(({ key, text, live, status, complete }) => [key, text || status, live, complete]);
}"""


def said(item_id: str, words: str, *, complete: bool = True) -> dict[str, Any]:
    return {"type": "message", "item_id": item_id, "run_id": "r", "role": "assistant", "text": words, "complete": complete}


def asked(run_id: str, words: str) -> dict[str, Any]:
    return {
        "type": "message",
        "item_id": f"u-{run_id}",
        "run_id": run_id,
        "role": "user",
        "text": words,
        "complete": True,
        "state": "accepted",
    }


def step(item_id: str, status: str) -> dict[str, Any]:
    return {"type": "tool", "item_id": item_id, "run_id": "r", "name": "search", "status": status, "parent_item_id": None}


def live(key: str, words: str) -> list[Any]:
    return ["put", {"key": key, "kind": "assistant", "text": words, "complete": False, "live": True}]


@pytest.mark.parametrize(
    ("steps", "entries"),
    [
        # What was seen is never replaced by less (contract D9b): neither a text nor how far a step got.
        ([live("m1", "Hello"), ["latest", [said("m1", "He", complete=False)]]], [["m1", "Hello", False, False]]),
        ([["latest", [step("t1", "returned")]], ["latest", [step("t1", "called")]]], [["t1", "returned", False, True]]),
        ([live("m1", "Hello"), ["latest", []]], [["m1", "Hello", True, False]]),
        # Items of the gateway keep their order, also around what is here already.
        (
            [["latest", [asked("r", "hi")]], live("m2", "two"), ["latest", [asked("r", "hi"), said("m1", "one"), said("m2", "two")]]],
            [["user:r", "hi", False, True], ["m1", "one", False, True], ["m2", "two", False, True]],
        ),
        # Those before come before, once.
        (
            [["latest", [said("m2", "two")]], ["older", [said("m1", "one"), said("m2", "two")]]],
            [["m1", "one", False, True], ["m2", "two", False, True]],
        ),
        # A message that was typed here becomes that of its run, also when that is known already.
        ([["put", {"key": "pending:s", "kind": "user", "text": "hi"}], ["rekey", "pending:s", "user:r"]], [["user:r", "hi", False, True]]),
        (
            [
                ["put", {"key": "pending:s", "kind": "user", "text": "hi"}],
                ["latest", [asked("r", "hi")]],
                ["rekey", "pending:s", "user:r"],
                ["rekey", "user:r", "user:r"],
                ["rekey", "none", "user:q"],
            ],
            [["user:r", "hi", False, True]],
        ),
        ([live("m1", "a"), ["settle"]], [["m1", "a", False, False]]),
        ([live("m1", "a"), ["remove", "m1"], live("m1", "b")], [["m1", "b", True, False]]),
        ([live("m1", "a"), ["clear"]], []),
    ],
)
async def test_the_transcript(page: Page, steps: list[Any], entries: list[Any]) -> None:
    assert await page.evaluate(TRANSCRIPT, steps) == entries


async def test_only_what_changed_is_a_new_object(page: Page) -> None:
    """What shows an entry draws it anew only then."""
    script = """async (items) => {
      const { Transcript } = await import("/static/transcript.js");
      const transcript = new Transcript();
      transcript.latest(items);
      const [first, second] = transcript.entries;
      transcript.latest(items);
      transcript.put({ key: "m2", kind: "assistant", text: "two and a half" });
      return [transcript.entries[0] === first, transcript.entries[1] === second];
    }"""
    assert await page.evaluate(script, [said("m1", "one"), said("m2", "two")]) == [True, False]
