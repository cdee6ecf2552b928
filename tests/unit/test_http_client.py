"""HttpClient against real sockets: bounds, deadlines, closed faults, one try, no redirects, no proxies, nothing leaked."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.domain.in_transaction import NetworkCallInsideTransaction, inside_transaction
from gateway.domain.trace_context import TraceContext
from gateway.http_client import CallFault, HttpClient, Reply, verified_tls
from tests.support.current_trace import in_trace
from tests.support.raw_server import (
    RawConnection,
    RawServer,
    answer_with,
    full_backlog_port,
    refusing_port,
    response,
    tls_identity,
)

pytestmark = pytest.mark.anyio

TRUSTED = ("127.0.0.1", "LOCALHOST")
JSON = "Content-Type: application/json\r\n"
OK = response("200 OK", JSON + "Connection: close\r\n", b'{"a":1}')
KEPT = response("200 OK", JSON, b'{"a":1}')


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture(scope="module")
def tls() -> ssl.SSLContext:
    return verified_tls()


@pytest.fixture
async def client(tls: ssl.SSLContext, anyio_backend: object) -> AsyncIterator[HttpClient]:
    async with HttpClient(connect_seconds=5, tls=tls, trusted_hosts=TRUSTED) as opened:
        yield opened


async def get(client: HttpClient, url: str, *, deadline_seconds: float = 5, max_bytes: int = 1000) -> Reply | CallFault:
    return await client.get_json(url, headers={"Authorization": "Bearer tok_X"}, deadline_seconds=deadline_seconds, max_bytes=max_bytes)


async def test_a_get_and_a_post_are_exactly_this(client: HttpClient) -> None:
    async with RawServer(answer_with(OK)) as server:
        with in_trace(TraceContext("1" * 32, "2" * 16, sampled=False)):
            assert await get(client, server.base_url + "/a%2Fb?c=%20") == Reply(200, "application/json", b'{"a":1}')
        posted = await client.post_json(server.base_url + "/threads", body=b"{}", deadline_seconds=5, max_bytes=10)
        assert posted == Reply(200, "application/json", b'{"a":1}')
    first, second = (connection.received for connection in server.connections)
    assert first.split(b"\r\n")[0] == b"GET /a%2Fb?c=%20 HTTP/1.1"
    assert sorted(first.split(b"\r\n\r\n")[0].split(b"\r\n")[1:]) == [
        b"Accept-Encoding: identity",
        b"Accept: application/json",
        b"Authorization: Bearer tok_X",
        b"Host: 127.0.0.1:%d" % server.port,
        b"User-Agent: agent-governance-gateway",
        b"traceparent: 00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-00",
    ]
    assert second.startswith(b"POST /threads HTTP/1.1\r\n")
    assert b"\r\nContent-Type: application/json\r\n" in second
    assert second.endswith(b"\r\n\r\n{}")


async def test_a_url_and_the_names_of_headers_are_sent_as_they_are(client: HttpClient) -> None:
    async with RawServer(answer_with(OK)) as server:
        url = server.base_url + "/%7ea%41%2f//b|c?x=%41+%2b"
        assert isinstance(await client.get_json(url, headers={"X-API-Key": "k"}, deadline_seconds=5, max_bytes=10), Reply)
        assert server.received.startswith(b"GET /%7ea%41%2f//b|c?x=%41+%2b HTTP/1.1\r\n")
        assert b"\r\nX-API-Key: k\r\n" in server.received


async def test_calls_at_the_same_time_are_kept_apart(client: HttpClient) -> None:
    async def answering(connection: RawConnection) -> None:
        asked = (await connection.read_request()).split()[1]
        await server.until(lambda: len(server.connections) == 20)
        await connection.send(response("200 OK", "Connection: close\r\n", asked))

    async with RawServer(answering) as server:
        replies = await asyncio.gather(*(get(client, f"{server.base_url}/{number}") for number in range(20)))
        assert replies == [Reply(200, None, f"/{number}".encode()) for number in range(20)]


async def test_credentials_in_a_url_never_replace_the_token(client: HttpClient) -> None:
    async with RawServer(answer_with(OK)) as server:
        assert await get(client, server.base_url.replace("//", "//u:pw_X@")) is CallFault.UNSENDABLE
        assert server.connections == []


async def test_connections_are_kept_and_cookies_are_not(client: HttpClient) -> None:
    async def answering(connection: RawConnection) -> None:
        while True:
            await connection.read_request()
            await connection.send(response("200 OK", JSON + "Set-Cookie: a=b\r\n", b"{}"))

    async with RawServer(answering) as server:
        for _ in range(3):
            assert isinstance(await get(client, server.base_url), Reply)
        assert len(server.connections) == 1
        assert b"ookie" not in server.received


async def test_a_status_is_no_fault(client: HttpClient) -> None:
    async with RawServer(answer_with(response("503 No", "", b"x"))) as server:
        assert await get(client, server.base_url) == Reply(503, None, b"x")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["get", "post"])
async def test_o35_redirects_are_replies(client: HttpClient, status: int, method: str) -> None:
    async with RawServer(answer_with(OK)) as recorder:
        async with RawServer(answer_with(response(f"{status} Moved", f"Location: {recorder.base_url}/\r\n"))) as server:
            if method == "get":
                reply = await get(client, server.base_url)
            else:
                reply = await client.post_json(server.base_url, body=b"{}", deadline_seconds=5, max_bytes=10)
            assert isinstance(reply, Reply)
            assert reply.status == status
            assert len(server.connections) == 1
        assert recorder.connections == []


@pytest.mark.parametrize("location", ["http://[", "http://a:x/", "ftp://u:p@[::1", "\\\\", "%", " "])
async def test_o35_a_redirect_to_nowhere_is_a_reply(client: HttpClient, location: str) -> None:
    async with RawServer(answer_with(response("302 Found", f"Location: {location}\r\n", b"x"))) as server:
        assert await get(client, server.base_url) == Reply(302, None, b"x")


async def test_a_reason_phrase_may_be_any_bytes(client: HttpClient) -> None:
    async with RawServer(answer_with(b"HTTP/1.1 200 \xff\xfe\r\nContent-Length: 2\r\nX-Any: \xff\r\n\r\n{}")) as server:
        assert await get(client, server.base_url) == Reply(200, None, b"{}")


async def test_a_broken_reply_does_not_come_back_as_another_calls(client: HttpClient) -> None:
    """What was not read to its end is not left in the pool."""

    async def answering(connection: RawConnection) -> None:
        await connection.read_request()
        if len(server.connections) == 1:
            await connection.send(response("200 OK", "", b"x" * 100_000))
            await connection.until_gone()
        await connection.send(KEPT)

    async with RawServer(answering) as server:
        assert await get(client, server.base_url) is CallFault.REPLY_TOO_LARGE
        await server.until(lambda: server.served == 1)
        assert await get(client, server.base_url) == Reply(200, "application/json", b'{"a":1}')
        assert len(server.connections) == 2


async def test_o34_no_library_logs_a_call(client: HttpClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), refusing_port() as port:
        async with RawServer(answer_with(KEPT)) as server:
            assert isinstance(await get(client, server.base_url + "/threads/native"), Reply)
        assert await get(client, f"http://127.0.0.1:{port}/threads/native") is CallFault.NOT_CONNECTED
    assert not [record for record in caplog.records if record.name != "asyncio"]
    assert "native" not in caplog.text
    assert "tok_X" not in caplog.text


async def test_no_connection(client: HttpClient) -> None:
    with refusing_port() as port:
        assert await get(client, f"http://127.0.0.1:{port}/") is CallFault.NOT_CONNECTED


async def test_no_such_name(client: HttpClient) -> None:
    assert await get(client, "http://nonexistent.invalid/") is CallFault.NAME_NOT_RESOLVED


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "[::ffff:127.0.0.1]",
        "[::1]",
        "[64:ff9b::7f00:1]",
        "127.1",
        "127.0.0.1.",
        "127.0.0.1..",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "localhost",
        "169.254.169.254",
    ],
)
async def test_a_host_that_is_not_trusted_leads_nowhere_inwards(tls: ssl.SSLContext, host: str) -> None:
    async with RawServer(answer_with(OK)) as server, HttpClient(connect_seconds=5, tls=tls, trusted_hosts=["agent"]) as client:
        assert await get(client, server.base_url.replace("127.0.0.1", host)) is CallFault.ADDRESS_NOT_ALLOWED
        assert server.connections == []


@pytest.mark.parametrize(
    "host", ["127.0.0.2", "127.1", "2130706433", "[::ffff:127.0.0.1]", "169.254.169.254", "[fe80::1]", "0.0.0.0", "[::]"]
)
async def test_trusting_one_address_is_not_trusting_another_form_or_a_forbidden_one(client: HttpClient, host: str) -> None:
    async with RawServer(answer_with(OK)) as server:
        assert await get(client, server.base_url.replace("127.0.0.1", host)) is CallFault.ADDRESS_NOT_ALLOWED
        assert server.connections == []


async def test_connect_timeout(tls: ssl.SSLContext) -> None:
    async with HttpClient(connect_seconds=0.1, tls=tls, trusted_hosts=TRUSTED) as client:
        with full_backlog_port() as port:
            async with asyncio.timeout(10):  # by the time to connect, long before the deadline
                assert await get(client, f"http://127.0.0.1:{port}/", deadline_seconds=1000) is CallFault.TIMED_OUT


async def test_tls_is_verified(client: HttpClient, tmp_path: Path) -> None:
    server_tls, client_tls = tls_identity(tmp_path)
    async with RawServer(answer_with(OK), tls=server_tls) as server:
        assert await get(client, server.base_url) is CallFault.TLS_FAILED
        assert server.received == b""
        async with HttpClient(connect_seconds=5, tls=client_tls, trusted_hosts=TRUSTED) as trusting:
            assert await get(trusting, server.base_url) == Reply(200, "application/json", b'{"a":1}')
            assert await get(trusting, server.base_url.replace("127.0.0.1", "localhost")) is CallFault.TLS_FAILED


async def test_tls_to_a_plain_text_server(client: HttpClient) -> None:
    async def answering(connection: RawConnection) -> None:
        await connection.read_some()
        await connection.send(response("400 Bad"))
        await connection.until_gone()

    async with RawServer(answering) as server:
        assert await get(client, server.base_url.replace("http:", "https:")) is CallFault.TLS_FAILED
        assert b"tok_X" not in server.received


async def test_no_reply_in_time(client: HttpClient) -> None:
    async with RawServer(RawConnection.until_gone) as server:
        assert await get(client, server.base_url, deadline_seconds=0.1) is CallFault.TIMED_OUT
        await server.until(lambda: server.served == 1)


async def test_a_reply_that_drips_is_ended_by_the_deadline(client: HttpClient) -> None:
    async def answering(connection: RawConnection) -> None:
        await connection.read_request()
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
        await connection.until_gone()

    async with RawServer(answering) as server:
        assert await get(client, server.base_url, deadline_seconds=0.1) is CallFault.TIMED_OUT
        await server.until(lambda: server.served == 1)


@pytest.mark.parametrize("method", ["get", "post"])
@pytest.mark.parametrize("reset", [False, True])
async def test_a_broken_connection_is_not_tried_again(client: HttpClient, method: str, reset: bool) -> None:
    async with RawServer(answer_with(reset=reset)) as server:
        if method == "get":
            reply = await get(client, server.base_url)
        else:
            reply = await client.post_json(server.base_url, body=b"{}", deadline_seconds=5, max_bytes=10)
        assert reply is CallFault.DISCONNECTED
        await server.until(lambda: server.served == 1)
        assert len(server.connections) == 1


@pytest.mark.parametrize("method", ["get", "post"])
async def test_a_stale_connection_is_not_tried_again(client: HttpClient, method: str) -> None:
    """The peer takes the second request of a kept connection and closes: a reply that never came, told once."""

    async def answering(connection: RawConnection) -> None:
        await connection.read_request()
        await connection.send(KEPT)
        await connection.read_request()

    async with RawServer(answering) as server:
        assert isinstance(await get(client, server.base_url), Reply)
        if method == "get":
            reply = await get(client, server.base_url)
        else:
            reply = await client.post_json(server.base_url, body=b"{}", deadline_seconds=5, max_bytes=10)
        assert reply is CallFault.DISCONNECTED
        assert len(server.connections) == 1


@pytest.mark.parametrize(
    ("written", "fault"),
    [
        (b"SSH-2.0-OpenSSH\r\n", CallFault.REPLY_MALFORMED),
        (b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 100_000 + b"\r\n\r\n", CallFault.REPLY_MALFORMED),
        (b"HTTP/1.1 200 OK\r\n" + b"X-Many: 1\r\n" * 1000 + b"\r\n", CallFault.REPLY_MALFORMED),
        (b"HTTP/1.1 200 OK\r\nContent-Le", CallFault.DISCONNECTED),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{", CallFault.REPLY_CUT),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", CallFault.REPLY_CUT),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", CallFault.REPLY_MALFORMED),
        (response("200 OK", "", b"x" * 1001), CallFault.REPLY_TOO_LARGE),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" + b"x" * 1001 + b"\r\n0\r\n\r\n", CallFault.REPLY_TOO_LARGE),
        (b"HTTP/1.0 200 OK\r\n\r\n" + b"x" * 1001, CallFault.REPLY_TOO_LARGE),
        (response("200 OK", "Content-Encoding: gzip\r\n", b"\x1f\x8b"), CallFault.REPLY_ENCODED),
        (response("200 OK", "Content-Encoding: identity\r\nContent-Encoding: br\r\n", b"x"), CallFault.REPLY_ENCODED),
    ],
    ids=lambda value: value.value if isinstance(value, CallFault) else repr(value[:20]),
)
async def test_a_reply_that_cannot_be_used(client: HttpClient, written: bytes, fault: CallFault) -> None:
    async with RawServer(answer_with(written)) as server:
        assert await get(client, server.base_url) is fault
        await server.until(lambda: server.served == 1)


async def test_reading_stops_at_the_bound(client: HttpClient) -> None:
    async def answering(connection: RawConnection) -> None:
        await connection.read_request()
        await connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        gone = asyncio.ensure_future(connection.until_gone())
        while not gone.done():
            await connection.send(b"1000\r\n" + b"x" * 4096 + b"\r\n")
            await asyncio.sleep(0)

    async with RawServer(answering) as server:
        assert await get(client, server.base_url) is CallFault.REPLY_TOO_LARGE
        await server.until(lambda: server.served == 1)


@pytest.mark.parametrize("token", ["tok_X\n", "tök_X", "tok\r\nX-Evil: 1", "tok_X\x00", "tok_X\x7f"])
async def test_o34_a_header_that_is_none_is_a_value_and_nothing_is_sent(client: HttpClient, token: str) -> None:
    async with RawServer(answer_with(OK)) as server:
        reply = await client.get_json(server.base_url, headers={"Authorization": token}, deadline_seconds=5, max_bytes=10)
        assert reply is CallFault.UNSENDABLE
        assert server.connections == []


@pytest.mark.parametrize("url", ["nowhere", "http://", "ftp://127.0.0.1/", "http://[::1/"])
async def test_a_url_that_is_none_is_a_value(client: HttpClient, url: str) -> None:
    assert await get(client, url) is CallFault.UNSENDABLE


async def test_refuses_inside_a_transaction(client: HttpClient) -> None:
    async with RawServer(answer_with(OK)) as server:
        with inside_transaction(), pytest.raises(NetworkCallInsideTransaction):
            await get(client, server.base_url)
        assert server.connections == []


async def test_cancelling_closes_the_connection(client: HttpClient) -> None:
    async with RawServer(RawConnection.until_gone) as server:
        task = asyncio.create_task(get(client, server.base_url))
        await server.until(lambda: len(server.connections) == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.until(lambda: server.served == 1)


async def test_environment_proxies_see_nothing(client: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    async with RawServer(answer_with(OK)) as proxy, RawServer(answer_with(OK)) as server:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, proxy.base_url)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        assert isinstance(await get(client, server.base_url), Reply)
        assert proxy.connections == []


async def test_a_body_does_not_show(client: HttpClient) -> None:
    async with RawServer(answer_with(response("200 OK", "", b"secret"))) as server:
        assert "secret" not in repr(await get(client, server.base_url))
