"""Capabilities, threads and look-ups of the bridge profile against real sockets, and the memory of capabilities."""

import asyncio
import copy
import json
import pickle
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from uuid import UUID

import pytest

from gateway.domain.evidence import BadResponse, LookedUp, LookupStatus, NotSent, NotSentProof, Rejected, ResponseFault
from gateway.domain.ids import ApplicationId, CorrelationId, NativeRunId, ThreadId
from gateway.domain.limits import MAX_REPLY_BODY_BYTES, StreamBounds
from gateway.http_client import CallFault, HttpClient, verified_tls
from gateway.upstream.bridge import Bridge
from gateway.upstream.capabilities import CACHE_SECONDS, Capabilities, CapabilitiesCache, CapabilitiesKey, fetch_capabilities
from gateway.upstream.endpoint import Endpoint, EndpointFault, ServiceToken, endpoint_of
from gateway.upstream.faults import UpstreamFailed, UpstreamFault
from gateway.upstream.lookup import BridgeLookup
from gateway.upstream.open_stream import OpenStream
from gateway.upstream.protocol import RunLookup, Upstream
from gateway.upstream.run_input import GenerationRequest
from gateway.upstream.send_gate import SendGate
from gateway.upstream.threads import create_thread
from tests.support.raw_server import RawConnection, RawServer, answer_with, refusing_port, response
from tests.support.scripted_upstream import Answer, Script, ScriptedUpstream

pytestmark = pytest.mark.anyio

TOKEN = "tok_SECRET"
KEY = CapabilitiesKey(ApplicationId(UUID(int=1)), b"fingerprint", 1)
REQUEST = GenerationRequest(ThreadId("t-1"), CorrelationId(UUID(int=7)), "m-1", "Hello")


@pytest.fixture(scope="module")
def tls() -> ssl.SSLContext:
    return verified_tls()


@pytest.fixture
async def client(tls: ssl.SSLContext, anyio_backend: object) -> AsyncIterator[HttpClient]:
    async with HttpClient(connect_seconds=5, tls=tls, trusted_hosts=["127.0.0.1"]) as opened:
        yield opened


def endpoint(base_url: str, token: str = TOKEN) -> Endpoint:
    made = endpoint_of(base_url=base_url, assistant_id="agent", token=token)
    assert isinstance(made, Endpoint)
    return made


def json_response(value: object, status: str = "200 OK") -> bytes:
    return response(status, "Content-Type: application/json\r\n", json.dumps(value).encode())


async def capabilities_of(client: HttpClient, reply: bytes) -> Capabilities | UpstreamFailed:
    async with RawServer(answer_with(reply)) as server:
        answer = await fetch_capabilities(client, endpoint(server.base_url + "/v1"), deadline_seconds=5)
        assert server.received.startswith(b"GET /v1/capabilities HTTP/1.1\r\n")
        assert b"\r\nAuthorization: Bearer tok_SECRET\r\n" in server.received
        assert len(server.connections) == 1
        return answer


# Capabilities

FULL = {
    "assistant_id": "agent",
    "protocol": "ag-ui",
    "native_interrupt": True,
    "native_resume": True,
    "one_task_per_thread": True,
    "actions": ["approve", "reject", 7],
}


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"assistant_id": "agent"}, Capabilities("agent")),
        (FULL, Capabilities("agent", True, True, True, frozenset({"approve", "reject"}))),
        ({"assistants": [{"assistant_id": "other"}, {"assistant_id": "agent"}]}, Capabilities("agent")),
        ({"assistants": [{"id": "agent", "native_interrupt": True}]}, Capabilities("agent", native_interrupt=True)),
        ({"assistant_id": "other", "native_resume": True, "assistants": [{"id": "agent"}]}, Capabilities("agent", native_resume=True)),
        ({"assistant_id": "agent", "native_interrupt": 1, "actions": "approve"}, Capabilities("agent")),
    ],
)
async def test_capabilities_that_name_the_assistant(client: HttpClient, told: object, expected: Capabilities) -> None:
    assert await capabilities_of(client, json_response(told)) == expected


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"assistant_id": "Agent"},
        {"assistant_id": None, "assistants": None},
        {"assistant_id": ["agent"]},
        {"assistants": {"agent": {}}},
        {"assistants": ["agent", {"name": "agent"}, None, 7]},
        {"assistants": [{"assistant_id": "agent-2", "id": "x"}]},
    ],
)
async def test_capabilities_of_another_assistant(client: HttpClient, told: object) -> None:
    assert await capabilities_of(client, json_response(told)) == UpstreamFailed(UpstreamFault.OTHER_ASSISTANT, status=200)


FAILURES = [
    (response("307 Moved", "Location: /capabilities/\r\n"), UpstreamFailed(UpstreamFault.REDIRECT, status=307)),
    (json_response({}, "401 No"), UpstreamFailed(UpstreamFault.UNAUTHORIZED, status=401)),
    (json_response({}, "403 No"), UpstreamFailed(UpstreamFault.UNAUTHORIZED, status=403)),
    (json_response({}, "404 No"), UpstreamFailed(UpstreamFault.STATUS, status=404)),
    (json_response({}, "202 Later"), UpstreamFailed(UpstreamFault.STATUS, status=202)),
    (json_response({}, "500 No"), UpstreamFailed(UpstreamFault.STATUS, status=500)),
    (response("200 OK", "", b"<html>"), UpstreamFailed(UpstreamFault.NOT_JSON, status=200)),
    (response("200 OK", "", b""), UpstreamFailed(UpstreamFault.NOT_JSON, status=200)),
    (response("200 OK", "", b'{"a":1,"a":2}'), UpstreamFailed(UpstreamFault.NOT_JSON, status=200)),
    (response("200 OK", "", b'{"a":"\xff"}'), UpstreamFailed(UpstreamFault.NOT_JSON, status=200)),
    (json_response(["agent"]), UpstreamFailed(UpstreamFault.UNEXPECTED_SHAPE, status=200)),
    (b"", UpstreamFailed(UpstreamFault.NO_REPLY, call=CallFault.DISCONNECTED)),
    (b"nonsense\r\n\r\n", UpstreamFailed(UpstreamFault.NO_REPLY, call=CallFault.REPLY_MALFORMED)),
    (response("200 OK", "Content-Encoding: gzip\r\n", b"x"), UpstreamFailed(UpstreamFault.NO_REPLY, call=CallFault.REPLY_ENCODED)),
    (
        f"HTTP/1.1 200 OK\r\nContent-Length: {MAX_REPLY_BODY_BYTES + 1}\r\n\r\n".encode(),
        UpstreamFailed(UpstreamFault.NO_REPLY, call=CallFault.REPLY_TOO_LARGE),
    ),
]


@pytest.mark.parametrize(("reply", "failed"), FAILURES, ids=lambda value: repr(value)[:40])
async def test_failures_are_values(client: HttpClient, reply: bytes, failed: UpstreamFailed) -> None:
    assert await capabilities_of(client, reply) == failed
    async with RawServer(answer_with(reply)) as server:
        assert await create_thread(client, endpoint(server.base_url), deadline_seconds=5) == failed


async def test_no_connection_and_no_reply_in_time(client: HttpClient) -> None:
    with refusing_port() as port:
        failed = await fetch_capabilities(client, endpoint(f"http://127.0.0.1:{port}"), deadline_seconds=5)
        assert failed == UpstreamFailed(UpstreamFault.NO_REPLY, call=CallFault.NOT_CONNECTED)
    async with RawServer(RawConnection.until_gone) as server:
        failed = await fetch_capabilities(client, endpoint(server.base_url), deadline_seconds=0.1)
        assert failed == UpstreamFailed(UpstreamFault.NO_REPLY, call=CallFault.TIMED_OUT)


# Addresses (contract A1), of the small calls and of the one POST


class Names:
    """Answers `getaddrinfo` of the running loop, and counts the questions. A name that it was not told of does not exist."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: dict[str, list[str]]) -> None:
        self._answers = answers
        self.asked: list[str] = []
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", self._getaddrinfo)

    async def _getaddrinfo(self, host: str, port: int, **_: object) -> list[tuple[int, int, int, str, tuple[str | int, ...]]]:
        self.asked.append(host)
        if host not in self._answers:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port, 0, 0))
            if ":" in address
            else (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port))
            for address in self._answers[host]
        ]


class Connects:
    """Takes the place of the running loop's `sock_connect`: who would be connected to, and nobody is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tried: list[str] = []
        monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", self._sock_connect)

    async def _sock_connect(self, _: socket.socket, address: tuple[str, int]) -> None:
        self.tried.append(address[0])
        raise ConnectionRefusedError


NOT_ALLOWED = UpstreamFailed(UpstreamFault.NO_REPLY, call=CallFault.ADDRESS_NOT_ALLOWED)
NOT_MADE = NotSent(NotSentProof.CONNECTION_NOT_MADE)
INWARDS = ["127.0.0.1", "10.0.0.1", "192.168.1.1", "100.64.0.1", "::1", "fd00::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::a00:1"]
NEVER = [
    "169.254.169.254",
    "::ffff:169.254.169.254",
    "2002:a9fe:a9fe::",
    "fe80::1",
    "fe80::1%lo",
    "fd00:ec2::254",
    "0.0.0.0",
    "::",
    "ff02::1",
]


async def of_both(client: HttpClient, base_url: str) -> tuple[object, object, object]:
    """What a GET, a POST and the one POST bring."""
    target, bridge = endpoint(base_url), Bridge(client, bounds=StreamBounds(), clock=time.monotonic)
    outcome = await generate(bridge, target)
    if isinstance(outcome, OpenStream):
        await outcome.aclose()
    return (
        await fetch_capabilities(client, target, deadline_seconds=5),
        await create_thread(client, target, deadline_seconds=5),
        outcome,
    )


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("address", [*INWARDS, *NEVER])
async def test_a_public_name_that_leads_inwards_is_refused(
    tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch, address: str, scheme: str
) -> None:
    names, connects = Names(monkeypatch, {"agent.example": [address, address]}), Connects(monkeypatch)
    async with HttpClient(connect_seconds=5, tls=tls, trusted_hosts=[address, "other.example", "example"]) as client:
        assert await of_both(client, f"{scheme}://agent.example:8123") == (NOT_ALLOWED, NOT_ALLOWED, NOT_MADE)
    assert set(names.asked) == {"agent.example"}
    assert connects.tried == []


@pytest.mark.parametrize("address", INWARDS)
async def test_a_trusted_name_may_lead_inwards(tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    Names(monkeypatch, {"agent": [address, address]})
    connects = Connects(monkeypatch)
    not_connected = UpstreamFailed(UpstreamFault.NO_REPLY, call=CallFault.NOT_CONNECTED)
    async with HttpClient(connect_seconds=5, tls=tls, trusted_hosts=["Agent"]) as client:
        assert await of_both(client, "http://agent:8123") == (not_connected, not_connected, NOT_MADE)
    assert set(connects.tried) == {address}


@pytest.mark.parametrize("address", NEVER)
async def test_not_even_a_trusted_name_may_lead_to_link_local_and_metadata(
    tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    Names(monkeypatch, {"agent": [address]})
    connects = Connects(monkeypatch)
    async with HttpClient(connect_seconds=5, tls=tls, trusted_hosts=["agent", address]) as client:
        assert await of_both(client, "http://agent:8123") == (NOT_ALLOWED, NOT_ALLOWED, NOT_MADE)
    assert connects.tried == []


async def test_of_several_addresses_only_the_allowed_ones_are_tried(tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = ["10.0.0.1", "93.184.215.14", "::ffff:10.0.0.2", "169.254.169.254", "93.184.215.15", "::1", "127.0.0.1"]
    Names(monkeypatch, {"agent.example": answers})
    connects = Connects(monkeypatch)
    not_connected = UpstreamFailed(UpstreamFault.NO_REPLY, call=CallFault.NOT_CONNECTED)
    async with HttpClient(connect_seconds=5, tls=tls, trusted_hosts=["127.0.0.1"]) as client:
        assert await of_both(client, "https://agent.example") == (not_connected, not_connected, NOT_MADE)
    assert set(connects.tried) == {"93.184.215.14", "93.184.215.15"}


async def test_a_trusted_name_is_reached_past_the_addresses_that_nobody_may_have(
    tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ScriptedUpstream() as upstream:
        names = Names(monkeypatch, {"agent": ["169.254.169.254", "127.0.0.1", "fe80::1"]})
        async with HttpClient(connect_seconds=5, tls=tls, trusted_hosts=["agent"]) as client:
            bridge = Bridge(client, bounds=StreamBounds(), clock=time.monotonic)
            target = endpoint(upstream.base_url.replace("127.0.0.1", "agent"), upstream.token)
            assert b"RUN_FINISHED" in await run_once(bridge, target)
        assert names.asked == ["agent", "agent"]  # once for the pooled connection of the small calls, once for the one POST


# Threads


@pytest.mark.parametrize("status", ["200 OK", "201 Created"])
async def test_a_thread_is_created(client: HttpClient, status: str) -> None:
    reply = json_response({"thread_id": "t/1", "metadata": {}}, status)
    async with RawServer(answer_with(reply)) as server:
        assert await create_thread(client, endpoint(server.base_url), deadline_seconds=5) == "t/1"
        assert server.received.startswith(b"POST /threads HTTP/1.1\r\n")
        assert server.received.endswith(b"\r\n\r\n{}")


@pytest.mark.parametrize("thread_id", [None, 7, "", "a b", "ü", "x" * 201, "a\nb", ["t"]])
async def test_a_thread_id_that_is_none(client: HttpClient, thread_id: object) -> None:
    async with RawServer(answer_with(json_response({"thread_id": thread_id}))) as server:
        failed = await create_thread(client, endpoint(server.base_url), deadline_seconds=5)
        assert failed == UpstreamFailed(UpstreamFault.UNEXPECTED_SHAPE)


# Look-up


async def looked_up(client: HttpClient, reply: bytes, thread_id: str = "t-1", run_id: str = "r-1") -> tuple[LookedUp, bytes]:
    async with RawServer(answer_with(reply)) as server:
        lookup: RunLookup = BridgeLookup(client)
        answer = await lookup.look_up(endpoint(server.base_url), ThreadId(thread_id), NativeRunId(run_id))
        return answer, server.received.split(b"\r\n")[0]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("success", LookupStatus.SUCCESS),
        ("error", LookupStatus.ERROR),
        ("timeout", LookupStatus.ERROR),
        ("interrupted", LookupStatus.INTERRUPTED),
        ("pending", LookupStatus.ACTIVE),
        ("running", LookupStatus.ACTIVE),
        ("Success", LookupStatus.UNCLEAR),
        ("cancelled", LookupStatus.UNCLEAR),
        ("", LookupStatus.UNCLEAR),
        (None, LookupStatus.UNCLEAR),
        (True, LookupStatus.UNCLEAR),
        ({"success": 1}, LookupStatus.UNCLEAR),
    ],
)
async def test_statuses(client: HttpClient, status: object, expected: LookupStatus) -> None:
    told = {"thread_id": "t-1", "run_id": "r-1", "status": status, "input": {"text": "ignored"}}
    assert (await looked_up(client, json_response(told)))[0] == LookedUp(expected)


@pytest.mark.parametrize(
    "told",
    [
        {"run_id": "r-1", "status": "success"},
        {"thread_id": "t-1", "status": "success"},
        {"thread_id": "t-2", "run_id": "r-1", "status": "success"},
        {"thread_id": "t-1", "run_id": "R-1", "status": "success"},
        {"thread_id": ["t-1"], "run_id": "r-1", "status": "success"},
    ],
)
async def test_other_ids_prove_nothing(client: HttpClient, told: object) -> None:
    assert (await looked_up(client, json_response(told)))[0] == LookedUp(LookupStatus.UNCLEAR)


@pytest.mark.parametrize(
    "status", ["201 Created", "202 Later", "301 Moved", "307 Moved", "401 No", "404 No", "409 No", "410 Gone", "500 No"]
)
async def test_o35_other_replies_prove_nothing(client: HttpClient, status: str) -> None:
    told = {"thread_id": "t-1", "run_id": "r-1", "status": "success"}
    assert (await looked_up(client, json_response(told, status)))[0] == LookedUp(LookupStatus.UNCLEAR)


@pytest.mark.parametrize("reply", [b"", b"nonsense\r\n\r\n", response("200 OK", "", b"[]"), response("200 OK", "", b"{")])
async def test_no_reply_proves_nothing(client: HttpClient, reply: bytes) -> None:
    assert (await looked_up(client, reply))[0] == LookedUp(LookupStatus.UNCLEAR)


async def test_ids_are_quoted_in_the_path(client: HttpClient) -> None:
    told = {"thread_id": "a/../b?c#d%41", "run_id": "/..", "status": "success"}
    answer, request_line = await looked_up(client, json_response(told), "a/../b?c#d%41", "/..")
    assert answer == LookedUp(LookupStatus.SUCCESS)
    assert request_line == b"GET /threads/a%2F..%2Fb%3Fc%23d%2541/runs/%2F.. HTTP/1.1"


@pytest.mark.parametrize("dots", [".", ".."])
async def test_an_id_that_is_a_step_in_the_path_is_not_asked_for(client: HttpClient, dots: str) -> None:
    assert await looked_up(client, json_response({}), dots, "r-1") == (LookedUp(LookupStatus.UNCLEAR), b"")
    assert await looked_up(client, json_response({}), "t-1", dots) == (LookedUp(LookupStatus.UNCLEAR), b"")


# Endpoints and tokens


@pytest.mark.parametrize("token", ["tok_X\n", " tok_X", "tok X", "tök", "", "tok\r\nX-Evil: 1", "tok\x00", "t" * 4097])
def test_o34_a_token_that_is_none_is_a_fault_without_it(token: str) -> None:
    assert endpoint_of(base_url="https://a.example", assistant_id="agent", token=token) is EndpointFault.TOKEN
    with pytest.raises(ValueError, match="visible ASCII") as raised:
        ServiceToken(token)
    assert not token.strip() or token.strip() not in str(raised.value)


@pytest.mark.parametrize(
    "base_url",
    [
        "",
        "a.example",
        "/path",
        "ftp://a.example",
        "https://",
        "https://u:pw_X@a.example",
        "https://@a.example",
        "https://a.example?x=1",
        "https://a.example?",
        "https://a.example#f",
        "https://a.example#",
        "https://a.example:0",
        "https://a.example:70000",
        "https://a.example:x",
        "https://a.example/a b",
        "https://a.example/%zz",
        "https://a.example\n",
        "https://a.exa\tmple",
        "https://ä.example",
        "https://a_*.example",
        "https://[::1",
    ],
)
def test_o34_a_base_url_that_is_none(base_url: str) -> None:
    assert endpoint_of(base_url=base_url, assistant_id="agent", token=TOKEN) is EndpointFault.BASE_URL


@pytest.mark.parametrize(
    ("base_url", "joined", "host_header"),
    [
        ("https://A.Example", "https://a.example/x", "a.example"),
        ("https://a.example:443/", "https://a.example/x", "a.example"),
        ("http://a.example:443//", "http://a.example:443/x", "a.example:443"),
        ("http://10.0.0.1:8123/base/v1/", "http://10.0.0.1:8123/base/v1/x", "10.0.0.1:8123"),
        ("http://[::1]:8123", "http://[::1]:8123/x", "[::1]:8123"),
        ("https://[::1]/a%20b", "https://[::1]/a%20b/x", "[::1]"),
    ],
)
def test_base_urls(base_url: str, joined: str, host_header: str) -> None:
    made = endpoint(base_url)
    assert made.url("/x") == joined
    assert made.origin.host_header == host_header


def test_an_assistant_without_a_name() -> None:
    assert endpoint_of(base_url="https://a.example", assistant_id="", token=TOKEN) is EndpointFault.ASSISTANT_ID


def test_a_token_shows_nowhere_but_in_the_header() -> None:
    made = endpoint("https://a.example")
    assert made.authorization == "Bearer tok_SECRET"
    assert "SECRET" not in repr(made) + str(made) + f"{made.token}" + repr(made.token)
    assert made == endpoint("https://a.example")
    assert made != endpoint("https://a.example", "another")
    assert hash(made.token) == hash(ServiceToken(TOKEN))
    for write in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="not written"):
            write(made.token)


# The memory of capabilities

YES = Capabilities("agent")
NO = UpstreamFailed(UpstreamFault.STATUS, status=500)


class Asked:
    """Answers in turn, each when it is let go."""

    def __init__(self, *answers: Capabilities | UpstreamFailed, held: bool = False) -> None:
        self._answers = list(answers)
        self.go = asyncio.Event()
        self.asked = 0
        if not held:
            self.go.set()

    async def __call__(self) -> Capabilities | UpstreamFailed:
        self.asked += 1
        answer = self._answers.pop(0)
        await self.go.wait()
        return answer


async def test_a_yes_is_remembered_for_its_time_from_the_question_on() -> None:
    at = 100.0
    cache = CapabilitiesCache(now=lambda: at)
    ask = Asked(YES, YES)
    assert await cache.get(KEY, ask) == YES
    at = 100.0 + CACHE_SECONDS - 0.001
    assert await cache.get(KEY, ask) == YES
    assert ask.asked == 1
    at = 100.0 + CACHE_SECONDS
    assert await cache.get(KEY, ask) == YES
    assert ask.asked == 2


async def test_a_no_is_never_remembered() -> None:
    cache = CapabilitiesCache(now=lambda: 0.0)
    ask = Asked(NO, NO, YES)
    assert [await cache.get(KEY, ask) for _ in range(4)] == [NO, NO, YES, YES]


@pytest.mark.parametrize(
    "other", [KEY._replace(token_version=2), KEY._replace(fingerprint=b"other"), KEY._replace(application_id=ApplicationId(UUID(int=2)))]
)
async def test_other_configurations_are_asked_for_themselves(other: CapabilitiesKey) -> None:
    cache = CapabilitiesCache(now=lambda: 0.0)
    ask = Asked(YES, NO)
    assert await cache.get(KEY, ask) == YES
    assert await cache.get(other, ask) == NO


@pytest.mark.parametrize("answer", [YES, NO])
async def test_those_who_ask_together_share_one_answer(answer: Capabilities | UpstreamFailed) -> None:
    cache = CapabilitiesCache(now=lambda: 0.0)
    ask = Asked(answer, held=True)
    tasks = [asyncio.create_task(cache.get(KEY, ask)) for _ in range(5)]
    await asyncio.sleep(0)
    tasks[3].cancel()
    await asyncio.sleep(0)
    ask.go.set()
    assert [await tasks[number] for number in (0, 1, 2, 4)] == [answer] * 4
    assert ask.asked == 1


async def test_when_the_one_who_asks_gives_up_another_asks() -> None:
    cache = CapabilitiesCache(now=lambda: 0.0)
    ask = Asked(NO, YES, held=True)
    first, second, third = (asyncio.create_task(cache.get(KEY, ask)) for _ in range(3))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    ask.go.set()
    assert [await second, await third] == [YES, YES]
    assert ask.asked == 2


async def test_dropping_forgets_and_an_answer_under_way_is_not_kept() -> None:
    cache = CapabilitiesCache(now=lambda: 0.0)
    ask = Asked(YES, YES, YES, held=True)
    under_way = asyncio.create_task(cache.get(KEY, ask))
    await asyncio.sleep(0)
    cache.drop(KEY)
    ask.go.set()
    assert await under_way == YES
    assert await cache.get(KEY, ask) == YES
    assert ask.asked == 2
    cache.drop(KEY)
    cache.drop(KEY)
    assert await cache.get(KEY, ask) == YES
    assert ask.asked == 3


# The bridge as a whole, against an upstream that behaves


async def run_once(bridge: Upstream, target: Endpoint) -> bytes:
    assert await bridge.check_capabilities(target, KEY) == Capabilities("agent")
    thread_id = await bridge.create_thread(target, KEY)
    assert thread_id is not None
    outcome = await bridge.generate(
        target, KEY, GenerationRequest(thread_id, CorrelationId(UUID(int=7)), "m-1", "Hi"), SendGate(lambda: True)
    )
    assert isinstance(outcome, OpenStream)
    async with outcome:
        return b"".join([piece async for piece in outcome])


async def test_a_run_through_the_bridge(client: HttpClient) -> None:
    async with ScriptedUpstream() as upstream:
        bridge = Bridge(client, bounds=StreamBounds(), clock=time.monotonic)
        target = endpoint(upstream.base_url, upstream.token)
        for _ in range(2):
            stream = await run_once(bridge, target)
            assert stream.startswith(b'data: {"type":"RUN_STARTED"')
            assert b"RUN_FINISHED" in stream
        counts = upstream.counts()
        assert (counts.capabilities, counts.threads, counts.ag_ui, counts.executions) == (1, 2, 2, 2)
        post = upstream.posts[0]
        assert post.native_run_id is not None
        found = await BridgeLookup(client).look_up(target, ThreadId(post.thread_id), NativeRunId(post.native_run_id))
        assert found == LookedUp(LookupStatus.SUCCESS)


Provoke = Callable[[Upstream, Endpoint], Awaitable[object]]


async def generate(bridge: Upstream, target: Endpoint) -> object:
    return await bridge.generate(target, KEY, REQUEST, SendGate(lambda: True))


async def thread(bridge: Upstream, target: Endpoint) -> object:
    return await bridge.create_thread(target, KEY)


@pytest.mark.parametrize(
    ("provoke", "script", "result", "asked"),
    [
        (generate, Script(ag_ui=[Answer(http_status=401, json={})]), Rejected(401), 2),
        (generate, Script(ag_ui=[Answer(http_status=503, json={})]), BadResponse(ResponseFault.STATUS, 503), 2),
        (generate, Script(ag_ui=[Answer(http_status=307, redirect="/x")]), Rejected(307), 1),
        (thread, Script(threads=[Answer(http_status=500, json={})]), None, 2),
        (thread, Script(threads=[Answer(http_status=200, json={"thread_id": ""})]), None, 1),
    ],
)
async def test_a_4xx_or_5xx_forgets_the_capabilities(
    client: HttpClient, provoke: Provoke, script: Script, result: object, asked: int
) -> None:
    async with ScriptedUpstream(script) as upstream:
        bridge = Bridge(client, bounds=StreamBounds(), clock=time.monotonic)
        target = endpoint(upstream.base_url, upstream.token)
        assert await bridge.check_capabilities(target, KEY) is not None
        outcome = await provoke(bridge, target)
        assert outcome == result
        assert await bridge.check_capabilities(target, KEY) is not None
        assert upstream.counts().capabilities == asked
        bridge.drop(KEY)
        assert await bridge.check_capabilities(target, KEY) is not None
        assert upstream.counts().capabilities == asked + 1


async def test_capabilities_that_fail_are_none(client: HttpClient) -> None:
    async with ScriptedUpstream() as upstream:
        bridge = Bridge(client, bounds=StreamBounds(), clock=time.monotonic)
        assert await bridge.check_capabilities(endpoint(upstream.base_url, "wrong"), KEY) is None
