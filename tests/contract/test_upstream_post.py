"""The one POST against real sockets: every row of the failure table (design.md "Which failure means what"), on both event loops."""

import asyncio
import dataclasses
import itertools
import json
import ssl
from pathlib import Path
from uuid import UUID

import pytest

from gateway.domain.evidence import BadResponse, NotSent, NotSentProof, PostFact, Rejected, ResponseFault
from gateway.domain.ids import CorrelationId, ThreadId
from gateway.domain.in_transaction import NetworkCallInsideTransaction, inside_transaction
from gateway.domain.trace_context import TraceContext
from gateway.http_client import HttpClient, verified_tls
from gateway.upstream.endpoint import Endpoint, endpoint_of
from gateway.upstream.generate import PostDeadlines, open_generation
from gateway.upstream.one_post import send_one_post
from gateway.upstream.open_stream import OpenStream
from gateway.upstream.response_class import BUSY_BODY_BYTES, REFUSALS
from gateway.upstream.response_decoder import MAX_HEAD_BYTES, MAX_INFORMATIONAL, BodyEnd
from gateway.upstream.run_input import GenerationRequest
from gateway.upstream.send_gate import SendGate
from tests.support.current_trace import in_trace
from tests.support.raw_server import (
    Answering,
    RawConnection,
    RawServer,
    answer_with,
    full_backlog_port,
    refusing_port,
    response,
    tls_identity,
)

pytestmark = pytest.mark.anyio

TOKEN = "tok_SECRET"
REQUEST = GenerationRequest(ThreadId("thread-1"), CorrelationId(UUID(int=7)), "message-1", 'Grüße, "you" \n 😀 </script>')
TRUSTED = frozenset({"127.0.0.1", "localhost"})
DEADLINES = PostDeadlines(connect_seconds=5, response_seconds=5, refusal_seconds=5)
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
FRAME = b'data: {"type":"RUN_STARTED"}\n\n'
GOOD = (STREAM_HEAD, b"%x\r\n%s\r\n0\r\n\r\n" % (len(FRAME), FRAME))
NOT_CONNECTED = NotSent(NotSentProof.CONNECTION_NOT_MADE)
NO_RESPONSE = BadResponse(ResponseFault.NO_RESPONSE)


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture(scope="module")
def tls() -> ssl.SSLContext:
    return verified_tls()


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    return tls_identity(Path(tmp_path_factory.mktemp("tls")))


def endpoint(base_url: str) -> Endpoint:
    made = endpoint_of(base_url=base_url, assistant_id="agent", token=TOKEN)
    assert isinstance(made, Endpoint)
    return made


def always() -> SendGate:
    return SendGate(lambda: True)


async def post(
    base_url: str, tls: ssl.SSLContext, *, gate: SendGate | None = None, deadlines: PostDeadlines = DEADLINES
) -> OpenStream | PostFact:
    return await open_generation(endpoint(base_url), REQUEST, gate=gate or always(), tls=tls, trusted_hosts=TRUSTED, deadlines=deadlines)


async def fact_of(answering: Answering, tls: ssl.SSLContext, *, deadlines: PostDeadlines = DEADLINES) -> PostFact:
    """The fact that one POST brings; and whatever it is, there was one connection, and it was closed."""
    async with RawServer(answering) as server:
        outcome = await post(server.base_url, tls, deadlines=deadlines)
        assert not isinstance(outcome, OpenStream)
        await server.until(lambda: server.served == len(server.connections) == 1)
        assert server.received.count(b"POST ") <= 1
        return outcome


# What is sent


async def test_the_request_is_exactly_this(tls: ssl.SSLContext) -> None:
    async with RawServer(answer_with(*GOOD)) as server:
        with in_trace(TraceContext("1" * 32, "2" * 16, sampled=True)):
            outcome = await post(server.base_url + "/base/", tls)
        assert isinstance(outcome, OpenStream)
        await outcome.aclose()
    body = (
        '{"threadId":"thread-1","runId":"00000000-0000-0000-0000-000000000007","messages":[{"id":"message-1","role":"user",'
        '"content":"Grüße, \\"you\\" \\n 😀 </script>"}],"state":{},"tools":[],"context":[],"forwardedProps":{}}'
    ).encode()
    assert server.connections[0].received == (
        (
            "POST /base/ag-ui HTTP/1.1\r\n"
            f"Host: 127.0.0.1:{server.port}\r\n"
            f"Authorization: Bearer {TOKEN}\r\n"
            "Content-Type: application/json\r\n"
            "Accept: text/event-stream\r\n"
            "Accept-Encoding: identity\r\n"
            "User-Agent: agent-governance-gateway\r\n"
            f"traceparent: 00-{'1' * 32}-{'2' * 16}-01\r\n"
            f"Content-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n"
        ).encode()
        + body
    )
    assert json.loads(body)["messages"][0]["content"] == REQUEST.text


async def test_a_connection_of_its_own_each_time_even_where_the_other_calls_keep_one(tls: ssl.SSLContext) -> None:
    async def answering(connection: RawConnection) -> None:
        while (await connection.read_request()).startswith(b"GET"):
            await connection.send(response("200 OK", body=b"{}"))
        await connection.send(b"".join(GOOD))

    async with RawServer(answering) as server, HttpClient(connect_seconds=5, tls=tls, trusted_hosts=TRUSTED) as client:
        for _ in range(2):
            await client.get_json(server.base_url + "/capabilities", deadline_seconds=5, max_bytes=100)
            outcome = await post(server.base_url, tls)
            assert isinstance(outcome, OpenStream)
            await outcome.aclose()
        posted = [connection for connection in server.connections if connection.received.startswith(b"POST")]
        assert len(posted) == 2
        assert all(connection.received.count(b" HTTP/1.1\r\n") == 1 for connection in posted)


async def test_refuses_inside_a_transaction(tls: ssl.SSLContext) -> None:
    async with RawServer(answer_with(*GOOD)) as server:
        with inside_transaction(), pytest.raises(NetworkCallInsideTransaction):
            await post(server.base_url, tls)
        assert server.connections == []


# Row: connection never made


async def test_o11_refused_connection_is_proof(tls: ssl.SSLContext) -> None:
    with refusing_port() as port:
        assert await post(f"http://127.0.0.1:{port}", tls) == NOT_CONNECTED


async def test_name_that_does_not_resolve_is_proof(tls: ssl.SSLContext) -> None:
    assert await post("http://nonexistent.invalid", tls) == NOT_CONNECTED


async def test_name_that_is_no_name_is_proof(tls: ssl.SSLContext) -> None:
    assert await post(f"http://{'a' * 70}.invalid", tls) == NOT_CONNECTED


async def test_connect_timeout_is_proof(tls: ssl.SSLContext) -> None:
    with full_backlog_port() as port:
        deadlines = dataclasses.replace(DEADLINES, connect_seconds=0.1)
        assert await post(f"http://127.0.0.1:{port}", tls, deadlines=deadlines) == NOT_CONNECTED


async def test_tls_to_a_plain_text_server_is_proof_and_shows_no_token(tls: ssl.SSLContext) -> None:
    async def answering(connection: RawConnection) -> None:
        await connection.read_some()
        await connection.send(response("400 Bad Request"))
        await connection.until_gone()

    async with RawServer(answering) as server:
        assert await post(server.base_url.replace("http:", "https:"), tls) == NOT_CONNECTED
        await server.until(lambda: server.served == 1)
        assert server.received[:1] == b"\x16"
        assert b"POST" not in server.received
        assert TOKEN.encode() not in server.received


async def test_tls_handshake_that_stalls_is_proof(tls: ssl.SSLContext) -> None:
    async with RawServer(RawConnection.until_gone) as server:
        deadlines = dataclasses.replace(DEADLINES, connect_seconds=0.1)
        assert await post(server.base_url.replace("http:", "https:"), tls, deadlines=deadlines) == NOT_CONNECTED
        await server.until(lambda: server.served == 1)


async def test_certificate_that_nobody_vouches_for_is_proof(tls: ssl.SSLContext, identity: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    async with RawServer(answer_with(*GOOD), tls=identity[0]) as server:
        assert await post(server.base_url, tls) == NOT_CONNECTED
        assert server.received == b""


async def test_over_tls_with_a_certificate_that_is_trusted(identity: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    async with RawServer(answer_with(*GOOD), tls=identity[0]) as server:
        outcome = await post(server.base_url, identity[1])
        assert isinstance(outcome, OpenStream)
        async with outcome:
            assert [piece async for piece in outcome] == [FRAME]
            assert outcome.end is BodyEnd.COMPLETE


@pytest.mark.parametrize("over_tls", [False, True])
async def test_a_name_with_several_addresses(over_tls: bool, tls: ssl.SSLContext, identity: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    """localhost is ::1 and 127.0.0.1 on most machines; the server has only one of them."""
    async with RawServer(answer_with(*GOOD), tls=identity[0] if over_tls else None) as server:
        base_url = server.base_url.replace("127.0.0.1", "localhost")
        outcome = await post(base_url, tls)
        if over_tls:
            assert outcome == NOT_CONNECTED
            assert server.received == b""
        else:
            assert isinstance(outcome, OpenStream)
            await outcome.aclose()
            assert await post(base_url, tls, gate=SendGate(lambda: False)) == NotSent(NotSentProof.WINDOW_PASSED)
    assert await post(base_url, tls) == NOT_CONNECTED


# The send window


@pytest.mark.parametrize("over_tls", [False, True])
async def test_window_passed_connection_seen_but_not_a_byte(over_tls: bool, identity: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    async with RawServer(RawConnection.until_gone, tls=identity[0] if over_tls else None) as server:
        asked_with: list[int] = []

        def may_send() -> bool:
            asked_with.append(1)
            return False

        outcome = await post(server.base_url, identity[1], gate=SendGate(may_send))
        assert outcome == NotSent(NotSentProof.WINDOW_PASSED)
        assert asked_with == [1]
        # A TLS server may hear of the end before it hears of its own handshake, and then knows of no connection.
        await server.until(lambda: server.served == len(server.connections) and (over_tls or server.served == 1))
        assert server.received == b""


async def test_the_window_is_read_last_with_the_connection_up(tls: ssl.SSLContext) -> None:
    asked: list[str] = []

    def asking(where: str) -> SendGate:
        def may_send() -> bool:
            asked.append(where)
            return True

        return SendGate(may_send)

    async with RawServer(answer_with(*GOOD)) as server:
        gate = asking("connected")
        outcome = await post(server.base_url, tls, gate=gate)
        assert isinstance(outcome, OpenStream)
        await outcome.aclose()
        assert asked == ["connected"]
        assert gate.seal() is None
    with refusing_port() as port:
        assert await post(f"http://127.0.0.1:{port}", tls, gate=asking("refused")) == NOT_CONNECTED
    assert asked == ["connected"]


async def test_a_gate_that_raises_sends_nothing_and_closes(tls: ssl.SSLContext) -> None:
    def may_send() -> bool:
        raise ZeroDivisionError

    async with RawServer(RawConnection.until_gone) as server:
        gate = SendGate(may_send)
        with pytest.raises(ZeroDivisionError):
            await post(server.base_url, tls, gate=gate)
        await server.until(lambda: server.served == 1)
        assert server.received == b""
        assert gate.seal() is NotSentProof.WINDOW_PASSED


async def test_one_gate_is_good_for_one_post(tls: ssl.SSLContext) -> None:
    gate = always()
    async with RawServer(answer_with(*GOOD)) as server:
        first = await post(server.base_url, tls, gate=gate)
        assert isinstance(first, OpenStream)
        await first.aclose()
        assert await post(server.base_url, tls, gate=gate) == NO_RESPONSE
        await server.until(lambda: server.served == 2)
        assert server.received.count(b"POST") == 1


# Cancellation


async def test_cancelled_while_connecting_is_proof_for_good(tls: ssl.SSLContext) -> None:
    gate = always()
    with full_backlog_port() as port:
        task = asyncio.create_task(post(f"http://127.0.0.1:{port}", tls, gate=gate))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert gate.seal() is NotSentProof.CONNECTION_NOT_MADE
    assert not gate.open()


async def test_cancelled_in_the_tls_handshake_is_proof(tls: ssl.SSLContext) -> None:
    gate = always()
    async with RawServer(RawConnection.until_gone) as server:
        task = asyncio.create_task(post(server.base_url.replace("http:", "https:"), tls, gate=gate))
        await server.until(lambda: len(server.connections) == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert gate.seal() is NotSentProof.CONNECTION_NOT_MADE
        await server.until(lambda: server.served == 1)
        assert b"POST" not in server.received


async def test_cancelled_once_bytes_may_have_left_is_no_proof(tls: ssl.SSLContext) -> None:
    gate, read = always(), asyncio.Event()

    async def answering(connection: RawConnection) -> None:
        await connection.read_request()
        read.set()
        await connection.until_gone()

    async with RawServer(answering) as server:
        task = asyncio.create_task(post(server.base_url, tls, gate=gate))
        await read.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert gate.seal() is None
        await server.until(lambda: server.served == 1)


async def test_cancelled_at_every_step_the_gate_tells_the_truth(tls: ssl.SSLContext) -> None:
    """However many turns of the loop the task had, until it is past its first byte: proof only where the server saw none."""
    proof: NotSentProof | None = NotSentProof.CONNECTION_NOT_MADE
    turns = itertools.count()
    while proof is not None:
        gate = always()
        async with RawServer(RawConnection.until_gone) as server:
            task = asyncio.create_task(post(server.base_url, tls, gate=gate))
            for _ in range(next(turns)):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            proof = gate.seal()
            await server.until(lambda: server.served == len(server.connections))
            if proof is not None:
                assert proof is NotSentProof.CONNECTION_NOT_MADE
                assert server.received == b""
    assert next(turns) > 3


# Rows: write error, no response


async def test_closed_at_once_is_never_called_not_sent_while_a_byte_arrived(tls: ssl.SSLContext) -> None:
    async def answering(connection: RawConnection) -> None:
        connection.reset()

    fact = await fact_of(answering, tls)
    assert isinstance(fact, BadResponse) or fact == NOT_CONNECTED


async def test_o11_whole_request_read_then_closed_without_a_byte_is_unknown(tls: ssl.SSLContext) -> None:
    assert await fact_of(answer_with(), tls) == NO_RESPONSE


async def test_o10_reset_after_the_request_was_read_is_unknown(tls: ssl.SSLContext) -> None:
    assert await fact_of(answer_with(reset=True), tls) == NO_RESPONSE


@pytest.mark.parametrize(
    "written",
    [
        b"HTTP/1.1 200 OK\r\nContent-Type: text/ev",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n",
        b"HTTP/1.1 2",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * (MAX_INFORMATIONAL + 1),
        b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * MAX_HEAD_BYTES + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-Many: 1\r\n" * 10_000 + b"\r\n",
        b"\x00" * 100_000,
    ],
    ids=lambda written: repr(written[:24]),
)
async def test_a_head_that_is_none_is_unknown(written: bytes, tls: ssl.SSLContext) -> None:
    assert await fact_of(answer_with(written), tls) == NO_RESPONSE


async def test_a_head_without_an_end_is_cut_at_its_bound(tls: ssl.SSLContext) -> None:
    async def answering(connection: RawConnection) -> None:
        await connection.read_request()
        await connection.send(b"HTTP/1.1 200 OK\r\nX-Endless: ")
        gone = asyncio.ensure_future(connection.until_gone())
        while not gone.done():
            await connection.send(b"x" * 4096)
            await asyncio.sleep(0)
        await gone

    assert await fact_of(answering, tls) == NO_RESPONSE


async def test_o10_no_response_in_time_is_unknown_and_asked_once(tls: ssl.SSLContext) -> None:
    async def answering(connection: RawConnection) -> None:
        await connection.read_request()
        await connection.until_gone()

    assert await fact_of(answering, tls, deadlines=dataclasses.replace(DEADLINES, response_seconds=0.1)) == NO_RESPONSE


async def test_a_request_that_could_not_be_written_whole_is_a_write_error(tls: ssl.SSLContext) -> None:
    never = asyncio.Event()

    async def answering(connection: RawConnection) -> None:
        await never.wait()

    async with RawServer(answering) as server:
        outcome = await send_one_post(
            endpoint(server.base_url).origin,
            "/ag-ui",
            headers=[],
            body=bytes(64 * 1024 * 1024),  # more than any socket buffer: the product's 64 KiB always fit
            gate=always(),
            tls=tls,
            trusted_hosts=TRUSTED,
            connect_seconds=5,
            response_seconds=0.2,
        )
        assert outcome is ResponseFault.WRITE_ERROR


async def test_o34_a_header_that_is_no_header_raises_without_its_text(tls: ssl.SSLContext) -> None:
    gate = always()
    with pytest.raises(ValueError, match="cannot be written") as raised:
        await send_one_post(
            endpoint("http://127.0.0.1:9").origin,
            "/ag-ui",
            headers=[(b"Authorization", b"Bearer tok_SECRET\r\nX-Evil: 1")],
            body=b"",
            gate=gate,
            tls=tls,
            trusted_hosts=TRUSTED,
            connect_seconds=5,
            response_seconds=5,
        )
    assert "tok_SECRET" not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__
    assert gate.seal() is NotSentProof.CONNECTION_NOT_MADE


# Rows: statuses

BODIES = {
    "json": ("Content-Type: application/json\r\n", b'{"detail":"no"}'),
    "html": ("Content-Type: text/html; charset=iso-8859-1\r\n", b"<html><h1>Nein, danke f\xfcr alles</h1></html>"),
    "none": ("", b""),
}


@pytest.mark.parametrize(("status", "body"), list(itertools.product(sorted(REFUSALS), BODIES)))
async def test_o38_documented_refusals_whoever_says_them(status: int, body: str, tls: ssl.SSLContext) -> None:
    assert await fact_of(answer_with(response(f"{status} No", *BODIES[body])), tls) == Rejected(status)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308, 300, 304])
@pytest.mark.parametrize("same_origin", [False, True])
async def test_o35_redirects_are_refusals_and_never_followed(status: int, same_origin: bool, tls: ssl.SSLContext) -> None:
    async with RawServer(answer_with(*GOOD)) as recorder:

        async def answering(connection: RawConnection) -> None:
            await connection.read_request()
            target = "/ag-ui/" if same_origin else f"{recorder.base_url}/ag-ui"
            await connection.send(response(f"{status} Elsewhere", f"Location: {target}\r\n"))

        assert await fact_of(answering, tls) == Rejected(status)
        assert recorder.connections == []


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (409, b""),
        (409, b'{"detail":"a run exists"}'),
        (422, b'{"detail":"Thread is already running"}'),
        (422, b'{"detail":"Thread is already running a task. Wait for it to finish or choose a different multitask strategy."}'),
        (400, b'{"error":"thread_busy"}'),
        (400, b'{"message":"Can\'t add messages while a run run_1 is active."}'),
        (429, b"<h1>Thread Busy</h1>"),
        (423, b'{"detail":"thread already has an active run"}'),
        (418, b'{"detail":"another run is in progress"}'),
        (499, b"x" * (BUSY_BODY_BYTES - 20) + b" thread is busy"),
    ],
)
async def test_o38_busy_threads_are_unknown_by_409_or_by_what_a_4xx_says(status: int, body: bytes, tls: ssl.SSLContext) -> None:
    assert await fact_of(answer_with(response(f"{status} No", "", body)), tls) == Rejected(status, thread_busy=True)


@pytest.mark.parametrize(
    "status", [402, 406, 408, 410, 418, 423, 425, 451, 499, 500, 501, 502, 503, 504, 529, 599, 201, 202, 203, 204, 205, 206, 226]
)
async def test_o10_every_other_status_is_unknown(status: int, tls: ssl.SSLContext) -> None:
    fact = await fact_of(answer_with(response(f"{status} Hm", "Content-Type: text/event-stream\r\n")), tls)
    assert fact == BadResponse(ResponseFault.STATUS, status)


async def test_busy_words_in_a_5xx_change_nothing(tls: ssl.SSLContext) -> None:
    fact = await fact_of(answer_with(response("503 Busy", "", b"thread is busy")), tls)
    assert fact == BadResponse(ResponseFault.STATUS, 503)


async def test_a_refusal_that_cannot_be_read_is_not_believed(tls: ssl.SSLContext) -> None:
    fact = await fact_of(answer_with(response("422 No", "Content-Encoding: gzip\r\n", b"\x1f\x8b...")), tls)
    assert fact == BadResponse(ResponseFault.CONTENT_ENCODING, 422)


async def test_a_refusal_without_end_is_judged_by_its_first_bytes(tls: ssl.SSLContext) -> None:
    async def answering(connection: RawConnection) -> None:
        await connection.read_request()
        await connection.send(b"HTTP/1.1 400 No\r\nTransfer-Encoding: chunked\r\n\r\n")
        gone = asyncio.ensure_future(connection.until_gone())
        while not gone.done():
            await connection.send(b"1000\r\n" + b"x" * 4096 + b"\r\n")
            await asyncio.sleep(0)

    assert await fact_of(answering, tls) == Rejected(400)


@pytest.mark.parametrize(("begun", "expected"), [(b"no", Rejected(429)), (b"thread is busy", Rejected(429, thread_busy=True))])
async def test_a_refusal_that_drips_is_judged_when_its_time_is_over(begun: bytes, expected: Rejected, tls: ssl.SSLContext) -> None:
    async def answering(connection: RawConnection) -> None:
        await connection.read_request()
        await connection.send(b"HTTP/1.1 429 No\r\nContent-Length: 1000\r\n\r\n" + begun)
        await connection.until_gone()

    assert await fact_of(answering, tls, deadlines=dataclasses.replace(DEADLINES, refusal_seconds=0.1)) == expected


async def test_a_refusal_that_is_cut_is_judged_by_what_came(tls: ssl.SSLContext) -> None:
    fact = await fact_of(answer_with(b"HTTP/1.1 413 No\r\nContent-Length: 1000\r\n\r\n<html>"), tls)
    assert fact == Rejected(413)


# Rows: a 200 that is no event stream


@pytest.mark.parametrize(
    ("headers", "fault"),
    [
        ("Content-Type: application/json\r\n", ResponseFault.CONTENT_TYPE),
        ("Content-Type: text/html\r\n", ResponseFault.CONTENT_TYPE),
        ("", ResponseFault.CONTENT_TYPE),
        ("Content-Type: \r\n", ResponseFault.CONTENT_TYPE),
        ("Content-Type: x-text/event-streamish\r\n", ResponseFault.CONTENT_TYPE),
        ("Content-Type: text/event-stream, text/html\r\n", ResponseFault.CONTENT_TYPE),
        ("Content-Type: text/event-stream\r\nContent-Type: text/html\r\n", ResponseFault.CONTENT_TYPE),
        ("Content-Type: text/event-stream; charset=iso-8859-1\r\n", ResponseFault.CHARSET),
        ("Content-Type: text/event-stream; charset=utf-16\r\n", ResponseFault.CHARSET),
        ("Content-Type: text/event-stream; charset=utf-8; charset=latin1\r\n", ResponseFault.CHARSET),
        ("Content-Type: text/event-stream; charset\r\n", ResponseFault.CHARSET),
        ("Content-Type: text/event-stream\r\nContent-Encoding: gzip\r\n", ResponseFault.CONTENT_ENCODING),
        ("Content-Type: text/event-stream\r\nContent-Encoding: identity, br\r\n", ResponseFault.CONTENT_ENCODING),
        ("Content-Type: text/event-stream\r\nContent-Encoding: identity\r\nContent-Encoding: zstd\r\n", ResponseFault.CONTENT_ENCODING),
    ],
)
async def test_o12_a_200_that_is_no_event_stream_is_unknown(headers: str, fault: ResponseFault, tls: ssl.SSLContext) -> None:
    fact = await fact_of(answer_with(response("200 OK", headers, b'{"error":{"message":"quota"}}')), tls)
    assert fact == BadResponse(fault, 200)


@pytest.mark.parametrize(
    "headers",
    [
        "Content-Type: text/event-stream\r\n",
        "content-type: TEXT/Event-Stream ; Charset=UTF-8\r\n",
        "Content-Type: text/event-stream; charset=utf8\r\n",
        'Content-Type: text/event-stream;charset="utf-8"; boundary=x\r\n',
        "Content-Type: text/event-stream\r\nContent-Encoding: identity\r\n",
    ],
)
async def test_a_200_that_is_one_is_open(headers: str, tls: ssl.SSLContext) -> None:
    async with RawServer(answer_with(response("200 OK", headers, FRAME))) as server:
        outcome = await post(server.base_url, tls)
        assert isinstance(outcome, OpenStream)
        async with outcome:
            assert await outcome.read() == FRAME
            assert await outcome.read() == b""
            assert outcome.end is BodyEnd.COMPLETE


@pytest.mark.parametrize(
    "before", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * MAX_INFORMATIONAL]
)
async def test_informational_responses_are_passed_over(before: bytes, tls: ssl.SSLContext) -> None:
    async with RawServer(answer_with(before + GOOD[0], GOOD[1])) as server:
        outcome = await post(server.base_url, tls)
        assert isinstance(outcome, OpenStream)
        async with outcome:
            assert [piece async for piece in outcome] == [FRAME]


# The stream


def chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)


LENGTH_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 1000\r\n\r\n"
CLOSE_HEAD = b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


@pytest.mark.parametrize(
    ("head", "body", "reset", "end"),
    [
        (STREAM_HEAD, chunked(FRAME) + b"0\r\n\r\n", False, BodyEnd.COMPLETE),
        (STREAM_HEAD, chunked(FRAME) + b"0\r\nX-Trailer: 1\r\n\r\n", False, BodyEnd.COMPLETE),
        (STREAM_HEAD, chunked(FRAME) + b"0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", False, BodyEnd.COMPLETE),
        (STREAM_HEAD, chunked(FRAME), False, BodyEnd.CUT),
        (STREAM_HEAD, chunked(FRAME), True, BodyEnd.CUT),
        (STREAM_HEAD, chunked(FRAME)[:-2], False, BodyEnd.CUT),
        (STREAM_HEAD, b"fff\r\n" + FRAME, False, BodyEnd.CUT),
        (STREAM_HEAD, chunked(FRAME) + b"zz\r\n", False, BodyEnd.MALFORMED),
        (STREAM_HEAD, chunked(FRAME)[:-2] + b"xx", False, BodyEnd.CUT),
        (STREAM_HEAD, chunked(FRAME)[:-2] + b"xx\r\n", False, BodyEnd.MALFORMED),
        (STREAM_HEAD, chunked(FRAME) + b"1" * 1000, False, BodyEnd.MALFORMED),
        (LENGTH_HEAD, FRAME, False, BodyEnd.CUT),
        (CLOSE_HEAD, FRAME, False, BodyEnd.CONNECTION_CLOSED),
    ],
)
async def test_what_came_is_handed_on_before_the_end_and_the_end_is_named(
    head: bytes, body: bytes, reset: bool, end: BodyEnd, tls: ssl.SSLContext
) -> None:
    read = asyncio.Event()

    async def answering(connection: RawConnection) -> None:
        await connection.read_request()
        await connection.send(head + body)
        if reset:
            await read.wait()
            connection.reset()

    async with RawServer(answering) as server:
        outcome = await post(server.base_url, tls)
        assert isinstance(outcome, OpenStream)
        async with outcome:
            received = b""
            while piece := await outcome.read():
                received += piece
                read.set()
            assert received == FRAME
            assert outcome.end is end
            assert await outcome.read() == b""


async def test_an_empty_stream_is_open_and_ends(tls: ssl.SSLContext) -> None:
    async with RawServer(answer_with(STREAM_HEAD + b"0\r\n\r\n")) as server:
        outcome = await post(server.base_url, tls)
        assert isinstance(outcome, OpenStream)
        async with outcome:
            assert await outcome.read() == b""
            assert outcome.end is BodyEnd.COMPLETE


async def test_one_piece_for_each_socket_read_not_for_each_chunk(tls: ssl.SSLContext) -> None:
    frames = [b"data: %d\n\n" % number for number in range(500)]
    async with RawServer(answer_with(STREAM_HEAD + chunked(*frames) + b"0\r\n\r\n")) as server:
        outcome = await post(server.base_url, tls)
        assert isinstance(outcome, OpenStream)
        async with outcome:
            pieces = [piece async for piece in outcome]
            assert b"".join(pieces) == b"".join(frames)
            assert len(pieces) <= 2


async def test_a_read_may_be_cancelled_and_loses_nothing(tls: ssl.SSLContext) -> None:
    more = asyncio.Event()

    async def answering(connection: RawConnection) -> None:
        await connection.read_request()
        await connection.send(STREAM_HEAD)
        await more.wait()
        await connection.send(chunked(FRAME) + b"0\r\n\r\n")

    async with RawServer(answering) as server:
        outcome = await post(server.base_url, tls)
        assert isinstance(outcome, OpenStream)
        async with outcome:
            for _ in range(3):
                reading = asyncio.ensure_future(outcome.read())
                await asyncio.sleep(0)
                reading.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await reading
            assert outcome.end is None
            more.set()
            assert [piece async for piece in outcome] == [FRAME]


async def test_closing_closes_the_connection(tls: ssl.SSLContext) -> None:
    async def answering(connection: RawConnection) -> None:
        await connection.read_request()
        await connection.send(STREAM_HEAD + chunked(FRAME))
        await connection.until_gone()

    async with RawServer(answering) as server:
        outcome = await post(server.base_url, tls)
        assert isinstance(outcome, OpenStream)
        await outcome.aclose()
        await outcome.aclose()
        await server.until(lambda: server.served == 1)
        assert outcome.end in {None, BodyEnd.CUT}


async def test_a_slow_reader_holds_the_sender_back(tls: ssl.SSLContext) -> None:
    piece = b"x" * 65536
    written = 0

    async def answering(connection: RawConnection) -> None:
        nonlocal written
        await connection.read_request()
        await connection.send(STREAM_HEAD)
        for _ in range(1024):
            await connection.send(chunked(piece))
            written += 1
        await connection.send(b"0\r\n\r\n")

    async with RawServer(answering) as server:
        outcome = await post(server.base_url, tls)
        assert isinstance(outcome, OpenStream)
        async with outcome:
            largest, total = 0, 0
            while received := await outcome.read():
                largest, total = max(largest, len(received)), total + len(received)
                for _ in range(5):
                    await asyncio.sleep(0)
            assert total == 1024 * len(piece)
            assert largest <= 1024 * 1024
            assert outcome.end is BodyEnd.COMPLETE


# The environment


async def test_environment_proxies_see_nothing(monkeypatch: pytest.MonkeyPatch, tls: ssl.SSLContext) -> None:
    async with RawServer(answer_with(*GOOD)) as proxy, RawServer(answer_with(*GOOD)) as server:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, proxy.base_url)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        outcome = await post(server.base_url, tls)
        assert isinstance(outcome, OpenStream)
        await outcome.aclose()
        assert proxy.connections == []
        assert len(server.connections) == 1
