"""Rolling updates under load (contract F3, F4; O-22): three processes behind a real proxy and PgBouncer, each replaced in turn.

From the program before the newest migration to this one, on this one's schema. Nobody's submission fails but with a 503 that says "again,
with the same submission"; no answer is lost or doubled; no run is left unknown.
"""

import asyncio
import io
import subprocess
import tarfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import psycopg
import pytest

from tests.support.person import Person
from tests.support.pgbouncer import pgbouncer
from tests.support.processes import ReplicaProcess, replica_process
from tests.support.proxies import free_port, haproxy, nginx
from tests.support.require import missing
from tests.support.scripted_upstream import Answer, Script, finished, message, pause, started
from tests.support.stack import Stack

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(900)]

ROOT: Final = Path(__file__).resolve().parents[2]
PROXIES: Final[Mapping[str, Callable[[Sequence[int]], AbstractAsyncContextManager[str]]]] = {"haproxy": haproxy, "nginx": nginx}
CHANGES: Final = {
    "AGENT_MAX_ACTIVE_PER_APP": "100",
    "GATEWAY_DRAIN_DELAY_SECONDS": "4",
    "GATEWAY_DRAIN_SECONDS": "20",
    "GATEWAY_DATABASE_POOL_MAX": "4",
}


@pytest.fixture(scope="module")
def code_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of the commit before the newest migration."""
    git = ["git", "-C", str(ROOT)]
    found = subprocess.run([*git, "log", "--diff-filter=AR", "-1", "--format=%H", "--", "sql/migrations"], capture_output=True, text=True)
    before = subprocess.run([*git, "rev-parse", "--verify", f"{found.stdout.strip()}^"], capture_output=True, text=True)
    if before.returncode != 0:
        missing("git-history", "the program of before the newest migration cannot be had from this clone")
    packed = subprocess.run([*git, "archive", before.stdout.strip(), "gateway", "sql", "agent_service"], capture_output=True, check=True)
    folder = tmp_path_factory.mktemp("before")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


@dataclass
class Replica:
    """A place behind the proxy, and the process that serves there now."""

    port: int
    database_url: str
    exits: AsyncExitStack
    process: ReplicaProcess | None = None
    starts: int = 0

    async def start(self, code: Path | None) -> None:
        changes = {**CHANGES, "GATEWAY_PORT": str(self.port)}
        self.process = await self.exits.enter_async_context(replica_process(self.database_url, changes=changes, code=code))
        self.starts += 1

    async def replace(self) -> None:
        """SIGTERM, the whole drain, and this program in its place."""
        assert self.process is not None
        self.process.terminate()
        assert await self.process.ended() == 0, self.process.log
        await self.start(None)


SLOW: Final = [pytest.param(proxy, 50, 2, marks=pytest.mark.slow, id=f"{proxy}, 50 people, each replica twice") for proxy in PROXIES]


@pytest.mark.parametrize(("proxy", "people", "rounds"), [pytest.param("haproxy", 6, 1, id="haproxy, 6 people, each replica once"), *SLOW])
async def test_o22_a_rolling_update_loses_nothing(database_url: str, code_before: Path, proxy: str, people: int, rounds: int) -> None:
    with pgbouncer(database_url, pool_size=8, max_clients=100) as pooled:
        async with Stack.over(database_url) as stack, AsyncExitStack() as exits:
            paced = [*started(), *message("m1", "first "), pause(0.4), *message("m2", "second"), finished()]
            stack.upstream.use(Script(ag_ui=[Answer(frames=paced)]))
            application = await stack.application()
            replicas = [Replica(free_port(), pooled, exits) for _ in range(3)]
            await asyncio.gather(*(replica.start(code_before) for replica in replicas))
            base_url = await exits.enter_async_context(PROXIES[proxy]([replica.port for replica in replicas]))
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
            http = await exits.enter_async_context(httpx.AsyncClient(base_url=base_url, timeout=60.0, trust_env=False, limits=limits))
            stop = asyncio.Event()
            crowd = [Person(f"person-{number}", http, application, stop) for number in range(people)]
            chatting = [asyncio.create_task(person.chat()) for person in crowd]
            for _ in range(rounds):
                for replica in replicas:
                    await replica.replace()
            stop.set()
            await asyncio.gather(*chatting)
            assert [failure for person in crowd for failure in person.failures] == []
            sent = sum(len(person.sent) for person in crowd)
            assert sent >= 2 * people
            for person in crowd:
                assert await person.heard() == person.expected("first ", "second")
            assert stack.upstream.counts().executions == sent
            with psycopg.connect(database_url) as connection:
                states = connection.execute("select distinct execution, persistence from run").fetchall()
            assert states == [("succeeded", "saved")]


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
