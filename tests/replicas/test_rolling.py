"""Rolling updates under load (contract F3, F4; O-22): three processes behind a real proxy and PgBouncer, each replaced in turn, twice.

From the wheel of before the newest migration to this program, on this one's schema, and back, while fifty people chat by our client. No
submission fails but with a 503 that says "again, with the same submission"; no answer is lost or doubled; no run is left unknown.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psycopg
import pytest

from tests.support.crowd import LONG_QUESTION, Crowd, crowd
from tests.support.pgbouncer import pgbouncer
from tests.support.processes import ReplicaProcess, replica_process
from tests.support.program_before import program_before
from tests.support.proxies import free_port, haproxy, nginx
from tests.support.scripted_upstream import Answer, Script, finished, message, pause, started
from tests.support.stack import Stack

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(900)]

PEOPLE: Final = 50
READING_SECONDS: Final = 3.0
"""Fifty people are some fifteen runs a second: two processors, which have the replicas and all else, stand that beside other tests."""


@dataclass(frozen=True)
class Edge:
    """A proxy, and the drain delay in which it notices that a replica stops."""

    proxy: Callable[[Sequence[int]], AbstractAsyncContextManager[str]]
    drain_delay_seconds: float


EDGES: Final = {
    "haproxy": Edge(haproxy, 2.5),  # asks each replica every second, and believes the second no
    "nginx": Edge(nginx, 1.0),  # asks nobody: a closed door sends it to the next replica
}
LONG_SECONDS: Final = 5.0
"""Well longer than a drain delay and what follows it: such runs go on when their browsers' streams are ended."""


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter that runs the program of before the newest migration."""
    return program_before(tmp_path_factory.mktemp("before"))


@dataclass
class Replica:
    """A place behind the proxy, and the process that serves there now."""

    database_url: str
    drain_delay_seconds: float
    exits: AsyncExitStack
    port: int = field(default_factory=free_port)
    processes: list[ReplicaProcess] = field(default_factory=list)

    async def start(self, python: Path | None) -> None:
        changes = {
            "GATEWAY_PORT": str(self.port),
            "AGENT_MAX_ACTIVE_PER_APP": "100",
            "GATEWAY_DRAIN_DELAY_SECONDS": str(self.drain_delay_seconds),
            "GATEWAY_DRAIN_SECONDS": "30",
            "GATEWAY_DATABASE_POOL_MAX": "4",
        }
        process = await self.exits.enter_async_context(replica_process(self.database_url, changes=changes, python=python))
        self.processes.append(process)
        async with asyncio.timeout(60):  # who replaces replicas waits for the new one, as Kubernetes does
            while (await process.http.get("/readyz")).status_code != 200:
                pass

    async def replace(self, python: Path | None) -> None:
        """SIGTERM, the whole drain, and another in its place."""
        process = self.processes[-1]
        process.terminate()
        assert await process.ended() == 0, process.log
        await self.start(python)


async def rolled(edge: Edge, database_url: str, programs: Sequence[Path | None]) -> None:
    """Three replicas of the first program, replaced in turn by the second, then by the third; None is this program."""
    with pgbouncer(database_url, pool_size=8, max_clients=100) as pooled:
        async with Stack.over(database_url) as stack, AsyncExitStack() as exits:
            stack.upstream.use(script())
            application = await stack.application()
            replicas = [Replica(pooled, edge.drain_delay_seconds, exits) for _ in range(3)]
            await asyncio.gather(*(replica.start(programs[0]) for replica in replicas))
            base_url = await exits.enter_async_context(edge.proxy([replica.port for replica in replicas]))
            chatting = await exits.enter_async_context(crowd(base_url, application, PEOPLE, reading_seconds=READING_SECONDS, long_every=5))
            await chatting.until_answered(1)
            for program in programs[1:]:
                for replica in replicas:
                    await replica.replace(program)
            await chatting.until_answered(1)
            await chatting.stopped()
            await nothing_was_lost(chatting, stack, database_url)
            drained = [event for r in replicas for p in r.processes[:-1] for event in p.events if event["event"] == "draining"]
            assert len(drained) == 3 * (len(programs) - 1)
            assert sum(event["active_runs"] for event in drained) > 0


def script() -> Script:
    """Answers of half a second, and some that outlast a drain delay."""
    opening, end = [*started(), *message("m1", "first ")], [*message("m2", "second"), finished()]
    short, long = (Answer(frames=[*opening, pause(seconds), *end]) for seconds in (0.4, LONG_SECONDS))
    return Script(ag_ui=[short], ag_ui_by_text={LONG_QUESTION: [long]})


async def nothing_was_lost(chatting: Crowd, stack: Stack, database_url: str) -> None:
    assert (chatting.failed, chatting.unclean, chatting.broken) == ([], [], [])
    assert [line["run"] for line in chatting.answered if line["run"]["persistence"] != "saved"] == []
    await chatting.check_history("first ", "second")
    assert stack.upstream.counts().executions == len(chatting.answered)
    assert [line for line in chatting.answered if line["cut"]] != []  # or no stream outlasted a drain
    with psycopg.connect(database_url) as connection:
        states = connection.execute("select execution, persistence, count(*) from run group by 1, 2").fetchall()
    assert states == [("succeeded", "saved", len(chatting.answered))]


def edges(*, slow: str) -> list[object]:
    """Both, one of them for `--slow` alone: each proxy and each kind of update is in CI."""
    return [pytest.param(edge, id=name, marks=[pytest.mark.slow] if name == slow else []) for name, edge in EDGES.items()]


@pytest.mark.parametrize("edge", edges(slow="nginx"))
async def test_o22_an_update_from_the_program_before_and_back_loses_nothing(database_url: str, before: Path, edge: Edge) -> None:
    await rolled(edge, database_url, [before, None, before])


@pytest.mark.parametrize("edge", edges(slow="haproxy"))
async def test_o22_restarting_each_replica_twice_loses_nothing(database_url: str, edge: Edge) -> None:
    await rolled(edge, database_url, [None, None, None])


async def test_while_a_replica_drains_its_connections_are_not_kept(database_url: str) -> None:
    async with replica_process(database_url, changes={"GATEWAY_DRAIN_DELAY_SECONDS": "20"}) as replica:
        assert (await replica.http.get("/readyz")).headers.get("connection") is None
        replica.terminate()
        async with asyncio.timeout(20):
            while (answer := await replica.http.get("/readyz")).status_code == 200:
                pass
        assert answer.headers["connection"] == "close"
        replica.kill()
        await replica.ended()
