"""The W3C trace context of what this task does: the caller's where it is valid, else made here, and sent with every call to others.

Ids and one flag, nothing of the request. The current context is inherited by the tasks that a request starts, so a run carries the trace of
the request that submitted it. `tracestate` is not passed on: it belongs to others, and we promise nothing about what it holds.
"""

import re
import secrets
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

TRACEPARENT: Final = "traceparent"

_NOTHING: Final = re.compile("0+")
_VERSION_00: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_LATER_VERSION: Final = re.compile(r"(?!00|ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_SAMPLED: Final = 0x01


@dataclass(frozen=True, slots=True)
class TraceContext:
    """Lower-case hex: 32 characters of a trace, 16 of the span that is the parent of what follows."""

    trace_id: str
    span_id: str
    sampled: bool

    def child(self) -> "TraceContext":
        """The same trace, another span."""
        return TraceContext(self.trace_id, secrets.token_hex(8), self.sampled)

    def header(self) -> str:
        """The value of `traceparent`."""
        return f"00-{self.trace_id}-{self.span_id}-{int(self.sampled):02x}"


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of work that is over. Times in nanoseconds since 1970. `attributes`: ids and words of ours, never content."""

    name: str
    context: TraceContext
    parent_span_id: str | None
    started_at_ns: int
    ended_at_ns: int
    failed: bool = False
    server: bool = False
    attributes: Mapping[str, str | int] = field(default_factory=dict)


Record = Callable[[Span], None]
"""Takes finished spans; must neither wait nor raise."""

current_trace: Final[ContextVar[TraceContext | None]] = ContextVar("current_trace", default=None)


def new_trace(*, sampled: bool) -> TraceContext:
    """A trace that begins here."""
    return TraceContext(secrets.token_hex(16), secrets.token_hex(8), sampled)


def parse(header: str) -> TraceContext | None:
    """The context of a `traceparent` header; None for what the recommendation calls invalid, ids of nothing but zeros included."""
    text = header.strip()
    found = _VERSION_00.fullmatch(text) or _LATER_VERSION.fullmatch(text)
    if found is None:
        return None
    trace_id, span_id, flags = found.groups()
    if _NOTHING.fullmatch(trace_id) or _NOTHING.fullmatch(span_id):
        return None
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & _SAMPLED))


def outgoing() -> str:
    """The header of a call that is made now: of the current trace, or of a new one that nobody records."""
    return (current_trace.get() or new_trace(sampled=False)).header()
