"""Numbers that bound what the gateway accepts and keeps. Defaults here; settings may change the ones that settings.py names."""

from dataclasses import dataclass
from typing import Final

MAX_TEXT_CHARACTERS: Final = 16_000
"""Unicode code points in a message (contract B5)."""
MAX_UPSTREAM_BODY_BYTES: Final = 64 * 1024
"""The request body that is sent upstream, UTF-8 without needless escapes (contract B5)."""
MAX_BROWSER_BODY_BYTES: Final = 256 * 1024
"""A browser's body: JSON escapes can make 64 KiB of text three times as long, and the envelope comes on top."""
MAX_AG_UI_BODY_BYTES: Final = 4 * 1024 * 1024
"""An AG-UI client's body: such clients send the whole conversation again with each message."""
MAX_CLIENT_THREAD_CHARACTERS: Final = 200
"""An AG-UI client's name of a conversation."""
MAX_JSON_DEPTH: Final = 64
"""Levels of nesting. CPython's decoder recurses; real events nest less than 20 deep."""
MAX_JSON_INTEGER_DIGITS: Final = 64
"""Digits of one integer. No field of the protocols has more than 20."""
MAX_TITLE_CHARACTERS: Final = 200
MAX_SUBJECT_CHARACTERS: Final = 200
"""The name of a person, a group or a role."""
MAX_REASON_CHARACTERS: Final = 1000
"""Why an operator acted: a few sentences, and the owner of the run reads them."""
MAX_REPLY_BODY_BYTES: Final = 1024 * 1024
"""An upstream's JSON reply (capabilities, threads, look-up: real servers echo user content there)."""
MAX_THREAD_BODY_BYTES: Final = 8 * 1024 * 1024
"""A native thread's state or its list of runs: both repeat the whole conversation."""
PAGE_DEFAULT: Final = 50
PAGE_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class StreamBounds:
    """What one upstream stream may cost (contract B10, design.md "Parsing"). Bytes are wire bytes, seconds are monotonic."""

    frame_bytes: int = 4 * 1024 * 1024
    kept_frame_bytes: int = 256 * 1024
    stream_bytes: int = 128 * 1024 * 1024
    events: int = 50_000
    text_bytes: int = 1024 * 1024
    messages: int = 256
    tools: int = 512
    connect_seconds: float = 5.0
    idle_seconds: float = 120.0
    total_seconds: float = 900.0


@dataclass(frozen=True, slots=True)
class ActiveLimits:
    """How many runs may hold a slot at once (contract C7). The conversation's limit is one and is not a setting."""

    per_user: int = 1
    per_application: int = 2
