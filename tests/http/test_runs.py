"""Runs over HTTP: submit, replay, read, watch, and what another person sees of them (field cases O-02, O-06, O-07, O-18, O-37)."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from gateway.domain.ids import ApplicationId
from gateway.domain.reasons import Reason
from gateway.domain.states import Execution, Persistence
from gateway.identity.tokens import HmacIdentity, TokenChecks
from gateway.runs.live import LiveRun
from tests.http.world import KEY, World, open_world, web_settings
from tests.support.postgres import PostgresForTests

pytestmark = pytest.mark.anyio

STREAM = {"Accept": "text/event-stream"}


def message(**more: object) -> dict[str, object]:
    return {"submission_id": str(uuid4()), "text": "hello"} | more


class Watched:
    """The frames of one stream, one after the other; comments are counted."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self.comments = 0
        self._lines = answer.aiter_lines()

    async def frame(self) -> dict[str, Any] | None:
        async for line in self._lines:
            if line.startswith("data: "):
                decoded: dict[str, Any] = json.loads(line[6:])
                return decoded
            self.comments += line.startswith(":")
        return None

    async def until(self, kind: str) -> list[dict[str, Any]]:
        frames = []
        while (frame := await asyncio.wait_for(self.frame(), 10)) is not None:
            frames.append(frame)
            if frame["type"] == kind:
                break
        return frames


@asynccontextmanager
async def posted(world: World, application_id: ApplicationId, subject: str, body: dict[str, object]) -> AsyncIterator[Watched]:
    address = f"{world.agent(application_id)}/runs"
    async with world.client.stream("POST", address, headers=world.bearer(subject) | STREAM, json=body) as answer:
        yield Watched(answer)


@asynccontextmanager
async def watching(world: World, application_id: ApplicationId, subject: str, run_id: str) -> AsyncIterator[Watched]:
    address = f"{world.agent(application_id)}/runs/{run_id}/events"
    async with world.client.stream("GET", address, headers=world.bearer(subject)) as answer:
        yield Watched(answer)


def end(live: LiveRun) -> None:
    moment = live.view.updated_at
    live.ended(Execution.SUCCEEDED, Persistence.SAVED, None, None, moment, moment)


async def test_a_new_submission_is_202_and_its_replay_200(world: World) -> None:
    application_id, headers, body = world.application(), world.bearer(f"u{uuid4()}"), message()
    address = f"{world.agent(application_id)}/runs"
    first = await world.client.post(address, headers=headers, json=body)
    assert first.status_code == 202
    assert "idempotent-replayed" not in first.headers
    run = first.json()
    assert (run["submission_id"], run["execution"], run["snapshot"]) == (body["submission_id"], "reserved", None)
    again = await world.client.post(address, headers=headers, json=body)
    assert (again.status_code, again.headers["idempotent-replayed"]) == (200, "true")
    assert again.json()["run_id"] == run["run_id"]
    read = await world.client.get(f"{address}/{run['run_id']}", headers=headers)
    assert (read.status_code, read.json()["run_id"]) == (200, run["run_id"])
    other = await world.client.post(address, headers=headers, json=body | {"text": "other"})
    assert (other.status_code, other.json()["code"]) == (409, "submission_conflict")


async def test_a_second_message_while_one_is_answered_names_the_run_in_the_way(world: World) -> None:
    application_id, headers = world.application(), world.bearer(f"u{uuid4()}")
    address = f"{world.agent(application_id)}/runs"
    run = (await world.client.post(address, headers=headers, json=message())).json()
    second = await world.client.post(address, headers=headers, json=message(conversation_id=run["conversation_id"]))
    assert (second.status_code, second.json()["code"], second.json()["run_id"]) == (409, "conversation_busy", run["run_id"])


async def test_a_submission_as_a_stream(world: World) -> None:
    application_id, subject, body = world.application(), f"u{uuid4()}", message()
    async with posted(world, application_id, subject, body) as watched:
        answer = watched.answer
        started, status = [await watched.frame() for _ in range(2)]
        assert started is not None
        assert status is not None
        live = world.begun.of(started["runId"])
        assert (started["type"], started["threadId"]) == ("RUN_STARTED", str(live.view.conversation_id))
        assert (status["name"], status["value"]["execution"]) == ("gateway.run", "reserved")
        live.channel.publish(b'data: {"type":"TEXT_MESSAGE_CONTENT","delta":"hi"}\n\n')
        assert await watched.frame() == {"type": "TEXT_MESSAGE_CONTENT", "delta": "hi"}
        end(live)
        assert [frame["type"] for frame in await watched.until("RUN_FINISHED")] == ["CUSTOM", "RUN_FINISHED"]
        assert await watched.frame() is None
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store, no-transform"
    assert answer.headers["x-accel-buffering"] == "no"


async def test_the_same_submission_again_joins_the_run(world: World) -> None:
    application_id, subject, body = world.application(), f"u{uuid4()}", message()
    async with posted(world, application_id, subject, body) as watched:
        started = await watched.frame()
    assert started is not None
    live = world.begun.of(started["runId"])
    live.channel.publish(b'data: {"type":"TEXT_MESSAGE_CONTENT","delta":"hi"}\n\n')
    for _ in range(4):
        async with posted(world, application_id, subject, body) as again:
            assert again.answer.headers["idempotent-replayed"] == "true"
            assert [frame["type"] for frame in await again.until("TEXT_MESSAGE_CONTENT")] == [
                "RUN_STARTED",
                "CUSTOM",
                "TEXT_MESSAGE_CONTENT",
            ]
    assert world.sql("select count(*) from run where conversation_id = %s", live.view.conversation_id) == [(1,)]


async def test_a_second_window_watches_from_the_beginning(world: World) -> None:
    application_id, subject = world.application(), f"u{uuid4()}"
    async with posted(world, application_id, subject, message()) as first:
        started = await first.frame()
        assert started is not None
        async with watching(world, application_id, subject, started["runId"]) as second:
            assert await second.frame() == started
            end(world.begun.of(started["runId"]))
            assert [frame["type"] for frame in await second.until("RUN_FINISHED")] == ["CUSTOM", "CUSTOM", "RUN_FINISHED"]
        await first.until("RUN_FINISHED")


async def test_a_browser_that_leaves_touches_nothing(world: World) -> None:
    application_id, subject = world.application(), f"u{uuid4()}"
    async with posted(world, application_id, subject, message()) as watched:
        started = await watched.frame()
    assert started is not None
    live = world.begun.of(started["runId"])
    end(live)
    assert world.sql("select execution from run where run_id = %s", UUID(started["runId"])) == [("reserved",)]


async def test_the_stream_of_a_run_that_is_not_live_here(world: World) -> None:
    application_id, subject = world.application(), f"u{uuid4()}"
    run = (await world.client.post(f"{world.agent(application_id)}/runs", headers=world.bearer(subject), json=message())).json()
    live = world.begun.of(run["run_id"])
    world.begun.live_runs.remove(live.view.run_id)
    world.sql(
        "update run set execution = 'failed', reason = 'upstream_error', user_slot = null, application_slot = null, fence_at = now(),"
        " finished_at = now(), persistence = 'incomplete' where run_id = %s",
        live.view.run_id,
    )
    async with watching(world, application_id, subject, run["run_id"]) as watched:
        frames = await watched.until("RUN_ERROR")
    assert [frame["type"] for frame in frames] == ["RUN_STARTED", "CUSTOM", "RUN_ERROR"]
    assert frames[-1]["code"] == Reason.UPSTREAM_ERROR


async def test_many_streams_hold_no_connection(world: World) -> None:
    """More streams than the pool has connections (10); reads go on, and no transaction is left open."""
    subject = f"u{uuid4()}"
    application_id = world.application()
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(posted(world, application_id, subject, message())) for _ in range(30)]
        started = [await one.frame() for one in streams]
        answer = await world.client.get(f"{world.agent(application_id)}/conversations", headers=world.bearer(subject))
        assert len(answer.json()["conversations"]) == 30
        idle = "select count(*) from pg_stat_activity where state = 'idle in transaction' and datname = current_database()"
        assert world.sql(idle) == [(0,)]
        for frame in started:
            assert frame is not None
            end(world.begun.of(frame["runId"]))


@pytest.mark.parametrize(
    "loss",
    [
        "update account set state = 'suspended' where subject = %s",
        "update application set visibility = 'private' where application_id in (select application_id from run join account"
        " using (account_id) where subject = %s)",
        "update conversation set deleted_at = now() where account_id = (select account_id from account where subject = %s)",
    ],
)
async def test_lost_rights_end_a_stream_and_not_the_run(postgres: PostgresForTests, loss: str) -> None:
    with postgres.migrated_database() as url:
        async with open_world(url, settings=web_settings(heartbeat_seconds=0.05)) as world:
            application_id, subject = world.application(), "ada"
            async with posted(world, application_id, subject, message()) as watched:
                started = await watched.frame()
                assert started is not None
                world.sql(loss, subject)
                assert [frame["type"] for frame in await watched.until("RUN_FINISHED")] == ["CUSTOM"]
                assert watched.comments >= 1
            assert world.sql("select execution from run") == [("reserved",)]


async def test_a_token_that_expires_ends_a_stream_and_not_the_run(postgres: PostgresForTests) -> None:
    shift = [0.0]
    identity = HmacIdentity(KEY, TokenChecks(now=lambda: time.time() + shift[0]))
    with postgres.migrated_database() as url:
        async with open_world(url, settings=web_settings(heartbeat_seconds=0.05), identity=identity) as world:
            async with posted(world, world.application(), "ada", message()) as watched:
                assert await watched.frame() is not None
                shift[0] = 3600 + 31
                assert [frame["type"] for frame in await watched.until("RUN_FINISHED")] == ["CUSTOM"]
            assert world.sql("select execution from run") == [("reserved",)]


async def test_o37_the_foreign_the_missing_and_the_malformed_look_alike(world: World) -> None:
    """The same 404 for another's ids, for ids of another application, for random ones, and for what is no id."""
    owner, other = f"u{uuid4()}", f"u{uuid4()}"
    application_id, second_application_id = world.application(), world.application()
    hidden = world.application(visibility="group", groups=["research"])
    run = (await world.client.post(f"{world.agent(application_id)}/runs", headers=world.bearer(owner), json=message())).json()
    await world.client.get("/api/internal/me", headers=world.bearer(other))

    def addresses(application: object, run_id: str, conversation_id: str) -> list[tuple[str, str]]:
        agent = f"/api/internal/apps/{application}/agent"
        conversation = f"{agent}/conversations/{conversation_id}"
        return [
            ("GET", f"{agent}/runs/{run_id}"),
            ("GET", f"{agent}/runs/{run_id}/events"),
            ("GET", conversation),
            ("GET", f"{conversation}/items"),
            ("DELETE", conversation),
            ("PATCH", conversation),
        ]

    run_id, conversation_id = run["run_id"], run["conversation_id"]
    calls = [
        (subject, call)
        for subject, application, named_run, named_conversation in (
            (other, application_id, run_id, conversation_id),
            (owner, second_application_id, run_id, conversation_id),
            (owner, application_id, str(uuid4()), str(uuid4())),
            (owner, application_id, "x", "not-a-uuid"),
            (owner, application_id, f"{{{run_id}}}", conversation_id.replace("-", "")),
            (owner, hidden, run_id, conversation_id),
            (owner, uuid4(), run_id, conversation_id),
            (owner, "x", run_id, conversation_id),
        )
        for call in addresses(application, named_run, named_conversation)
    ]
    calls += [(owner, ("GET", f"/api/internal/apps/{application}/agent/conversations")) for application in (hidden, uuid4(), "x")]
    calls += [(owner, ("GET", f"/api/internal/apps/{application}")) for application in (hidden, uuid4(), "x")]
    bodies = []
    for subject, (method, address) in calls:
        headers = world.bearer(subject) | ({"Content-Type": "application/json"} if method == "PATCH" else {})
        answer = await world.client.request(method, address, headers=headers, content=b'{"title": "x"}' if method == "PATCH" else None)
        document = answer.json()
        assert document.pop("instance") == f"urn:request:{answer.headers['x-request-id']}", address
        bodies.append((answer.status_code, document))
    for application in (hidden, uuid4(), "x"):
        answer = await world.client.post(f"/api/internal/apps/{application}/agent/runs", headers=world.bearer(owner), json=message())
        bodies.append((answer.status_code, {k: v for k, v in answer.json().items() if k != "instance"}))
    target = await world.client.post(
        f"{world.agent(application_id)}/runs", headers=world.bearer(other), json=message(conversation_id=conversation_id)
    )
    bodies.append((target.status_code, {k: v for k, v in target.json().items() if k != "instance"}))
    assert all(body == bodies[0] for body in bodies)
    assert (bodies[0][0], bodies[0][1]["code"]) == (404, "not_found")
    # Nothing was changed by any of it.
    read = await world.client.get(f"{world.agent(application_id)}/runs/{run_id}", headers=world.bearer(owner))
    assert read.json()["run_id"] == run_id


async def test_o37_no_id_in_a_body_reaches_what_is_not_the_callers(world: World) -> None:
    """Another's ids and native ids in a JSON field are refused, whoever's they are; and what is lost is lost on every address."""
    owner, other = f"u{uuid4()}", f"u{uuid4()}"
    application_id = world.application(visibility="group", groups=["research"])
    mine, theirs = world.bearer(owner, groups=["research"]), world.bearer(other, groups=["research"])
    agent = world.agent(application_id)
    run = (await world.client.post(f"{agent}/runs", headers=mine, json=message())).json()
    run_address, conversation = f"{agent}/runs/{run['run_id']}", f"{agent}/conversations/{run['conversation_id']}"
    for field in ("run_id", "thread_id", "threadId", "native_run_id", "checkpoint", "command", "account_id", "user", "history"):
        answer = await world.client.post(f"{agent}/runs", headers=theirs, json={**message(), field: run["run_id"]})
        assert (answer.status_code, answer.json()["code"]) == (400, "malformed_request"), field

    def every_address() -> list[tuple[str, str, Any]]:
        reads = [("GET", address, None) for address in (run_address, f"{run_address}/events", conversation, f"{conversation}/items")]
        acts = [("POST", f"{run_address}/refresh", None), ("POST", f"{run_address}/acknowledge", None), ("DELETE", conversation, None)]
        writes: list[tuple[str, str, Any]] = [
            ("PATCH", conversation, {"title": "x"}),
            ("POST", f"{agent}/runs", message(conversation_id=run["conversation_id"])),
        ]
        return [*reads, *acts, *writes]

    async def refused(headers: dict[str, str]) -> set[tuple[int, str]]:
        answers = [await world.client.request(method, address, headers=headers, json=body) for method, address, body in every_address()]
        return {(answer.status_code, answer.json()["code"]) for answer in answers}

    operator = [
        (method, f"/api/operator/runs/{run['run_id']}{act}") for method, act in (("GET", ""), ("POST", "/lookup"), ("POST", "/retry-save"))
    ]
    for method, address in operator:
        answer = await world.client.request(method, address, headers=theirs)
        assert (answer.status_code, answer.json()["code"]) == (403, "not_operator")
    assert await refused(theirs) == {(404, "not_found")}
    assert await refused(world.bearer(owner)) == {(404, "not_found")}  # the owner lost the group
    assert (await world.client.delete(conversation, headers=mine)).status_code == 200
    assert await refused(mine) == {(404, "not_found")}


async def test_the_applications_that_the_caller_sees(world: World) -> None:
    research = world.application(visibility="group", groups=["research"])
    switched_off = world.application(enabled=False)

    async def listed(subject: str, *groups: str) -> dict[str, Any]:
        answer = await world.client.get("/api/internal/apps", headers=world.bearer(subject, groups=groups))
        return {app["app_id"]: app for app in answer.json()["apps"]}

    seen = await listed("ada", "research")
    assert seen[str(research)] == {
        "app_id": str(research),
        "name": str(research),
        "description": "",
        "app_type": "marketplace",
        "is_marketplace_app": True,
        "tags": [],
        "visibility": "group",
        "human_input": False,
        "available": True,
    }
    assert seen[str(switched_off)]["available"] is False
    assert str(research) not in await listed("grace")
    one = await world.client.get(f"/api/internal/apps/{research}", headers=world.bearer("ada", groups=["research"]))
    assert one.json() == seen[str(research)]
