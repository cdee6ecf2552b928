"""The checker of invariants finds what it is for: each violation, planted in a world where everything holds."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx
import psycopg
import pytest

from gateway.domain.ids import ApplicationId
from gateway.domain.states import Execution, Persistence
from tests.support.invariants import Acknowledged, broken, watch
from tests.support.run_rows import RunRow, insert_runs
from tests.support.scripted_upstream import Script
from tests.support.stack import Stack

pytestmark = pytest.mark.anyio

HELD = RunRow(execution=Execution.RUNNING, lease_seconds=3600.0, native_run_id="native")
RESERVED = RunRow(execution=Execution.RESERVED, lease_seconds=3600.0)
SAVED = RunRow(execution=Execution.SUCCEEDED, persistence=Persistence.SAVED)
RELEASED = RunRow(execution=Execution.RELEASED)


@dataclass(frozen=True, slots=True)
class Planted:
    stack: Stack
    application: ApplicationId

    async def execute(self, statement: str, *parameters: object) -> None:
        async with await psycopg.AsyncConnection.connect(self.stack.database_url, autocommit=True) as connection:
            await connection.execute(statement.encode(), parameters)

    async def post(self, row: RunRow) -> None:
        """A POST of that run, sent by nobody's leave."""
        body = {
            "threadId": "t",
            "runId": str(row.correlation_id),
            "messages": [{"id": "m", "role": "user", "content": row.text}],
        }
        async with httpx.AsyncClient(base_url=self.stack.upstream.base_url, trust_env=False) as client:
            await client.post("/ag-ui", json=body, headers={"Authorization": f"Bearer {self.stack.upstream.token}"})

    async def found(self, *acknowledged: Acknowledged) -> str:
        return "\n".join(await broken(self.stack.database_url, [self.application], [self.stack.upstream], acknowledged))


@pytest.fixture
async def planted(database_url: str, anyio_backend: str) -> AsyncIterator[Planted]:
    await watch(database_url)
    async with Stack.over(database_url) as stack:
        planted = Planted(stack, await stack.application())
        await planted.execute(
            "insert into quota_rule (quota_rule_id, scope, task_limit, calendar_window) values (gen_random_uuid(), 'user', 5, 'month')"
        )
        stack.upstream.use(Script(any_thread=True))
        await insert_runs(database_url, planted.application, stack.upstream.base_url, HELD, RESERVED, SAVED, RELEASED)
        yield planted


async def test_nothing_is_found_where_everything_holds(planted: Planted) -> None:
    await planted.post(HELD)
    known = Acknowledged(SAVED.subject, SAVED.submission_id, SAVED.text, str(SAVED.run_id))
    assert await planted.found(known, known) == ""


@pytest.mark.parametrize(
    ("row", "times", "words"),
    [
        (HELD, 2, "2 POSTs for run"),
        (RESERVED, 1, "a POST for run"),
        (RELEASED, 1, "a POST for run"),
        (RunRow(execution=Execution.FAILED), 1, "no run"),
    ],
    ids=["twice", "before the fence", "never sent", "of nobody"],
)
async def test_a_post_too_many(planted: Planted, row: RunRow, times: int, words: str) -> None:
    for _ in range(times):
        await planted.post(row)
    assert words in await planted.found()


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("update run set lease_until = now() - interval '1 s' where execution = 'running'", "leaked slot: run"),
        ("update run set execution = 'unknown', next_lookup_at = null, lease_until = null where execution = 'running'", "leaked slot: run"),
        ("delete from evidence where kind = 'run_finished'", "no evidence of success: run"),
        ("delete from evidence where kind = 'fence'", "0 fences in the evidence of run"),
        ("update item set text = 'not said' where position = 1", "not those of its snapshot"),
        ("update item set position = 2 where position = 1", "positions [0, 2] of run"),
        ("delete from snapshot", "no hashed snapshot of run"),
        ("update run set persistence = 'incomplete' where persistence = 'saved'", "which is not saved"),
        ("update quota_charge set refunded_at = now()", "charge returned: run"),
        ("update quota_charge set refunded_at = null", "charge kept: run"),
        ("update quota_usage set used = used + 1", "used 1, charged 0"),
        ("delete from quota_charge where refunded_at is null", "0 charges of run"),
        ("delete from moderation_verdict", "no verdict on the message of run"),
        ("update item set text = text || '!' where position = 0", "no verdict on the message of run"),
        ("update run set execution = 'failed' where execution = 'succeeded'", "went from succeeded to failed"),
        ("update run set persistence = 'partial' where persistence = 'saved'", "went from saved to partial"),
    ],
)  # fmt: skip
async def test_what_a_database_must_not_hold(planted: Planted, statement: str, words: str) -> None:
    await planted.execute(statement)
    assert words in await planted.found()


async def test_an_acknowledged_message_that_is_lost(planted: Planted) -> None:
    known = Acknowledged(SAVED.subject, SAVED.submission_id, SAVED.text, str(SAVED.run_id))
    other = Acknowledged(SAVED.subject, SAVED.submission_id, SAVED.text, str(HELD.run_id))
    assert "acknowledged" in await planted.found(other)
    await planted.execute("delete from item where run_id = %s", SAVED.run_id)
    assert "history says []" in await planted.found(known)
