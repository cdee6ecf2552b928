"""The guard against httpx-sse, another reader of the same standard: where that is right they agree, and each disagreement is listed.

What is compared is framing: the data of each event. Bounds, JSON and order are nobody's but ours.
"""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
from httpx_sse import EventSource, SSEError
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.evidence import ResponseFault
from gateway.sse_parser.faults import Detail, broken
from gateway.sse_parser.guard import Guard
from gateway.upstream.response_class import event_stream_fault
from gateway.upstream.response_decoder import ResponseHead
from tests.property.frames import BOUNDS

SAMPLES = Path(__file__).parent.parent / "samples"
EVENT_STREAM = "text/event-stream"


def theirs(raw: bytes, cuts: list[int], content_type: str = EVENT_STREAM) -> list[str]:
    """The data of each event that httpx-sse finds in a body that arrives in pieces."""
    edges = [0, *sorted(cut % (len(raw) + 1) for cut in cuts), len(raw)]

    def pieces() -> Iterator[bytes]:
        yield from (raw[start:end] for start, end in pairwise(edges))

    response = httpx.Response(200, headers={"content-type": content_type}, content=pieces())
    return [event.data for event in EventSource(response).iter_sse()]


def ours(raw: bytes) -> list[str]:
    guard = Guard(BOUNDS)
    frames = [frame.decode() for frame in guard.feed(raw)]
    assert guard.fault is None
    return frames


def said(found: list[str]) -> list[str]:
    """Without the events that have no data: httpx-sse makes them (an id sticks, and makes one of every comment), for us they are none."""
    return [text for text in found if text.strip(" \t\n\r\x0b\x0c")]


lines = st.one_of(
    st.sampled_from(["data", "event", "id", "retry", "", "dat", "dataset", "Data"]).flatmap(
        lambda name: st.sampled_from([name, f"{name}:", f"{name}: ", f"{name}:x", f"{name}: x", f"{name}:  x", f'{name}: {{"type":"RAW"}}'])
    ),
    st.text(st.characters(codec="utf-8", exclude_characters="\r\n\ufeff"), max_size=8).map("data: {}".format),
    st.sampled_from([": ping", ":", "data: a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg", "data: 🙂", "data: é\x00"]),
)
line_ends = st.sampled_from(["\n", "\r\n", "\r", "\n\n", "\r\n\r\n", "\r\r", "\n\r\n"])
bodies = st.lists(st.tuples(lines, line_ends), max_size=30).map(lambda drawn: "".join(line + end for line, end in drawn).encode())
cuts = st.lists(st.integers(0, 500), max_size=6)


@given(bodies, cuts)
def test_they_agree(raw: bytes, cuts: list[int]) -> None:
    assert ours(raw) == said(theirs(raw, cuts))


@pytest.mark.parametrize("path", sorted(path.relative_to(SAMPLES).as_posix() for path in SAMPLES.glob("*/*.sse")))
def test_they_agree_on_what_was_recorded(path: str) -> None:
    raw = (SAMPLES / path).read_bytes()
    assert ours(raw) == said(theirs(raw, []))
    other = raw.replace(b"\r\n", b"\n") if b"\r\n" in raw else raw.replace(b"\n", b"\r\n")
    assert ours(other) == ours(raw) == said(theirs(other, list(range(0, len(other), 97))))


@pytest.mark.parametrize(
    ("raw", "found", "standard"),
    [
        # "If the stream begins with a BOM, ignore it": httpx-sse takes it for a part of the first field's name.
        (b"\xef\xbb\xbfdata: 1\n\ndata: 2\n\n", ["2"], ["1", "2"]),
        # "If the data buffer is an empty string, … return": nothing is dispatched for a block without data, whatever id came before it.
        (b"id: 7\ndata: 1\n\n: ping\n\ndata: 2\n\n", ["1", "", "2"], ["1", "2"]),
        (b"event: x\n\ndata: 2\n\n", ["", "2"], ["2"]),
        (b"retry: 5\n\ndata: 2\n\n", ["", "2"], ["2"]),
    ],
)
def test_where_it_is_wrong_ours_follows_the_standard(raw: bytes, found: list[str], standard: list[str]) -> None:
    assert theirs(raw, []) == found
    assert ours(raw) == standard


@pytest.mark.parametrize("blank", [b"data", b"data:", b"data:\ndata:", b"data:  "])
def test_blank_data_is_an_event_to_the_standard_and_none_of_ours(blank: bytes) -> None:
    """A deliberate one (field case O-16): it cannot be JSON, servers send it to keep a stream alive, and it is counted."""
    raw = blank + b"\n\ndata: 2\n\n"
    assert len(theirs(raw, [])) == 2
    assert ours(raw) == ["2"]


@pytest.mark.parametrize("raw", [b"data: \xff\n\n", b'data: "\xed\xa0\xbd"\n\n', b"data: \xc3\n\n"])
def test_bytes_that_are_no_utf8_are_a_fault_and_never_guessed(raw: bytes) -> None:
    """A deliberate one: the standard replaces them, which would change what was said."""
    assert "\ufffd" in theirs(raw, [])[0]
    guard = Guard(BOUNDS)
    assert guard.feed(raw) == []
    assert guard.fault == broken(Detail.UTF8)


@pytest.mark.parametrize(
    ("content_type", "fault"),
    [
        # "Event streams are always decoded as UTF-8": httpx-sse reads what the header says.
        ("text/event-stream; charset=iso-8859-1", ResponseFault.CHARSET),
        # Its test is whether the name stands anywhere in the header.
        ("x-text/event-streamish", ResponseFault.CONTENT_TYPE),
    ],
)
def test_headers_that_it_believes_are_refused(content_type: str, fault: ResponseFault) -> None:
    theirs("data: é\n\n".encode(), [], content_type)
    assert event_stream_fault(ResponseHead(200, (("content-type", content_type),))) is fault


def test_headers_that_both_refuse_or_take() -> None:
    for content_type in ("application/json", "text/plain"):
        with pytest.raises(SSEError):
            theirs(b"data: 1\n\n", [], content_type)
        assert event_stream_fault(ResponseHead(200, (("content-type", content_type),))) is ResponseFault.CONTENT_TYPE
    for content_type in (EVENT_STREAM, "text/event-stream; charset=utf-8"):
        assert theirs(b"data: 1\n\n", [], content_type) == ["1"]
        assert event_stream_fault(ResponseHead(200, (("content-type", content_type),))) is None
