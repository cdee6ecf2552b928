"""Database behind PgBouncer in transaction mode, three server connections for eight clients (building-blocks.md 3.3)."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest

from gateway.store.database import Database
from gateway.store.errors import ConstraintViolated
from gateway.store.migrate import migrate
from gateway.store.statements import Statement
from tests.support.pgbouncer import pgbouncer
from tests.support.postgres import PostgresForTests
from tests.support.stack import Stack

CLIENTS = 8
TRANSACTIONS = 40


@dataclass(frozen=True)
class Total:
    total: int


def sql(text: str) -> Statement:
    return Statement(name="test.statement", purpose="A test's own.", text=text)


LOCK = sql("select total from counter where id = %(id)s::int for update")
ADD = sql("update counter set total = total + 1 where id = %(id)s::int")
ADD_ONE = sql("insert into counter (id, total) values (%(id)s::int, 0)")
READ = sql("select sum(total)::int as total from counter")


@pytest.fixture
def pooled_url(postgres: PostgresForTests) -> Iterator[str]:
    with postgres.empty_database() as url, pgbouncer(url) as pooled:
        yield pooled


@pytest.mark.anyio
async def test_many_clients_share_few_connections_without_a_mix_up(pooled_url: str) -> None:
    with psycopg.connect(pooled_url, autocommit=True, prepare_threshold=None) as connection:
        connection.execute("create table counter (id int constraint counter_once primary key, total int not null)")
        connection.execute("insert into counter values (0, 0), (1, 0)")

    async with await Database.open(pooled_url, pool_max=CLIENTS) as database:

        async def client(number: int) -> None:
            for turn in range(TRANSACTIONS):
                async with database.transaction() as tx:
                    await tx.one(LOCK, Total, {"id": number % 2})
                    await tx.execute(ADD, {"id": number % 2})
                    if turn % 4:
                        await tx.commit()
                async with database.transaction() as tx:
                    with pytest.raises(ConstraintViolated):
                        await tx.execute(ADD_ONE, {"id": 0})
                await database.one(READ, Total)

        await asyncio.gather(*(client(number) for number in range(CLIENTS)))
        assert await database.one(READ, Total) == Total(CLIENTS * TRANSACTIONS * 3 // 4)


def test_migrations_run_through_the_pooler_too(pooled_url: str) -> None:
    assert migrate(pooled_url).is_ready
    assert migrate(pooled_url).applied == ()


@pytest.mark.anyio
async def test_o43_runs_go_through_a_pooler_that_changes_connections(database_url: str) -> None:
    """Twenty runs over two server connections: nothing is prepared, and nothing of a session is missed or left behind."""
    with pgbouncer(database_url, pool_size=2) as pooled:
        async with Stack.over(database_url) as stack:
            application = await stack.application()
            settings = stack.settings(DATABASE_URL=pooled, AGENT_MAX_ACTIVE_PER_APP="20")
            replicas = [await stack.replica(settings), await stack.replica(settings)]

            async def run(number: int) -> None:
                _, events = await replicas[number % 2].client(f"u{number}").ask(application, "s", "hi")
                assert events[-1].type == "RUN_FINISHED"

            await asyncio.gather(*(run(number) for number in range(20)))
            assert stack.upstream.counts().executions == 20
        with psycopg.connect(pooled, autocommit=True, prepare_threshold=None) as connection:
            assert connection.execute("select count(*) from pg_prepared_statements").fetchone() == (0,)
            assert connection.execute("select count(*) from run where persistence = 'saved'").fetchone() == (20,)
