"""Two replicas start over run rows in every state that the schema allows: nothing is sent, and each row ends as documented (O-20)."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

import psycopg
import pytest
from psycopg.rows import dict_row

from gateway.domain.states import ALLOWED, Execution, Persistence
from tests.support.faulty_replica import QUICK
from tests.support.invariants import assert_hold, watch
from tests.support.processes import replica_process
from tests.support.run_rows import EXPIRED, RunRow, insert_runs
from tests.support.scripted_upstream import Script
from tests.support.stack import Stack

pytestmark = pytest.mark.anyio

E, P = Execution, Persistence
LIVE: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Found:
    """A row, what a look-up of it says, and how it ends: execution, persistence, reason, attention. `look_ups`, `events`: how often."""

    row: RunRow
    ends: tuple[Execution, Persistence, str | None, str | None]
    status: str | None = None
    look_ups: int = 0
    events: tuple[str, ...] = ()


def unchanged(row: RunRow) -> Found:
    """A row that nobody touches."""
    return Found(row, (row.execution, row.persistence, None, row.attention))


def looked_up(row: RunRow, status: str, *ends: Any, look_ups: int = 1, lost: bool = False) -> Found:
    """A row with a native id that a look-up settles, or cannot."""
    execution, persistence, reason, attention = ends
    return Found(row, (execution, persistence, reason, attention), status, look_ups, ("lease_lost",) if lost else ())


BUDGET: Final = int(QUICK["GATEWAY_LOOKUP_MAX"])
FOUND: Final = {
    "reserved, lease over": Found(
        RunRow(execution=E.RESERVED, lease_seconds=EXPIRED), (E.RELEASED, P.NONE, "lease_lost", None), events=("lease_lost",)
    ),
    "reserved, lease live": unchanged(RunRow(execution=E.RESERVED, lease_seconds=LIVE)),
    "dispatched, no native id": Found(
        RunRow(execution=E.DISPATCHED, lease_seconds=EXPIRED), (E.UNKNOWN, P.NONE, "lease_lost", "operator"), events=("lease_lost",)
    ),
    "dispatched, lease live": unchanged(RunRow(execution=E.DISPATCHED, lease_seconds=LIVE)),
    "dispatched, native id": looked_up(
        RunRow(execution=E.DISPATCHED, lease_seconds=EXPIRED, native_run_id="n-dispatched"),
        "success", E.SUCCEEDED, P.INCOMPLETE, None, "user", lost=True,
    ),
    "running, native id": looked_up(
        RunRow(execution=E.RUNNING, lease_seconds=EXPIRED, native_run_id="n-running", persistence=P.PARTIAL),
        "error", E.FAILED, P.INCOMPLETE, "upstream_error", None, lost=True,
    ),
    "running, no native id": Found(
        RunRow(execution=E.RUNNING, lease_seconds=EXPIRED, persistence=P.PARTIAL),
        (E.UNKNOWN, P.PARTIAL, "lease_lost", "operator"), events=("lease_lost",),
    ),
    "running, lease live": unchanged(RunRow(execution=E.RUNNING, lease_seconds=LIVE, native_run_id="n-live", persistence=P.PARTIAL)),
    "unknown, over upstream": looked_up(
        RunRow(execution=E.UNKNOWN, native_run_id="n-success"), "success", E.SUCCEEDED, P.INCOMPLETE, None, "user"
    ),
    "unknown, cancelled upstream": looked_up(
        RunRow(execution=E.UNKNOWN, native_run_id="n-interrupted", persistence=P.PARTIAL),
        "interrupted", E.FAILED, P.INCOMPLETE, "cancelled_upstream", None,
    ),
    "unknown, upstream still running": looked_up(
        RunRow(execution=E.UNKNOWN, native_run_id="n-for-ever", persistence=P.PARTIAL),
        "running", E.UNKNOWN, P.PARTIAL, None, "operator", look_ups=BUDGET,
    ),
    "unknown, not known upstream": looked_up(
        RunRow(execution=E.UNKNOWN, native_run_id="n-strange"), "strange", E.UNKNOWN, P.NONE, None, "operator", look_ups=BUDGET
    ),
    "unknown, lease live": unchanged(RunRow(execution=E.UNKNOWN, lease_seconds=LIVE, native_run_id="n-held")),
    "unknown, no native id": Found(RunRow(execution=E.UNKNOWN), (E.UNKNOWN, P.NONE, None, "operator")),
    "succeeded, pending": Found(
        RunRow(execution=E.SUCCEEDED, persistence=P.PENDING), (E.SUCCEEDED, P.SAVED, None, None), events=("saved",)
    ),
    "failed, pending": Found(RunRow(execution=E.FAILED, persistence=P.PENDING), (E.FAILED, P.SAVED, None, None), events=("saved",)),
    "succeeded, incomplete": unchanged(RunRow(execution=E.SUCCEEDED, persistence=P.INCOMPLETE, attention="user")),
    "succeeded, saved": unchanged(RunRow(execution=E.SUCCEEDED, persistence=P.SAVED)),
    "failed, saved": unchanged(RunRow(execution=E.FAILED, persistence=P.SAVED)),
    "failed, incomplete": unchanged(RunRow(execution=E.FAILED, persistence=P.INCOMPLETE)),
    "waiting": unchanged(RunRow(execution=E.WAITING)),
    "released": unchanged(RunRow(execution=E.RELEASED)),
    "closed as failed": unchanged(RunRow(execution=E.CLOSED, resolution="failed", persistence=P.INCOMPLETE)),
    "closed as not executed": unchanged(RunRow(execution=E.CLOSED, resolution="not_executed")),
}  # fmt: skip


async def rows_of(stack: Stack) -> dict[Any, dict[str, Any]]:
    async with await psycopg.AsyncConnection.connect(stack.database_url, row_factory=dict_row) as connection:
        return {row["run_id"]: row for row in await (await connection.execute("select * from run")).fetchall()}


def ended(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["execution"], row["persistence"], row["reason"], row["attention"]


async def until_ended(stack: Stack) -> None:
    """Wait until every row is as documented."""
    wrong: dict[str, Any] = {}
    try:
        async with asyncio.timeout(60):
            while wrong := await differing(stack):
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(wrong) from None


async def differing(stack: Stack) -> dict[str, Any]:
    """The rows that are not as documented."""
    rows = await rows_of(stack)
    return {name: ended(rows[found.row.run_id]) for name, found in FOUND.items() if ended(rows[found.row.run_id]) != found.ends}


async def swept_again(stack: Stack) -> None:
    """Wait until both replicas have swept a few times more, so that what must not change had its chance; their beats are as often."""
    async with (
        await psycopg.AsyncConnection.connect(stack.database_url, autocommit=True) as connection,
        asyncio.timeout(60),
    ):
        since = await (await connection.execute("select clock_timestamp() + interval '1 second'")).fetchone()
        assert since is not None
        while True:
            row = await (await connection.execute("select count(*) from replica where heartbeat_at > %s", since)).fetchone()
            if row == (2,):
                return
            await asyncio.sleep(0.05)


async def test_o20_rows_in_every_state_end_as_documented_and_nothing_is_sent(database_url: str) -> None:
    await watch(database_url)
    async with Stack.over(database_url) as stack, AsyncExitStack() as exits:
        application = await stack.application()
        statuses = {found.row.native_run_id: found.status for found in FOUND.values() if found.row.native_run_id and found.status}
        stack.upstream.use(Script(lookup_status=statuses))
        await insert_runs(database_url, application, stack.upstream.base_url, *(found.row for found in FOUND.values()))
        starting = (exits.enter_async_context(replica_process(database_url, changes=QUICK)) for _ in range(2))
        replicas = await asyncio.gather(*starting)
        await until_ended(stack)
        await swept_again(stack)
        assert await differing(stack) == {}
        counts = stack.upstream.counts()
        assert (counts.ag_ui, counts.threads, counts.executions) == (0, 0, 0)
        # Each was handled by one replica: once in both logs together, and no look-up was asked twice.
        assert counts.lookups_by_native_run_id == {
            found.row.native_run_id: found.look_ups for found in FOUND.values() if found.row.native_run_id and found.look_ups
        }
        log = [event for replica in replicas for event in replica.events]
        for name, found in FOUND.items():
            told = Counter(event["event"] for event in log if event.get("run_id") == str(found.row.run_id))
            assert told == Counter({**Counter(found.events), **({"looked_up": found.look_ups} if found.look_ups else {})}), name
        for replica in replicas:
            for found in FOUND.values():
                again = await replica.client(found.row.subject).submit(application, found.row.submission_id, found.row.text)
                assert again.is_success, again.text
                assert again.json()["run_id"] == str(found.row.run_id)
        assert stack.upstream.counts().ag_ui == 0
        await assert_hold(database_url, [application], [stack.upstream], [])


def test_o20_covers_every_state() -> None:
    assert {found.row.execution for found in FOUND.values()} == set(ALLOWED)
    assert {found.row.persistence for found in FOUND.values()} == set(Persistence)
