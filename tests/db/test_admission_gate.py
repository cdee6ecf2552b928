"""Admission closed by an operator: by the schema, for every replica and every version of the program, and never half (contract F3)."""

import asyncio

import psycopg
import pytest

from gateway.domain.audit import cli_actor
from gateway.store import admission_gate, audit
from tests.support.stack import Stack

pytestmark = pytest.mark.anyio
OLGA = cli_actor("olga")


async def test_closed_refuses_new_work_on_all_replicas_and_nothing_else(database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application, one, two = await stack.application(), await stack.replica(), await stack.replica()
        _, events = await one.client("ada").ask(application, "s1", "hi")
        assert await admission_gate.close(stack.database, actor=OLGA, reason="restored from a backup")
        assert not await admission_gate.close(stack.database, actor=OLGA, reason="again")
        for replica, subject in ((one, "ada"), (two, "ben")):
            refused = await replica.client(subject).submit(application, "s2", "hi")
            assert (refused.status_code, refused.json()["code"]) == (503, "admission_unavailable")
            assert "retry-after" in refused.headers
            ready = await replica.http.get("/readyz")
            assert (ready.status_code, ready.json()["warnings"]) == (200, ["admission_closed"])
        replayed = await two.client("ada").submit(application, "s1", "hi")
        assert (replayed.status_code, replayed.headers["idempotent-replayed"]) == (200, "true")
        assert len(await two.client("ada").items(application, str(events[0].data["threadId"]))) == 4
        assert "gateway_admission_closed 1.0" in (await one.http.get("/metrics")).text
        with psycopg.connect(database_url) as connection:
            assert connection.execute("select count(*) from submission").fetchone() == (1,)
        assert await admission_gate.reopen(stack.database, actor=OLGA, reason="reviewed")
        assert not await admission_gate.reopen(stack.database, actor=OLGA, reason="again")
        admitted = await two.client("ada").submit(application, "s2", "hi")
        assert admitted.status_code == 202
        acts = [(row.act, row.actor, row.reason) for row in await audit.page(stack.database, before=None, limit=2)]
        assert acts == [("admission_open", "cli:olga", "reviewed"), ("admission_close", "cli:olga", "restored from a backup")]


async def test_closing_waits_for_admissions_that_saw_it_open(database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application, replica = await stack.application(), await stack.replica()
        await replica.client("ada").submit(application, "s1", "hi")
        with psycopg.connect(database_url) as admitting:
            # as an admission does between its insert and its commit
            admitting.execute("select pg_advisory_xact_lock_shared(hashtextextended('admission', 0))")
            closing = asyncio.create_task(admission_gate.close(stack.database, actor=OLGA, reason="x"))
            waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
            with psycopg.connect(database_url, autocommit=True) as watching:
                async with asyncio.timeout(20):
                    while watching.execute(waiting).fetchone() != (1,):
                        await asyncio.sleep(0.01)
            assert not closing.done()
            admitting.commit()
        assert await closing
