"""What the parser holds while it reads: under twice the frame bound, whatever comes (contract B10). Measured, not reasoned.

Reads are as large against the bound as those of a socket are against the default (256 KiB against 4 MiB).
"""

import tracemalloc
from collections.abc import Iterable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.domain.evidence import RunFinished
from gateway.domain.limits import StreamBounds
from gateway.sse_parser.guard import Guard
from tests.property.frames import GOOD, framed, new_parser, texts

FRAME_BYTES = 128 * 1024
BOUNDS = StreamBounds(frame_bytes=FRAME_BYTES, stream_bytes=64 * FRAME_BYTES)
READ_BYTES = FRAME_BYTES // 16

RUNS = (
    b"x",
    b":\n",
    b"data:\n",
    b"data:xy\n",
    b"data:xy\r\n",
    b"data: x\ndata\n",
    b"nope: 1\n",
    b"\r",
    b"\n",
    b" ",
    b"{",
    b'\\"',
    "é".encode(),
)
ENDS = (b"", b"\n\n", b"\r\n\r\n", b'"}\n\n', b'"}  \n\n', b"\xff\n\n")
STARTS = (
    b"",
    b"\xef\xbb\xbf",
    b"data: {}\n\n",
    b'data: {"type":"RAW","event":"',
    "data: 🙂".encode(),
    b"event: x\nid: 1\ndata: ",
    b": ",
    b"data: \xff",
)
frames = st.tuples(st.sampled_from(STARTS), st.sampled_from(RUNS), st.integers(0, int(2.5 * FRAME_BYTES)), st.sampled_from(ENDS))


def frame(start: bytes, run: bytes, size: int, end: bytes) -> bytes:
    return start + run * (size // len(run)) + end


def reads(raw: bytes, read_bytes: int = READ_BYTES) -> list[bytes]:
    return [raw[at : at + read_bytes] for at in range(0, len(raw), read_bytes)]


def peak_bytes(guard: Guard, parts: Iterable[bytes]) -> int:
    """The most that was held at once beside `parts`, payloads of the latest read included."""
    tracemalloc.start()
    try:
        payloads: object = None
        for part in parts:
            payloads = guard.feed(part)
        del payloads
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@settings(max_examples=50)
@given(st.lists(frames, min_size=1, max_size=3), st.integers(READ_BYTES // 64, READ_BYTES))
@example([(b'data: {"type":"RAW","event":"', b"x", FRAME_BYTES - 64, b'"}\n\n')], READ_BYTES)
@example([("data: 🙂".encode(), b"x", FRAME_BYTES - 64, b"\n\n")], READ_BYTES)
@example([(b"", b"data:xy\n", FRAME_BYTES - 64, b"\n\n")], READ_BYTES)
@example([(b"", b"data:xy\r\n", FRAME_BYTES - 64, b"\r\n\r\n")], READ_BYTES)
def test_what_is_held_stays_under_twice_the_frame_bound(drawn: list[tuple[bytes, bytes, int, bytes]], read_bytes: int) -> None:
    raw = b"".join(frame(*one) for one in drawn)
    assert peak_bytes(Guard(BOUNDS), reads(raw, read_bytes)) < 2 * FRAME_BYTES


@pytest.mark.parametrize("inner", ["x" * 60, "🙂" * 15, '[{"a":1},' * 7], ids=["ascii", "wide", "nested"])
@pytest.mark.parametrize(
    "first", [b'{"type":"RAW","event":"', b'{"event":"', b'{"type":"NEW","event":"'], ids=["leading", "unread", "unknown"]
)
def test_a_large_ignored_frame_is_never_a_heap_of_objects(first: bytes, inner: str) -> None:
    """The same through the whole parser: what is ignored is not decoded."""
    last = b'","type":"RAW"}' if first == b'{"event":"' else b'"}'
    body = first + inner.replace('"', '\\"').encode() * (FRAME_BYTES // 100) + last
    body += b" " * (FRAME_BYTES - len(body) - 10)
    parser = new_parser(StreamBounds(frame_bytes=FRAME_BYTES, kept_frame_bytes=FRAME_BYTES // 4))
    parser.feed(framed(*GOOD[:4]))
    parts = reads(b"data: " + body + b"\n\n")
    tracemalloc.start()
    try:
        for part in parts:
            parser.feed(part)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * FRAME_BYTES
    assert parser.buffered == 0
    parser.feed(framed(*GOOD[4:]))
    assert isinstance(parser.end(), RunFinished)
    assert texts(parser) == ["Hello world"]
