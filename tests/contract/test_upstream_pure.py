"""The parts of `gateway.upstream` without a socket: response decoder, send gate, request body, busy bodies."""

import json
from uuid import UUID

import h11
import pytest

from gateway.domain.evidence import NotSentProof
from gateway.domain.ids import CorrelationId, ThreadId
from gateway.domain.limits import MAX_UPSTREAM_BODY_BYTES
from gateway.upstream.response_class import says_busy
from gateway.upstream.response_decoder import (
    MAX_CHUNK_LINE_BYTES,
    MAX_HEAD_BYTES,
    MAX_INFORMATIONAL,
    MAX_TRAILER_BYTES,
    BodyEnd,
    ResponseDecoder,
)
from gateway.upstream.run_input import GenerationRequest, UnsendableRunInput, text_fits_upstream
from gateway.upstream.send_gate import SendGate

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def decoder() -> ResponseDecoder:
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
    connection.send(h11.Request(method="POST", target="/", headers=[("Host", "a"), ("Content-Length", "0")]))
    connection.send(h11.EndOfMessage())
    return ResponseDecoder(connection)


def decoded(wire: bytes, size: int, *, orderly: bool = True) -> tuple[int | None, bytes, BodyEnd | None]:
    """Status, payload and end of `wire` fed in pieces of `size`."""
    fed = decoder()
    payload = b""
    for at in range(0, len(wire), size):
        fed.feed(wire[at : at + size])
        payload += fed.take()
    fed.eof(orderly=orderly)
    return fed.head.status if fed.head else None, payload + fed.take(), fed.end


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        (CHUNKED + b"5\r\nhello\r\n6; a=b\r\n world\r\n0\r\n\r\n", (200, b"hello world", BodyEnd.COMPLETE)),
        (CHUNKED + b"000005\r\nhello\r\n0000\r\nX-T: 1\r\nX-U: 2\r\n\r\n", (200, b"hello", BodyEnd.COMPLETE)),
        (CHUNKED + b"A \r\n0123\r\n4567\r\n0\r\n\r\nHTTP/1.1 500 X\r\n\r\n", (200, b"0123\r\n4567", BodyEnd.COMPLETE)),
        (CHUNKED + b"5\r\nhello\r\n0\r\n", (200, b"hello", BodyEnd.CUT)),
        (CHUNKED + b"5\r\nhel", (200, b"hel", BodyEnd.CUT)),
        (CHUNKED, (200, b"", BodyEnd.CUT)),
        (CHUNKED + b"5\nhello\n0\n\n" + b" " * MAX_CHUNK_LINE_BYTES, (200, b"", BodyEnd.MALFORMED)),
        (CHUNKED + b"-5\r\nhello\r\n0\r\n\r\n", (200, b"", BodyEnd.MALFORMED)),
        (CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n", (200, b"", BodyEnd.MALFORMED)),
        (CHUNKED + b"\r\n", (200, b"", BodyEnd.MALFORMED)),
        (CHUNKED + b"10000000000000000\r\n", (200, b"", BodyEnd.MALFORMED)),
        (CHUNKED + b"5\r\nhello0\r\n\r\n", (200, b"hello", BodyEnd.MALFORMED)),
        (CHUNKED + b"5;" + b"x" * MAX_CHUNK_LINE_BYTES + b"\r\n", (200, b"", BodyEnd.MALFORMED)),
        (CHUNKED + b"0\r\n" + b"X-T: 1\r\n" * MAX_TRAILER_BYTES, (200, b"", BodyEnd.MALFORMED)),
        (CHUNKED + b"0\r\n" + b"x" * (MAX_TRAILER_BYTES + 1), (200, b"", BodyEnd.MALFORMED)),
        (HEAD + b"Content-Length: 5\r\n\r\nhello, and more", (200, b"hello", BodyEnd.COMPLETE)),
        (HEAD + b"Content-Length: 5, 5\r\n\r\nhello", (200, b"hello", BodyEnd.COMPLETE)),
        (HEAD + b"Content-Length: 0\r\n\r\n", (200, b"", BodyEnd.COMPLETE)),
        (HEAD + b"Content-Length: 6\r\n\r\nhello", (200, b"hello", BodyEnd.CUT)),
        (HEAD + b"Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", (200, b"x", BodyEnd.COMPLETE)),
        (HEAD + b"\r\nhello", (200, b"hello", BodyEnd.CONNECTION_CLOSED)),
        (b"HTTP/1.1 204 None\r\nContent-Length: 5\r\n\r\nhello", (204, b"", BodyEnd.COMPLETE)),
        (b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + HEAD + b"Content-Length: 1\r\n\r\nx", (200, b"x", BodyEnd.COMPLETE)),
        (b"HTTP/1.1 103 Early\r\n\r\n" * MAX_INFORMATIONAL + HEAD + b"Content-Length: 1\r\n\r\nx", (200, b"x", BodyEnd.COMPLETE)),
        (b"HTTP/1.1 103 Early\r\n\r\n" * (MAX_INFORMATIONAL + 1) + HEAD + b"\r\nx", (None, b"", BodyEnd.MALFORMED)),
        (b"HTTP/1.1 200 OK\r\n" + b"X: " + b"x" * MAX_HEAD_BYTES + b"\r\n\r\n", (None, b"", BodyEnd.MALFORMED)),
        (b"HTTP/1.1 200 OK\r\nX: \x00\r\n\r\n", (None, b"", BodyEnd.MALFORMED)),
        (b"HTTP/1.1 200 OK", (None, b"", BodyEnd.CUT)),
        (b"", (None, b"", BodyEnd.CUT)),
    ],
    ids=lambda value: repr(value[-30:]) if isinstance(value, bytes) else None,
)
def test_any_division_of_the_bytes_gives_the_same(wire: bytes, expected: tuple[int | None, bytes, BodyEnd]) -> None:
    sizes = (1, 2, 3, 7, 4096, max(len(wire), 1))
    assert {size: decoded(wire, size) for size in sizes} == dict.fromkeys(sizes, expected)


def test_a_reset_is_a_cut_whatever_the_framing() -> None:
    assert decoded(HEAD + b"\r\nhello", 100, orderly=False) == (200, b"hello", BodyEnd.CUT)


def test_many_chunks_of_one_read_are_one_piece() -> None:
    fed = decoder()
    fed.feed(CHUNKED + b"1\r\nx\r\n" * 1000)
    assert fed.payload_bytes == 1000
    assert fed.take() == b"x" * 1000
    assert (fed.payload_bytes, fed.take()) == (0, b"")


def test_what_is_undecoded_is_never_more_than_a_line() -> None:
    fed = decoder()
    fed.feed(CHUNKED)
    for _ in range(MAX_CHUNK_LINE_BYTES * 2):
        fed.feed(b"1")
    assert fed.end is BodyEnd.MALFORMED


# The gate


def test_a_gate_opens_once() -> None:
    gate = SendGate(lambda: True)
    assert [gate.open(), gate.open()] == [True, False]
    assert gate.seal() is None


def test_a_refused_gate_stays_refused() -> None:
    answers = iter([False, True])
    gate = SendGate(lambda: next(answers))
    assert [gate.open(), gate.open()] == [False, False]
    assert [gate.seal(), gate.seal()] == [NotSentProof.WINDOW_PASSED] * 2


def test_a_sealed_gate_stays_shut() -> None:
    gate = SendGate(lambda: True)
    assert gate.seal() is NotSentProof.CONNECTION_NOT_MADE
    assert not gate.open()
    assert gate.seal() is NotSentProof.CONNECTION_NOT_MADE


# The body


def request(text: str, thread_id: str = "t-1") -> GenerationRequest:
    return GenerationRequest(ThreadId(thread_id), CorrelationId(UUID(int=7)), "m-1", text)


@pytest.mark.parametrize(
    "text", ["plain", "Zürich 東京 😀", '"\\/\b\f\n\r\t\x01\x7f', "\u2028\u2029\u0085\ufeff", "</script>", "x" * 16_000]
)
def test_the_body_says_exactly_the_text_and_escapes_nothing_without_need(text: str) -> None:
    body = request(text).body()
    assert json.loads(body) == {
        "threadId": "t-1",
        "runId": "00000000-0000-0000-0000-000000000007",
        "messages": [{"id": "m-1", "role": "user", "content": text}],
        "state": {},
        "tools": [],
        "context": [],
        "forwardedProps": {},
    }
    assert b"\\u" not in body.replace(b"\\u0001", b"")
    assert b", " not in body.replace(text.encode(), b"")


def test_a_body_at_its_bound() -> None:
    room = MAX_UPSTREAM_BODY_BYTES - len(request("").body())
    assert len(request("x" * room).body()) == MAX_UPSTREAM_BODY_BYTES
    for text in ("x" * (room + 1), "ü" * (room // 2 + 1), "\ud800"):
        with pytest.raises(UnsendableRunInput) as raised:
            request(text).body()
        assert raised.value.__cause__ is None
        assert len(str(raised.value)) < 20


def test_whether_a_text_fits_whatever_thread_comes() -> None:
    assert text_fits_upstream("😀" * 16_000) is True
    assert text_fits_upstream("x" * MAX_UPSTREAM_BODY_BYTES) is False
    assert text_fits_upstream("\ud800") is False
    longest = '"' * 200
    text = next("x" * length for length in range(MAX_UPSTREAM_BODY_BYTES, 0, -1) if text_fits_upstream("x" * length))
    assert len(request(text, longest).body()) <= MAX_UPSTREAM_BODY_BYTES


# Busy threads


@pytest.mark.parametrize(
    "body",
    [
        "Thread is already running",
        '{"detail":"Thread is already running a task. Wait for it to finish or choose a different multitask strategy."}',
        '{"code":"thread_busy"}',
        '{"code":"THREAD-BUSY"}',
        "The thread\nis   BUSY",
        "thread already has an active run",
        "Can't add messages to thread_1 while a run run_2 is active.",
        "conversation is currently being processed: a run is in progress",
        "another run is ongoing",
        "thread is locked",
        "multitask_strategy=reject",
    ],
)
def test_bodies_that_say_busy(body: str) -> None:
    assert says_busy(body.encode())


@pytest.mark.parametrize(
    "body",
    [
        "",
        '{"detail":"Invalid token"}',
        '{"detail":"Thread with ID 7 not found"}',
        "<html><head><title>413 Request Entity Too Large</title></head></html>",
        "<h1>429 Too Many Requests</h1> rate limit exceeded, try again later",
        '{"detail":[{"type":"missing","loc":["body","tools"],"msg":"Field required"}]}',
        "account inactive",
        "this business is closed",
        "\ufffd\x00",
    ],
)
def test_bodies_that_do_not(body: str) -> None:
    assert not says_busy(body.encode())
    assert not says_busy(b"\xff\xfe" + body.encode("latin-1", "replace"))
