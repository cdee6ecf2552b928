"""What a run, a stream and a replica cost: the numbers by which somebody plans. `bench.tables` makes the handbook's table of them."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import psycopg
import uvloop

from bench.load import Load, Outcome, generate
from bench.machine import usage
from bench.relaying import APPLICATIONS, PACE_MS, UNPACED_AT_ONCE, Side, full_side
from bench.report import Figure, Figures, Finding
from bench.upstream import EVENTS
from bench.world import World, gateway, governed, upstream
from gateway.store import retention
from gateway.store.database import Database

_WARM_UP: Final = 200
_RUNS: Final = 1_000
_PACED_AT_ONCE: Final = 100
"""At an event every 20 ms; twice as many are more than a core serves in time."""
_SLOW_MS: Final = 100
_SLOW_AT_ONCE: Final = 200
_SLOW_RUNS: Final = 400
_ALL: Final = 1_000_000
_TABLES: Final = "select relname, relid from pg_stat_user_tables where relname <> 'replica'"


def capacity(world: World) -> list[Finding]:
    """One gateway after another, each on its own core."""
    figures = [*_runs(world), *_paced(world), *_open_streams(world)]
    return [Figures("capacity", figures)]


def _load(runner: asyncio.Runner, side: Side, *, at_once: int, runs: int) -> Outcome:
    outcome = runner.run(generate(Load(side.port, at_once, runs, side.request), side.pid))
    if outcome.failed:
        raise RuntimeError(f"{outcome.failed} of {runs} runs failed, the first: {outcome.first_fault}")
    return outcome


# --- a run: CPU, rows, bytes, WAL ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Stored:
    """Of the tables that grow with each run: rows by table, bytes of all with their indexes, packed."""

    rows: Mapping[str, int]
    table_bytes: int


def _runs(world: World) -> list[Figure]:
    assert world.postgres.server_pid is not None
    with upstream(world) as up:
        through = governed(world, "capacity", up, applications=APPLICATIONS)
        empty = _stored(through.url)
        with gateway(world, through) as found, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            side = full_side(found, through.request, UNPACED_AT_ONCE)
            # After the warm-up, and not so soon after a checkpoint: a page's first change carries the whole page into the log.
            _load(runner, side, at_once=UNPACED_AT_ONCE, runs=_WARM_UP)
            postgres_before, wal_before = usage(world.postgres.server_pid).cpu_seconds, _wal(through.url)
            outcome = _load(runner, side, at_once=UNPACED_AT_ONCE, runs=_RUNS)
            postgres_seconds = usage(world.postgres.server_pid).cpu_seconds - postgres_before
            wal_bytes = _wal(through.url) - wal_before
    loaded_bytes = _table_bytes(through.url)
    full = _stored(through.url)
    asyncio.run(_retain(through.url))
    kept = _stored(through.url)
    with psycopg.connect(through.url, autocommit=True) as connection:
        connection.execute("update conversation set deleted_at = now() - interval '2 days'")
    asyncio.run(_erase(through.url))
    erased = _stored(through.url)

    def of_a_run(table_bytes: int) -> float:
        return (table_bytes - empty.table_bytes) / 1024 / (_WARM_UP + _RUNS)

    rows = {table: (full.rows[table] - empty.rows[table]) / (_WARM_UP + _RUNS) for table in full.rows}
    told = ", ".join(f"{number:.3g} in `{table}`" for table, number in sorted(rows.items()) if number >= 0.5)
    return [
        Figure("gateway_ms", f"CPU of the gateway for a run of {EVENTS} events that nobody paces", outcome.cpu_seconds_per_1000, "ms"),
        Figure("postgres_ms", "CPU of PostgreSQL for a run", postgres_seconds * 1000 / _RUNS, "ms"),
        Figure("wal_kb", "write-ahead log of a run", wal_bytes / 1024 / _RUNS, "KB"),
        Figure("rows", f"rows of a run, the first of its conversation: {told}; all", sum(rows.values()), ""),
        Figure(
            "kb_loaded",
            "bytes of a run with its indexes right after the load; its answer counts twice, as item and as snapshot",
            of_a_run(loaded_bytes),
            "KB",
        ),
        Figure("kb", "the same, packed (`vacuum full`)", of_a_run(full.table_bytes), "KB"),
        Figure("kb_without_evidence", "packed, once evidence and verdicts were removed", of_a_run(kept.table_bytes), "KB"),
        Figure(
            "kb_erased",
            "packed, once its conversation was deleted and erased, too: what stays for ever",
            of_a_run(erased.table_bytes),
            "KB",
        ),
    ]


def _wal(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
    assert row is not None
    return int(row[0])


def _stored(url: str) -> _Stored:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("vacuum full")
        rows = {}
        for table, _ in connection.execute(_TABLES).fetchall():
            counted = connection.execute(f'select count(*) from "{table}"'.encode()).fetchone()
            assert counted is not None
            rows[table] = int(counted[0])
    return _Stored(rows, _table_bytes(url))


def _table_bytes(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute(f"select sum(pg_total_relation_size(t.relid)) from ({_TABLES}) t".encode()).fetchone()
    assert row is not None
    return int(row[0])


async def _retain(url: str) -> None:
    async with await Database.open(url, pool_max=1, call_seconds=60.0) as database:
        await retention.remove_evidence(database, days=0, after=0, limit=_ALL)
        await retention.remove_verdicts(database, days=0, after=0, limit=_ALL)


async def _erase(url: str) -> None:
    async with await Database.open(url, pool_max=1, call_seconds=60.0) as database:
        await retention.erase_conversations(database, days=1, limit=_ALL)


# --- streams: CPU, memory, connections ----------------------------------------------------------------------------------------------------


def _paced(world: World) -> list[Figure]:
    with upstream(world, delay_ms=PACE_MS) as up:
        through = governed(world, "capacity-paced", up, applications=APPLICATIONS)
        with gateway(world, through) as found, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            side = full_side(found, through.request, _PACED_AT_ONCE)
            _load(runner, side, at_once=_PACED_AT_ONCE, runs=_WARM_UP)
            outcome = _load(runner, side, at_once=_PACED_AT_ONCE, runs=_RUNS)
    cpu = outcome.cpu_seconds_per_1000
    return [
        Figure("paced_ms", f"CPU of the gateway for a run of {EVENTS} events, {1000 // PACE_MS} a second", cpu, "ms"),
        Figure("fast_streams", f"streams of {1000 // PACE_MS} events a second that fill a core", _fill(outcome, PACE_MS), ""),
    ]


def _fill(outcome: Outcome, pace_ms: int) -> float:
    """How many streams of EVENTS events one second of CPU a second serves: each run is open for its events and takes its CPU once."""
    return EVENTS * pace_ms / outcome.cpu_seconds_per_1000


def _open_streams(world: World) -> list[Figure]:
    with upstream(world, delay_ms=_SLOW_MS) as up:
        through = governed(world, "capacity-slow", up, applications=APPLICATIONS)
        with gateway(world, through) as found, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            side = full_side(found, through.request, _SLOW_AT_ONCE)
            _load(runner, side, at_once=1, runs=2)
            alone_mb = usage(side.pid).rss_mb
            outcome, open_mb, connections = runner.run(_watched(side, through.url))
    return [
        Figure("slow_streams", f"streams of {1000 // _SLOW_MS} events a second that fill a core", _fill(outcome, _SLOW_MS), ""),
        Figure("replica_mb", "resident memory of a replica that has served a few runs", alone_mb, "MB"),
        Figure(
            "stream_kb", f"more of it for each open stream ({_SLOW_AT_ONCE} at once)", (open_mb - alone_mb) * 1024 / _SLOW_AT_ONCE, "KB"
        ),
        Figure("connections", f"connections of a replica to the database at {_SLOW_AT_ONCE} streams", connections, ""),
    ]


async def _watched(side: Side, url: str) -> tuple[Outcome, float, int]:
    """The load, and the most memory and connections meanwhile."""
    largest_mb, connections = 0.0, 0
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        load = asyncio.create_task(generate(Load(side.port, _SLOW_AT_ONCE, _SLOW_RUNS, side.request), side.pid))
        while not load.done():
            await asyncio.sleep(0.5)
            largest_mb = max(largest_mb, usage(side.pid).rss_mb)
            row = await (
                await connection.execute(
                    "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
                    " and backend_type = 'client backend'"
                )
            ).fetchone()
            assert row is not None
            connections = max(connections, int(row[0]))
        outcome = await load
    if outcome.failed:
        raise RuntimeError(f"{outcome.failed} runs failed, the first: {outcome.first_fault}")
    return outcome, largest_mb, connections
