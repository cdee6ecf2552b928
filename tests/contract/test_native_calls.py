"""The native profile's calls against real sockets: the exact requests, the recorded answers, and refusals whose texts go nowhere."""

import json
import logging
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from gateway.bindings.capabilities_check import CapabilitiesCheck
from gateway.domain.confirmation import Action, Answer
from gateway.domain.evidence import BadResponse, LookupStatus, NotSent, NotSentProof, PostFact, Rejected, ResponseFault
from gateway.domain.ids import ApplicationId, CorrelationId, NativeRunId, ThreadId
from gateway.domain.limits import MAX_TEXT_CHARACTERS, StreamBounds
from gateway.http_client import HttpClient, verified_tls
from gateway.upstream.capabilities import CapabilitiesKey
from gateway.upstream.endpoint import Endpoint, endpoint_of
from gateway.upstream.native import Native, told_run_id
from gateway.upstream.native_reads import NativeThreads, found_run
from gateway.upstream.open_stream import OpenRun
from gateway.upstream.protocol import NativeReads, NativeUpstream
from gateway.upstream.response_decoder import ResponseHead
from gateway.upstream.run_input import NativeRequest, ResumeCommand, UserInput, text_fits_upstream
from gateway.upstream.send_gate import SendGate
from tests.support.raw_server import RawServer, answer_with, refusing_port, response

pytestmark = pytest.mark.anyio

SAMPLES = Path(__file__).parent.parent / "samples"
TOKEN = "tok_SECRET"
KEY = CapabilitiesKey(ApplicationId(UUID(int=1)), b"fingerprint", 1)
MARK = CorrelationId(UUID(int=7))
THREAD = ThreadId("t-1")
CANARIES = ("abc123", "/srv/app", "RuntimeError", "provider failure", "tok_SECRET")


@pytest.fixture(scope="module")
def tls() -> ssl.SSLContext:
    return verified_tls()


@pytest.fixture
async def client(tls: ssl.SSLContext, anyio_backend: object) -> AsyncIterator[HttpClient]:
    async with HttpClient(connect_seconds=5, tls=tls, trusted_hosts=["127.0.0.1"]) as opened:
        yield opened


def endpoint(base_url: str) -> Endpoint:
    made = endpoint_of(base_url=base_url, assistant_id="agent", token=TOKEN)
    assert isinstance(made, Endpoint)
    return made


def task(thread_id: str = THREAD, text: str = "Grüße") -> NativeRequest:
    return NativeRequest(ThreadId(thread_id), "agent", MARK, UserInput("m-1", text))


def resume(comment: str | None = None) -> NativeRequest:
    return NativeRequest(THREAD, "agent", MARK, ResumeCommand("80720e", Answer(Action.APPROVE, comment)))


def recorded(sample: str) -> tuple[dict[str, Any], bytes]:
    body = next(path for path in (SAMPLES / f"{sample}.sse", SAMPLES / f"{sample}.json") if path.exists()).read_bytes()
    return json.loads((SAMPLES / f"{sample}.meta.json").read_text()), body


def as_response(meta: dict[str, Any], body: bytes) -> bytes:
    kept = {name: value for name, value in meta["headers"].items() if name in ("content-type", "content-location", "location")}
    return response(f"{meta['status']} Recorded", "".join(f"{name}: {value}\r\n" for name, value in kept.items()), body)


async def posted(client: HttpClient, reply: bytes, request: NativeRequest) -> tuple[OpenRun | PostFact, bytes]:
    async with RawServer(answer_with(reply)) as server:
        native = Native(client, bounds=StreamBounds(), clock=time.monotonic)
        outcome = await native.run(endpoint(server.base_url + "/v1"), KEY, request, SendGate(lambda: True))
        if isinstance(outcome, OpenRun):
            async with outcome.stream:
                while await outcome.stream.read():
                    pass
        assert len(server.connections) == 1
        return outcome, server.received


def stream_reply(thread_id: str = "t-1", run_id: str = "run-1") -> bytes:
    head = f"Content-Type: text/event-stream\r\nContent-Location: /threads/{thread_id}/runs/{run_id}\r\n"
    return response("200 OK", head, b"event: metadata\r\n\r\n")


# The one POST


async def test_the_task_is_the_new_input_and_nothing_else(client: HttpClient) -> None:
    outcome, received = await posted(client, stream_reply("t%2F1"), task("t/1"))
    assert isinstance(outcome, OpenRun)
    assert outcome.native_run_id == "run-1"
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/threads/t%2F1/runs/stream HTTP/1.1\r\n")
    for line in (b"Authorization: Bearer tok_SECRET", b"Accept: text/event-stream", b"Accept-Encoding: identity", b"Connection: close"):
        assert line in head.split(b"\r\n")
    assert json.loads(body) == {
        "assistant_id": "agent",
        "input": {"messages": [{"role": "user", "content": "Grüße", "id": "m-1"}]},
        "stream_mode": ["updates", "messages-tuple"],
        "multitask_strategy": "reject",
        "on_disconnect": "continue",
        "metadata": {"gateway_mark": str(MARK)},
    }


@pytest.mark.parametrize("comment", [None, "", "fine"])
async def test_the_decision_is_a_map_of_the_saved_question(client: HttpClient, comment: str | None) -> None:
    _, received = await posted(client, stream_reply(), resume(comment))
    sent = json.loads(received.partition(b"\r\n\r\n")[2])
    value = {"action": "approve"} if comment is None else {"action": "approve", "comment": comment}
    assert sent["command"] == {"resume": {"80720e": value}}
    assert sent.keys() == {"assistant_id", "command", "stream_mode", "multitask_strategy", "on_disconnect", "metadata"}


@pytest.mark.parametrize("sample", ["langgraph-api/stream_confirm", "aegra-api/stream_confirm", "langgraph-api/stream_confirm_resume_map"])
async def test_recorded_streams_name_their_run(client: HttpClient, sample: str) -> None:
    meta, body = recorded(sample)
    thread_id, run_id = meta["headers"]["content-location"].split("/")[2::2]
    outcome, _ = await posted(client, as_response(meta, body), task(thread_id))
    assert isinstance(outcome, OpenRun)
    assert outcome.native_run_id == run_id


@pytest.mark.parametrize(
    ("sample", "fact"),
    [
        ("langgraph-api/err_double_submit_reject", Rejected(409, thread_busy=True)),
        ("langgraph-api/err_stream_unknown_thread", Rejected(404)),
        ("langgraph-api/err_stream_unknown_assistant", Rejected(422)),
        ("langgraph-api/err_stream_bad_body", Rejected(422)),
        ("langgraph-api/err_stream_bad_mode", Rejected(422)),
        ("langgraph-api/auth_wrong_stream", Rejected(401)),
        ("aegra-api/auth_wrong_stream", Rejected(401)),
        ("aegra-api/err_stream_unknown_assistant", Rejected(404)),
        ("aegra-api/err_both_input_and_command", Rejected(422)),
        ("aegra-api/stream_confirm_resume_map_again", Rejected(400)),
        ("aegra-api/stream_resume_nothing_pending", Rejected(400)),
    ],
)
async def test_recorded_refusals(client: HttpClient, caplog: pytest.LogCaptureFixture, sample: str, fact: PostFact) -> None:
    with caplog.at_level(logging.DEBUG):
        outcome, _ = await posted(client, as_response(*recorded(sample)), task())
    assert outcome == fact
    assert not [canary for canary in CANARIES if canary in caplog.text]


@pytest.mark.parametrize(
    "location",
    [
        "",
        "Content-Location: /threads/t-2/runs/run-1\r\n",
        "Content-Location: /threads/t-1/runs/\r\n",
        "Content-Location: /threads/t-1/runs/run 1\r\n",
        "Content-Location: /threads/t-1/runs/..\r\n",
        "Content-Location: /threads/t-1/runs/run-1/stream\r\n",
        "Content-Location: /threads/t-1/runs/run-1\r\nContent-Location: /threads/t-1/runs/run-2\r\n",
        "Location: /threads/t-1/runs/run-1/stream\r\n",
    ],
)
async def test_a_stream_without_a_run_of_our_thread_is_not_read(client: HttpClient, location: str) -> None:
    outcome, _ = await posted(client, response("200 OK", "Content-Type: text/event-stream\r\n" + location, b"x"), task())
    assert outcome == BadResponse(ResponseFault.RUN_ID, 200)


@pytest.mark.parametrize(
    "value", ["/threads/t-1/runs/r", "/api/v2/threads/t-1/runs/r", "https://host:1/x/threads/t-1/runs/r", "threads/t-1/runs/r"]
)
def test_where_a_run_may_be_named(value: str) -> None:
    assert told_run_id(ResponseHead(200, (("content-location", value),)), THREAD) == "r"


async def test_what_cannot_be_sent_was_not_sent(client: HttpClient) -> None:
    native = Native(client, bounds=StreamBounds(), clock=time.monotonic)
    with refusing_port() as port:
        target = endpoint(f"http://127.0.0.1:{port}")
        proof = NotSent(NotSentProof.CONNECTION_NOT_MADE)
        assert await native.run(target, KEY, task(), SendGate(lambda: True)) == proof
        assert await native.run(target, KEY, task(".."), SendGate(lambda: True)) == proof
        assert await native.run(target, KEY, task(text="\ud800"), SendGate(lambda: True)) == proof


def test_the_longest_text_fits_both_profiles() -> None:
    assert text_fits_upstream("x" * MAX_TEXT_CHARACTERS)
    assert text_fits_upstream("é" * MAX_TEXT_CHARACTERS)


# Capabilities

ABLE = {
    "assistant_id": "agent",
    "native_interrupt": True,
    "native_resume": True,
    "one_task_per_thread": True,
    "actions": ["reject", "approve"],
}


@pytest.mark.parametrize(
    ("change", "able"),
    [
        ({}, True),
        ({"actions": ["approve", "reject", "edit"]}, True),
        ({"native_interrupt": False}, False),
        ({"native_resume": None}, False),
        ({"one_task_per_thread": False}, False),
        ({"actions": ["approve"]}, False),
        ({"assistant_id": "other"}, False),
    ],
)
async def test_e1_what_an_assistant_must_be_capable_of(client: HttpClient, change: dict[str, object], able: bool) -> None:
    reply = response("200 OK", "Content-Type: application/json\r\n", json.dumps({**ABLE, **change}).encode())
    async with RawServer(answer_with(reply)) as server:
        native = Native(client, bounds=StreamBounds(), clock=time.monotonic)
        capabilities = await native.check_capabilities(endpoint(server.base_url), KEY)
    assert (capabilities is not None) is able
    # a new token of such an application has to pass the same (contract A8)
    for human_input in (True, False):
        async with RawServer(answer_with(reply)) as server:
            passes = await CapabilitiesCheck(client)(base_url=server.base_url, assistant_id="agent", token=TOKEN, human_input=human_input)
        assert passes is (able or (not human_input and "assistant_id" not in change))


# What can be asked


async def asked(client: HttpClient, sample: str) -> tuple[NativeThreads, RawServer, str]:
    meta, body = recorded(sample)
    return NativeThreads(client), RawServer(answer_with(as_response(meta, body))), meta["request"]["path"]


@pytest.mark.parametrize(
    ("sample", "pending"),
    [
        ("langgraph-api/state_confirm_pending", 1),
        ("langgraph-api/state_confirm2_pending", 2),
        ("langgraph-api/state_confirm_after", 0),
        ("langgraph-api/state_boom", 0),
        ("langgraph-api/state_empty_thread", 0),
        ("aegra-api/state_confirm_pending", 1),
        ("aegra-api/state_empty_thread", 0),
        ("langgraph-api/err_state_unknown_thread", None),
        ("aegra-api/err_thread_unknown", None),
    ],
)
async def test_recorded_states(client: HttpClient, caplog: pytest.LogCaptureFixture, sample: str, pending: int | None) -> None:
    threads, server, path = await asked(client, sample)
    thread_id = ThreadId(path.split("/")[2])
    with caplog.at_level(logging.DEBUG):
        async with server:
            state = await threads.state(endpoint(server.base_url), thread_id)
            assert server.received.startswith(f"GET /threads/{thread_id}/state HTTP/1.1\r\n".encode())
    assert (None if state is None else len(state.interrupts)) == pending
    assert not [canary for canary in CANARIES if canary in caplog.text + repr(state)]


@pytest.mark.parametrize(
    ("sample", "status"),
    [
        ("langgraph-api/run_get_confirm_interrupted", LookupStatus.SUCCESS),
        ("aegra-api/run_get_confirm_interrupted", LookupStatus.INTERRUPTED),
        ("aegra-api/run_get_boom", LookupStatus.ERROR),
        ("langgraph-api/run_get_timeout", LookupStatus.ERROR),
        ("langgraph-api/run_get_cancelled_rollback", LookupStatus.UNCLEAR),
        ("langgraph-api/err_run_unknown", LookupStatus.UNCLEAR),
    ],
)
async def test_recorded_look_ups(client: HttpClient, caplog: pytest.LogCaptureFixture, sample: str, status: LookupStatus) -> None:
    threads, server, path = await asked(client, sample)
    thread_id, run_id = path.split("/")[2::2]
    with caplog.at_level(logging.DEBUG):
        async with server:
            assert await threads.run_status(endpoint(server.base_url), ThreadId(thread_id), NativeRunId(run_id)) is status
    assert not [canary for canary in CANARIES if canary in caplog.text]


async def test_a_run_is_found_by_our_mark_or_as_the_one_that_was_not_there(client: HttpClient) -> None:
    _, body = recorded("langgraph-api/runs_list_metadata")
    listed = json.loads(body)
    listed[0]["metadata"]["gateway_mark"] = str(MARK)
    thread_id, run_id = listed[0]["thread_id"], listed[0]["run_id"]
    reply = response("200 OK", "Content-Type: application/json\r\n", json.dumps(listed).encode())
    async with RawServer(answer_with(reply)) as server:
        found = await NativeThreads(client).find_run(endpoint(server.base_url), ThreadId(thread_id), MARK, frozenset())
        assert server.received.startswith(f"GET /threads/{thread_id}/runs?limit=100 HTTP/1.1\r\n".encode())
    assert found == run_id
    no_marks, own = json.loads(recorded("aegra-api/runs_list")[1]), frozenset[NativeRunId]()
    assert found_run(no_marks, no_marks[0]["thread_id"], str(MARK), own) == no_marks[0]["run_id"]
    assert found_run(no_marks, "other thread", str(MARK), own) is None
    assert found_run(no_marks, no_marks[0]["thread_id"], str(MARK), frozenset({NativeRunId(no_marks[0]["run_id"])})) is None
    assert found_run(json.loads(recorded("langgraph-api/runs_list_confirm")[1]), "x", str(MARK), own) is None


def one(run_id: object, **more: object) -> Any:
    return {"run_id": run_id, **more}


@pytest.mark.parametrize(
    ("listed", "found"),
    [
        ([], None),
        ([one("a"), one("b")], None),
        ([one("a"), one("known")], "a"),
        ([one("a", metadata={}), one("b")], "b"),
        ([one("a", metadata={"gateway_mark": "m"}), one("b"), one("c", metadata={})], "a"),
        ([one("a", metadata={"gateway_mark": "m"}), one("b", metadata={"gateway_mark": "m"})], None),
        ([one("a", metadata={"gateway_mark": "of another"})], None),
        ([one("a b"), one(7), one(None), "x"], None),
    ],
)
def test_which_run_is_ours(listed: list[Any], found: str | None) -> None:
    assert found_run(listed, "t-1", "m", frozenset({NativeRunId("known")})) == found


@pytest.mark.parametrize("body", [b"{}", b"[", b"null", b'[{"run_id":"a"}]'])
@pytest.mark.parametrize("status", ["200 OK", "404 Not Found", "307 Moved"])
async def test_lists_that_cannot_be_read_find_nothing(client: HttpClient, body: bytes, status: str) -> None:
    async with RawServer(answer_with(response(status, "Content-Type: application/json\r\n", body))) as server:
        found = await NativeThreads(client).find_run(endpoint(server.base_url), THREAD, MARK, frozenset())
    assert found == ("a" if (status, body) == ("200 OK", b'[{"run_id":"a"}]') else None)


async def test_thread_ids_that_are_steps_in_a_path_are_never_asked_for(client: HttpClient) -> None:
    threads, target = NativeThreads(client), endpoint("http://127.0.0.1:9")
    assert await threads.state(target, ThreadId("..")) is None
    assert await threads.find_run(target, ThreadId(".."), MARK, frozenset()) is None
    assert await threads.run_status(target, ThreadId(".."), NativeRunId("r")) is LookupStatus.UNCLEAR


async def test_the_protocols_hold(client: HttpClient) -> None:
    upstream: NativeUpstream = Native(client, bounds=StreamBounds(), clock=time.monotonic)
    reads: NativeReads = NativeThreads(client)
    assert upstream is not None
    assert reads is not None
