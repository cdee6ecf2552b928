"""A change of configuration in every phase of a run: what is refused, what is allowed, and what becomes of the run (contract A7 to A9).

Each phase is held by the upstream or by a moderator, never by time; each change comes from an operator over HTTP.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

import psycopg
import pytest

from gateway.admission.moderation import Asked, Judgement, Provider
from gateway.domain.ids import ApplicationId
from tests.support.native_upstream import TOKEN, NativeUpstream, native_upstream
from tests.support.scripted_upstream import Answer, Frame, Script, event, finished, gate, message, started
from tests.support.stack import Client, Replica, Stack

pytestmark = pytest.mark.anyio

NEW_TOKEN: Final = "another-token-of-the-service"
WHOLE: Final[list[Frame]] = [*started(), *message("m1", "an answer"), finished()]
HELD: Final[list[Frame]] = [*started(), event("TEXT_MESSAGE_START", messageId="m0", role="assistant"), gate("rest"), finished()]
HALF: Final[list[Frame]] = [*started(), *message("m1", "half")]
STILL: Final = {"GATEWAY_RECONCILE_SECONDS": "3600", "AGENT_MAX_ACTIVE_PER_APP": "50", "AGENT_MAX_ACTIVE_PER_USER": "50"}


class Moderator:
    """Allows everything; holds texts that begin with "held" until it is let go."""

    provider = Provider.LOCAL

    def __init__(self) -> None:
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def judge(self, asked: Asked) -> Judgement:
        if asked.text.startswith("held"):
            self.asked.set()
            await self.go.wait()
        return Judgement()


@dataclass
class Scene:
    """One application, one user, one operator."""

    stack: Stack
    replica: Replica
    moderator: Moderator
    application: ApplicationId
    ada: Client
    olga: Client
    conversation_id: str = ""
    run_id: str = ""
    waiting: "asyncio.Task[Any]" = field(init=False)

    async def sql(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        async with await psycopg.AsyncConnection.connect(self.stack.database_url, autocommit=True) as connection:
            cursor = await connection.execute(statement.encode(), parameters)
            return await cursor.fetchall() if cursor.description else []

    async def act(self, method: str, path: str, body: object) -> tuple[int, dict[str, Any]]:
        answer = await self.olga.http.request(method, f"/api/operator{path}", headers=dict(self.olga.headers), json=body)
        return answer.status_code, answer.json()

    async def app(self, **change: object) -> tuple[int, dict[str, Any]]:
        return await self.act("PATCH", f"/apps/{self.application}", change)

    async def provider(self, **change: object) -> tuple[int, dict[str, Any]]:
        rows = await self.sql("select provider_id from application where application_id = %s", self.application)
        return await self.act("PATCH", f"/providers/{rows[0][0]}", change)

    async def set_token(self) -> tuple[int, dict[str, Any]]:
        return await self.act("PUT", f"/apps/{self.application}/token", {"token": NEW_TOKEN})

    async def submit(self, text: str = "hi", conversation_id: str | None = None) -> tuple[int, dict[str, Any]]:
        answer = await self.ada.submit(self.application, str(uuid4()), text, conversation_id)
        return answer.status_code, answer.json()

    async def admitted(self, text: str = "hi") -> None:
        status, run = await self.submit(text)
        assert status == 202, run
        self.run_id, self.conversation_id = run["run_id"], run["conversation_id"]

    async def until(self, execution: str) -> None:
        """Return when the run is there; its own commit is the only signal that there is."""
        async with asyncio.timeout(30):
            while (await self.run())["execution"] != execution:
                await asyncio.sleep(0.02)

    async def run(self) -> dict[str, Any]:
        return await self.ada.run(self.application, self.run_id)

    async def over(self) -> dict[str, Any]:
        return await self.ada.until_over(self.application, self.run_id)

    async def used(self) -> int:
        return int((await self.sql("select coalesce(sum(used), 0) from quota_usage"))[0][0])

    async def blocked(self) -> str | None:
        answer = await self.ada.get(f"/api/internal/apps/{self.application}/agent/conversations/{self.conversation_id}")
        assert answer.status_code == 200, answer.text
        why: str | None = answer.json()["blocked"]
        return why

    @property
    def posts(self) -> int:
        return self.stack.upstream.counts().ag_ui


@asynccontextmanager
async def scene(database_url: str) -> AsyncIterator[Scene]:
    async with Stack.over(database_url) as stack:
        moderator = Moderator()
        replica = await stack.replica(stack.settings(**STILL), moderators=[moderator])
        application = await stack.application()
        it = Scene(stack, replica, moderator, application, replica.client("ada"), replica.client("olga", roles=("operator",)))
        await it.sql(
            "insert into quota_rule (quota_rule_id, scope, application_id, task_limit, calendar_window) values (%s, 'app', %s, 99, 'day')",
            uuid4(),
            application,
        )
        yield it


# --- the phases: each leaves its run where it says ----------------------------------------------------------------------------------------


async def reserved(it: Scene) -> None:
    it.stack.upstream.use(Script(threads=[Answer(gate="thread")], ag_ui=[Answer(frames=WHOLE)]))
    await it.admitted()
    await it.stack.upstream.waiting_at("thread")


async def dispatched(it: Scene) -> None:
    it.stack.upstream.use(Script(ag_ui=[Answer(gate="answer", frames=WHOLE)]))
    await it.admitted()
    await it.stack.upstream.waiting_at("answer")


async def running(it: Scene) -> None:
    it.stack.upstream.use(Script(ag_ui=[Answer(frames=HELD)]))
    await it.admitted()
    await it.stack.upstream.waiting_at("rest")


async def unknown(it: Scene) -> None:
    it.stack.upstream.use(Script(ag_ui=[Answer(frames=HALF, ending="unfinished", ends_as="success")]))
    await it.admitted()


async def pending(it: Scene) -> None:
    it.stack.upstream.use(Script(ag_ui=[Answer(frames=WHOLE)]))
    await it.admitted()
    await it.until("succeeded")
    # As a replica leaves it that could not write the items.
    await it.sql("delete from item where run_id = %s and position > 0", it.run_id)
    await it.sql("update run set persistence = 'pending' where run_id = %s", it.run_id)


PHASES: Final[dict[str, Callable[[Scene], Awaitable[None]]]] = {
    "reserved": reserved,
    "dispatched": dispatched,
    "running": running,
    "unknown": unknown,
    "pending": pending,
}


async def put_into(it: Scene, phase: str) -> None:
    await PHASES[phase](it)
    await it.until("succeeded" if phase == "pending" else phase)


# --- what an operator may change meanwhile ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", PHASES)
async def test_what_would_move_it_is_refused_with_the_run_and_what_is_free_is_not(database_url: str, phase: str) -> None:
    async with scene(database_url) as it:
        elsewhere = await it.act("POST", "/providers", {"name": "elsewhere", "base_url": f"{it.stack.upstream.base_url}/elsewhere"})
        await put_into(it, phase)
        asked = len(it.stack.upstream.requests)
        before = (await it.app())[1]
        moving = [
            await it.app(config={"backend_type": "langchain", "langchain": {"assistant_id": "other"}}),
            await it.app(provider_id=elsewhere[1]["provider_id"]),
            await it.app(name="renamed with it", provider_id=elsewhere[1]["provider_id"]),
            await it.provider(base_url=f"{it.stack.upstream.base_url}/v2"),
            await it.set_token(),
        ]
        execution, persistence = (phase, "none") if phase != "pending" else ("succeeded", "pending")
        for status, problem in moving:
            assert (status, problem["code"]) == (409, "change_blocked")
            (run,) = problem["runs"]
            assert (run["run_id"], run["execution"]) == (it.run_id, execution)
            assert run["persistence"] in {persistence, "partial"}
        # The token was not even tried.
        assert len(it.stack.upstream.requests) == asked
        for config in ({}, {"backend_type": "langchain", "langchain": {"assistant_id": "agent", "human_input": True}}):
            status, problem = await it.app(config=config)
            assert (status, problem["code"]) == (409, "backend_type_fixed")
        assert (await it.app())[1] == before
        free = [await it.app(name="renamed", description="new", config=before["config"] | {"app_metadata": {"tags": ["new"]}})]
        free.append(await it.provider(name="a new name"))
        assert [status for status, _ in free] == [200, 200]
        assert (free[0][1]["config_version"], free[0][1]["token_version"]) == (1, 1)
        it.stack.upstream.release()
        if phase == "unknown":
            status, run = await it.act("POST", f"/runs/{it.run_id}/lookup", {})
        elif phase == "pending":
            status, run = await it.act("POST", f"/runs/{it.run_id}/retry-save", {})
        else:
            status, run = 200, await it.over()
        assert (status, run["execution"]) == (200, "succeeded")
        assert await it.blocked() == ("incomplete_answer" if phase == "unknown" else None)
        assert it.posts == 1


BECOMES: Final = {
    "reserved": ("released", "none", "app_disabled"),
    "dispatched": ("succeeded", "saved", None),
    "running": ("succeeded", "saved", None),
    "unknown": ("succeeded", "incomplete", None),
    "pending": ("succeeded", "saved", None),
}


@pytest.mark.parametrize("of", ["app", "provider"])
@pytest.mark.parametrize("phase", PHASES)
async def test_disabling_stops_new_use_at_once_and_nothing_that_runs(database_url: str, phase: str, of: str) -> None:
    async with scene(database_url) as it:
        await put_into(it, phase)
        assert await it.used() == 1
        switch = it.app if of == "app" else it.provider
        assert (await switch(enabled=False))[0] == 200
        assert [
            (status, problem["code"]) for status, problem in [await it.submit(), await it.submit(conversation_id=it.conversation_id)]
        ] == [(409, "app_disabled")] * 2
        assert (await it.ada.get(f"/api/internal/apps/{it.application}")).json()["available"] is False
        it.stack.upstream.release()
        if phase == "unknown":
            await it.act("POST", f"/runs/{it.run_id}/lookup", {})
        elif phase == "pending":
            await it.act("POST", f"/runs/{it.run_id}/retry-save", {})
        run = await it.over()
        assert (run["execution"], run["persistence"], run["reason"]) == BECOMES[phase]
        assert (await it.used(), it.posts) == ((0, 0) if phase == "reserved" else (1, 1))
        # History stays readable, and the conversation goes on once it is enabled.
        items = await it.ada.items(it.application, it.conversation_id)
        assert items[0]["text"] == "hi"
        assert (await switch(enabled=True))[0] == 200
        it.stack.upstream.use(Script(ag_ui=[Answer(frames=WHOLE)]))
        if phase == "unknown":
            await it.ada.http.post(f"/api/internal/apps/{it.application}/agent/runs/{it.run_id}/acknowledge", headers=dict(it.ada.headers))
        status, run = await it.submit(conversation_id=it.conversation_id)
        assert status == 202, run


# --- before admission, and after the run --------------------------------------------------------------------------------------------------


async def in_moderation(it: Scene, conversation_id: str | None = None) -> None:
    """A message that passed every check before admission and is being moderated."""
    it.waiting = asyncio.create_task(it.submit("held: hi", conversation_id))
    await it.moderator.asked.wait()


async def let_go(it: Scene) -> tuple[int, dict[str, Any]]:
    it.moderator.go.set()
    answer: tuple[int, dict[str, Any]] = await it.waiting
    return answer


@pytest.mark.parametrize("of", ["app", "provider"])
async def test_a_message_that_is_not_admitted_yet_finds_the_application_disabled(database_url: str, of: str) -> None:
    async with scene(database_url) as it:
        await in_moderation(it)
        assert (await (it.app if of == "app" else it.provider)(enabled=False))[0] == 200
        status, problem = await let_go(it)
        assert (status, problem["code"]) == (409, "app_disabled")
        assert (await it.sql("select (select count(*) from run), (select count(*) from submission)")) == [(0, 0)]
        assert (await it.used(), it.posts) == (0, 0)


async def for_staff(it: Scene) -> None:
    """The application is for a group, and ada is in it, by our own table."""
    assert (await it.ada.get("/api/internal/me")).status_code == 200
    await it.sql("update account set groups = '{staff}' where subject = 'ada'")
    assert (await it.app(visibility="group", groups=["staff"]))[0] == 200


async def kept_for_ben(it: Scene) -> None:
    assert (await it.app(visibility="private", owner="ben"))[0] == 200


async def ada_leaves_staff(it: Scene) -> None:
    await it.sql("update account set groups = '{}' where subject = 'ada'")


HIDE: Final = [kept_for_ben, ada_leaves_staff]


@pytest.mark.parametrize("hide", HIDE)
async def test_a_message_that_is_not_admitted_yet_is_not_taken_from_who_no_longer_sees_it(
    database_url: str, hide: Callable[[Scene], Awaitable[None]]
) -> None:
    async with scene(database_url) as it:
        await for_staff(it)
        await in_moderation(it)
        await hide(it)
        status, problem = await let_go(it)
        assert (status, problem["code"]) == (404, "not_found")
        assert (await it.sql("select (select count(*) from run), (select count(*) from submission)")) == [(0, 0)]
        assert (await it.used(), it.posts) == (0, 0)


async def test_a_message_that_is_not_admitted_yet_goes_by_the_new_configuration_and_token(database_url: str) -> None:
    async with scene(database_url) as it:
        await in_moderation(it)
        it.stack.upstream.use(Script(assistant_id="other"))
        it.stack.upstream.token = NEW_TOKEN
        assert (await it.app(config={"backend_type": "langchain", "langchain": {"assistant_id": "other"}}))[0] == 200
        assert (await it.set_token())[0] == 200
        status, run = await let_go(it)
        assert status == 202, run
        it.run_id = run["run_id"]
        assert (await it.over())["execution"] == "succeeded"
        assert await it.sql("select config_version, token_version from run") == [(2, 2)]


async def test_a_message_that_is_not_admitted_yet_finds_its_conversation_closed_by_a_change(database_url: str) -> None:
    async with scene(database_url) as it:
        await it.admitted()
        await it.over()
        await in_moderation(it, it.conversation_id)
        assert (await it.app(config={"backend_type": "langchain", "langchain": {"assistant_id": "other"}}))[0] == 200
        status, problem = await let_go(it)
        assert (status, problem["code"]) == (409, "binding_invalidated")
        assert (await it.used(), it.posts) == (1, 1)


async def test_a_change_between_runs_closes_conversations_for_good_and_nothing_else(database_url: str) -> None:
    async with scene(database_url) as it:
        await it.admitted()
        await it.over()
        said = await it.ada.items(it.application, it.conversation_id)
        first = (await it.app())[1]["config"]
        for number, config in enumerate([first | {"langchain": {"assistant_id": "other"}}, first], start=2):
            status, app = await it.app(config=config)
            assert (status, app["config_version"], app["token"]) == (200, number, "readable")
            assert await it.blocked() == "binding_invalidated"
            status, problem = await it.submit(conversation_id=it.conversation_id)
            assert (status, problem["code"]) == (409, "binding_invalidated")
        assert await it.ada.items(it.application, it.conversation_id) == said
        assert len(said) > 1
        await it.admitted("in a new conversation")
        assert (await it.over())["execution"] == "succeeded"
        assert it.posts == 2


async def test_another_server_gets_no_token_that_was_given_for_this_one(database_url: str) -> None:
    async with scene(database_url) as it, Stack.over(database_url) as other:
        await it.admitted()
        await it.over()
        status, _ = await it.provider(base_url=other.upstream.base_url)
        assert status == 200
        app = (await it.app())[1]
        assert (app["token"], app["available"], app["unavailable"]) == ("none", False, "token_none")
        assert (await it.submit())[1]["code"] == "app_disabled"
        assert other.upstream.requests == []
        other.upstream.token = NEW_TOKEN
        assert (await it.set_token())[0] == 200
        await it.admitted()
        assert (await it.over())["execution"] == "succeeded"
        assert {request.header("authorization") for request in other.upstream.requests} == {f"Bearer {NEW_TOKEN}"}


async def test_a_rotation_between_runs_keeps_conversations(database_url: str) -> None:
    async with scene(database_url) as it:
        await it.admitted()
        await it.over()
        old = f"Bearer {it.stack.upstream.token}"
        before = len(it.stack.upstream.requests)
        it.stack.upstream.token = NEW_TOKEN
        assert (await it.set_token())[0] == 200
        status, run = await it.submit("and now?", it.conversation_id)
        assert status == 202, run
        it.run_id = run["run_id"]
        assert (await it.over())["execution"] == "succeeded"
        assert old not in {request.header("authorization") for request in it.stack.upstream.requests[before:]}
        assert await it.blocked() is None
        assert NEW_TOKEN not in json.dumps((await it.olga.get("/api/operator/audit")).json())


# --- waiting for a decision ---------------------------------------------------------------------------------------------------------------

ASSISTANT: Final = {"backend_type": "langchain", "langchain": {"assistant_id": "agent", "human_input": True}}
ANOTHER: Final = {"backend_type": "langchain", "langchain": {"assistant_id": "other", "human_input": True}}


@asynccontextmanager
async def asking(database_url: str) -> AsyncIterator[tuple[Scene, NativeUpstream, dict[str, Any]]]:
    """An application of the native profile, and a run of it that waits for a decision."""
    async with native_upstream() as upstream, scene(database_url) as it:
        it.application = await it.stack.application_of(upstream.base_url, TOKEN)
        await it.admitted("please")
        run = await it.over()
        assert run["execution"] == "waiting"
        yield it, upstream, run


async def decided(it: Scene, run: dict[str, Any], comment: str | None = None) -> tuple[int, dict[str, Any]]:
    answer = await it.ada.decide(it.application, run["run_id"], run["interrupt"]["interrupt_id"], str(uuid4()), "approve", comment)
    return answer.status_code, answer.json()


@pytest.mark.parametrize("hide", HIDE)
async def test_a_decision_that_is_not_claimed_yet_is_not_taken_from_who_no_longer_sees_it(
    database_url: str, hide: Callable[[Scene], Awaitable[None]]
) -> None:
    async with asking(database_url) as (it, upstream, run):
        await for_staff(it)
        it.waiting = asyncio.create_task(decided(it, run, "held: yes"))
        await it.moderator.asked.wait()
        await hide(it)
        status, problem = await let_go(it)
        assert (status, problem["code"], upstream.acts) == (404, "not_found", [])
        assert await it.sql("select count(*), count(answered_by) from run") == [(1, 0)]


async def test_a_rotation_while_a_run_waits_delivers_the_decision_with_the_new_token(database_url: str) -> None:
    async with asking(database_url) as (it, upstream, run):
        assert (await it.set_token())[0] == 200
        status, resume = await decided(it, run)
        assert status == 202, resume
        it.run_id = resume["run_id"]
        assert (await it.over())["execution"] == "succeeded"
        assert len(upstream.acts) == 1
        assert await it.sql("select token_version from run where kind = 'resume'") == [(2,)]


async def test_a_waiting_run_of_a_disabled_application_takes_its_decision_once_it_is_enabled(database_url: str) -> None:
    async with asking(database_url) as (it, upstream, run):
        assert (await it.app(enabled=False))[0] == 200
        status, problem = await decided(it, run)
        assert (status, problem["code"], upstream.acts) == (409, "app_disabled", [])
        assert (await it.run())["interrupt"] == run["interrupt"]
        assert (await it.app(enabled=True))[0] == 200
        status, resume = await decided(it, run)
        assert status == 202, resume
        it.run_id = resume["run_id"]
        assert ((await it.over())["execution"], len(upstream.acts)) == ("succeeded", 1)


async def test_a_waiting_run_whose_binding_was_ended_takes_no_decision_any_more(database_url: str) -> None:
    async with asking(database_url) as (it, upstream, run):
        for config in (ANOTHER, ASSISTANT):
            assert (await it.app(config=config))[0] == 200
            status, problem = await decided(it, run)
            assert (status, problem["code"], upstream.acts) == (409, "binding_invalidated", [])
            assert (await it.run())["execution"] == "waiting"
            assert await it.blocked() == "binding_invalidated"
        status, problem = await it.app(config={"backend_type": "langchain", "langchain": {"assistant_id": "agent"}})
        assert (status, problem["code"]) == (409, "backend_type_fixed")


async def test_a_decision_under_way_is_in_the_way_of_every_change(database_url: str) -> None:
    async with asking(database_url) as (it, upstream, run):
        upstream.hold()
        status, resume = await decided(it, run)
        assert status == 202, resume
        await upstream.received(2)
        for change in (it.app(config=ANOTHER), it.set_token(), it.provider(base_url=f"{upstream.base_url}/v2")):
            status, problem = await change
            assert (status, problem["code"], [one["run_id"] for one in problem["runs"]]) == (409, "change_blocked", [resume["run_id"]])
        upstream.let_go()
        it.run_id = resume["run_id"]
        assert ((await it.over())["execution"], len(upstream.acts)) == ("succeeded", 1)
