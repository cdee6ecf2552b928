"""What must hold for any bytes at all: one function for the fuzzer and for the replay of what it found. No fuzzer is needed for it.

An input is one byte that chooses the parser and its bounds, one that chooses how the rest is cut, and the rest: the stream.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, Protocol

from gateway.domain.evidence import RunErrored, RunFinished, StreamBroken, StreamFact
from gateway.domain.ids import NativeRunId
from gateway.domain.limits import StreamBounds
from gateway.domain.snapshot import Item, MessageItem, Snapshot, parse
from gateway.domain.text import is_storable
from gateway.sse_parser.faults import FAULTS, Detail
from gateway.sse_parser.native import NativeParser
from gateway.sse_parser.parser import Batch, StreamParser
from tests.property.frames import BOUNDS, finished_first, new_parser

NATIVE_RUN: Final = NativeRunId("run-1")
FEW: Final = replace(BOUNDS, frame_bytes=256, kept_frame_bytes=128, stream_bytes=2048, events=12, text_bytes=24, messages=2, tools=2)
HEADER_BYTES: Final = 2
_LARGEST_BYTEWISE: Final = 512
"""Longer ones are cut, but not at every byte: the fuzzer lives of its speed."""


class Parser(Protocol):
    """What the parsers of both profiles have."""

    @property
    def counts(self) -> object: ...
    def feed(self, data: bytes) -> Batch: ...
    def end(self) -> StreamFact: ...
    def items(self) -> tuple[Item, ...]: ...
    def snapshot(self, complete: bool) -> Snapshot: ...


PARSERS: Final[tuple[tuple[Callable[[StreamBounds], Parser], StreamBounds], ...]] = (
    (new_parser, BOUNDS),
    (new_parser, FEW),
    (lambda bounds: NativeParser(native_run_id=NATIVE_RUN, bounds=bounds), BOUNDS),
    (lambda bounds: NativeParser(native_run_id=NATIVE_RUN, bounds=bounds), FEW),
)


def check(fuzzed: bytes) -> StreamFact | None:
    """Raises AssertionError for what must not be; the fact that the stream came to, None for what is too short to be an input."""
    if len(fuzzed) < HEADER_BYTES:
        return None
    make, bounds = PARSERS[fuzzed[0] % len(PARSERS)]
    raw, size = fuzzed[HEADER_BYTES:], fuzzed[1] + 1
    whole = _read(make(bounds), iter([raw]))
    for piece in {size, 1} if len(raw) <= _LARGEST_BYTEWISE else {size * 16}:
        assert _read(make(bounds), _cut(raw, piece)) == whole
    fact = whole[0]
    if isinstance(fact, StreamBroken):
        assert fact.reason is FAULTS[Detail(fact.detail)][0]
    elif isinstance(fact, RunFinished):
        # A success, or any other word of RUN_FINISHED, by the plain definition of one; with small bounds too, whatever else they allow.
        assert finished_first(raw)
    else:
        assert isinstance(fact, RunErrored)
    return fact


def _read(parser: Parser, pieces: Iterator[bytes]) -> tuple[StreamFact, tuple[Item, ...], object]:
    ends = [batch.end for batch in map(parser.feed, pieces) if batch.end is not None]
    fact, items = parser.end(), parser.items()
    assert ends in ([], [fact])
    assert all(is_storable(item.text) for item in items if isinstance(item, MessageItem))
    snapshot = parser.snapshot(True)
    assert parse(snapshot.canonical()) == snapshot
    # What the native parser counts after a fault depends on how the bytes came; nothing rests on it.
    return fact, items, parser.counts if isinstance(parser, StreamParser) else None


def _cut(raw: bytes, size: int) -> Iterator[bytes]:
    return (raw[at : at + size] for at in range(0, len(raw), size))
