"""Texts as if a chain without moderators had passed them: for tests that admit by themselves, past the checks before it."""

import hashlib

from gateway.admission.moderation import Opinion, Passed, Provider, TextKind


def passed(text: str) -> Passed:
    """What moderation hands on when nobody is asked."""
    return Passed(TextKind.MESSAGE, hashlib.sha256(text.encode()).digest(), None, (Opinion(Provider.NONE, None, 0.0),))
