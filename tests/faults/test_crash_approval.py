"""The crash matrix of a decision (docs/crash-matrix.md): each fault at each fault point of a resume run, then what must hold.

The agent is `tests.support.native_upstream`, which counts what took effect. A run waits for a decision; one replica, which will be broken,
is told the decision; another one, stopped until then, does the rest, and a client repeats its decision there. Where the decision was
proven never sent the question can be decided again, and is.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import psycopg
import pytest
from psycopg.rows import dict_row

from gateway.domain.fault_points import FaultPoint, Moment, Step
from gateway.domain.ids import ApplicationId
from tests.faults.test_crash_matrix import REST_SECONDS, SETTINGS, WAIT_SECONDS, proxy_fault, until, until_struck, wire_text
from tests.support.crash_matrix import RESUME_CASES, Case, Fault, in_covering_set
from tests.support.faulty_replica import Act, FaultyReplica, faulty_replica
from tests.support.invariants import at_rest
from tests.support.native_upstream import TOKEN, NativeUpstream, native_upstream
from tests.support.postgres import PostgresForTests
from tests.support.processes import ReplicaProcess, replica_process
from tests.support.stack import Stack
from tests.support.tcp_proxy import Pass, TcpProxy

pytestmark = pytest.mark.anyio

OTHER_TEXTS: Final = {Step.DECISION: b"COMMIT", Step.STATE: b"/state HTTP", Step.POST: b"/runs/stream", Step.VERDICT: b"GET /threads/"}


@dataclass(frozen=True, slots=True)
class World:
    """One case's own agent, application and waiting run, beside a replica and a database that all cases share."""

    url: str
    healthy: ReplicaProcess
    upstream: NativeUpstream
    to_upstream: TcpProxy
    to_database: TcpProxy
    application: ApplicationId
    person: str
    run: dict[str, Any]

    @property
    def victim_url(self) -> str:
        name = psycopg.conninfo.conninfo_to_dict(self.url)["dbname"]
        return f"postgresql://postgres@127.0.0.1:{self.to_database.port}/{name}?sslmode=disable&gssencmode=disable"

    async def decide(self, replica: ReplicaProcess, submission_id: str) -> httpx.Response | None:
        """Decide; None when the connection broke."""
        try:
            return await replica.client(self.person).decide(
                self.application, self.run["run_id"], self.run["interrupt"]["interrupt_id"], submission_id, "approve"
            )
        except httpx.TransportError:
            return None

    async def decide_again(self, submission_id: str) -> str:
        """A client that repeats its decision at the healthy replica until it is told of its run."""
        async with asyncio.timeout(WAIT_SECONDS):
            while (response := await self.decide(self.healthy, submission_id)) is None or not response.is_success:
                assert response is None or response.status_code == 503, response.text
                await asyncio.sleep(0.1)
        return str(response.json()["run_id"])

    async def at_rest(self) -> dict[str, dict[str, Any]]:
        """The runs by id, once each is left alone, or somebody was asked about it."""
        deadline = time.monotonic() + REST_SECONDS
        while True:
            async with await psycopg.AsyncConnection.connect(self.url, row_factory=dict_row) as connection:
                cursor = await connection.execute("select * from run where application_id = %s", (self.application,))
                runs = {str(run["run_id"]): run for run in await cursor.fetchall()}
            moving = [run for run in runs.values() if run["execution"] != "waiting" and not at_rest(run)]
            if not moving:
                return runs
            assert time.monotonic() < deadline, moving
            await asyncio.sleep(0.05)


@dataclass(frozen=True, slots=True)
class Shared:
    url: str
    healthy: ReplicaProcess


@pytest.fixture(scope="module")
async def shared(postgres: PostgresForTests, anyio_backend: str) -> AsyncIterator[Shared]:
    with postgres.migrated_database() as url:
        async with replica_process(url, changes=SETTINGS) as healthy:
            yield Shared(url, healthy)


@asynccontextmanager
async def world(shared: Shared) -> AsyncIterator[World]:
    socket_path = Path(str(psycopg.conninfo.conninfo_to_dict(shared.url)["host"])) / ".s.PGSQL.5432"
    async with AsyncExitStack() as exits:
        upstream = await exits.enter_async_context(native_upstream())
        to_upstream = await exits.enter_async_context(TcpProxy("127.0.0.1", int(upstream.base_url.rpartition(":")[2])))
        to_database = await exits.enter_async_context(TcpProxy(str(socket_path)))
        async with Stack.over(shared.url) as stack:
            application = await stack.application_of(f"http://127.0.0.1:{to_upstream.port}", TOKEN, name=upstream.base_url)
        person = f"ada-{application}"
        client = shared.healthy.client(person)
        answer = await client.submit(application, f"task-{application}", "please")
        run = await client.until_over(application, answer.json()["run_id"])
        assert run["execution"] == "waiting", run
        yield World(shared.url, shared.healthy, upstream, to_upstream, to_database, application, person, run)


async def inject(here: World, victim: FaultyReplica, case: Case) -> None:
    """The fault, once; then everything is well again."""
    if case.fault is Fault.KILL:
        await victim.ended()
        return
    proxy = here.to_database if case.fault in (Fault.CUT_BEFORE, Fault.CUT_AFTER) else here.to_upstream
    before = case.point.moment is Moment.BEFORE and case.point.step in OTHER_TEXTS
    proxy.fault = proxy_fault(case, OTHER_TEXTS[case.point.step] if before else wire_text(case.point))
    victim.go()
    struck = asyncio.create_task(until_struck(proxy, victim))
    # Upstream may have been asked for the last time: then nothing is there to be struck, and the run ends.
    over = [asyncio.create_task(here.at_rest())] if case.point == FaultPoint(Moment.AFTER, Step.VERDICT) else []
    done, left = await asyncio.wait({struck, *over}, return_when=asyncio.FIRST_COMPLETED)
    for task in left:
        task.cancel()
    for task in done:
        task.result()
    proxy.fault = Pass()


def _parameters() -> Sequence[Any]:
    return [
        pytest.param(case, id=str(case).replace(": ", "-").replace(" ", "_"), marks=[] if in_covering_set(case) else [pytest.mark.slow])
        for case in RESUME_CASES
    ]


@pytest.mark.parametrize("case", _parameters())
async def test_a_decision_is_executed_at_most_once(shared: Shared, case: Case) -> None:
    async with world(shared) as here, faulty_replica(here.victim_url, changes=SETTINGS) as victim:
        shared.healthy.freeze()
        try:
            if case.point.step is Step.RELEASE:
                for thread in here.upstream.threads.values():
                    thread.pending = {"id": "0" * 32, "value": here.upstream.prompt}  # another question: nothing may be sent
            victim.arm(case.point, Act.KILL if case.fault is Fault.KILL else Act.WAIT)
            sent = asyncio.create_task(here.decide(victim, "d1"))
            await until(victim, lambda: False, f"arrival at {case.point}")
            assert victim.reached == case.point
            await inject(here, victim, case)
        finally:
            shared.healthy.thaw()
        await sent
        first = await here.decide_again("d1")
        runs = await here.at_rest()
        await hold(here, runs)
        if runs[first]["execution"] == "released":
            assert runs[here.run["run_id"]]["answered_by"] is None
            if case.point.step is not Step.RELEASE:
                second = await here.decide_again("d2")
                runs = await here.at_rest()
                await hold(here, runs)
                assert runs[second]["execution"] == "succeeded"
        else:
            assert str(runs[here.run["run_id"]]["answered_by"]) == first


async def hold(here: World, runs: dict[str, dict[str, Any]]) -> None:
    """One effect at most, each POST once, none of a run that was released; the claim is of the run whose POST may have had it."""
    marks = here.upstream.posts
    assert len(marks) == len(set(marks)), "a POST was sent twice"
    by_mark = {str(run["correlation_id"]): run for run in runs.values()}
    assert by_mark.keys() >= set(marks)
    assert not [run for run in by_mark.values() if run["execution"] == "released" and str(run["correlation_id"]) in marks]
    resumes = [by_mark[mark] for mark in marks if by_mark[mark]["kind"] == "resume"]
    assert len(here.upstream.acts) <= 1
    waiting = runs[here.run["run_id"]]
    assert waiting["execution"] == "waiting"
    assert [run["run_id"] for run in resumes] in ([], [waiting["answered_by"]])
    for run in runs.values():
        if run["kind"] == "resume" and run["execution"] in ("succeeded", "failed"):
            assert run["run_id"] == waiting["answered_by"]
        if run["execution"] == "succeeded":
            assert here.upstream.acts, "succeeded, and nothing was done"


def test_each_point_of_a_decision_is_exercised_with_each_fault() -> None:
    covered = [case for case in RESUME_CASES if in_covering_set(case)]
    assert {case.point for case in covered} == {case.point for case in RESUME_CASES}
    assert {(case.point.step, case.fault) for case in covered} == {(case.point.step, case.fault) for case in RESUME_CASES}
