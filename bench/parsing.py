"""The parser alone, against json.loads of the same: what all the checking of a stream costs beside plain decoding, and what it holds."""

import json
import time
import tracemalloc
from collections.abc import Callable
from typing import Final

from bench.report import Better, Finding, Row
from bench.upstream import run_events
from gateway.domain.limits import StreamBounds
from gateway.sse_parser.parser import StreamParser

_STREAMS: Final = 400
_READ_BYTES: Final = 256 * 1024
_MIB: Final = 1024 * 1024


def parser_alone(*, rounds: int) -> list[Finding]:
    """Time: every event in a read of its own, as from a paced upstream, and eight in one. Memory: the largest frame that is taken."""
    return [*(_speed(pieces, rounds) for pieces in (1, 8)), _memory(rounds)]


def _memory(rounds: int) -> Row:
    """What is ignored is skipped as bytes; decoded it would be many times as large."""
    bounds = StreamBounds()
    item = b'{"id":1,"type":"ai","content":"word","tool_calls":[]},'
    head, tail = b'{"type":"MESSAGES_SNAPSHOT","messages":[', b"{}]}"
    document = head + item * ((bounds.frame_bytes - 100) // len(item)) + tail
    wire = b"data: " + document + b"\n\n"
    pieces = [*run_events("thread-1", "run-1", "native-1")[:1], *(wire[at : at + _READ_BYTES] for at in range(0, len(wire), _READ_BYTES))]

    def read() -> object:
        parser = StreamParser(thread_id="thread-1", correlation_id="run-1", bounds=bounds)
        return [parser.feed(piece) for piece in pieces]

    return Row(
        goal="parser",
        what=f"reading a snapshot of {len(document) / _MIB:.1f} MiB, in reads of {_READ_BYTES // 1024} KiB, against json.loads of it",
        unit="MiB held at most",
        ours=[_held_mib(read) for _ in range(rounds)],
        peer=[_held_mib(lambda: json.loads(document)) for _ in range(rounds)],
        peer_name="json.loads",
        better=Better.LOWER,
    )


def _held_mib(work: Callable[[], object]) -> float:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / _MIB
    finally:
        tracemalloc.stop()


def _speed(at_once: int, rounds: int) -> Row:
    events = run_events("thread-1", "run-1", "native-1")
    pieces = [b"".join(events[at : at + at_once]) for at in range(0, len(events), at_once)]
    documents = [event.removeprefix(b"data: ").strip() for event in events]
    ours: list[float] = []
    plain: list[float] = []
    for _ in range(rounds):
        ours.append(_us_per_event(lambda: _parse(pieces), len(events)))
        plain.append(_us_per_event(lambda: [json.loads(document) for document in documents], len(events)))
    return Row(
        goal="parser",
        what=f"reading a stream, {at_once} event(s) a read, against json.loads of its events alone",
        unit="CPU us per event",
        ours=ours,
        peer=plain,
        peer_name="json.loads",
        better=Better.LOWER,
        notes=[f"{1e6 / sorted(ours)[len(ours) // 2]:,.0f} events/s"],
    )


def _parse(pieces: list[bytes]) -> object:
    parser = StreamParser(thread_id="thread-1", correlation_id="run-1", bounds=StreamBounds())
    end = None
    for piece in pieces:
        end = parser.feed(piece).end
    assert end is not None
    return end


def _us_per_event(work: Callable[[], object], events: int) -> float:
    began_at = time.process_time()
    for _ in range(_STREAMS):
        work()
    return (time.process_time() - began_at) * 1e6 / (_STREAMS * events)
