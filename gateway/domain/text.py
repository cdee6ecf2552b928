"""The one place where text is judged and cleaned (design.md "Parsing"): NUL and lone surrogates."""

import re
from typing import Final

_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


def is_storable(text: str) -> bool:
    """False when `text` has a NUL or a lone surrogate: from a browser such text is refused before anything is charged."""
    return _UNSTORABLE.search(text) is None


def clean(text: str) -> str:
    """Upstream text with each NUL and lone surrogate replaced by U+FFFD, so that an answer is never lost for them."""
    return _UNSTORABLE.sub("\ufffd", text)
