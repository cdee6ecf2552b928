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
