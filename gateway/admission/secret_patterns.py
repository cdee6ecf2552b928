"""What people paste by mistake: keys and tokens by the forms in which services hand them out, and numbers of payment cards.

No text of somebody who asks about such things has these forms, but for real ones and for examples made to look real.
"""

from typing import Final

import re2

from gateway.admission.normalised import compatible

SECRET: Final = "secret"
CARD_NUMBER: Final = "card_number"
VERSION: Final = 2
"""Raised by each change of the patterns."""

_PATTERNS: Final = (
    r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----",
    r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}\b",
    r"\bgh[opusr]_[A-Za-z0-9]{36}",
    r"\b[a-z]{3,10}_pat_[A-Za-z0-9_]{60}",
    r"\b(?:glpat|gldt|glrt)-[A-Za-z0-9_-]{20}",
    r"\bxox[abeoprs]-[A-Za-z0-9-]{10}",
    r"\b[rs]k_live_[A-Za-z0-9]{16}",
    r"\bsk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{32}",
    # with a stretch that no address of a page has, whose words are joined by hyphens
    r"\bsk-[A-Za-z0-9_-]{12,}[A-Za-z0-9]{20}",
    r"\bAIza[A-Za-z0-9_-]{35}",
    r"\bya29\.[A-Za-z0-9_-]{20}",
    r"\b(?:npm|hf|dop_v1|shpat|shpss|lin_api|pul)_[A-Za-z0-9]{32}",
    r"\b[a-z]{4}-AgE[A-Za-z0-9_-]{60}",
    r"\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16}",
    r"\b[0-9]{8,10}:[A-Za-z0-9_-]{35}\b",
    r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{16}",
    r"\bAccountKey=[A-Za-z0-9+/]{80}",
)
_CARD: Final = re2.compile(r"\b(?:[0-9]{4}[ -]?[0-9]{4}[ -]?[0-9]{4}[ -]?[0-9]{1,7}|[0-9]{4}[ -]?[0-9]{6}[ -]?[0-9]{4,5})\b")
_OF_ANOTHER_NUMBER: Final = re2.compile(r"(?:[0-9]\.|\b[A-Z]{2}[0-9]{2} )$")
"""Ends where digits are those of a fraction or of an IBAN in groups: of such numbers up to one in ten would pass for a card's."""
_ISSUED: Final = re2.compile(
    r"4[0-9]{15}|4[0-9]{18}|5[1-5][0-9]{14}|2(?:22[1-9]|2[3-9][0-9]|[3-6][0-9]{2}|7[01][0-9]|720)[0-9]{12}|3[47][0-9]{13}"
    r"|3(?:0[0-5]|[68][0-9])[0-9]{11}|6(?:011|4[4-9][0-9]|5[0-9]{2})[0-9]{12}|35(?:2[89]|[3-8][0-9])[0-9]{12}|62[0-9]{14,17}"
)
"""Lengths by first digits, as the payment networks give them out. Visa's of 13 digits are no longer given out, and many telephone numbers
and articles have such numbers."""


def _compiled() -> "re2.Set":
    found = re2.Set.SearchSet()
    for pattern in _PATTERNS:
        found.Add(pattern)
    found.Compile()
    return found


_SECRETS: Final = _compiled()


def secrets_in(text: str) -> tuple[str, ...]:
    """The categories of what was found in `text`, also in full-width letters or with invisible ones between; in linear time."""
    copy = compatible(text)
    return tuple(category for category, found in ((SECRET, bool(_SECRETS.Match(copy))), (CARD_NUMBER, _has_card_number(copy))) if found)


def _has_card_number(text: str) -> bool:
    for candidate in _CARD.finditer(text):
        if _OF_ANOTHER_NUMBER.search(text[max(candidate.start() - 6, 0) : candidate.start()]):
            continue
        digits = "".join(character for character in str(candidate[0]) if character.isdigit())
        if _ISSUED.fullmatch(digits) and _checks(digits):
            return True
    return False


def _checks(digits: str) -> bool:
    """The check digit of ISO/IEC 7812: every second digit from the right doubled, the sum a multiple of ten."""
    values = [int(digit) for digit in reversed(digits)]
    return sum(values[::2] + [sum(divmod(2 * value, 10)) for value in values[1::2]]) % 10 == 0
