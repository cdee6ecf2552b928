"""A copy of a text for looking at, in which ways of hiding a word are undone (field case O-47). What is stored and sent is the text.

Undone are compatibility forms (full width, circled, mathematical letters), case, invisible and combining characters, runs shown backwards,
and letters of other alphabets that look like Latin ones. What a script itself needs stays: the vowel signs of Hindi, the dotless i of
Turkish, Russian in Russian words.
"""

import unicodedata
from typing import Final, Literal

import re2

VERSION: Final = 3
"""Raised by each change of what the copy is."""

# Of all scripts: format characters, enclosing marks, marks without a script of their own (U+0300 on, variation selectors), controls, blanks
# that count as letters, the stretching of Arabic; and the points of Hebrew and Arabic, which are left out in ordinary writing anyway.
_INVISIBLE: Final = re2.compile(
    r"[\p{Cf}\p{Me}\p{Inherited}\x00-\x08\x0b-\x1f\x7f-\x9f\x{0640}\x{115f}\x{1160}\x{17b4}\x{17b5}\x{2800}\x{3164}"
    r"\x{0591}-\x{05bd}\x{05bf}\x{05c1}\x{05c2}\x{05c4}\x{05c5}\x{0610}-\x{061a}\x{064b}-\x{065f}\x{0670}\x{06d6}-\x{06dc}]+"
)
# Marks of a script that stand on letters of another one, as no writing has them.
_STRAY_MARKS: Final = re2.compile(r"([\p{Latin}\p{Greek}\p{Cyrillic}\p{Armenian}])\p{Mn}+")
_SHOWN_BACKWARDS: Final = re2.compile(r"\x{202e}([^\x{202a}-\x{202e}\x{2066}-\x{2069}\n]*)")

# Marks are sorted by normalisation, in time that grows with the square of how many there are in a row; U+034F lets it begin anew (UAX 15,
# Stream-Safe Text Format).
_MANY_MARKS: Final = re2.compile(r"\p{M}{30}")
_JOINER: Final = "\u034f"

# What NFKC and case folding leave apart. The first two lines of each alphabet are letters of its own words, the rest is of Latin itself.
_OTHER_ALPHABETS: Final = {
    "а": "a", "в": "b", "с": "c", "ԁ": "d", "е": "e", "ё": "e", "ԍ": "g", "һ": "h", "н": "h", "і": "i", "ї": "i", "ј": "j", "к": "k",
    "ӏ": "l", "м": "m", "о": "o", "р": "p", "ԛ": "q", "г": "r", "ѕ": "s", "т": "t", "ц": "u", "ѵ": "v", "ԝ": "w", "х": "x", "у": "y",
    "α": "a", "β": "b", "ϲ": "c", "ε": "e", "ι": "i", "κ": "k", "η": "n", "ο": "o", "ρ": "p", "τ": "t", "υ": "u", "ν": "v", "ω": "w",
    "χ": "x", "γ": "y", "ϳ": "j", "օ": "o", "ո": "n", "ս": "u", "ց": "g", "հ": "h", "զ": "q", "ք": "p",
}  # fmt: skip
_LATIN_FORMS: Final = {
    "ɑ": "a", "ƅ": "b", "ƈ": "c", "đ": "d", "ɗ": "d", "ɛ": "e", "ƒ": "f", "ɡ": "g", "ɠ": "g", "ħ": "h", "ɨ": "i", "ł": "l", "ƙ": "k",
    "ŋ": "n", "ɲ": "n", "ø": "o", "ɔ": "o", "ƥ": "p", "ʂ": "s", "ŧ": "t", "ƭ": "t", "ʋ": "v", "ɯ": "w", "ƴ": "y", "ƶ": "z",
    **dict(zip("ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ", "abcdefghijklmnoprstuvwyz", strict=True)),
    # letters in filled circles and squares; those of flags are none: Germany, Austria and Hungary in a row spell no word
    **{chr(first + number): chr(ord("a") + number) for first in (0x1F150, 0x1F170) for number in range(26)},
}  # fmt: skip
_ALL: Final = str.maketrans({**_OTHER_ALPHABETS, **_LATIN_FORMS})
_OF_LATIN: Final = str.maketrans(_LATIN_FORMS)
_LOOKS_LATIN: Final = re2.compile("[" + "".join((*_OTHER_ALPHABETS, *_LATIN_FORMS)) + "]")
_ONLY_ITS_OWN: Final = re2.compile(
    "[" + "".join(chr(code) for code in (*range(0x0430, 0x0460), *range(0x03B1, 0x03CA)) if chr(code) not in _OTHER_ALPHABETS) + "]"
)
_WORD: Final = re2.compile(r"\p{L}+")
_LATIN_LETTER: Final = re2.compile(r"\p{Latin}")


def normalised(text: str) -> str:
    """The copy. Equal copies look alike, mostly; a copy can be much longer than its text (U+FDFA is eighteen letters)."""
    if text.isascii():
        return _without(text.lower())
    if "\u202e" in text:
        text = _SHOWN_BACKWARDS.sub(lambda run: str(run[1])[::-1], text)
    folded = _without(_in_form("NFKD", text).casefold())
    copy = _in_form("NFKC", str(_STRAY_MARKS.sub(r"\1", folded)))
    return _latinised(copy) if _LOOKS_LATIN.search(copy) else copy


def compatible(text: str) -> str:
    """A lesser copy, in which case stays: compatibility forms unified, what is invisible gone. For what is no word, as a key."""
    return text if text.isascii() else _without(_in_form("NFKC", text))


def _in_form(form: Literal["NFKC", "NFKD"], text: str) -> str:
    """`text` in that form of normalisation, in linear time; marks are sorted only thirty at a time. The joiners are gone again."""
    if not _MANY_MARKS.search(text):
        return unicodedata.normalize(form, text)
    return unicodedata.normalize(form, _MANY_MARKS.sub(lambda marks: str(marks[0]) + _JOINER, text)).replace(_JOINER, "")


def _without(text: str) -> str:
    return str(_INVISIBLE.sub("", text))


def _latinised(copy: str) -> str:
    # A text with letters that Latin has nothing like is written in that alphabet: there, only words of two alphabets hide anything.
    if not _ONLY_ITS_OWN.search(copy):
        return copy.translate(_ALL)
    return str(_WORD.sub(_latinised_word, copy))


def _latinised_word(word: "re2._Match[str]") -> str:
    letters = str(word[0])
    return letters.translate(_ALL if _LATIN_LETTER.search(letters) else _OF_LATIN)
