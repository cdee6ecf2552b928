"""Decisions that race: for one question one effect, and the loser is told who won (contract E6, E7, field case O-40)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID, uuid4

import httpx
import psycopg
import psycopg.sql
import pytest

from gateway.domain.fault_points import FaultPoint, Moment, Step
from gateway.domain.ids import ApplicationId
from gateway.runs import reading
from gateway.store import leases
from tests.support.held import Held
from tests.support.native_upstream import TOKEN, NativeUpstream, native_upstream
from tests.support.stack import Client, Replica, Stack, parse_events

pytestmark = pytest.mark.anyio

ROUNDS: Final = 200
END_TO_END: Final = 10
SETTINGS: Final = {
    "AGENT_MAX_ACTIVE_PER_USER": "20",
    "AGENT_MAX_ACTIVE_PER_APP": "20",
    "GATEWAY_RECONCILE_SECONDS": "0.2",
    "GATEWAY_LOOKUP_FIRST_SECONDS": "0.1",
}

_DECIDE: Final = """
select verdict, run_id, blocking_run_id from decide_v1(
    %(account)s, %(application)s, %(submission)s, sha256('x'), %(run)s, %(interrupt)s, %(action)s, null,
    gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 500, 500, 30, null, null, '{}', '{}', '{}')
"""
_ADMIT: Final = """
select verdict, blocked from admit_v2(
    %(account)s, %(application)s, %(submission)s, sha256('x'), %(conversation)s, gen_random_uuid(), 'title',
    gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'x', '{}', 500, 500, 30, 'UTC',
    sha256('x'), null, '{none}', '{null}', '{0}')
"""
_EXPIRE: Final = "update interrupt set expires_at = clock_timestamp() where interrupt_id = %(interrupt)s returning 'admitted'"
_RELEASE: Final = """
update run set execution = 'released', user_slot = null, application_slot = null, lease_until = null, finished_at = now()
where kind = 'resume' and execution = 'reserved'
"""
_REFUSALS: Final = "select detail ->> 'why' from evidence where kind = 'lookup_refused' order by evidence_id"
_WAITING: Final = """
with run_ids as (select gen_random_uuid() as run_id, gen_random_uuid() as conversation_id, gen_random_uuid() as interrupt_id),
c as (
    insert into conversation (conversation_id, application_id, account_id, title, last_sequence)
    select conversation_id, %(application)s, %(account)s, 'title', 1 from run_ids returning conversation_id
), r as (
    insert into run (run_id, account_id, application_id, conversation_id, submission_id, sequence, execution, persistence, attempt_token,
        correlation_id, config_version, token_version, fence_at, started_at)
    select run_id, %(account)s, %(application)s, i.conversation_id, 'task-' || run_id, 1, 'waiting', 'saved', gen_random_uuid(),
        gen_random_uuid(), 1, 1, now(), now() from run_ids i join c on true returning run_id
), i as (
    insert into interrupt (interrupt_id, run_id, native_id, title, description, comment_max_chars, expires_at, digest)
    select interrupt_id, r.run_id, 'n', 'title', '', 10, %(expires_at)s::timestamptz, sha256('x') from run_ids join r on true
    returning interrupt_id
)
select r.run_id, c.conversation_id, i.interrupt_id from r, c, i
"""


@dataclass(frozen=True, slots=True)
class Scene:
    """Two replicas before one native upstream, and a person who has two tabs."""

    stack: Stack
    upstream: NativeUpstream
    application: ApplicationId
    replicas: tuple[Replica, Replica]

    def tab(self, number: int, subject: str = "ada") -> Client:
        return self.replicas[number].client(subject)

    async def waiting(self, name: str) -> dict[str, Any]:
        """A run that waits for a decision."""
        answer = await self.tab(0).submit(self.application, name, "please")
        assert answer.status_code == 202, answer.text
        run = await self.tab(0).until_over(self.application, answer.json()["run_id"])
        assert run["execution"] == "waiting"
        return run

    async def decide(self, tab: int, run: dict[str, Any], name: str, decision: str) -> httpx.Response:
        return await self.tab(tab).decide(self.application, run["run_id"], run["interrupt"]["interrupt_id"], name, decision)

    async def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        async with await psycopg.AsyncConnection.connect(self.stack.database_url, autocommit=True) as connection:
            cursor = await connection.execute(query.encode(), values)
            return await cursor.fetchall() if cursor.description else []


@asynccontextmanager
async def scene_over(database_url: str) -> AsyncIterator[Scene]:
    async with native_upstream() as upstream, Stack.over(database_url) as stack:
        settings = stack.settings(**SETTINGS)
        replicas = await stack.replica(settings), await stack.replica(settings)
        yield Scene(stack, upstream, await stack.application_of(upstream.base_url, TOKEN), replicas)


@pytest.fixture
async def scene(database_url: str) -> AsyncIterator[Scene]:
    async with scene_over(database_url) as opened:
        yield opened


# --- the claim, on two connections ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Claims:
    """Two connections, and an account with an application of the native profile."""

    one: "psycopg.AsyncConnection[tuple[Any, ...]]"
    two: "psycopg.AsyncConnection[tuple[Any, ...]]"
    names: dict[str, Any]

    async def waiting(self, expires_at: str | None = None) -> dict[str, Any]:
        cursor = await self.one.execute(_WAITING, {**self.names, "expires_at": expires_at})
        run, conversation, interrupt = (await cursor.fetchall())[0]
        return {**self.names, "run": run, "conversation": conversation, "interrupt": interrupt}

    async def at_once(self, *calls: tuple[str, dict[str, Any]]) -> list[tuple[Any, ...]]:
        """Each call in a transaction on a connection of its own, at the same time; only what was admitted is committed."""

        async def call(connection: "psycopg.AsyncConnection[tuple[Any, ...]]", query: str, values: dict[str, Any]) -> tuple[Any, ...]:
            found: list[tuple[Any, ...]] = []
            async with connection.transaction() as transaction:
                row = await (await connection.execute(query.encode(), {**values, "submission": str(uuid4())})).fetchone()
                assert row is not None
                found.append(row)
                if row[0] != "admitted":
                    raise psycopg.Rollback(transaction)
            return found[0]

        return list(await asyncio.gather(*(call(one, *given) for one, given in zip((self.one, self.two), calls, strict=True))))

    async def resumes(self, waiting: dict[str, Any]) -> list[UUID]:
        cursor = await self.one.execute("select run_id from run where conversation_id = %s and kind = 'resume'", (waiting["conversation"],))
        return [run_id for (run_id,) in await cursor.fetchall()]

    async def answered_by(self, waiting: dict[str, Any]) -> UUID | None:
        cursor = await self.one.execute("select answered_by from run where run_id = %s", (waiting["run"],))
        found: UUID | None = (await cursor.fetchall())[0][0]
        return found


@pytest.fixture
async def claims(database_url: str, anyio_backend: str) -> AsyncIterator[Claims]:
    async with Stack.over(database_url) as stack:
        application = await stack.application_of("http://127.0.0.1:9", TOKEN)
    connect = psycopg.AsyncConnection.connect
    async with await connect(database_url, autocommit=True) as one, await connect(database_url, autocommit=True) as two:
        account = uuid4()
        await one.execute("insert into account (account_id, subject) values (%s, 'ada')", (account,))
        yield Claims(one, two, {"account": account, "application": application})


@pytest.mark.parametrize("second", ["approve", "reject"])
async def test_o40_two_decisions_claim_one_question(claims: Claims, second: str) -> None:
    """R_CLAIM, claim_looks_first: one of two at once has the question, and the other is told whose it is."""
    for _ in range(ROUNDS):
        waiting = await claims.waiting()
        one, two = await claims.at_once((_DECIDE, {**waiting, "action": "approve"}), (_DECIDE, {**waiting, "action": second}))
        won, lost = (one, two) if one[0] == "admitted" else (two, one)
        assert (won[0], lost[0]) == ("admitted", "interrupt_not_pending")
        assert await claims.resumes(waiting) == [won[1]]
        assert await claims.answered_by(waiting) == won[1] == lost[2]
        await claims.one.execute(_RELEASE)
        assert await claims.answered_by(waiting) is None, "proven never sent: it can be answered again"


async def test_a_decision_and_the_end_of_its_time(claims: Claims) -> None:
    for _ in range(ROUNDS):
        waiting = await claims.waiting("2099-01-01T00:00:00Z")
        decided, _ = await claims.at_once((_DECIDE, {**waiting, "action": "approve"}), (_EXPIRE, waiting))
        assert decided[0] in ("admitted", "interrupt_expired")
        assert len(await claims.resumes(waiting)) == (decided[0] == "admitted")
        late, _ = await claims.at_once((_DECIDE, {**waiting, "action": "reject"}), (_EXPIRE, waiting))
        assert late[0] == ("interrupt_not_pending" if decided[0] == "admitted" else "interrupt_expired")


async def test_a_decision_and_a_new_message(claims: Claims) -> None:
    for _ in range(ROUNDS):
        waiting = await claims.waiting()
        decided, message = await claims.at_once((_DECIDE, {**waiting, "action": "approve"}), (_ADMIT, waiting))
        assert decided[0] == "admitted"
        assert message[0] == "conversation_refused"
        assert message[1] in ("waiting_for_decision", "run_active")
        assert len(await claims.resumes(waiting)) == 1


async def test_a_release_that_cannot_let_go_of_the_question_is_none(claims: Claims) -> None:
    """R_CLEARTX, claim_two_steps: the two are one commit, so that no crash falls between them."""
    waiting = await claims.waiting()
    decided, _ = await claims.at_once((_DECIDE, {**waiting, "action": "approve"}), ("select 'admitted' where %(run)s is not null", waiting))
    await claims.one.execute(
        "create function test_keeps() returns trigger language plpgsql as $$ begin raise exception 'kept'; end $$;"
        " create trigger test_keeps before update on run for each row"
        " when (old.answered_by is not null and new.answered_by is null) execute function test_keeps()"
    )
    with pytest.raises(psycopg.errors.RaiseException):
        await claims.one.execute(_RELEASE)
    assert await claims.answered_by(waiting) == decided[1]
    await claims.one.execute("drop trigger test_keeps on run")
    await claims.one.execute(_RELEASE)
    assert await claims.answered_by(waiting) is None


async def test_a_replica_of_the_version_before_refuses_what_it_does_not_know(claims: Claims) -> None:
    query = (
        "select verdict from admit_v1(%(account)s, %(application)s, 's', sha256('x'), null, gen_random_uuid(), 't', gen_random_uuid(),"
        " gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'x', '{}', 9, 9, 30, 'UTC')"
    )
    cursor = await claims.one.execute(query.encode(), claims.names)
    assert await cursor.fetchall() == [("backend_not_served",)]


# --- end to end, on two replicas ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("second", ["approve", "reject"])
async def test_two_tabs_on_two_replicas_have_one_effect(scene: Scene, second: str) -> None:
    for number in range(END_TO_END):
        run = await scene.waiting(f"s{number}")
        answers = await asyncio.gather(scene.decide(0, run, f"one-{number}", "approve"), scene.decide(1, run, f"two-{number}", second))
        won, lost = sorted(answers, key=lambda answer: answer.status_code)
        assert (won.status_code, lost.status_code, lost.json()["code"]) == (202, 409, "interrupt_not_pending")
        assert lost.json()["run_id"] == won.json()["run_id"]
        resume = await scene.tab(answers.index(won)).until_over(scene.application, won.json()["run_id"])
        assert (resume["execution"], resume["persistence"]) == ("succeeded", "saved")
        assert len(scene.upstream.acts) == number + 1
        assert len(scene.upstream.posts) == 2 * (number + 1)
        assert (await scene.tab(1).run(scene.application, run["run_id"]))["answered_by"] == resume["run_id"]


async def test_a_decision_beside_a_new_message_and_beside_the_end_of_its_time(scene: Scene) -> None:
    for number in range(END_TO_END):
        run = await scene.waiting(f"s{number}")
        decided, message = await asyncio.gather(
            scene.decide(0, run, f"d{number}", "approve"),
            scene.tab(1).submit(scene.application, f"m{number}", "and?", run["conversation_id"]),
        )
        assert decided.status_code == 202
        assert message.status_code == 409
        resume = await scene.tab(0).until_over(scene.application, decided.json()["run_id"])
        assert resume["execution"] == "succeeded"
    for number in range(END_TO_END):
        run = await scene.waiting(f"e{number}")
        acts = len(scene.upstream.acts)
        decided, _ = await asyncio.gather(
            scene.decide(0, run, f"x{number}", "approve"),
            scene.rows("update interrupt set expires_at = clock_timestamp() where run_id = %s", run["run_id"]),
        )
        if decided.status_code == 409:
            assert decided.json()["code"] == "interrupt_expired"
            assert len(scene.upstream.acts) == acts
        else:
            resume = await scene.tab(0).until_over(scene.application, decided.json()["run_id"])
            expected = {"succeeded": 1, "released": 0}[resume["execution"]]
            assert len(scene.upstream.acts) == acts + expected
            assert resume["reason"] in (None, "interrupt_expired")


# --- one decision ------------------------------------------------------------------------------------------------------------------------


async def test_the_stream_ends_with_the_question_and_a_reload_shows_it(scene: Scene) -> None:
    response, events = await scene.tab(0).ask(scene.application, "s", "please")
    assert response.status_code == 200
    end = events[-1]
    assert end.type == "RUN_FINISHED"
    (asked,) = end.data["outcome"]["interrupts"]
    assert end.data["outcome"]["type"] == "interrupt"
    assert [event.type for event in events if event.type == "TEXT_MESSAGE_END"] == ["TEXT_MESSAGE_END"]
    for tab in (0, 1):
        run = await scene.tab(tab).run(scene.application, end.data["runId"])
        assert run["interrupt"]["interrupt_id"] == asked["id"]
        async with scene.tab(tab).watch(scene.application, run["run_id"]) as again:
            assert b'"outcome":{"type":"interrupt"' in await again.aread()
        conversation = await scene.tab(tab).conversation(scene.application, run["conversation_id"])
        assert (conversation["blocked"], conversation["active_run"]["interrupt"]) == ("waiting_for_decision", run["interrupt"])
    native_ids = [run_id for thread in scene.upstream.threads.values() for run_id in thread.runs]
    pending = [thread.pending["id"] for thread in scene.upstream.threads.values() if thread.pending]
    told = str([event.data for event in events]) + str(run)
    assert not [native_id for native_id in (*native_ids, *pending, *scene.upstream.threads) if native_id in told]


async def test_text_waits_for_the_commit_of_the_native_run_id(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The head of the response told the id; what was said by then is read, and kept, and shown when the id is written down."""
    monkeypatch.setattr(reading, "HOLD_SECONDS", 3600.0)  # else it is shown after a quarter of a second, whatever the database does
    held = Held(FaultPoint(Moment.BEFORE, Step.START))
    replica = await scene.stack.replica(scene.stack.settings(**SETTINGS, GATEWAY_CHECKPOINT_SECONDS="0.05"), at=held.at)
    scene.upstream.hold()
    async with asyncio.timeout(60), replica.client("ada").stream(scene.application, "s", "please") as response:
        shown = bytearray()
        pieces = response.aiter_bytes()
        while not await scene.rows("select 1 from snapshot where position('I need' in convert_from(body, 'UTF8')) > 0"):
            shown += await anext(pieces) if b"dispatched" not in shown else b""
            await asyncio.sleep(0.02)
        assert held.reached.is_set()
        assert await scene.rows("select execution, native_run_id from run") == [("dispatched", None)]
        [(run_id,)] = await scene.rows("select run_id::text from run")
        async with replica.client("ada").watch(scene.application, run_id) as late:  # begins with all that was shown so far
            assert b"TEXT_MESSAGE" not in await anext(late.aiter_bytes()) + shown
        held.go_on.set()
        while b"I need" not in shown:
            shown += await anext(pieces)
        assert await scene.rows("select execution, native_run_id is not null from run") == [("running", True)]
        scene.upstream.let_go()
        assert b'"outcome":{"type":"interrupt"' in b"".join([piece async for piece in pieces])


async def test_a_decision_that_never_left_can_be_made_again(scene: Scene) -> None:
    run = await scene.waiting("s")
    await scene.rows("update application set token_version = token_version + 1 where application_id = %s", scene.application)
    # versions that differ from those that admission pinned: changed between the two
    await scene.rows(
        "create function test_bump() returns trigger language plpgsql as $$ begin"
        " update application set config_version = config_version + 1 where application_id = new.application_id; return null; end $$"
    )
    await scene.rows("create trigger test_bump after insert on run for each row execute function test_bump()")
    refused = await scene.decide(0, run, "d1", "approve")
    released = await scene.tab(0).until_over(scene.application, refused.json()["run_id"])
    assert (released["execution"], released["reason"]) == ("released", "configuration_changed")
    assert (await scene.tab(0).run(scene.application, run["run_id"]))["answered_by"] is None
    await scene.rows("drop trigger test_bump on run")
    decided = await scene.decide(0, run, "d2", "reject")
    assert decided.status_code == 202, decided.text
    resume = await scene.tab(0).until_over(scene.application, decided.json()["run_id"])
    assert (resume["execution"], scene.upstream.acts[-1][1]) == ("succeeded", {"action": "reject"})


async def test_a_comment_is_moderated_bounded_and_delivered(database_url: str) -> None:
    async with scene_over(database_url) as scene:
        scene.upstream.prompt["comment_max_chars"] = 5
        run = await scene.waiting("s")
        path = f"/api/internal/apps/{scene.application}/agent/runs/{run['run_id']}/decision"
        body = {"submission_id": "d", "interrupt_id": run["interrupt"]["interrupt_id"], "decision": "approve"}
        tab = scene.tab(0)
        assert run["interrupt"]["comment_max_chars"] == 5

        async def post(**change: object) -> tuple[int, str | None]:
            answer = await tab.http.post(path, json={**body, **change}, headers=tab.headers)
            return answer.status_code, answer.json().get("code")

        assert await post(comment="longer") == (422, "text_too_long")
        assert await post(comment="x" * 5000) == (422, "text_too_long")
        assert await post(comment="\x00") == (422, "invalid_text")
        assert await post(decision="maybe") == (400, "malformed_request")
        assert await post(interrupt_id="x") == (400, "malformed_request")
        assert await post(command={"resume": {}}) == (400, "malformed_request")
        assert await post(comment=7) == (400, "malformed_request")
        assert await scene.rows("select count(*) from run where kind = 'resume'") == [(0,)]
        assert await post(comment="fine") == (202, None)
        assert await post(comment="fine") == (200, None)
        assert await post(comment="other") == (409, "submission_conflict")
        assert await scene.rows("select text_kind, outcome from moderation_verdict where text_kind = 'comment'") == [("comment", "allowed")]
        resume = await scene.rows("select run_id::text from run where kind = 'resume'")
        await tab.until_over(scene.application, resume[0][0])
        assert scene.upstream.acts[-1][1] == {"action": "approve", "comment": "fine"}
        assert await scene.rows("select count(*) from item where role = 'user'") == [(1,)]


# --- between the claim and the answer -------------------------------------------------------------------------------------------------


async def held_decision(scene: Scene, held: Held) -> tuple[Replica, dict[str, Any], dict[str, Any]]:
    """A decision on a replica of its own, held; with the run that waits and the resume run."""
    run = await scene.waiting("s")
    replica = await scene.stack.replica(scene.stack.settings(**SETTINGS), at=held.at, clock=held.clock)
    answer = await replica.client("ada").decide(scene.application, run["run_id"], run["interrupt"]["interrupt_id"], "d1", "approve")
    async with asyncio.timeout(30):
        await held.reached.wait()
    return replica, run, answer.json()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("update interrupt set expires_at = clock_timestamp()", "interrupt_expired"),
        ("update run set answered_by = null where kind = 'task'", "interrupt_changed"),
        ("update account set state = 'suspended' where subject = 'ada'", "rights_changed"),
    ],
)
async def test_the_fence_of_a_decision_asks_again(scene: Scene, change: str, reason: str) -> None:
    """R_OURS, claim_not_asked, claim_fenced_bare: nothing is sent for a question that is over, expired or answered by another."""
    held = Held(FaultPoint(Moment.BEFORE, Step.FENCE))
    await held_decision(scene, held)
    await scene.rows(change)
    held.go_on.set()
    async with asyncio.timeout(30):
        while (state := (await scene.rows("select execution, reason from run where kind = 'resume'"))[0])[0] == "reserved":
            await asyncio.sleep(0.02)
    assert state == ("released", reason)
    assert (len(scene.upstream.posts), scene.upstream.acts) == (1, [])
    assert await scene.rows("select answered_by from run where kind = 'task'") == [(None,)]


async def test_the_fence_of_a_decision_sees_that_the_run_was_closed(scene: Scene) -> None:
    """R_OURS, claim_not_asked: an operator closed the run that waited."""
    held = Held(FaultPoint(Moment.BEFORE, Step.FENCE))
    replica, run, resume = await held_decision(scene, held)
    operator = scene.replicas[0].client("root", roles=("operator",))
    body = {"outcome": "failed", "reason": "nobody decided"}
    closed = await operator.http.post(f"/api/operator/runs/{run['run_id']}/resolve", json=body, headers=operator.headers)
    assert closed.status_code == 200
    held.go_on.set()
    after = await replica.client("ada").until_over(scene.application, resume["run_id"])
    assert (after["execution"], after["reason"]) == ("released", "interrupt_changed")
    assert scene.upstream.acts == []


async def test_a_decision_that_slept_over_its_window_is_not_sent(scene: Scene) -> None:
    """R_WINDOW, claim_no_window: it is released with proof, and the question can be answered again."""
    held = Held(FaultPoint(Moment.BEFORE, Step.POST))
    replica, run, resume = await held_decision(scene, held)
    held.later = 60.0
    held.go_on.set()
    after = await replica.client("ada").until_over(scene.application, resume["run_id"])
    assert (after["execution"], after["reason"]) == ("released", "not_sent")
    assert len(scene.upstream.posts) == 1
    again = await scene.decide(0, run, "d2", "approve")
    assert (await scene.tab(0).until_over(scene.application, again.json()["run_id"]))["execution"] == "succeeded"


# --- what nobody saw arrive -----------------------------------------------------------------------------------------------------------


async def settled(scene: Scene, run_id: str) -> dict[str, Any]:
    """The run once look-ups have said what it came to, or that somebody has to."""
    moving = ("reserved", "dispatched", "running", "unknown")
    async with asyncio.timeout(30):
        while (run := await scene.tab(0).run(scene.application, run_id))["execution"] in moving and run["attention"] != "operator":
            await asyncio.sleep(0.05)
    return run


@pytest.mark.parametrize("tells_metadata", [True, False], ids=["by its mark", "as the one new run"])
async def test_what_was_taken_unseen_is_found_and_never_sent_again(scene: Scene, tells_metadata: bool) -> None:
    scene.upstream.loses_responses, scene.upstream.tells_metadata = True, tells_metadata
    answer = await scene.tab(0).submit(scene.application, "s", "please")
    run = await settled(scene, answer.json()["run_id"])
    assert (run["execution"], run["reason"], run["persistence"]) == ("waiting", None, "none")
    assert run["interrupt"]["title"] == scene.upstream.prompt["title"]
    decided = await scene.decide(0, run, "d", "approve")
    resume = await settled(scene, decided.json()["run_id"])
    assert (resume["execution"], resume["persistence"], resume["attention"]) == ("succeeded", "incomplete", "user")
    assert (await scene.tab(0).run(scene.application, run["run_id"]))["answered_by"] == resume["run_id"]
    assert (len(scene.upstream.posts), len(scene.upstream.acts)) == (2, 1)
    told = await scene.rows("select detail::text from evidence union all select coalesce(reason, '') from run")
    assert "abc123" not in str(told)


async def test_a_decision_that_changed_nothing_is_not_believed(scene: Scene) -> None:
    """R_CLEARUNK, claim_given_back: what is unknown keeps its claim, whoever else would decide."""
    run = await scene.waiting("s")
    scene.upstream.ignores_answers = True
    decided = await scene.decide(0, run, "d1", "approve")
    resume = await scene.tab(0).until_over(scene.application, decided.json()["run_id"])
    assert (resume["execution"], resume["reason"], resume["attention"]) == ("unknown", "decision_not_applied", "operator")
    scene.upstream.ignores_answers = False
    again = await scene.decide(1, run, "d2", "approve")
    assert (again.status_code, again.json()["code"], again.json()["run_id"]) == (409, "interrupt_not_pending", resume["run_id"])
    assert (await scene.tab(0).run(scene.application, run["run_id"]))["answered_by"] == resume["run_id"]
    assert (len(scene.upstream.posts), scene.upstream.acts) == (2, [])
    # a look-up that somebody asks for says the same
    path = f"/api/internal/apps/{scene.application}/agent/runs/{resume['run_id']}/refresh"
    looked_up = scene.upstream.calls["look_up"]
    async with asyncio.timeout(30):
        while scene.upstream.calls["look_up"] == looked_up:
            await scene.tab(0).http.post(path, headers=scene.tab(0).headers)
            await asyncio.sleep(0.1)
    after = await scene.tab(0).run(scene.application, resume["run_id"])
    assert (after["execution"], after["reason"]) == ("unknown", "decision_not_applied")


async def test_two_runs_for_one_dispatch_are_an_operators(scene: Scene) -> None:
    """Neither of them is the run: whoever asks for a look-up, none settles it; an operator says what became of it."""
    scene.upstream.names_another_run = True
    answer = await scene.tab(0).submit(scene.application, "s", "please")
    run = await scene.tab(0).until_over(scene.application, answer.json()["run_id"])
    operator, ada = scene.replicas[0].client("root", roles=("operator",)), scene.tab(1)
    owners, operators = f"/api/internal/apps/{scene.application}/agent/runs/{run['run_id']}", f"/api/operator/runs/{run['run_id']}"
    for client, path in ((ada, f"{owners}/refresh"), (operator, f"{operators}/lookup")):
        await scene.rows("update run set updated_at = updated_at - interval '1 minute'")  # nobody asked a moment ago
        before = await scene.rows(_REFUSALS)
        assert (await client.http.post(path, headers=client.headers)).status_code in (200, 202)
        async with asyncio.timeout(30):
            while (after := await scene.rows(_REFUSALS)) == before:
                await asyncio.sleep(0.02)
        assert after == [*before, ("two_native_runs",)]
        told = await ada.run(scene.application, run["run_id"])
        assert (told["execution"], told["reason"], told["attention"]) == ("unknown", "id_mismatch", "operator")
    assert (scene.upstream.calls["look_up"], scene.upstream.calls["list"]) == (0, 0)
    body = {"outcome": "failed", "reason": "it asked, and nobody could tell whom"}
    closed = await operator.http.post(f"{operators}/resolve", json=body, headers=operator.headers)
    assert (closed.status_code, closed.json()["execution"]) == (200, "closed")


async def test_a_question_of_a_run_that_is_not_ours_is_not_asked(scene: Scene) -> None:
    """A step that asks again writes no state of its own; the state of a stranger's run says nothing, live or looked up."""
    run = await scene.waiting("s")
    scene.upstream.asks_as = "a-stranger"
    decided = await scene.decide(0, run, "d", "approve")
    resume = await scene.tab(0).until_over(scene.application, decided.json()["run_id"])
    assert (resume["execution"], resume["reason"], resume["interrupt"]) == ("unknown", "stream_ended", None)
    looked_up = scene.upstream.calls["look_up"]
    async with asyncio.timeout(30):
        while scene.upstream.calls["look_up"] < looked_up + 2:  # the first of them is written down by now
            await asyncio.sleep(0.02)
    assert (await scene.tab(0).run(scene.application, resume["run_id"]))["execution"] == "unknown"
    (thread,) = scene.upstream.threads.values()
    thread.last_run = next(iter(thread.runs))  # as if the step of ours had asked again
    assert (await settled(scene, resume["run_id"]))["execution"] == "waiting"


async def test_text_that_the_state_does_not_bear_out_is_not_called_complete(scene: Scene) -> None:
    run = await scene.waiting("s")
    scene.upstream.writes_more = True
    decided = await scene.decide(0, run, "d", "approve")
    resume = await scene.tab(0).until_over(scene.application, decided.json()["run_id"])
    assert (resume["execution"], resume["persistence"], resume["attention"]) == ("succeeded", "incomplete", "user")
    assert resume["snapshot"]["complete"] is False
    conversation = await scene.tab(0).conversation(scene.application, run["conversation_id"])
    assert conversation["blocked"] == "incomplete_answer"
    path = f"/api/internal/apps/{scene.application}/agent/runs/{resume['run_id']}/acknowledge"
    assert (await scene.tab(0).http.post(path, headers=scene.tab(0).headers)).status_code == 200
    assert (await scene.tab(0).conversation(scene.application, run["conversation_id"]))["blocked"] == "task_already_done"
    assert "never streamed" not in str(await scene.rows("select text from item"))


async def test_an_operator_ends_what_nobody_decides(scene: Scene) -> None:
    run = await scene.waiting("s")
    operator = scene.replicas[0].client("root", roles=("operator",))
    body = {"outcome": "failed", "reason": "nobody decided"}
    closed = await operator.http.post(f"/api/operator/runs/{run['run_id']}/resolve", json=body, headers=operator.headers)
    assert closed.status_code == 200, closed.text
    late = await scene.decide(0, run, "d", "approve")
    assert (late.status_code, late.json()["code"]) == (409, "interrupt_not_pending")
    after = await scene.tab(0).run(scene.application, run["run_id"])
    assert (after["execution"], after["persistence"], after["interrupt"]) == ("closed", "saved", None)
    assert [item["text"] for item in await scene.tab(0).items(scene.application, run["conversation_id"])] == [
        "please",
        "I need your confirmation.",
    ]


async def test_what_a_replica_of_the_version_before_closed_is_read_once(scene: Scene) -> None:
    """It closes a run that waits as `incomplete`, whatever was saved of it: its words are in the history all the same, and not twice."""
    run = await scene.waiting("s")
    await scene.rows(
        "update run set execution = 'closed', persistence = 'incomplete', resolution_outcome = 'failed', resolution_reason = 'old',"
        " resolved_by = 'cli:op', resolved_at = now(), finished_at = now() where run_id = %s",
        run["run_id"],
    )
    for tab in (0, 1):
        assert [item["text"] for item in await scene.tab(tab).items(scene.application, run["conversation_id"])] == [
            "please",
            "I need your confirmation.",
        ]
        conversation = await scene.tab(tab).conversation(scene.application, run["conversation_id"])
        assert (conversation["blocked"], conversation["active_run"]) == ("task_already_done", None)


async def test_a_replica_that_is_lost_while_it_waits_for_the_agent(scene: Scene) -> None:
    """The run is found waiting by a look-up, with what checkpoints have of its words; its stream ends with the question all the same."""
    scene.upstream.hold()
    answer = await scene.tab(0).submit(scene.application, "s", "please")
    run_id = answer.json()["run_id"]
    await scene.upstream.received(1)
    async with asyncio.timeout(30):
        while (await scene.rows("select native_run_id from run"))[0][0] is None:
            await asyncio.sleep(0.02)
    for task in asyncio.all_tasks():
        if task.get_name() == "run":
            task.cancel()
    run = await scene.tab(0).until_over(scene.application, run_id)
    assert (run["execution"], run["reason"]) == ("unknown", "drained")
    scene.upstream.let_go()
    run = await settled(scene, run_id)
    assert run["execution"] == "waiting"
    async with scene.tab(1).watch(scene.application, run_id) as response:
        raw = await response.aread()
    assert raw.count(b"TEXT_MESSAGE_START") == raw.count(b"TEXT_MESSAGE_END")
    assert b'"outcome":{"type":"interrupt"' in raw
    decided = await scene.decide(1, run, "d", "reject")
    assert (await scene.tab(1).until_over(scene.application, decided.json()["run_id"]))["execution"] == "succeeded"


async def test_a_replica_of_the_version_before_looks_up_no_native_run(scene: Scene) -> None:
    """It would ask for the run's status alone, which says success of a run that waits."""
    scene.upstream.names_another_run = True
    answer = await scene.tab(0).submit(scene.application, "s", "please")
    run = await scene.tab(0).until_over(scene.application, answer.json()["run_id"])
    assert run["execution"] == "unknown"
    claim = (
        "update run set lookup_claim = gen_random_uuid() where execution = 'unknown' and native_run_id is not null returning run_id::text"
    )
    assert await scene.rows(claim) == []
    await scene.rows("update application set human_input = false")
    assert await scene.rows(claim) == [(run["run_id"],)]


async def test_a_question_of_a_run_that_an_operator_closed_is_told_to_nobody(scene: Scene) -> None:
    """Its holder was only slow: the words before the question are taken, the end is the operator's, and the stream says so."""
    scene.upstream.hold()
    run_id = (await scene.tab(0).submit(scene.application, "s", "please")).json()["run_id"]
    async with asyncio.timeout(30):
        while await scene.rows("select execution from run where native_run_id is not null") != [("unknown",)]:
            await scene.rows("update run set lease_until = clock_timestamp() - interval '1 second' where native_run_id is not null")
            await leases.expire(scene.stack.database, lookup_first_seconds=60.0)
            await asyncio.sleep(0.02)
    operator = scene.replicas[0].client("root", roles=("operator",))
    body = {"outcome": "failed", "reason": "given up"}
    closed = await operator.http.post(f"/api/operator/runs/{run_id}/resolve", json=body, headers=operator.headers)
    assert closed.status_code == 200, closed.text
    async with scene.tab(0).watch(scene.application, run_id) as response:
        scene.upstream.let_go()
        events = parse_events(await response.aread())
    told = [one.data["value"] for one in events if one.data.get("name") == "gateway.run"][-1]
    assert told == {**await scene.tab(0).run(scene.application, run_id), "snapshot": None}
    assert (told["execution"], told["interrupt"], told["resolution"]) == ("closed", None, body)
    assert events[-1].type == "RUN_ERROR"


@pytest.mark.parametrize(("zone", "never"), [("Pacific/Auckland", "9999-12-31T23:59:59Z"), ("America/New_York", "0001-01-01T00:00:00Z")])
async def test_the_ends_of_all_time_are_read_in_every_zone_of_a_database(database_url: str, zone: str, never: str) -> None:
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        database = psycopg.sql.Identifier(connection.info.dbname)
        await connection.execute(psycopg.sql.SQL("alter database {} set timezone = {}").format(database, zone))
    async with scene_over(database_url) as scene:
        scene.upstream.prompt = {**scene.upstream.prompt, "expires_at": never}
        run = await scene.waiting("s")
        assert run["interrupt"]["expires_at"] == never.replace("Z", ".000000Z")
        operator = scene.replicas[0].client("root", roles=("operator",))
        assert (await operator.http.get(f"/api/operator/runs/{run['run_id']}", headers=operator.headers)).status_code == 200


async def test_what_an_operator_says_was_never_executed_can_be_decided_again(scene: Scene) -> None:
    """R_CLEARNE, claim_kept: closed as not_executed lets go of the question."""
    run = await scene.waiting("s")
    scene.upstream.fails_posts = True
    decided = await scene.decide(0, run, "d1", "approve")
    resume = await scene.tab(0).until_over(scene.application, decided.json()["run_id"])
    assert (resume["execution"], resume["reason"]) == ("unknown", "bad_response")
    assert (await scene.tab(0).run(scene.application, run["run_id"]))["answered_by"] == resume["run_id"]
    await scene.rows("update run set fence_at = fence_at - interval '1 day' where kind = 'resume'")
    operator = scene.replicas[0].client("root", roles=("operator",))
    body = {"outcome": "not_executed", "reason": "the service has no such run"}
    closed = await operator.http.post(f"/api/operator/runs/{resume['run_id']}/resolve", json=body, headers=operator.headers)
    assert closed.status_code == 200, closed.text
    assert (await scene.tab(0).run(scene.application, run["run_id"]))["answered_by"] is None
    scene.upstream.fails_posts = False
    again = await scene.decide(1, run, "d2", "reject")
    assert (await scene.tab(1).until_over(scene.application, again.json()["run_id"]))["execution"] == "succeeded"
    assert [answer for _, answer in scene.upstream.acts] == [{"action": "reject"}]
