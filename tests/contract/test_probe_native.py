"""`gateway probe --human-input`: the reference service keeps the native contract; made bad in one way, it fails by its clause."""

import json
import re
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.limits import StreamBounds
from gateway.http_client import HttpClient, verified_tls
from gateway.probe.clauses import BRIDGE, NATIVE, WORDINGS, Clause
from gateway.probe.findings import Report, Result
from gateway.probe.native import MOST_RUNS, probe_native
from gateway.probe.watched import Target
from gateway.upstream.endpoint import Endpoint, endpoint_of
from tests.support.agent_service_server import TOKEN, running_agent_service, service_settings
from tests.support.tampered import Exchanged, Tamper, Tampered

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def tls() -> ssl.SSLContext:
    return verified_tls()


@pytest.fixture
async def client(tls: ssl.SSLContext, anyio_backend: str) -> AsyncIterator[HttpClient]:
    async with HttpClient(connect_seconds=5, tls=tls, trusted_hosts=["127.0.0.1"]) as opened:
        yield opened


async def probed(
    client: HttpClient, folder: Path, tamper: Tamper = lambda _: None, *, assistant: str = "approvals", once: bool = False
) -> Report:
    settings = service_settings(folder / "agent.db")
    async with running_agent_service(settings, wrap=lambda app: Tampered(app, tamper)) as service:
        endpoint = endpoint_of(base_url=str(service.base_url), assistant_id=assistant, token=TOKEN)
        assert isinstance(endpoint, Endpoint)
        bounds = StreamBounds(frame_bytes=64 * 1024, kept_frame_bytes=16 * 1024, idle_seconds=20, total_seconds=60)
        target = Target(client, endpoint, bounds, "Send it", settle_seconds=0.3)
        report = await probe_native(target, once=once, tell=lambda _: None)
    assert {finding.clause for finding in report.findings} == set(NATIVE)
    assert TOKEN not in repr(report)
    return report


async def test_the_reference_service_keeps_the_native_contract(client: HttpClient, tmp_path: Path) -> None:
    report = await probed(client, tmp_path)
    assert {finding.clause.value: finding.seen for finding in report.findings if finding.result is not Result.OK} == {}
    assert report.agent_runs == MOST_RUNS


async def test_an_agent_that_asks_nothing_keeps_it_with_advice(client: HttpClient, tmp_path: Path) -> None:
    report = await probed(client, tmp_path, assistant="agent")
    assert report.first_broken is None
    assert [finding.clause for finding in report.of(Result.ADVICE)] == [Clause.PROMPT]
    assert {finding.clause for finding in report.of(Result.SKIPPED)} == {
        Clause.DECISION_TAKEN,
        Clause.DECISION_APPLIED,
        Clause.NATIVE_FRESH,
    }


async def test_once_leaves_the_question_pending(client: HttpClient, tmp_path: Path) -> None:
    report = await probed(client, tmp_path, once=True)
    assert (report.first_broken, report.agent_runs) == (None, 1)
    assert Clause.DECISION_TAKEN in {finding.clause for finding in report.of(Result.SKIPPED)}


async def test_a_service_that_makes_up_threads_is_advised(client: HttpClient, tmp_path: Path) -> None:
    """Its state tells what it lost, and the gateway reads that first."""
    report = await probed(client, tmp_path, instead_of(STREAM, 404, headers=EVENT_STREAM))
    assert report.first_broken is None
    assert [finding.clause for finding in report.of(Result.ADVICE)] == [Clause.UNKNOWN_THREAD_REFUSED]


# Made bad

CAPABILITIES, STATE, STREAM, RUN, RUNS = "GET capabilities", "GET state", "POST stream", "GET run", "GET runs"
Change = Callable[[Any], Any]


def in_json(kind: str, change: Change) -> Tamper:
    """Each good answer of the kind, changed."""

    def tamper(exchanged: Exchanged) -> None:
        if exchanged.kind == kind and exchanged.http_status == 200:
            exchanged.json = change(exchanged.json)

    return tamper


def in_stream(change: Callable[[bytes], bytes]) -> Tamper:
    def tamper(exchanged: Exchanged) -> None:
        if exchanged.kind == STREAM and exchanged.http_status == 200:
            exchanged.body = change(exchanged.body)

    return tamper


def location(change: Callable[[str], str | None]) -> Tamper:
    def tamper(exchanged: Exchanged) -> None:
        if exchanged.kind == STREAM and exchanged.http_status == 200:
            told = change(exchanged.headers.pop("content-location"))
            if told is not None:
                exchanged.headers["content-location"] = told

    return tamper


def instead_of(kind: str, http_status: int, *, headers: dict[str, str] | None = None, body: bytes = b"{}") -> Tamper:
    """A refusal with that status is none any more."""

    def tamper(exchanged: Exchanged) -> None:
        if exchanged.kind == kind and exchanged.http_status == http_status:
            exchanged.http_status, exchanged.body = 200, body
            exchanged.headers |= headers or {}

    return tamper


def decision(change: Tamper) -> Tamper:
    """The second stream that is one: the decision's."""
    streams = []

    def tamper(exchanged: Exchanged) -> None:
        if exchanged.kind == STREAM and exchanged.http_status == 200:
            streams.append(exchanged)
            if len(streams) == 2:
                change(exchanged)

    return tamper


def both(*tampers: Tamper) -> Tamper:
    def tamper(exchanged: Exchanged) -> None:
        for one in tampers:
            one(exchanged)

    return tamper


def refused(exchanged: Exchanged) -> None:
    exchanged.http_status, exchanged.body = 400, b'{"detail": "no"}'
    exchanged.headers = {"content-type": "application/json"}


def question_that_stays() -> Tamper:
    """The state with the question is told for ever."""
    told: list[bytes] = []

    def tamper(exchanged: Exchanged) -> None:
        if exchanged.kind == STATE and exchanged.http_status == 200:
            if told:
                exchanged.body = told[0]
            elif exchanged.json["interrupts"]:
                told.append(exchanged.body)

    return tamper


def same_run_again() -> Tamper:
    """The decision's stream goes by the id of the task's run."""
    ids: list[str] = []

    def tamper(exchanged: Exchanged) -> None:
        if exchanged.kind != STREAM or exchanged.http_status != 200:
            return
        native_run_id = exchanged.headers["content-location"].rpartition("/")[2]
        ids.append(native_run_id)
        exchanged.headers["content-location"] = exchanged.headers["content-location"].replace(native_run_id, ids[0])
        exchanged.body = exchanged.body.replace(native_run_id.encode(), ids[0].encode())

    return tamper


def without(name: str) -> Change:
    return lambda document: {key: value for key, value in document.items() if key != name}


def with_members(**members: object) -> Change:
    return lambda document: {**document, **members}


def each_interrupt(change: Callable[[list[Any]], list[Any]]) -> Change:
    def changed(state: Any) -> Any:
        tasks = [{**task, "interrupts": change(task["interrupts"])} for task in state["tasks"]]
        return {**state, "tasks": tasks, "interrupts": change(state["interrupts"])}

    return changed


def other_texts(state: Any) -> Any:
    messages = [{**message, "content": "CANARY"} for message in state["values"].get("messages", [])]
    return {**state, "values": {**state["values"], "messages": messages}}


@dataclass(frozen=True)
class Case:
    clause: Clause
    rule: str
    tamper: Callable[[], Tamper]


EVENT_STREAM = {"content-type": "text/event-stream"}
CASES = {
    "cannot ask": Case(Clause.CAPABLE, "E1", lambda: in_json(CAPABILITIES, with_members(native_interrupt=False))),
    "cannot be answered": Case(Clause.CAPABLE, "E1", lambda: in_json(CAPABILITIES, with_members(native_resume=None))),
    "many tasks a thread": Case(Clause.CAPABLE, "E1", lambda: in_json(CAPABILITIES, without("one_task_per_thread"))),
    "nothing but yes": Case(Clause.CAPABLE, "E1", lambda: in_json(CAPABILITIES, with_members(actions=["approve"]))),
    "a state of another form": Case(Clause.STATE, "E1", lambda: in_json(STATE, without("tasks"))),
    "a fresh thread that asks": Case(Clause.STATE, "E1", lambda: in_json(STATE, with_members(interrupts=[{"id": "1", "value": "CANARY"}]))),
    "states for everybody": Case(Clause.STATE_NEEDS_TOKEN, "B1", lambda: instead_of(STATE, 401)),
    "messages of everybody": Case(Clause.POST_NEEDS_TOKEN, "B1", lambda: instead_of(STREAM, 401, headers=EVENT_STREAM)),
    "a state for every thread": Case(
        Clause.STATE_UNKNOWN, "E1", lambda: instead_of(STATE, 404, body=b'{"tasks": [], "next": [], "interrupts": []}')
    ),
    "no Content-Location": Case(Clause.RUN_LOCATION, "E1", lambda: location(lambda _: None)),
    "a run of another thread": Case(Clause.RUN_LOCATION, "E1", lambda: location(lambda told: re.sub("/threads/[^/]+", "/threads/x", told))),
    "metadata of another run": Case(
        Clause.RUN_LOCATION, "E1", lambda: in_stream(lambda body: re.sub(rb'"run_id": ?"[^"]+"', b'"run_id":"CANARY"', body, count=1))
    ),
    "a frame that is not JSON": Case(
        Clause.FRAMES, "B7", lambda: in_stream(lambda body: body + b"event: messages\r\ndata: CANARY\r\n\r\n")
    ),
    "a frame that is too large": Case(
        Clause.BOUNDS, "B10", lambda: in_stream(lambda body: body + b"event: updates\r\ndata: " + b"x" * 70_000 + b"\r\n\r\n")
    ),
    "a frame that stays open": Case(Clause.ANSWER_VERIFIED, "D4", lambda: in_stream(lambda body: body + b"event: updates\r\ndata: {}\r\n")),
    "a look-up that finds nothing": Case(Clause.LOOKUP_DURING, "B6", lambda: in_json(RUN, without("status"))),
    "the agent failed": Case(Clause.VERDICT, "E4", lambda: in_json(RUN, with_members(status="error"))),
    "for ever running": Case(Clause.VERDICT, "E4", lambda: in_json(RUN, with_members(status="running"))),
    "a state of another run": Case(Clause.VERDICT, "E4", lambda: in_json(STATE, with_members(metadata={"run_id": "CANARY"}))),
    "interrupted without a question": Case(
        Clause.VERDICT,
        "E4",
        lambda: both(in_json(RUN, with_members(status="interrupted")), in_json(STATE, each_interrupt(lambda _: []))),
    ),
    "another form of question": Case(
        Clause.PROMPT,
        "E3",
        lambda: in_json(STATE, each_interrupt(lambda told: [{**one, "value": {**one["value"], "version": 2}} for one in told])),
    ),
    "two questions": Case(
        Clause.PROMPT, "E3", lambda: in_json(STATE, each_interrupt(lambda told: [*told, *({**one, "id": "another"} for one in told)]))
    ),
    "other words in the state": Case(Clause.ANSWER_VERIFIED, "D4", lambda: in_json(STATE, other_texts)),
    "no list of runs": Case(Clause.RUN_LISTED, "E1", lambda: in_json(RUNS, lambda _: [])),
    "a list without our mark": Case(Clause.RUN_LISTED, "E1", lambda: in_json(RUNS, lambda runs: [{**run, "metadata": {}} for run in runs])),
    "refuses decisions": Case(Clause.DECISION_TAKEN, "E2", lambda: decision(refused)),
    "does nothing with a decision": Case(Clause.DECISION_APPLIED, "E7", question_that_stays),
    "one run id for task and decision": Case(Clause.NATIVE_FRESH, "B8", same_run_again),
}


@pytest.mark.parametrize("name", CASES)
async def test_what_is_broken_fails_by_its_clause(client: HttpClient, tmp_path: Path, name: str) -> None:
    case = CASES[name]
    report = await probed(client, tmp_path, case.tamper())
    first = report.first_broken
    assert first is not None
    assert (first.clause, WORDINGS[first.clause].rule) == (case.clause, case.rule), first.seen
    assert "CANARY" not in json.dumps([finding.seen for finding in report.findings])


def test_there_is_a_case_for_each_clause_of_this_profile_alone() -> None:
    assert set(NATIVE) - set(BRIDGE) <= {case.clause for case in CASES.values()}
