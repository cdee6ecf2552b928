"""The crash matrix (docs/crash-matrix.md): each fault at each fault point of one replica beside a healthy one, then the invariants.

Every case has the same world, in which the faulty replica passes every fault point: a run that streams until everything else was
passed; a run whose thread fails, which is released; and rows that a lost replica left: reserved and dispatched with leases that are over,
unknown with and without a native id, pending. The healthy replica is stopped (SIGSTOP) until the fault, so that the faulty one does the
reconciling. Then it goes on, and a client repeats every submission there.

What CI runs: tests/support/crash_matrix.py `in_covering_set`, a pairwise choice over step, fault and before/after: each point, each fault,
each step with each of its faults, each pair of kinds; half of the matrix. `--slow` (make test-all) runs the whole.

One database and healthy replica serve all cases of a worker; a case has upstreams, applications, people and a faulty replica of its own.
"""

import asyncio
import base64
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx
import psycopg
import pytest
from psycopg.rows import dict_row

from gateway.bindings import applications, providers
from gateway.bindings.applications import Audience, NewApplication
from gateway.bindings.config import langchain_config
from gateway.bindings.vault import KeyRing, Vault
from gateway.domain.fault_points import FAULT_POINTS, FaultPoint, Moment, Step
from gateway.domain.ids import ApplicationId
from gateway.domain.states import Execution, Persistence
from gateway.store.database import Database
from gateway.store.sql_files import sql_folder
from gateway.store.statements import all_statements, statement
from tests.support.crash_matrix import CASES, FAULTS, PAGE, RESUME_CASES, STEPS, Case, Fault, in_covering_set, page
from tests.support.faulty_replica import QUICK, Act, FaultyReplica, faulty_replica
from tests.support.invariants import Acknowledged, assert_hold, at_rest, watch
from tests.support.postgres import PostgresForTests
from tests.support.processes import ReplicaProcess, replica_process
from tests.support.run_rows import EXPIRED, RunRow, insert_runs
from tests.support.scripted_upstream import Answer, Script, ScriptedUpstream, finished, gate, message, started
from tests.support.stack import ENCRYPTION_KEY
from tests.support.tcp_proxy import CloseOnce, CutAfterAnswer, CutBeforeQuery, HangOnce, Pass, TcpProxy
from tests.support.tcp_proxy import Fault as ProxyFault

pytestmark = pytest.mark.anyio

SETTINGS: Final = {**QUICK, "AGENT_MAX_ACTIVE_PER_APP": "20", "GATEWAY_STREAM_IDLE_SECONDS": "3"}
WAIT_SECONDS: Final = 40.0
"""For one signal on a machine that is busy with other things; a case takes a tenth of it."""
REST_SECONDS: Final = 2.0 + 5.0 + 30.0
"""One lease, one reconciler period, and slack: a call that hangs has a deadline of 10 s, a failed save is tried again after 10 s."""

STATEMENTS: Final = {
    Step.FENCE: "runs.fence",
    Step.START: "runs.start",
    Step.CHECKPOINT: "runs.checkpoint",
    Step.SETTLE: "runs.settle",
    Step.RELEASE: "runs.release",
    Step.HEARTBEAT: "leases.beat",
    Step.RELEASE_EXPIRED: "leases.release_expired",
    Step.EXPIRE: "leases.expire",
    Step.SAVE_CLAIM: "saves.claim",
    Step.SAVE: "saves.save",
    Step.LOOKUP_CLAIM: "lookups.claim",
    Step.LOOKUP_WRITE: "lookups.settle",
    Step.EXHAUST: "lookups.exhaust",
}
"""The statement that a step commits by, so that a cut before it meets it and nothing else. A step that is not here is met by whatever the
replica sends next."""
OTHER_TEXTS: Final = {
    Step.ADMISSION: b"COMMIT",
    Step.CAPABILITIES: b"GET /capabilities",
    Step.THREAD: b"POST /threads",
    Step.POST: b"POST /ag-ui",
    Step.LOOKUP: b"GET /threads/",
}
ACTS_OF_PEOPLE: Final = {"lookups.grant", "operators.give_up", "operators.resolve", "runs.acknowledge", "saves.due_now"}
LAST: Final = frozenset({Step.SETTLE})
"""Steps of the streaming run that come when it ends; it ends once everything else was passed."""


def wire_text(point: FaultPoint) -> bytes:
    """A text that only the message of this step has; after a step, and for a step that nobody entered here, whatever comes next."""
    if point.moment is Moment.AFTER:
        return b""
    name = STATEMENTS.get(point.step)
    if name is None:
        return OTHER_TEXTS.get(point.step, b"")
    others = [other.text for other in all_statements() if other.name != name]
    lines = [line.strip() for line in statement(name).text.splitlines() if "%" not in line]
    return next(line for line in lines if len(line) > 12 and not any(line in other for other in others)).encode()


@dataclass(frozen=True, slots=True)
class Shared:
    """What all cases of a worker share."""

    url: str
    database: Database
    healthy: ReplicaProcess


@pytest.fixture(scope="module")
async def shared(postgres: PostgresForTests, anyio_backend: str) -> AsyncIterator[Shared]:
    with postgres.migrated_database() as url:
        await watch(url)
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            await connection.execute(
                "insert into quota_rule (quota_rule_id, scope, task_limit, calendar_window) values (gen_random_uuid(), 'user', 9, 'month')"
            )
        async with await Database.open(url, pool_max=2) as database, replica_process(url, changes=SETTINGS) as healthy:
            yield Shared(url, database, healthy)


@dataclass(slots=True)
class World:
    """One case's own upstreams, applications and people, and what its client was told."""

    shared: Shared
    upstream: ScriptedUpstream
    to_upstream: TcpProxy
    failing: ScriptedUpstream
    to_database: TcpProxy
    streaming: ApplicationId
    released: ApplicationId
    rows: tuple[RunRow, ...]
    people: str = field(default_factory=lambda: str(uuid4()))
    acknowledged: list[Acknowledged] = field(default_factory=list)

    @property
    def victim_url(self) -> str:
        name = psycopg.conninfo.conninfo_to_dict(self.shared.url)["dbname"]
        return f"postgresql://postgres@127.0.0.1:{self.to_database.port}/{name}?sslmode=disable&gssencmode=disable"

    async def submit(self, replica: ReplicaProcess, application: ApplicationId, subject: str, text: str) -> httpx.Response | None:
        """Submit "s1"; None when the connection broke. What is answered with 2xx is acknowledged."""
        try:
            response = await replica.client(subject).submit(application, "s1", text)
        except httpx.TransportError:
            return None
        if response.is_success:
            self.acknowledged.append(Acknowledged(subject, "s1", text, response.json()["run_id"]))
        return response

    async def submit_again(self, application: ApplicationId, subject: str, text: str) -> None:
        """A client that repeats its submission at the healthy replica until it is told of its run."""
        async with asyncio.timeout(WAIT_SECONDS):
            while (response := await self.submit(self.shared.healthy, application, subject, text)) is None or not response.is_success:
                assert response is None or response.status_code == 503, response.text
                await asyncio.sleep(0.1)

    async def runs(self) -> list[dict[str, Any]]:
        async with await psycopg.AsyncConnection.connect(self.shared.url, row_factory=dict_row) as connection:
            cursor = await connection.execute("select * from run where application_id = any (%s)", ([self.streaming, self.released],))
            return await cursor.fetchall()

    async def until_at_rest(self) -> None:
        """Every run ends in a state that is left alone, or that an operator was asked about."""
        deadline = time.monotonic() + REST_SECONDS
        told = ("execution", "persistence", "reason", "attention", "lookups", "lease_until", "native_run_id")
        while restless := [{name: run[name] for name in told} for run in await self.runs() if not at_rest(run)]:
            assert time.monotonic() < deadline, restless
            await asyncio.sleep(0.05)

    async def until_saved(self, *texts: str) -> None:
        """A replica that lives on, and whose stream was whole, loses nothing of the answer, whoever settled the run meanwhile."""
        found: list[str] = []
        deadline = time.monotonic() + REST_SECONDS
        while found != list(texts):
            assert time.monotonic() < deadline, found
            async with await psycopg.AsyncConnection.connect(self.shared.url) as connection:
                cursor = await connection.execute(
                    "select i.text from item i join run r on r.run_id = i.run_id join account a on a.account_id = r.account_id"
                    " where a.subject = %s and i.role = 'assistant' and r.execution = 'succeeded' and r.persistence = 'saved'"
                    " order by i.position",
                    (f"streaming-{self.people}",),
                )
                found = [str(text) for (text,) in await cursor.fetchall()]
            await asyncio.sleep(0.05)


@asynccontextmanager
async def world(shared: Shared) -> AsyncIterator[World]:
    socket_path = Path(str(psycopg.conninfo.conninfo_to_dict(shared.url)["host"])) / ".s.PGSQL.5432"
    async with AsyncExitStack() as exits:
        upstream = await exits.enter_async_context(ScriptedUpstream())
        failing = await exits.enter_async_context(ScriptedUpstream(Script(threads=[Answer(http_status=500)])))
        to_upstream = await exits.enter_async_context(TcpProxy("127.0.0.1", int(upstream.base_url.rpartition(":")[2])))
        to_database = await exits.enter_async_context(TcpProxy(str(socket_path)))
        base_url = f"http://127.0.0.1:{to_upstream.port}"
        streaming = await _application(shared.database, base_url, upstream.token)
        released = await _application(shared.database, failing.base_url, failing.token)
        rows = (
            RunRow(execution=Execution.RESERVED, lease_seconds=EXPIRED),
            RunRow(execution=Execution.DISPATCHED, lease_seconds=EXPIRED),
            RunRow(execution=Execution.UNKNOWN, native_run_id="native-known", persistence=Persistence.PARTIAL),
            RunRow(execution=Execution.UNKNOWN),
            RunRow(execution=Execution.SUCCEEDED, persistence=Persistence.PENDING),
        )
        upstream.use(
            Script(
                ag_ui=[Answer(frames=[*started(), *message("m1", "first"), gate("rest"), *message("m2", "second"), finished()])],
                lookup_status={"native-known": "success"},
            )
        )
        yield World(shared, upstream, to_upstream, failing, to_database, streaming, released, rows)


async def _application(database: Database, base_url: str, token: str) -> ApplicationId:
    name = str(uuid4())
    await providers.create(database, name=name, base_url=base_url, trusted_hosts={"127.0.0.1"})
    new = NewApplication(name=name, provider=name, config=langchain_config("agent"), audience=Audience(), token=token)
    return await applications.create(database, Vault(KeyRing([base64.b64decode(ENCRYPTION_KEY)])), new)


async def until(victim: FaultyReplica, reached: Callable[[], bool], what: str) -> None:
    """Wait for lines of the faulty replica until `reached`, or it came to its point."""
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while not reached() and victim.reached is None:
                victim.changed.clear()
                await victim.changed.wait()
    except TimeoutError:
        raise AssertionError(f"no {what}; passed {sorted(map(str, victim.passed))}\n{victim.log[-4000:]}") from None


async def until_struck(proxy: TcpProxy, victim: FaultyReplica) -> None:
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            await proxy.struck.wait()
    except TimeoutError:
        raise AssertionError(f"nothing was struck; passed {list(map(str, victim.order))[-20:]}\n{victim.log[-4000:]}") from None


async def live_until(world: World, victim: FaultyReplica, point: FaultPoint, act: Act) -> list[asyncio.Task[httpx.Response | None]]:
    """Everything of the world happens at the faulty replica until it comes to `point`."""
    # A beat that matters is one while a run is held.
    since = FaultPoint(Moment.AFTER, Step.START) if point.step is Step.HEARTBEAT else None
    victim.arm(point, act, since=since)
    sent = [asyncio.create_task(world.submit(victim, world.streaming, f"streaming-{world.people}", "a question"))]
    await until(victim, lambda: victim.passed[FaultPoint(Moment.AFTER, Step.POST)] > 0, "POST")
    sent.append(asyncio.create_task(world.submit(victim, world.released, f"released-{world.people}", "another question")))
    others = [FaultPoint(Moment.AFTER, step) for step in STEPS if step not in LAST]
    await until(victim, lambda: all(victim.passed[other] for other in others), "end of everything but the streaming run")
    if victim.reached is None:
        world.upstream.release("rest")
    await until(victim, lambda: False, f"arrival at {point}")
    assert victim.reached == point
    return sent


def proxy_fault(case: Case, text: bytes) -> ProxyFault:
    match case.fault:
        case Fault.CUT_BEFORE:
            return CutBeforeQuery(text)
        case Fault.CUT_AFTER:
            return CutAfterAnswer(text)
        case Fault.CLOSES:
            return CloseOnce(text)
        case Fault.HANGS:
            return HangOnce(text)
        case Fault.KILL:
            raise AssertionError


async def inject(world: World, victim: FaultyReplica, case: Case) -> None:
    """The fault, once; then everything is well again."""
    if case.fault is Fault.KILL:
        world.upstream.release("rest")
        await victim.ended()
        return
    proxy = world.to_database if case.fault in (Fault.CUT_BEFORE, Fault.CUT_AFTER) else world.to_upstream
    proxy.fault = proxy_fault(case, wire_text(case.point))
    victim.go()
    world.upstream.release("rest")
    await until_struck(proxy, victim)
    proxy.fault = Pass()


def _parameters() -> Sequence[Any]:
    return [
        pytest.param(case, id=str(case).replace(": ", "-").replace(" ", "_"), marks=[] if in_covering_set(case) else [pytest.mark.slow])
        for case in CASES
    ]


@pytest.mark.parametrize("case", _parameters())
async def test_crash_matrix(shared: Shared, case: Case) -> None:
    healthy = shared.healthy
    async with world(shared) as here, faulty_replica(here.victim_url, changes=SETTINGS) as victim:
        healthy.freeze()
        try:
            await insert_runs(shared.url, here.streaming, f"http://127.0.0.1:{here.to_upstream.port}", *here.rows)
            sent = await live_until(here, victim, case.point, Act.KILL if case.fault is Fault.KILL else Act.WAIT)
            await inject(here, victim, case)
        finally:
            healthy.thaw()
        await asyncio.gather(*sent)
        await here.submit_again(here.streaming, f"streaming-{here.people}", "a question")
        await here.submit_again(here.released, f"released-{here.people}", "another question")
        for row in here.rows:
            await here.submit_again(here.streaming, row.subject, row.text)
        await here.until_at_rest()
        await assert_hold(shared.url, [here.streaming, here.released], [here.upstream, here.failing], here.acknowledged)
        assert here.failing.counts().ag_ui == 0
        if case.fault in (Fault.CUT_BEFORE, Fault.CUT_AFTER) and here.upstream.counts().executions:
            await here.until_saved("first", "second")


def test_each_point_is_exercised_with_each_fault_of_its_kind() -> None:
    assert {case.point for case in (*CASES, *RESUME_CASES) if in_covering_set(case)} == set(FAULT_POINTS)
    for step in STEPS:
        faults = set(FAULTS[step.kind])
        assert {case.fault for case in CASES if case.point.step is step and in_covering_set(case)} == faults
        for moment in Moment:
            assert {case.fault for case in CASES if case.point == FaultPoint(moment, step)} == faults


def functions() -> dict[str, str]:
    """The functions of all migrations, by name, with their texts."""
    files = sorted((sql_folder() / "migrations").glob("*.sql"))
    return {
        found[1]: found[0]
        for path in files
        for found in re.finditer(r"^create function (\w+)\(.*?^\$\$;$", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    }


def with_functions(text: str) -> str:
    """`text` and the functions that it calls, and those that they call."""
    known, texts, left = functions(), {"": text}, [text]
    while left:
        for name in re.findall(r"\b\w+_v\d+(?=\()", left.pop()):
            if name in known and name not in texts:
                texts[name] = known[name]
                left.append(known[name])
    return "\n".join(texts.values())


def test_each_statement_that_changes_a_run_is_a_step() -> None:
    """A new commit of a run needs a fault point, or to be an act of a person, who can repeat it and is told what it did."""
    writes = {one.name for one in all_statements() if re.search(r"\bupdate run\b|\binto (run|snapshot|item)\b", with_functions(one.text))}
    steps = {*STATEMENTS.values(), "admission.admit", "approval.decide", "lookups.found", "lookups.note", "lookups.refuse"}
    assert writes - steps == ACTS_OF_PEOPLE


def test_the_texts_that_cuts_look_for_are_on_the_wire() -> None:
    for step in STATEMENTS:
        assert wire_text(FaultPoint(Moment.BEFORE, step))


def test_the_page_names_every_point() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.support.crash_matrix"
    assert all(f"| `{step.value}` |" in page() for step in Step)
