"""Database on real servers: results, transactions, errors, deadlines, cancellation, a pool that survives all of it."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import anyio
import psycopg
import pytest

from gateway.domain.in_transaction import NetworkCallInsideTransaction, forbid_inside_transaction
from gateway.store.database import CANCEL_SECONDS, Database
from gateway.store.embedded import EmbeddedPostgres
from gateway.store.errors import (
    AnswerLost,
    ConstraintViolated,
    DatabaseUnavailable,
    DeadlockOrSerialization,
    StatementFailed,
    StoreError,
)
from gateway.store.statements import Statement
from tests.support.postgres import folder_for_server

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Note:
    id: int
    text: str


def sql(text: str) -> Statement:
    return Statement(name="test.statement", purpose="A test's own.", text=text)


INSERT = sql("insert into note (id, text) values (%(id)s::int, %(text)s::text)")
ALL = sql("select id, text from note order by id")
LOCK = sql("select id, text from note where id = %(id)s::int for update")
SLEEP = sql("select 1 as id, pg_sleep(60)::text as text")
BUSY = sql(
    "select count(*)::int as id, '' as text from pg_stat_activity"
    " where query like '%%pg_sleep%%' and state = 'active' and pid <> pg_backend_pid()"
)


@pytest.fixture
def notes_url(empty_database_url_on_each: str) -> str:
    with psycopg.connect(empty_database_url_on_each, autocommit=True) as connection:
        connection.execute("create table note (id int constraint note_once primary key, text text not null)")
        connection.execute("create table later (id int constraint later_once unique deferrable initially deferred)")
    return empty_database_url_on_each


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Poll for what gives no signal, with a deadline."""
    async with asyncio.timeout(10):
        while not await condition():
            await asyncio.sleep(0.01)


async def assert_pool_is_whole(database: Database, size: int) -> None:
    """All `size` connections can be held at once, and each works."""
    everyone = asyncio.Barrier(size)

    async def hold() -> None:
        async with database.transaction() as tx:
            await tx.all(ALL, Note)
            await everyone.wait()

    async with asyncio.timeout(10):
        await asyncio.gather(*(hold() for _ in range(size)))


async def test_single_statements(notes_url: str) -> None:
    async with await Database.open(notes_url) as database:
        assert await database.one(ALL, Note) is None
        assert await database.execute(INSERT, {"id": 1, "text": "50 % of 'it'"}) == 1
        assert await database.one(ALL, Note, reading=True) == Note(1, "50 % of 'it'")
        assert await database.execute(INSERT, {"id": 2, "text": "b"}) == 1
        assert await database.all(ALL, Note) == [Note(1, "50 % of 'it'"), Note(2, "b")]
        with pytest.raises(RuntimeError, match="gave 2 rows"):
            await database.one(ALL, Note)


async def test_a_transaction_commits_only_when_told(notes_url: str) -> None:
    async with await Database.open(notes_url) as database:
        async with database.transaction() as tx:
            assert await tx.execute(INSERT, {"id": 1, "text": "a"}) == 1
            assert await tx.one(ALL, Note) == Note(1, "a")
        assert await database.all(ALL, Note) == []

        async def fail() -> None:
            async with database.transaction() as tx:
                await tx.execute(INSERT, {"id": 2, "text": "b"})
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        assert await database.all(ALL, Note) == []
        async with database.transaction() as tx:
            await tx.execute(INSERT, {"id": 3, "text": "c"})
            assert await tx.all(ALL, Note) == [Note(3, "c")]
            await tx.commit()
            with pytest.raises(RuntimeError):
                await tx.all(ALL, Note)
        assert await database.all(ALL, Note) == [Note(3, "c")]
        async with database.transaction() as tx:
            await tx.commit()


async def test_a_transaction_is_over_after_an_error_and_the_row_lock_is_gone(notes_url: str) -> None:
    async with await Database.open(notes_url) as database:
        await database.execute(INSERT, {"id": 1, "text": "a"})
        async with database.transaction() as tx:
            await tx.one(LOCK, Note, {"id": 1})
            with pytest.raises(ConstraintViolated):
                await tx.execute(INSERT, {"id": 1, "text": "again"})
            with pytest.raises(RuntimeError):
                await tx.commit()
        async with database.transaction(deadline_seconds=1) as tx:
            assert await tx.one(LOCK, Note, {"id": 1}) == Note(1, "a")


async def test_the_first_statement_of_a_transaction_may_fail(notes_url: str) -> None:
    async with await Database.open(notes_url, pool_max=1) as database:
        await database.execute(INSERT, {"id": 1, "text": "a"})
        for _ in range(3):
            with pytest.raises(ConstraintViolated):
                async with database.transaction() as tx:
                    await tx.execute(INSERT, {"id": 1, "text": "again"})
        assert await database.all(ALL, Note) == [Note(1, "a")]


async def test_inside_a_transaction_nothing_else_is_called(notes_url: str) -> None:
    async with await Database.open(notes_url) as database:
        async with database.transaction():
            with pytest.raises(NetworkCallInsideTransaction):
                forbid_inside_transaction()
            with pytest.raises(NetworkCallInsideTransaction):
                await database.all(ALL, Note)
        forbid_inside_transaction()


async def test_errors_say_what_and_show_no_value(notes_url: str) -> None:
    async with await Database.open(notes_url) as database:
        await database.execute(INSERT, {"id": 1, "text": "a"})
        with pytest.raises(ConstraintViolated) as violated:
            await database.execute(INSERT, {"id": 1, "text": "secret"})
        assert violated.value.constraint == "note_once"
        with pytest.raises(ConstraintViolated) as violated:
            await database.execute(INSERT, {"id": 2, "text": None})
        assert violated.value.constraint in ("", "note_text_not_null")
        with pytest.raises(StatementFailed) as failed:
            await database.execute(sql("insert into note values (%(id)s::int, 'x')"), {"id": "secret"})
        assert failed.value.sqlstate == "22P02"
        with pytest.raises(StatementFailed) as failed:
            await database.execute(INSERT, {"id": 2, "text": "secret\x00"})
        assert failed.value.sqlstate == ""
        for error in (violated.value, failed.value):
            assert isinstance(error, StoreError)
            assert "secret" not in repr(error)
            assert error.__suppress_context__


async def test_a_deferred_constraint_speaks_at_commit(notes_url: str) -> None:
    async with await Database.open(notes_url) as database:
        async with database.transaction() as tx:
            await tx.execute(sql("insert into later values (1), (1)"))
            with pytest.raises(ConstraintViolated) as violated:
                await tx.commit()
        assert violated.value.constraint == "later_once"


async def test_a_deadlock_is_told_as_safe_to_run_again(notes_url: str) -> None:
    async with await Database.open(notes_url) as database:
        for number in (1, 2):
            await database.execute(INSERT, {"id": number, "text": "a"})
        both_hold_one = asyncio.Barrier(2)

        async def cross(first: int, second: int) -> None:
            async with database.transaction() as tx:
                await tx.one(LOCK, Note, {"id": first})
                await both_hold_one.wait()
                await tx.one(LOCK, Note, {"id": second})
                await tx.commit()

        outcomes = await asyncio.gather(cross(1, 2), cross(2, 1), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes if outcome is not None] == [DeadlockOrSerialization]


async def test_a_deadline_ends_the_call_and_the_statement_on_the_server(notes_url: str) -> None:
    async with await Database.open(notes_url) as database, await Database.open(notes_url) as observer:

        async def nobody_sleeps() -> bool:
            row = await observer.one(BUSY, Note)
            return row == Note(0, "")

        started = asyncio.get_running_loop().time()
        with pytest.raises(DatabaseUnavailable):
            await database.one(SLEEP, Note, reading=True, deadline_seconds=0.1)
        with pytest.raises(AnswerLost):
            await database.execute(SLEEP, deadline_seconds=0.1)
        with pytest.raises(DatabaseUnavailable):
            async with database.transaction(deadline_seconds=0.1) as tx:
                await tx.one(SLEEP, Note)
        assert asyncio.get_running_loop().time() - started < 3 * (0.1 + CANCEL_SECONDS)
        await until(nobody_sleeps)
        await assert_pool_is_whole(database, 10)


async def test_time_over_before_commit_sends_nothing(notes_url: str) -> None:
    async with await Database.open(notes_url) as database:
        over = asyncio.Event()
        async with database.transaction(deadline_seconds=0.2) as tx:
            await tx.execute(INSERT, {"id": 1, "text": "a"})
            asyncio.get_running_loop().call_later(0.21, over.set)
            await over.wait()
            with pytest.raises(DatabaseUnavailable):
                await tx.commit()
        assert await database.all(ALL, Note) == []


async def test_a_full_pool_is_unavailable_in_time(notes_url: str) -> None:
    async with await Database.open(notes_url, pool_max=1) as database:
        held, release = asyncio.Event(), asyncio.Event()

        async def hold() -> None:
            async with database.transaction() as tx:
                await tx.all(ALL, Note)
                held.set()
                await release.wait()

        holder = asyncio.create_task(hold())
        await held.wait()
        with pytest.raises(DatabaseUnavailable):
            await database.execute(INSERT, {"id": 1, "text": "a"}, deadline_seconds=0.1)
        release.set()
        await holder
        assert await database.execute(INSERT, {"id": 1, "text": "a"}) == 1


@pytest.mark.parametrize("by_scope", [False, True], ids=["task", "cancel_scope"])
async def test_cancelled_callers_do_not_poison_the_pool(notes_url: str, by_scope: bool) -> None:
    chance = random.Random(7)
    async with await Database.open(notes_url, pool_max=3) as database:

        async def work() -> None:
            with suppress(ConstraintViolated):
                async with database.transaction() as tx:
                    await tx.execute(INSERT, {"id": chance.randrange(5), "text": "a"})
                    await tx.one(sql("select 1 as id, pg_sleep(0.002)::text as text"), Note)
                    await tx.commit()
            await database.all(ALL, Note)

        async def work_in_scope(seconds: float) -> None:
            # A cancelled scope cancels every await again, cleanup included: harsher than one task.cancel().
            with anyio.move_on_after(seconds):
                await work()

        for _ in range(25):
            seconds = [chance.uniform(0, 0.012) for _ in range(6)]
            if by_scope:
                await asyncio.gather(*(work_in_scope(after) for after in seconds))
            else:
                tasks = [asyncio.create_task(work()) for _ in seconds]
                for task, after in zip(tasks, seconds, strict=True):
                    asyncio.get_running_loop().call_later(after, task.cancel)
                await asyncio.gather(*tasks, return_exceptions=True)
        await assert_pool_is_whole(database, 3)
        assert {note.text for note in await database.all(ALL, Note)} <= {"a"}


async def test_a_connection_that_the_server_ended_while_idle_is_not_handed_out(notes_url: str) -> None:
    # One other connection for all rounds: one that was just closed may still be listed, and would be ended too.
    with psycopg.connect(notes_url, autocommit=True) as other:
        async with await Database.open(notes_url, pool_min=1, pool_max=1) as database:
            for number in range(3):
                assert await database.execute(INSERT, {"id": number, "text": "a"}) == 1
                ended = other.execute(
                    "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
                    " where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'"
                ).fetchall()
                assert ended == [(True,)]


async def test_a_restarted_server_costs_no_error_at_rest() -> None:
    with folder_for_server() as folder:
        server = await asyncio.to_thread(EmbeddedPostgres(folder / "postgres", durable=False).start)
        try:
            async with await Database.open(server.url) as database:
                one = sql("select 1 as id, 'a' as text")
                assert await database.one(one, Note) == Note(1, "a")
                await asyncio.to_thread(server.stop)
                with pytest.raises(DatabaseUnavailable):
                    await database.execute(one, deadline_seconds=0.3)
                await asyncio.to_thread(server.start)
                assert await database.one(one, Note) == Note(1, "a")
                await asyncio.gather(*(database.execute(one) for _ in range(20)))
        finally:
            await asyncio.to_thread(server.stop)


async def test_opening_does_not_wait_for_the_server() -> None:
    async with await Database.open("postgresql://postgres@/x?host=/nowhere") as database:
        with pytest.raises(DatabaseUnavailable):
            await database.one(sql("select 1 as id, 'a' as text"), Note, deadline_seconds=0.1)
