"""The local rules of moderation: deny terms and patterns, and what people paste by mistake (contract C3). They need no service.

Patterns are matched by RE2, in time linear in the text: on the text as typed, and on a normalised copy that is only looked at.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

import re2

from gateway.admission import normalised as copies
from gateway.admission import secret_patterns
from gateway.admission.moderation import Asked, Judgement, Provider
from gateway.admission.normalised import normalised
from gateway.domain.limits import MAX_TEXT_CHARACTERS

DENIED: Final = "denied_content"
"""The category of terms and patterns: people are told the category and what to do, never the rule."""

_LONGEST_COPY: Final = 4 * MAX_TEXT_CHARACTERS
"""Characters of a normalised copy that are searched; ordinary text of any language stays far below."""
_MAX_MEMORY: Final = 64 * 1024 * 1024
"""Bytes that compiled rules may take, and what matching them keeps: enough for ten thousand terms. RE2's own measure is an eighth of it."""
_LEET: Final = {
    "a": "a4@", "b": "b8", "c": "c(", "e": "e3", "g": "g69", "i": "i1!|", "l": "l1|", "o": "o0", "s": "s5$", "t": "t7+", "z": "z2",
}  # fmt: skip


class RuleInvalid(ValueError):
    """A deny rule cannot be used. `line` counts from 1."""

    def __init__(self, line: int) -> None:
        super().__init__(f"line {line}: not a valid pattern")
        self.line = line


class RulesTooLarge(ValueError):
    """The deny rules cannot be used together."""

    def __init__(self) -> None:
        super().__init__("its rules are too many or too long together")


class LocalRules:
    """Deny rules, one a line: a term, `~term` for one that is also found with digits and signs for letters (leet), or a `/pattern/`; blank
    lines and those that begin with # are none. And, unless `secrets` is false, keys, tokens and card numbers."""

    provider = Provider.LOCAL

    def __init__(self, rules: Sequence[str], *, secrets: bool = True) -> None:
        options = re2.Options()
        options.log_errors = False
        options.case_sensitive = False
        options.max_mem = _MAX_MEMORY
        self._rules = re2.Set.SearchSet(options)
        self._secrets = secrets
        patterns = []
        for number, rule in enumerate(rules, 1):
            if not (stripped := rule.strip()) or stripped.startswith("#"):
                continue
            patterns.append(_pattern(stripped))
            try:
                self._rules.Add(patterns[-1])
            except re2.error:
                raise RuleInvalid(number) from None
        self._any = bool(patterns)
        try:
            self._rules.Compile()
        except re2.error:
            raise RulesTooLarge from None
        made_of = repr((copies.VERSION, secret_patterns.VERSION if secrets else None, patterns))
        self._version = hashlib.sha256(made_of.encode()).hexdigest()[:12]

    async def judge(self, asked: Asked) -> Judgement:
        """At once; the version names rules, patterns and normalisation together."""
        categories = secret_patterns.secrets_in(asked.text) if self._secrets else ()
        if self._denies(asked.text):
            categories = (DENIED, *categories)
        return Judgement(categories, self._version)

    def _denies(self, text: str) -> bool:
        if not self._any:
            return False
        if self._rules.Match(text):
            return True
        copy = normalised(text)
        # A letter that stands for many is no way to make the search long. Case is nothing to the rules.
        return len(copy) > _LONGEST_COPY or (copy != text.lower() and bool(self._rules.Match(copy)))


def _pattern(rule: str) -> str:
    if len(rule) > 2 and rule.startswith("/") and rule.endswith("/"):
        return rule[1:-1]
    if len(rule) > 1 and rule.startswith("~"):
        return "".join(f"[{re2.escape(_LEET[one])}]" if one in _LEET else re2.escape(one) for one in normalised(rule[1:]))
    return str(re2.escape(normalised(rule)))
