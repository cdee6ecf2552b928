"""Each counterexample of docs/model as a schedule on real Postgres, with the real code of two replicas (docs/model/README.md).

A test's docstring begins with the rule and the line of docs/model/check.sh whose counterexample it replays; with that rule taken out it
fails. Steps are held at fault points, time passes by moving `lease_until` and `fence_at` in the database or a replica's own clock, and
what "another process" does is done by a second replica, or by its store functions alone.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.rows import dict_row

from gateway.admission.admitting import Admitted
from gateway.admission.moderation import Asked, Judgement, Provider
from gateway.domain import snapshot as snapshots
from gateway.domain.audit import Actor
from gateway.domain.evidence import BadResponse, NotSentProof, PostFact
from gateway.domain.fault_points import At, FaultPoint, Moment, Step, pass_by
from gateway.domain.ids import ApplicationId, AttemptToken, RunId, ThreadId
from gateway.domain.problems import Code, Refused
from gateway.domain.reasons import Reason
from gateway.domain.resolution import ResolutionOutcome
from gateway.runs.execute import Execute
from gateway.runs.heartbeat import Heartbeat
from gateway.settings import SettingsInvalid, load_settings
from gateway.store import leases, runs, saves
from gateway.store.database import Database
from gateway.upstream.capabilities import Capabilities, CapabilitiesKey
from gateway.upstream.endpoint import Endpoint
from gateway.upstream.open_stream import OpenStream
from gateway.upstream.protocol import Upstream
from gateway.upstream.run_input import GenerationRequest
from gateway.upstream.send_gate import SendGate
from tests.support.scripted_upstream import Answer, Script, failed, finished, gate, message, started
from tests.support.stack import Client, Replica, Stack, environment
from tests.support.tcp_proxy import CutAfterAnswer, CutBeforeQuery, Fault, Pass, TcpProxy

pytestmark = pytest.mark.anyio

# Nothing happens by itself: the tests let time pass, and sweep. The send window (5 s) and the stream's total (900 s) are the defaults.
BY_HAND: Final = {
    "AGENT_MAX_ACTIVE_PER_USER": "3",
    "GATEWAY_LEASE_SECONDS": "600",
    "GATEWAY_HEARTBEAT_SECONDS": "100",
    "GATEWAY_RECONCILE_SECONDS": "300",
    "GATEWAY_CHECKPOINT_SECONDS": "300",
    "GATEWAY_LOOKUP_FIRST_SECONDS": "300",
}
OPERATOR: Final = Actor("web:olga")
SIGNAL_SECONDS: Final = 10.0
WHOLE: Final = [*started(), *message("m1", "the whole answer"), finished()]
SHORT: Final = [*started(), *message("m1", "what was shown")]


@dataclass(eq=False)
class _Stop:
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self) -> None:
        async with asyncio.timeout(SIGNAL_SECONDS):
            await self.reached.wait()

    def go(self) -> None:
        self.opened.set()


class Stops:
    """The hook of a replica's fault points: holds whoever comes to a point that has a stop."""

    def __init__(self) -> None:
        self._stops: dict[FaultPoint, _Stop] = {}

    def before(self, step: Step) -> _Stop:
        return self._stops.setdefault(FaultPoint(Moment.BEFORE, step), _Stop())

    def after(self, step: Step) -> _Stop:
        return self._stops.setdefault(FaultPoint(Moment.AFTER, step), _Stop())

    async def __call__(self, point: FaultPoint) -> None:
        if (stop := self._stops.get(point)) is not None:
            stop.reached.set()
            await stop.opened.wait()


@dataclass
class Dial:
    """A clock that a test turns."""

    seconds: float = field(default_factory=time.monotonic)

    def __call__(self) -> float:
        return self.seconds


@dataclass
class Scene:
    """Replica `one`, which owns the run, and replica `two`, which is another process; `stops` hold `one`."""

    stack: Stack
    stops: Stops
    dial: Dial
    one: Replica
    two: Replica
    application: ApplicationId
    connection: psycopg.AsyncConnection[dict[str, Any]]
    run_id: RunId = field(default_factory=lambda: RunId(uuid4()))

    @property
    def ada(self) -> Client:
        return self.one.client("ada")

    @property
    def posts(self) -> int:
        return self.stack.upstream.counts().ag_ui

    @property
    def admitted(self) -> Admitted:
        live = self.one.gateway.supervisor.live_runs.get(self.run_id)
        assert live is not None
        return live.admitted

    async def submit(self, submission_id: str = "s1", conversation_id: str | None = None) -> dict[str, Any]:
        """Admit a run at `one`; it is `run_id` from now on."""
        response = await self.ada.submit(self.application, submission_id, "hello", conversation_id)
        assert response.status_code == 202, response.text
        self.run_id = RunId(UUID(response.json()["run_id"]))
        return dict(response.json())

    async def sql(self, text: str, *params: object) -> None:
        await self.connection.execute(text.encode(), params)

    async def row(self) -> dict[str, Any]:
        """The run's row."""
        cursor = await self.connection.execute("select * from run where run_id = %s", (self.run_id,))
        row = await cursor.fetchone()
        assert row is not None
        return row

    async def value(self, text: str, *params: object) -> Any:
        row = await (await self.connection.execute(text.encode(), params)).fetchone()
        assert row is not None
        return next(iter(row.values()))

    async def texts(self) -> list[str]:
        """The texts of the conversation as its owner reads it."""
        items = await self.two.client("ada").items(self.application, str((await self.row())["conversation_id"]))
        return [item["text"] for item in items]

    async def lapse(self) -> None:
        """The lease is over."""
        await self.sql("update run set lease_until = clock_timestamp() - interval '1 second' where run_id = %s", self.run_id)

    async def expire(self) -> list[UUID]:
        """What the reconciler of `two` does about leases that are over."""
        database = self.two.gateway.database
        gone = [*await leases.release_expired(database), *await leases.expire(database, lookup_first_seconds=300.0)]
        return [row.run_id for row in gone]

    async def lapse_and_expire(self) -> None:
        await self.lapse()
        assert await self.expire() == [self.run_id]

    async def look_up(self) -> None:
        """The reconciler of `two` looks the run up, if it is due by its row once time has passed."""
        await self.sql("update run set next_lookup_at = clock_timestamp() where run_id = %s and next_lookup_at is not null", self.run_id)
        await self.two.gateway.reconciler.look_up.one(self.run_id)

    async def resolve(self, outcome: ResolutionOutcome) -> None:
        await self.two.gateway.services.operator_acts.resolve(OPERATOR, self.run_id, outcome, "seen upstream")

    async def over(self) -> None:
        """The task of `one` has ended."""
        await until(lambda: self.one.gateway.supervisor.live_runs.get(self.run_id) is None)

    async def used(self) -> int:
        """Tasks charged, by all quota rules."""
        return int(await self.value("select coalesce(sum(used), 0)::integer from quota_usage"))


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(SIGNAL_SECONDS):
        while not reached():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def scene(database_url: str, script: Script | None = None, **overrides: Any) -> AsyncIterator[Scene]:
    """Two replicas over one database and one upstream. `overrides` go to the wiring of `one`."""
    stops, dial = Stops(), Dial()
    async with (
        Stack.over(database_url) as stack,
        await psycopg.AsyncConnection.connect(database_url, autocommit=True, row_factory=dict_row) as connection,
    ):
        stack.upstream.use(script or Script(ag_ui=[Answer(frames=WHOLE)]))
        settings = stack.settings(**BY_HAND)
        one = await stack.replica(settings, **{"at": stops, "clock": dial, **overrides})
        two = await stack.replica(settings)
        application = await stack.application()
        try:
            yield Scene(stack, stops, dial, one, two, application, connection)
        finally:
            stack.upstream.release()
            for stop in stops._stops.values():
                stop.go()


@asynccontextmanager
async def proxied(database_url: str, **overrides: Any) -> AsyncIterator[tuple[Stack, TcpProxy, Replica]]:
    """A replica that reaches the database through a proxy. `overrides` go to its wiring."""
    parts = psycopg.conninfo.conninfo_to_dict(database_url)
    async with TcpProxy(str(Path(str(parts["host"])) / ".s.PGSQL.5432")) as proxy, Stack.over(database_url) as stack:
        url = f"postgresql://postgres@127.0.0.1:{proxy.port}/{parts['dbname']}?sslmode=disable&gssencmode=disable"
        yield stack, proxy, await stack.replica(stack.settings(**BY_HAND, DATABASE_URL=url), **overrides)


@asynccontextmanager
async def struck_once(proxy: TcpProxy, fault: Fault) -> AsyncIterator[None]:
    """`fault` strikes one time, within the block; then everything passes."""
    proxy.fault = fault

    async def heal() -> None:
        await proxy.struck.wait()
        proxy.fault = Pass()

    healing = asyncio.create_task(heal())
    yield
    async with asyncio.timeout(SIGNAL_SECONDS):
        await healing


async def charged(it: Scene) -> None:
    """A quota of which the run takes one, and so does another."""
    await it.sql(
        "insert into quota_rule (quota_rule_id, scope, task_limit, calendar_window) values (gen_random_uuid(), 'user', 9, 'month')"
    )


# --- the one POST -------------------------------------------------------------------------------------------------------------------------


async def test_a_sender_that_wakes_up_after_its_window_sends_nothing(database_url: str) -> None:
    """R_WINDOW, no_window: fenced, then asleep; expired, and closed as not executed, before it comes to its first byte."""
    async with scene(database_url) as it:
        asleep = it.stops.before(Step.POST)
        await it.submit()
        await asleep.wait()
        await it.lapse_and_expire()
        await it.sql("update run set fence_at = fence_at - interval '1 hour' where run_id = %s", it.run_id)
        it.dial.seconds += 3600
        await it.resolve(ResolutionOutcome.NOT_EXECUTED)
        asleep.go()
        await it.over()
        assert it.posts == 0
        row = await it.row()
        assert (row["execution"], row["resolution_outcome"]) == ("closed", "not_executed")


async def test_a_second_fence_statement_does_not_start_the_clock_anew(database_url: str) -> None:
    """R_CLOCK, clock_anew: the first fence statement is lost, the second one commits; their times add up to more than the window."""
    dial = Dial()

    async def takes_three_seconds(point: FaultPoint) -> None:
        if point == FaultPoint(Moment.BEFORE, Step.FENCE):
            dial.seconds += 3

    async with proxied(database_url, at=takes_three_seconds, clock=dial) as (stack, proxy, replica):
        application, ada = await stack.application(), replica.client("ada")
        async with struck_once(proxy, CutBeforeQuery(b"fence_v2")):
            _, events = await ada.ask(application, "s1", "hello")
        assert stack.upstream.counts().ag_ui == 0
        run = await ada.run(application, events[0].data["runId"])
        assert (run["execution"], run["reason"]) == ("released", "not_sent")


@pytest.mark.parametrize("outcome", ResolutionOutcome)
async def test_no_operator_closes_a_run_whose_post_may_be_under_way(database_url: str, outcome: ResolutionOutcome) -> None:
    """R_GATE, no_gate, half_gate and half_gate_two: expired between fence and first byte; upstream shows nothing, and then the POST."""
    async with scene(database_url) as it:
        connecting = it.stops.before(Step.POST)
        await it.submit()
        await connecting.wait()
        await it.lapse_and_expire()
        with pytest.raises(Refused) as refused:
            await it.resolve(outcome)
        assert (refused.value.code, refused.value.extra["why"]) == (Code.RESOLUTION_NOT_ALLOWED, "too_early")
        connecting.go()
        await it.over()
        row = await it.row()
        assert (it.posts, row["execution"], row["persistence"]) == (1, "succeeded", "saved")


async def test_a_lease_does_not_end_inside_the_send_window(database_url: str) -> None:
    """R_RENEW, no_renewal: a lease with a second left is fenced, and the whole window passes."""
    async with scene(database_url) as it:
        fencing, fenced = it.stops.before(Step.FENCE), it.stops.after(Step.FENCE)
        await it.submit()
        await fencing.wait()
        await it.sql("update run set lease_until = clock_timestamp() + interval '3 seconds' where run_id = %s", it.run_id)
        fencing.go()
        await fenced.wait()
        await it.sql("update run set lease_until = lease_until - interval '5 seconds' where run_id = %s", it.run_id)
        assert await it.expire() == []
        fenced.go()
        await it.over()
        assert (await it.row())["execution"] == "succeeded"


async def test_a_fence_statement_that_arrives_late_moves_only_what_is_reserved(database_url: str) -> None:
    """R_FENCE, fence_any_state and fence_any_state_two: a second one of the same process runs after the first, and after the end."""
    async with scene(database_url) as it:
        fenced = it.stops.after(Step.FENCE)
        await it.submit()
        await fenced.wait()
        token, before = it.admitted.attempt_token, await it.row()
        assert (await late_fence(it, token)).verdict == runs.FenceVerdict.NOT_OURS
        await it.sql("update run set execution = 'unknown', unknown_at = now() where run_id = %s", it.run_id)
        assert (await late_fence(it, token)).verdict == runs.FenceVerdict.NOT_OURS
        after = await it.row()
        assert (after["execution"], after["fence_at"]) == ("unknown", before["fence_at"])
        fenced.go()
        await it.over()
        assert (await late_fence(it, token)).verdict == runs.FenceVerdict.NOT_OURS
        assert (it.posts, (await it.row())["execution"]) == (1, "succeeded")


async def late_fence(it: Scene, token: AttemptToken) -> runs.FenceRow:
    cursor = await it.connection.execute("select b.* from binding b join run r using (conversation_id) where r.run_id = %s", (it.run_id,))
    bound = await cursor.fetchone()
    assert bound is not None
    return await runs.fence(
        it.two.gateway.database,
        run_id=it.run_id,
        attempt_token=token,
        thread_id=bound["thread_id"],
        endpoint_fingerprint=bound["endpoint_fingerprint"],
        fingerprint=bound["fingerprint"],
        lease_seconds=600.0,
        deadline_seconds=5.0,
    )


async def test_only_the_process_with_the_token_executes(database_url: str) -> None:
    """R_TOKEN, no_token: another process finds the run reserved, and executes it with a token of its own."""
    async with scene(database_url) as it:
        fencing = it.stops.before(Step.FENCE)
        await it.submit()
        await fencing.wait()
        other = it.two.gateway.supervisor
        other.begin(replace(it.admitted, attempt_token=AttemptToken(uuid4())))
        await until(lambda: other.live_runs.get(it.run_id) is None)
        assert (it.posts, (await it.row())["execution"]) == (0, "reserved")
        fencing.go()
        await it.over()
        assert (it.posts, (await it.row())["execution"]) == (1, "succeeded")


class _RepeatingTransport:
    """An Upstream whose POST is tried again when its connection broke, with the gate that it has."""

    upstream: Upstream

    async def check_capabilities(self, endpoint: Endpoint, key: CapabilitiesKey) -> Capabilities | None:
        return await self.upstream.check_capabilities(endpoint, key)

    async def create_thread(self, endpoint: Endpoint, key: CapabilitiesKey) -> ThreadId | None:
        return await self.upstream.create_thread(endpoint, key)

    async def generate(self, endpoint: Endpoint, key: CapabilitiesKey, request: GenerationRequest, gate: SendGate) -> OpenStream | PostFact:
        opened = await self.upstream.generate(endpoint, key, request, gate)
        if isinstance(opened, BadResponse):
            return await self.upstream.generate(endpoint, key, request, gate)
        return opened


async def test_a_transport_that_repeats_writes_nothing_the_second_time(database_url: str) -> None:
    """R_ONCE, gate_twice: the connection breaks once the POST was read, and the transport connects again."""
    repeating = _RepeatingTransport()
    script = Script(ag_ui=[Answer(reset="after_request", executes=True), Answer(frames=WHOLE)])
    async with scene(database_url, script, upstream=repeating) as it:
        execute = it.two.gateway.supervisor.execute
        assert isinstance(execute, Execute)
        repeating.upstream = execute.means.upstream
        await it.submit()
        await it.over()
        assert (it.posts, (await it.row())["execution"]) == (1, "unknown")


# --- admission ----------------------------------------------------------------------------------------------------------------------------


async def test_an_admission_whose_answer_is_lost_is_executed(database_url: str) -> None:
    """R_ADMIT, admit_gives_up: COMMIT is done, its answer lost; the same insert again finds the row, and its token."""
    async with proxied(database_url) as (stack, proxy, replica):
        application = await stack.application()
        async with struck_once(proxy, CutAfterAnswer(b"COMMIT")):
            response = await replica.client("ada").submit(application, "s1", "hello")
        assert response.status_code == 202
        await stack.upstream.received(1)
        run = await replica.client("ada").until_over(application, response.json()["run_id"])
        assert (run["execution"], stack.upstream.counts().ag_ui) == ("succeeded", 1)


class _SlowModerator:
    """Allows everything, when it is let go."""

    provider = Provider.LOCAL

    def __init__(self) -> None:
        self.stop = _Stop()

    async def judge(self, asked: Asked) -> Judgement:
        if asked.text == "slow":
            self.stop.reached.set()
            await self.stop.opened.wait()
        return Judgement()


async def test_two_replicas_admit_one_task_of_a_conversation(database_url: str) -> None:
    """R_SLOT, block_unasked: one submission passed every check before admission, and is moderated; meanwhile another one is admitted."""
    moderator = _SlowModerator()
    script = Script(ag_ui_by_text={"hello": [Answer(frames=WHOLE)], "quick": [Answer(frames=[*started(), gate("rest"), finished()])]})
    async with scene(database_url, script, moderators=[moderator]) as it:
        conversation_id = (await it.submit())["conversation_id"]
        await it.over()
        slow = asyncio.create_task(it.ada.submit(it.application, "s2", "slow", conversation_id))
        await moderator.stop.wait()
        quick = await it.two.client("ada").submit(it.application, "s3", "quick", conversation_id)
        assert quick.status_code == 202
        await it.stack.upstream.waiting_at("rest")
        moderator.stop.go()
        refused = await slow
        assert (refused.status_code, refused.json()["code"]) == (409, "conversation_busy")
        assert refused.json()["run_id"] == quick.json()["run_id"]
        assert it.posts == 2


async def test_the_schema_refuses_a_second_slot_of_a_conversation(database_url: str) -> None:
    """R_INDEX, slots_unguarded: with the question of R_SLOT taken out, the index alone refuses."""
    async with scene(database_url, Script(ag_ui=[Answer(frames=[*started(), gate("rest"), finished()])])) as it:
        await it.sql(
            "create or replace function conversation_block_v1(p_conversation_id uuid, out code text, out blocking_run_id uuid)"
            " language sql stable as $$ select null::text, null::uuid $$"
        )
        conversation_id = (await it.submit())["conversation_id"]
        await it.stack.upstream.waiting_at("rest")
        answer = await it.two.client("ada").submit(it.application, "s2", "and?", conversation_id)
        assert answer.status_code >= 500
        assert await it.value("select count(*) from run where user_slot is not null") == 1


# --- leases -------------------------------------------------------------------------------------------------------------------------------


async def test_a_beat_renews_what_its_process_holds_and_nothing_else(database_url: str) -> None:
    """R_TOKENHB, beat_of_replica: a replica that lives, and holds another run, beats; the run of a lost process goes on to expire."""
    async with scene(database_url, Script(ag_ui=[Answer(frames=[*started(), gate("rest"), finished()])])) as it:
        kept = await it.two.client("bob").submit(it.application, "s1", "hello")
        await it.submit()
        await it.stack.upstream.received(2)
        await it.sql("update run set lease_until = clock_timestamp() - interval '1 second'")
        await it.two.gateway.heartbeat.beat()
        # nor by another process that knows the run, but not its token
        wrong = [(it.run_id, AttemptToken(uuid4()))]
        await leases.beat(it.two.gateway.database, uuid4(), wrong, key_ids=(), lease_seconds=600.0, deadline_seconds=5.0)
        assert await it.expire() == [it.run_id]
        assert await it.value("select execution from run where run_id = %s", kept.json()["run_id"]) in ("dispatched", "running")
        # its holder, only slow, may renew it: then nobody looks it up
        await it.one.gateway.heartbeat.beat()
        assert (await it.row())["lease_until"] > await it.value("select clock_timestamp()")


async def test_doubt_gives_up_the_lease_so_that_look_ups_can_settle(database_url: str) -> None:
    """R_UNKLEASE, doubt_keeps_lease: the owner settles unknown and lives on; its beats do not keep look-ups away."""
    async with scene(database_url, Script(ag_ui=[Answer(frames=SHORT, ending="unfinished")], lookup_status={"*": "success"})) as it:
        await it.submit()
        await it.over()
        assert ((await it.row())["execution"], (await it.row())["lease_until"]) == ("unknown", None)
        await it.one.gateway.heartbeat.beat()
        await it.look_up()
        assert ((await it.row())["execution"], (await it.row())["persistence"]) == ("succeeded", "incomplete")


async def test_a_fresh_reconciler_waits_one_lease(database_url: str) -> None:
    """R_FRESH, no_fresh: the database was away for longer than a lease; a replica that has just started comes before the owner's beat."""
    async with scene(database_url, Script(ag_ui=[Answer(frames=[*started(), gate("rest"), finished()])])) as it:
        await it.submit()
        await it.stack.upstream.waiting_at("rest")
        await it.lapse()
        fresh = Dial()
        three = await it.stack.replica(it.stack.settings(**BY_HAND), clock=fresh)
        await three.gateway.reconciler.sweep()
        await three.gateway.heartbeat.beat()
        await three.gateway.reconciler.sweep()
        assert (await it.row())["execution"] in ("dispatched", "running")
        await it.one.gateway.heartbeat.beat()
        fresh.seconds += 601
        await three.gateway.reconciler.sweep()
        assert (await it.row())["execution"] in ("dispatched", "running")
        await it.lapse()
        await three.gateway.reconciler.sweep()
        assert (await it.row())["execution"] == "unknown"


async def test_a_reconciler_that_lost_the_database_waits_one_lease(database_url: str) -> None:
    """R_GRACE, no_grace: trusted for long, then the database is away, and back, and the owner's beat is still to come."""
    async with proxied(database_url) as (stack, proxy, replica):
        application = await stack.application()
        stack.upstream.use(Script(ag_ui=[Answer(frames=[*started(), gate("rest"), finished()])]))
        submitted = await replica.client("ada").submit(application, "s1", "hello")
        await stack.upstream.waiting_at("rest")
        dial = Dial()
        beats = heartbeat(replica.gateway.database, dial, period_seconds=5.0)
        assert await beats.beat()
        dial.seconds += 31
        assert beats.may_expire()
        proxy.fault = CutBeforeQuery(b"replica")
        assert not await beats.beat()
        proxy.fault = Pass()
        assert not beats.may_expire()
        assert await beats.beat()
        assert not beats.may_expire()
        dial.seconds += 31
        assert beats.may_expire()
        stack.upstream.release("rest")
        run = await replica.client("ada").until_over(application, submitted.json()["run_id"])
        assert run["execution"] == "succeeded"


async def test_a_failed_beat_is_tried_again_at_once(database_url: str) -> None:
    """R_AGAIN, beat_later (covered by the others as long as a period is short): the beat after a failed one does not wait a period."""
    beats_begun = 0

    async def count(_: FaultPoint) -> None:
        nonlocal beats_begun
        beats_begun += 1

    async with proxied(database_url) as (_, proxy, replica):
        beats = heartbeat(replica.gateway.database, time.monotonic, period_seconds=3600.0, at=count)
        proxy.fault = CutBeforeQuery(b"replica")
        beating = asyncio.create_task(beats.run())
        await until(lambda: beats_begun > 1)
        proxy.fault = Pass()
        beating.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await beating


def test_a_lease_is_six_heartbeats() -> None:
    """PERIOD, slow_heartbeat: with fewer beats a lease, an outage between two of them expires a living owner."""
    settings = load_settings(environment("postgresql://h/d"), serving=True)
    assert settings.lease_seconds >= 6 * settings.heartbeat_seconds
    assert load_settings(environment("postgresql://h/d", GATEWAY_LEASE_SECONDS="60", GATEWAY_HEARTBEAT_SECONDS="10"), serving=True)
    slow = environment("postgresql://h/d", GATEWAY_LEASE_SECONDS="30", GATEWAY_HEARTBEAT_SECONDS="5.1")
    with pytest.raises(SettingsInvalid, match="GATEWAY_HEARTBEAT_SECONDS"):
        load_settings(slow, serving=True)


def heartbeat(database: Database, clock: Callable[[], float], *, period_seconds: float, at: At = pass_by) -> Heartbeat:
    return Heartbeat(
        database=database,
        replica_id=uuid4(),
        held=lambda: (),
        key_ids=(),
        period_seconds=period_seconds,
        lease_seconds=30.0,
        clock=clock,
        at=at,
    )


# --- the end ------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("execution", ["dispatched", "running", "unknown"])
async def test_a_known_end_settles_whatever_became_of_the_row(database_url: str, execution: str) -> None:
    """R_SETTLE, settle_running: RUN_FINISHED in hand, RUN_STARTED not recorded yet, or recorded, or the row expired meanwhile."""
    async with scene(database_url) as it:
        if execution == "dispatched":
            it.stops.before(Step.START)
        started_, settling = it.stops.after(Step.START), it.stops.before(Step.SETTLE)
        await it.submit()
        await settling.wait()
        if execution != "dispatched":
            await started_.wait()
        if execution == "unknown":
            await it.lapse_and_expire()
        assert (await it.row())["execution"] == execution
        settling.go()
        await it.over()
        row = await it.row()
        assert (row["execution"], row["persistence"], row["user_slot"]) == ("succeeded", "saved", None)


async def test_the_holders_text_is_taken_after_a_look_up_settled(database_url: str) -> None:
    """R_LATE, no_late_text: the whole text in hand, expired, looked up as success; then the holder's own settlement."""
    async with scene(database_url) as it:
        started_, settling = it.stops.after(Step.START), it.stops.before(Step.SETTLE)
        await it.submit()
        await started_.wait()
        await settling.wait()
        await it.lapse_and_expire()
        await it.look_up()
        assert ((await it.row())["execution"], (await it.row())["persistence"]) == ("succeeded", "incomplete")
        settling.go()
        await it.over()
        assert (await it.row())["persistence"] == "saved"
        assert await it.texts() == ["hello", "the whole answer"]


async def test_a_failed_look_up_leaves_the_text_open_to_its_holder(database_url: str) -> None:
    """R_LKFAIL, failed_look_up_saves: text was shown, RUN_ERROR is in hand; expired, and looked up as an error, before it is settled."""
    async with scene(database_url, Script(ag_ui=[Answer(frames=[*SHORT, failed()])])) as it:
        started_, settling = it.stops.after(Step.START), it.stops.before(Step.SETTLE)
        await it.submit()
        await started_.wait()
        await settling.wait()
        await it.lapse_and_expire()
        await it.look_up()
        assert ((await it.row())["execution"], (await it.row())["persistence"]) == ("failed", "incomplete")
        settling.go()
        await it.over()
        assert ((await it.row())["execution"], (await it.row())["persistence"]) == ("failed", "saved")
        assert await it.texts() == ["hello", "what was shown"]


async def test_items_that_are_refused_leave_the_answer_pending(database_url: str) -> None:
    """R_PENDING, never_pending: the database refuses the items, not the snapshot; whoever comes later saves them from its bytes."""
    async with scene(database_url) as it:
        await it.sql("alter table item add constraint refused check (position = 0) not valid")
        await it.submit()
        await it.over()
        assert ((await it.row())["execution"], (await it.row())["persistence"]) == ("succeeded", "pending")
        await it.sql("alter table item drop constraint refused")
        assert await it.two.gateway.reconciler.save.now(it.run_id)
        assert (await it.row())["persistence"] == "saved"
        assert await it.texts() == ["hello", "the whole answer"]


async def test_a_pending_answer_is_saved_once(database_url: str) -> None:
    """R_SAVE, save_unguarded: one replica has claimed its bytes; an operator gives it up, or another replica saves it, before it writes."""
    async with scene(database_url) as it:
        await it.sql("alter table item add constraint refused check (position = 0) not valid")
        first = (await it.submit())["run_id"]
        await it.over()
        await it.submit("s2")
        await it.over()
        await it.sql("alter table item drop constraint refused")
        saving = it.stops.before(Step.SAVE)
        late = asyncio.create_task(it.one.gateway.reconciler.save.now(it.run_id))
        await saving.wait()
        await it.resolve(ResolutionOutcome.SUCCEEDED)
        saving.go()
        await late
        assert (await it.row())["persistence"] == "incomplete"
        it.run_id = RunId(UUID(first))
        [claimed] = await saves.claim(it.two.gateway.database, limit=1, run_id=it.run_id)
        assert await it.one.gateway.reconciler.save.now(it.run_id)
        assert (await it.row())["persistence"] == "saved"
        assert not await saves.save(it.two.gateway.database, it.run_id, snapshots.parse(claimed.body), claimed.sha256)
        assert await it.value("select count(*) from evidence where run_id = %s and kind = 'saved'", it.run_id) == 1


async def test_doubt_about_an_expired_run_tells_what_it_saw(database_url: str) -> None:
    """R_DOUBT, doubt_refused: text and native id seen and not yet recorded; expired; then the stream ends without a terminal event."""
    async with scene(database_url, Script(ag_ui=[Answer(frames=SHORT, ending="unfinished")])) as it:
        it.stops.before(Step.START)
        settling = it.stops.before(Step.SETTLE)
        await it.submit()
        await settling.wait()
        await it.lapse_and_expire()
        assert ((await it.row())["native_run_id"], (await it.row())["persistence"]) == (None, "none")
        settling.go()
        await it.over()
        row = await it.row()
        assert (row["execution"], row["persistence"], row["lease_until"]) == ("unknown", "partial", None)
        assert row["native_run_id"] is not None
        assert row["next_lookup_at"] is not None
        assert await it.texts() == ["hello", "what was shown"]


async def test_a_native_id_that_comes_late_is_looked_up(database_url: str) -> None:
    """R_STARTDUE, start_not_due: expired without a native id, which is recorded afterwards; then the process is lost."""
    script = Script(ag_ui=[Answer(frames=[*SHORT, gate("rest"), finished()])], lookup_status={"*": "success"})
    async with scene(database_url, script) as it:
        recording, recorded = it.stops.before(Step.START), it.stops.after(Step.START)
        await it.submit()
        await recording.wait()
        await it.lapse_and_expire()
        assert (await it.row())["attention"] == "operator"
        recording.go()
        await recorded.wait()
        assert ((await it.row())["execution"], (await it.row())["attention"]) == ("unknown", None)
        await it.lapse()
        await it.look_up()
        assert ((await it.row())["execution"], (await it.row())["persistence"]) == ("succeeded", "incomplete")


async def test_a_release_is_refunded_once_and_only_of_what_was_not_sent(database_url: str) -> None:
    """R_REFUND, refund_unguarded: the reconciler and the holder release the same run; and the release comes again after another end."""
    async with scene(database_url) as it:
        await charged(it)
        await it.two.client("ada").ask(it.application, "other", "hello")
        fencing = it.stops.before(Step.FENCE)
        await it.submit()
        await fencing.wait()
        assert await it.used() == 2
        await it.lapse_and_expire()
        fencing.go()
        await it.over()
        assert ((await it.row())["execution"], await it.used(), it.posts) == ("released", 1, 1)
        await it.sql("select refund_v1(array[%s::uuid])", it.run_id)
        assert await it.used() == 1
        await it.submit("s2")
        await it.over()
        token = AttemptToken((await it.row())["attempt_token"])
        released = await runs.release(it.two.gateway.database, it.run_id, token, Reason.NOT_SENT, NotSentProof.WINDOW_PASSED)
        assert (released, (await it.row())["execution"], await it.used()) == (None, "succeeded", 2)


# --- what is no proof ---------------------------------------------------------------------------------------------------------------------


async def test_a_post_whose_connection_broke_is_not_released(database_url: str) -> None:
    """R_PROOF, no_proof and no_proof_two: upstream read the POST and executes it; no byte of an answer comes."""
    async with scene(database_url, Script(ag_ui=[Answer(reset="after_request", executes=True)])) as it:
        await charged(it)
        conversation_id = (await it.submit())["conversation_id"]
        await it.over()
        row = await it.row()
        assert (row["execution"], row["user_slot"], await it.used()) == ("unknown", 1, 1)
        again = await it.ada.submit(it.application, "s2", "again?", conversation_id)
        assert (again.status_code, again.json()["code"]) == (409, "conversation_busy")
        assert it.stack.upstream.counts().executions == 1


async def test_a_post_that_is_given_up_unanswered_is_not_released(database_url: str) -> None:
    """R_PROOF, no_proof: the POST was written, and the replica drains before upstream answers."""
    async with scene(database_url, Script(ag_ui=[Answer(hang=True, executes=True)])) as it:
        await it.submit()
        await it.stack.upstream.received(1)
        await it.one.gateway.supervisor.finish(0.0)
        row = await it.row()
        assert (row["execution"], row["user_slot"], row["lease_until"]) == ("unknown", 1, None)


async def test_an_end_of_stream_is_no_success(database_url: str) -> None:
    """R_EOF, end_is_success: text, and then the body ends by its own framing, without a terminal event."""
    async with scene(database_url, Script(ag_ui=[Answer(frames=SHORT)])) as it:
        await it.submit()
        await it.over()
        row = await it.row()
        assert (row["execution"], row["persistence"], row["user_slot"]) == ("unknown", "partial", 1)


async def test_a_look_up_that_finds_nothing_ends_nothing(database_url: str) -> None:
    """R_404, nothing_is_failed: unknown, and upstream still executes it; one look-up finds nothing, and a new task is sent."""
    script = Script(ag_ui=[Answer(frames=SHORT, ending="unfinished")], lookup=[Answer(http_status=404)])
    async with scene(database_url, script) as it:
        conversation_id = (await it.submit())["conversation_id"]
        await it.over()
        await it.look_up()
        assert it.stack.upstream.counts().lookups == 1
        row = await it.row()
        assert (row["execution"], row["user_slot"]) == ("unknown", 1)
        again = await it.ada.submit(it.application, "s2", "again?", conversation_id)
        assert (again.status_code, again.json()["code"]) == (409, "conversation_busy")
        assert it.posts == 1
