"""G12: what a read costs with a million stored items, in turns with the same read of a database of a thousand.

Both databases are months of traffic from one generator, on one server; a gateway of its own is before each. A read is one HTTP request of
the owner, its subject drawn at random from everything that is stored, so that in the large database hardly any page is where the last read
left it. Its cost is the CPU of the gateway and of Postgres together.
"""

import asyncio
import random
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import orjson
import psycopg
import uvloop

from bench import months
from bench.machine import usage
from bench.report import Better, Finding, Row
from bench.world import Governed, World, gateway, subject_token
from gateway.store.migrate import migrate

_SMALL_ITEMS: Final = 1_000
_LARGE_ITEMS: Final = 1_000_000
_READS: Final = 500
_PAGE: Final = 10
_MUST: Final = 1.5
_AIM: Final = 1.1


@dataclass(frozen=True, slots=True)
class _Side:
    """A gateway before a database of months: `gateway_pid` and `postgres_pid` are what a read costs."""

    gateway_pid: int
    postgres_pid: int
    port: int
    subjects: Sequence[tuple[str, str, str, str]]
    """(token, application, conversation, run) of everything that may be read, so often as it is there."""


@dataclass(frozen=True, slots=True)
class _Cost:
    """CPU seconds of 1000 reads, and how long one took."""

    cpu_seconds: float
    postgres_seconds: float
    p50_seconds: float


def reads(world: World, *, rounds: int, small_items: int = _SMALL_ITEMS, large_items: int = _LARGE_ITEMS) -> list[Finding]:
    """G12, a row for each kind of read."""
    with ExitStack() as stack:
        large, small = (_side(world, stack, items) for items in (large_items, small_items))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            costs = runner.run(_in_turns(large, small, rounds))
    return [_row(kind, found, small_items, large_items) for kind, found in costs.items()]


def _side(world: World, stack: ExitStack, items: int) -> _Side:
    url = world.postgres.create_database(f"months-{items}")
    migrate(url)
    months.fill(url, runs=items // months.ITEMS_OF_A_RUN)
    with psycopg.connect(url, autocommit=True) as connection:
        # What is filled in a minute would be cleaned while we measure; months of traffic are clean.
        connection.execute("checkpoint")
        found = connection.execute(
            "select a.subject, r.application_id::text, r.conversation_id::text, r.run_id::text from run r join account a using (account_id)"
            " join conversation c using (conversation_id) where c.deleted_at is null order by random() limit 20000"
        ).fetchall()
    token_of = {subject: subject_token(subject) for subject, *_ in found}
    pid, port = stack.enter_context(gateway(world, Governed(url, ())))
    assert world.postgres.server_pid is not None
    return _Side(pid, world.postgres.server_pid, port, [(token_of[subject], *rest) for subject, *rest in found])


# --- one read -----------------------------------------------------------------------------------------------------------------------------


class _Reader:
    """One kept connection that asks for one thing after another."""

    def __init__(self, side: _Side) -> None:
        self._side = side

    async def __aenter__(self) -> "_Reader":
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._side.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def get(self, token: str, path: str) -> bytes:
        """The body of a 200."""
        self._writer.write(f"GET {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        body = await self._reader.readexactly(length)
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"{path}: {head!r} {body!r}")
        return body


def _agent(application: str) -> str:
    return f"/api/internal/apps/{application}/agent"


def _newest(application: str, conversation: str) -> str:
    return f"{_agent(application)}/conversations/{conversation}/items?newest=true&limit={_PAGE}"


_Path = Callable[[tuple[str, str, str, str], str], str]
_PATHS: Final[dict[str, _Path]] = {
    "one run, with its answer": lambda of, _: f"{_agent(of[1])}/runs/{of[3]}",
    "a conversation's newest items": lambda of, _: _newest(of[1], of[2]),
    "a conversation's items before those": lambda of, cursor: f"{_newest(of[1], of[2])}&cursor={cursor}",
    "a conversation's first items": lambda of, _: f"{_agent(of[1])}/conversations/{of[2]}/items?limit={_PAGE}",
    "a user's conversations": lambda of, _: f"{_agent(of[1])}/conversations?limit={_PAGE}",
}


async def _in_turns(large: _Side, small: _Side, rounds: int) -> dict[str, tuple[list[_Cost], list[_Cost]]]:
    found: dict[str, tuple[list[_Cost], list[_Cost]]] = {kind: ([], []) for kind in _PATHS}
    for round_number in range(rounds + 1):
        for kind, path in _PATHS.items():
            sides = [(large, 0), (small, 1)]
            for side, which in sides if round_number % 2 else sides[::-1]:
                cost = await _cost(side, path)
                if round_number:  # the first is the warm-up
                    found[kind][which].append(cost)
    return found


async def _cost(side: _Side, path: _Path) -> _Cost:
    subjects = random.choices(side.subjects, k=_READS)
    async with _Reader(side) as reader:
        wanted = []
        for subject in subjects:
            token, application, conversation, _ = subject
            cursor = ""
            if path is _PATHS["a conversation's items before those"]:
                cursor = orjson.loads(await reader.get(token, _newest(application, conversation)))["next"]
            wanted.append((token, path(subject, cursor)))
        random.shuffle(wanted)
        before = (usage(side.gateway_pid).cpu_seconds, usage(side.postgres_pid).cpu_seconds)
        seconds = []
        for token, target in wanted:
            began_at = time.perf_counter()
            await reader.get(token, target)
            seconds.append(time.perf_counter() - began_at)
        after = (usage(side.gateway_pid).cpu_seconds, usage(side.postgres_pid).cpu_seconds)
    gateway_seconds, postgres_seconds = (later - earlier for later, earlier in zip(after, before, strict=True))
    per_1000 = 1000 / _READS
    return _Cost((gateway_seconds + postgres_seconds) * per_1000, postgres_seconds * per_1000, statistics.median(seconds))


def _row(kind: str, found: tuple[list[_Cost], list[_Cost]], small_items: int, large_items: int) -> Row:
    large, small = found

    def both(name: str, factor: float) -> str:
        return " / ".join(f"{statistics.median(getattr(cost, name) for cost in side) * factor:.3g}" for side in found)

    return Row(
        goal="G12",
        what=f"{kind}: with {large_items:,} stored items, against {small_items:,}",
        unit="CPU s per 1000 reads",
        ours=[cost.cpu_seconds for cost in large],
        peer=[cost.cpu_seconds for cost in small],
        peer_name=f"{small_items:,} items",
        better=Better.LOWER,
        must=_MUST,
        aim=_AIM,
        notes=[f"of it Postgres: {both('postgres_seconds', 1)} s; a read takes {both('p50_seconds', 1000)} ms at the median"],
    )
