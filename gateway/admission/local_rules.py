"""The local rules of moderation: deny terms and patterns (contract C3, field case O-47). Needs no service.

Patterns are matched by RE2, in time linear in the text. The text that is stored and sent stays as it was typed; a normalised copy is
only looked at.
"""

import unicodedata
from collections.abc import Sequence
from typing import Final

import re2

from gateway.admission.moderation import Asked, Judgement, Provider
from gateway.domain.limits import MAX_TEXT_CHARACTERS

DENIED: Final = "denied_content"
"""The category of the local rules: people are told the category and what to do, never the rule."""

_LONGEST_COPY: Final = 4 * MAX_TEXT_CHARACTERS
"""Characters of a normalised copy that are searched; ordinary text of any language stays far below."""
_INVISIBLE: Final = re2.compile(r"[\p{Cf}\p{Mn}\p{Me}\x00-\x08\x0b-\x1f\x7f-\x9f]+")

# Letters that look like Latin ones and that NFKC and case folding leave apart: the Cyrillic and Greek ones seen in evasions.
_LOOK_ALIKES: Final = str.maketrans(
    {
        "а": "a", "в": "b", "с": "c", "ԁ": "d", "е": "e", "ё": "e", "һ": "h", "н": "h", "і": "i", "ї": "i", "ј": "j", "к": "k", "м": "m",
        "о": "o", "р": "p", "ԛ": "q", "г": "r", "ѕ": "s", "т": "t", "ԝ": "w", "х": "x", "у": "y",
        "α": "a", "β": "b", "ε": "e", "ι": "i", "κ": "k", "η": "n", "ο": "o", "ρ": "p", "τ": "t", "υ": "u", "ν": "v", "χ": "x",
    }
)  # fmt: skip


class RuleInvalid(ValueError):
    """A deny rule cannot be used. `line` counts from 1."""

    def __init__(self, line: int) -> None:
        super().__init__(f"line {line}: not a valid pattern")
        self.line = line


class LocalRules:
    """Deny terms and /patterns/, matched on the text as typed and on its normalised copy, all of them in one pass."""

    provider = Provider.LOCAL

    def __init__(self, rules: Sequence[str]) -> None:
        options = re2.Options()
        options.log_errors = False
        options.case_sensitive = False
        self._rules = re2.Set.SearchSet(options)
        self._any = False
        for number, rule in enumerate(rules, 1):
            if not (stripped := rule.strip()) or stripped.startswith("#"):
                continue
            is_pattern = len(stripped) > 2 and stripped.startswith("/") and stripped.endswith("/")
            try:
                self._rules.Add(stripped[1:-1] if is_pattern else re2.escape(normalised(stripped)))
            except re2.error:
                raise RuleInvalid(number) from None
            self._any = True
        self._rules.Compile()

    async def judge(self, asked: Asked) -> Judgement:
        text = asked.text
        if not self._any:
            return Judgement()
        copy = normalised(text)
        # A letter that stands for many (U+FDFA is eighteen) is no way to make the search long.
        if len(copy) > _LONGEST_COPY or self._rules.Match(text) or self._rules.Match(copy):
            return Judgement((DENIED,))
        return Judgement()


def normalised(text: str) -> str:
    """A copy for looking at: compatibility forms unified, case folded, invisible and combining characters gone, look-alikes made Latin."""
    folded = unicodedata.normalize("NFKD", text).casefold()
    visible: str = re2.sub(_INVISIBLE, "", folded)
    return unicodedata.normalize("NFKC", visible).translate(_LOOK_ALIKES)
