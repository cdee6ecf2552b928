"""The guard: framing, strict UTF-8 and bounds, by hand and byte by byte."""

import itertools
import sys
import tracemalloc
from collections.abc import Iterable
from types import FrameType
from typing import Any

import pytest

from gateway.domain.evidence import StreamBroken
from gateway.domain.limits import StreamBounds
from gateway.domain.reasons import Reason
from gateway.sse_parser.faults import Detail
from gateway.sse_parser.guard import Guard, Payload
from tests.property.frames import BOUNDS, GOOD, NR, RF, RS, event, framed, new_parser, read, texts


def guarded(parts: Iterable[bytes], bounds: StreamBounds = BOUNDS) -> tuple[list[Payload], Guard]:
    guard = Guard(bounds)
    frames: list[Payload] = []
    for part in parts:
        frames += guard.feed(part)
        assert guard.buffered <= bounds.frame_bytes
    return frames, guard


def frames_of(raw: bytes, bounds: StreamBounds = BOUNDS) -> tuple[list[Payload], Guard]:
    """The frames of `raw`, which are the same whole, byte by byte and split once anywhere."""
    frames, guard = guarded([raw], bounds)
    cuts = [[raw[index : index + 1] for index in range(len(raw))]]
    cuts += [[raw[:index], raw[index:]] for index in range(1, len(raw))]
    for parts in cuts:
        again, other = guarded(parts, bounds)
        assert again == frames, parts
        assert (other.fault, other.events, other.comments, other.empty) == (guard.fault, guard.events, guard.comments, guard.empty), parts
        assert (other.in_frame, other.fed_bytes) == (guard.in_frame, guard.fed_bytes), parts
    return frames, guard


@pytest.mark.parametrize(
    ("raw", "frames"),
    [
        (b"data: {}\n\n", [b"{}"]),
        (b"data:{}\n\n", [b"{}"]),
        (b"data:  {}\n\n", [b" {}"]),
        (b"data: {\ndata: }\n\n", [b"{\n}"]),
        (b"data: {}\r\n\r\n", [b"{}"]),
        (b"data: {}\r\r", [b"{}"]),
        (b"data: {}\n\r\n", [b"{}"]),
        (b"data: {}\r\n\n", [b"{}"]),
        (b"data: {}\n\r", [b"{}"]),
        (b"data: {}\r\n\r", [b"{}"]),
        (b'data: {"a":\rdata: 1}\r\n\r\n', [b'{"a":\n1}']),
        (b"data: {}\n\ndata: {}\n\n", [b"{}", b"{}"]),
        (b"data: {}\n\n\n\n\ndata: {}\n\n", [b"{}", b"{}"]),
        (b"\n\n\ndata: {}\n\n", [b"{}"]),
        (b"event: x\nid: 1\nretry: 5\ndata: {}\n\n", [b"{}"]),
        (b"data: {}\nid: 7\n: comment\nevent: error\n\n", [b"{}"]),
        (b"dataset: 1\nda: 2\n data: 3\ndata: {}\ndatax\n\n", [b"{}"]),
        (b"data: [DONE]\n\ndata: x\n\n", [b"[DONE]", b"x"]),
        (b"data: {}\n\ndata: \n\ndata: {}\n\n", [b"{}", b"{}"]),
        (b"data\ndata: {}\ndata\n\n", [b"\n{}\n"]),
        (b"\xef\xbb\xbfdata: {}\n\n", [b"{}"]),
        (b"\xef\xbb\xbf\xef\xbb\xbfdata: {}\n\ndata: {}\n\n", [b"{}"]),
        (b"\xef\xbbdata: {}\n\n", []),
        (b"data: {}\n\n\xef\xbb\xbfdata: {}\n\n", [b"{}"]),
        (b"data: {}", []),
        (b"data: {}\n", []),
        (b"data: {}\r\n", []),
        (b"", []),
    ],
)
def test_framing(raw: bytes, frames: list[bytes]) -> None:
    assert frames_of(raw)[0] == frames


def test_characters_that_are_no_line_ends_stay() -> None:
    text = "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg".encode()
    assert frames_of(b"data: " + text + b"\n\ndata: {" + text + b"}\n\n")[0] == [text, b"{" + text + b"}"]


@pytest.mark.parametrize("raw", [b"data\n\n", b"data:\n\n", b"data: \n\n", b"data:  \t\n\n", b"data:\ndata:\n\n", b"id: 7\ndata:\n\n"])
def test_empty_data_is_dropped_and_counted(raw: bytes) -> None:
    frames, guard = frames_of(raw + b"data: {}\n\n" + raw)
    assert frames == [b"{}"]
    assert (guard.empty, guard.comments, guard.events) == (2, 0, 3)


def test_comment_blocks_are_counted_apart() -> None:
    frames, guard = frames_of(b": ping\n\nid: 7\n\nevent: x\nretry: 1\n\n:\n\ndata: {}\n\n")
    assert frames == [b"{}"]
    assert (guard.empty, guard.comments, guard.events) == (0, 4, 5)


@pytest.mark.parametrize(
    "line",
    [
        b"data: \xff",
        b'data: {"a":"\xc3"}',
        b'data: {"a":"\xed\xa0\xbd"}',
        b'data: {"a":"\xc0\xaf"}',
        b": \xff",
        b"event: \x80",
        b"data: {}\nnope: \xf8",
        b"data: \xef\xbb",
    ],
)
def test_invalid_utf8_is_a_fault_in_any_line(line: bytes) -> None:
    frames, guard = frames_of(b"data: {}\n\n" + line + b"\n\ndata: {}\n\n")
    assert frames == [b"{}"]
    assert guard.fault == StreamBroken(Reason.BAD_FRAME, Detail.UTF8)


@pytest.mark.parametrize(
    ("raw", "in_frame"),
    [
        (b"", False),
        (b"\xef\xbb", False),
        (b"\xef\xbb\xbf", False),
        (b"\n\n\r\n", False),
        (b"data: {}\n\n", False),
        (b"data: {}\n\n\n", False),
        (b"d", True),
        (b"data: {}\n", True),
        (b"data: {}\r\n", True),
        (b": ping\n", True),
    ],
)
def test_end_inside_a_frame_is_seen(raw: bytes, in_frame: bool) -> None:
    assert frames_of(raw)[1].in_frame is in_frame


def small(*, stream_bytes: int = 10_000, events: int = 10_000) -> StreamBounds:
    return StreamBounds(frame_bytes=32, stream_bytes=stream_bytes, events=events)


@pytest.mark.parametrize("prefix", [b"data: {", b"data: x", b": ", b"nope: ", b"data", b"", b"event: x\ndata: {"])
@pytest.mark.parametrize("before", [b"", b"data: {}\n\n", b"\n\n\n"])
def test_o45_exactly_the_limit_and_one_more(prefix: bytes, before: bytes) -> None:
    def block(size: int) -> bytes:
        return prefix + b"x" * (size - len(prefix) - 1) + b"\n"

    _, guard = frames_of(before + block(32) + b"\n", small())
    assert guard.fault is None
    _, guard = frames_of(before + block(33) + b"\n", small())
    assert guard.fault == StreamBroken(Reason.BOUND_EXCEEDED, Detail.FRAME_BYTES)
    _, guard = frames_of(before + (prefix + b"x" * 40)[:32], small())
    assert guard.fault is None
    assert guard.in_frame
    _, guard = frames_of(before + (prefix + b"x" * 40)[:33], small())
    assert guard.fault == StreamBroken(Reason.BOUND_EXCEEDED, Detail.FRAME_BYTES)


def test_a_tiny_bound_holds_from_the_first_byte() -> None:
    for raw in (b"\xef\xbbx", b"x:\n", b"\xef\xbb\xbfxyz"):
        assert frames_of(raw, StreamBounds(frame_bytes=2))[1].fault == StreamBroken(Reason.BOUND_EXCEEDED, Detail.FRAME_BYTES)
    assert frames_of(b"\xef\xbb\xbf\n\n", StreamBounds(frame_bytes=2))[1].fault is None


def test_many_short_lines_are_one_frame() -> None:
    _, guard = frames_of(b":\n" * 16 + b"\n", small())
    assert guard.fault is None
    _, guard = frames_of(b":\n" * 17 + b"\n", small())
    assert guard.fault == StreamBroken(Reason.BOUND_EXCEEDED, Detail.FRAME_BYTES)


def test_frames_before_a_fault_are_delivered() -> None:
    frames, guard = frames_of(b"data: {}\n\ndata: {1}\n\ndata: {" + b"x" * 40, small())
    assert frames == [b"{}", b"{1}"]
    assert guard.fault is not None


def test_stream_bytes() -> None:
    raw = b"data: {}\n\n" * 3
    frames, guard = frames_of(raw, small(stream_bytes=30))
    assert (len(frames), guard.fault) == (3, None)
    frames, guard = frames_of(raw, small(stream_bytes=29))
    assert (len(frames), guard.fault) == (2, StreamBroken(Reason.BOUND_EXCEEDED, Detail.STREAM_BYTES))
    assert guard.fed_bytes == 30


def test_events() -> None:
    raw = b"data: {}\n\n: ping\n\ndata:\n\n"
    frames, guard = frames_of(raw, small(events=3))
    assert (frames, guard.fault) == ([b"{}"], None)
    frames, guard = frames_of(raw + b": once more\n\n", small(events=3))
    assert (frames, guard.fault) == ([b"{}"], StreamBroken(Reason.BOUND_EXCEEDED, Detail.EVENTS))
    frames, guard = frames_of(b"data: {}\n\n" * 3 + b"data: {1}", small(events=2))
    assert (frames, guard.fault) == ([b"{}"] * 2, StreamBroken(Reason.BOUND_EXCEEDED, Detail.EVENTS))


def test_a_read_of_nothing_but_whole_frames_is_bounded_like_any_other() -> None:
    raw = b"data: {}\n\n" * 3
    for bounds, detail in ((StreamBounds(events=2), Detail.EVENTS), (StreamBounds(stream_bytes=29), Detail.STREAM_BYTES)):
        frames, guard = frames_of(raw, bounds)
        assert (frames, guard.fault) == ([b"{}"] * 2, StreamBroken(Reason.BOUND_EXCEEDED, detail))


def test_after_a_fault_nothing_is_taken() -> None:
    guard = Guard(small())
    guard.feed(b"data: \xff\n\n")
    fault = guard.fault
    assert guard.feed(b"data: {}\n\n") == []
    assert guard.feed(b"x" * 1000) == []
    assert (guard.fault, guard.buffered, guard.fed_bytes) == (fault, 0, 1019)


def test_o45_flood_without_a_newline_is_not_buffered() -> None:
    bounds = StreamBounds(frame_bytes=1024 * 1024)
    flood = b"x" * (16 * 1024 * 1024)
    tracemalloc.start()
    try:
        parser, fact, _ = read([flood], new_parser(bounds))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert fact == StreamBroken(Reason.BOUND_EXCEEDED, Detail.FRAME_BYTES)
    assert parser.buffered <= bounds.frame_bytes
    assert peak < 2 * bounds.frame_bytes


def test_o45_long_frame_in_many_reads_is_scanned_once() -> None:
    # Quadratic work would take minutes here: 4 MiB in 128-byte reads.
    part = b"x" * 128
    parser = new_parser()
    parser.feed(framed(RS) + b'data: {"type":"RAW","event":"')
    for _ in range(4 * 1024 * 1024 // 128 - 1):
        parser.feed(part)
    batch = parser.feed(b'"}\n\n' + framed(RF))
    assert batch.end is not None
    assert parser.counts.ignored_raw == 1


@pytest.mark.parametrize("line", [b"data", b"data:x", b"datax", b":"])
def test_o45_a_frame_of_very_many_lines_is_no_loop_over_its_lines(line: bytes) -> None:
    count = 100_000
    steps = 0

    def step(_frame: FrameType, what: str, _: object) -> Any:
        nonlocal steps
        steps += what == "line"
        return step

    guard = Guard(BOUNDS)
    before = sys.gettrace()
    sys.settrace(step)
    try:
        frames = guard.feed((line + b"\n") * count + b"\n")
    finally:
        sys.settrace(before)
    assert (guard.events, guard.fault) == (1, None)
    assert [len(frame) for frame in frames] == ([2 * count - 1] if line == b"data:x" else [])
    assert steps < count / 10


@pytest.mark.parametrize("piece", [1, 2, 5, 16, 60])
def test_data_lines_are_the_same_whatever_the_piece_they_are_read_by(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.sse_parser.guard._LINES_PIECE_BYTES", piece)
    lines = [
        b"data",
        b"data:",
        b"data: ",
        b"data:  x",
        b"data:\ty",
        b"data: " + b"z" * 20,
        b"datax: n",
        b": c",
        b" data: n",
        b"event: data",
    ]
    for first, second, third in itertools.product(lines, repeat=3):
        values = [line[5:].removeprefix(b" ") for line in (first, second, third) if line[:5] in (b"data", b"data:")]
        expected = b"\n".join(values)
        frames, guard = guarded([b"\n".join((first, second, third)) + b"\n\n"], BOUNDS)
        assert frames == ([expected] if expected.strip() else []), (first, second, third)
        assert (guard.comments, guard.empty) == (not values, bool(values) and not expected.strip())


def test_o45_large_legal_tool_result() -> None:
    result = event("TOOL_CALL_RESULT", messageId="k1", toolCallId="k1", content="x" * 900 * 1024)
    parser, fact, _ = read([framed(*GOOD[:-1], result, RF)])
    assert fact.__class__.__name__ == "RunFinished"
    assert texts(parser) == ["Hello world"]


def test_o44_cr_and_lf_in_two_reads_and_a_bom_in_two_reads() -> None:
    parts = [b'data: {"type":"RUN_STARTED",\r', b'\ndata: "threadId":"t-1","runId":"c-1"}\r\n\r\n', framed(NR, *GOOD[2:])]
    assert read(parts)[1].__class__.__name__ == "RunFinished"
    assert read([b"".join(parts).replace(b"\n\n", b"\r\r")])[1].__class__.__name__ == "RunFinished"
    assert read([b"\xef", b"\xbb\xbf" + framed(*GOOD)])[1].__class__.__name__ == "RunFinished"
    assert read([b"\xef\xbb\xbf" + framed(*GOOD)])[1].__class__.__name__ == "RunFinished"


def test_o16_comments_and_ids_make_no_events() -> None:
    ping = b": ping\n\n"
    parser, fact, _ = read([b"id: 7\n" + framed(GOOD[0]) + ping, *(framed(one) + ping for one in GOOD[1:])])
    assert fact.__class__.__name__ == "RunFinished"
    assert (parser.counts.comments, parser.counts.frames) == (len(GOOD), len(GOOD))


def test_a_frame_is_counted_only_where_feeding_it_would_deliver_it() -> None:
    frame = framed(GOOD[3])
    size = len(frame)
    for prepare, bounds, taken in (
        (b"", BOUNDS, True),
        (b"\xef", BOUNDS, False),
        (b"data: x", BOUNDS, False),
        (b"data: {}\n\n", BOUNDS, True),
        (b"data: {}\r\r", BOUNDS, False),
        (b"data: \xff\n\n", BOUNDS, False),
        (b"", StreamBounds(frame_bytes=8 * size - 1), False),
        (b"", StreamBounds(frame_bytes=8 * size), True),
        (b"", StreamBounds(stream_bytes=size - 1), False),
        (b"", StreamBounds(stream_bytes=size), True),
        (b"", StreamBounds(events=0), False),
    ):
        guard, other = Guard(bounds), Guard(bounds)
        guard.feed(prepare)
        other.feed(prepare)
        assert guard.count_frame(size) is taken
        if taken:
            assert other.feed(frame) == [frame[6:-2]]
            assert (guard.fed_bytes, guard.events, guard.in_frame) == (other.fed_bytes, other.events, other.in_frame)


def test_a_plain_read_is_read_as_any_other() -> None:
    start, plain = framed(*GOOD[:3]), framed(GOOD[3])
    for broken, detail in ((plain.replace(b"Hello", b"\xff"), Detail.UTF8), (plain.replace(b"m1", b"m\xc3"), Detail.UTF8)):
        assert read([start, broken])[1] == read([start + broken])[1] == StreamBroken(Reason.BAD_FRAME, detail)
    for before in (b": open comment\n", b"data:\n"):
        # Here the read is the rest of a frame, and its data line the frame's last one.
        parser, _, _ = read([start, before, plain])
        assert texts(parser) == ["Hello "]
        assert parser.counts == read([start + before + plain])[0].counts
