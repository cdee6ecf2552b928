"""Plans inside the functions of a run, as Postgres writes them down while the program calls them (G12); of statements: `test_plans`."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final
from uuid import UUID

import psycopg
import pytest
from psycopg import sql

from bench.months import fill
from gateway.domain.decide import Transition
from gateway.domain.ids import ApplicationId, ConversationId, NativeRunId
from gateway.domain.quota import CalendarWindow, Scope, Window
from gateway.domain.snapshot import MessageItem, Snapshot
from gateway.domain.states import Execution, Persistence
from gateway.store import admission, runs
from gateway.store.database import Database
from gateway.store.quotas import set_rule
from gateway.store.runs import Settlement
from tests.db.test_plans import RUNS, whole_reads
from tests.db.world import World, world_on
from tests.support.postgres import PostgresForTests

pytestmark = pytest.mark.anyio

_WRITTEN_DOWN: Final = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_nested_statements": "on",
    "auto_explain.log_format": "json",
    # the plan of a connection that has called the function many times
    "plan_cache_mode": "force_generic_plan",
}


_PLAN: Final = "plan:\n"


@pytest.fixture(scope="module")
def explained_url(postgres: PostgresForTests) -> Iterator[str]:
    """Months of traffic, in a database whose sessions write each plan to the server's log."""
    with postgres.migrated_database() as url:
        fill(url, runs=RUNS)
        with psycopg.connect(url, autocommit=True) as connection:
            database = sql.Identifier(connection.info.dbname)
            for name, value in _WRITTEN_DOWN.items():
                connection.execute(sql.SQL("alter database {} set {} = {}").format(database, sql.SQL(name), sql.Literal(value)))
        yield url


@asynccontextmanager
async def written_down(postgres: PostgresForTests, texts: list[dict[str, Any]]) -> AsyncIterator[None]:
    """Collects what Postgres says of each statement that ran inside, those in functions included."""
    log = postgres.server.home / "log"
    before = log.stat().st_size
    yield
    with log.open("rb") as opened:
        opened.seek(before)
        text = opened.read().decode()
    for piece in text.split(_PLAN)[1:]:
        texts.append(json.JSONDecoder().raw_decode(piece.lstrip())[0])


async def a_run(world: World, application_id: ApplicationId, conversation_id: UUID | None) -> UUID:
    """From the read before its admission to its end; gives its conversation."""
    asked: dict[str, object] = {
        "subject": "alice",
        "groups": [],
        "submission_id": "s",
        "conversation_id": conversation_id,
        "client_thread": "t",
    }
    await admission.context(world.database, {**asked, "application_id": application_id})
    run = await world.admit(application_id, conversation_id=conversation_id)
    assert await world.fence(run, thread_id="thread") == "dispatched"
    native_run_id = NativeRunId("native")
    assert await runs.start(world.database, run.run_id, run.attempt_token, native_run_id, lookup_first_seconds=2.0)
    ended = Settlement(
        ConversationId(run.conversation_id),
        Transition(Execution.SUCCEEDED),
        Persistence.SAVED,
        Snapshot((MessageItem(1, "answer", complete=True),), complete=True),
        started=True,
        native_run_id=native_run_id,
        lookup_first_seconds=2.0,
        evidence_kind="run_finished",
        evidence_detail={},
    )
    assert await runs.settle(world.database, run.run_id, run.attempt_token, ended)
    return run.conversation_id


async def test_no_function_of_a_run_reads_a_growing_table_from_end_to_end(postgres: PostgresForTests, explained_url: str) -> None:
    plans: list[dict[str, Any]] = []
    async with await Database.open(explained_url, pool_max=1) as database:
        world = world_on(database, explained_url)
        await world.provider()
        application_id = await world.application()
        window = Window(CalendarWindow.DAY, None)
        await set_rule(database, scope=Scope.USER, window=window, task_limit=10, application_id=None, group_name=None)
        async with written_down(postgres, plans):
            conversation_id = await a_run(world, application_id, None)
            await a_run(world, application_id, conversation_id)
    texts = "\n".join(plan["Query Text"] for plan in plans)
    for part in ("left join lateral conversation_block", "insert into quota_charge", "into binding", "'started'", "insert into snapshot"):
        assert part in texts, part
    found = {plan["Query Text"]: tables for plan in plans if (tables := sorted(set(whole_reads(plan["Plan"]))))}
    assert found == {}


async def test_a_function_that_reads_everything_is_found(postgres: PostgresForTests, explained_url: str) -> None:
    plans: list[dict[str, Any]] = []
    async with written_down(postgres, plans):
        with psycopg.connect(explained_url) as connection:
            connection.execute(
                "create function reads_all_v1() returns bigint language plpgsql as "
                "$$ begin return (select count(*) from item where text like '%never%'); end $$"
            )
            connection.execute("select reads_all_v1()")
            connection.rollback()
    assert "item" in {table for plan in plans for table in whole_reads(plan["Plan"])}
