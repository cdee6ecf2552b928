"""What the database says when its connection breaks: before and after COMMIT, in the middle, silently (building-blocks.md 3.6)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from gateway.store.database import CANCEL_SECONDS, Database
from gateway.store.errors import AnswerLost, DatabaseTrouble, DatabaseUnavailable
from gateway.store.statements import Statement
from tests.support.tcp_proxy import (
    BlackHole,
    CutAfter,
    CutAfterAnswer,
    CutBeforeQuery,
    Delay,
    Fault,
    Pass,
    Reset,
    Split,
    TcpProxy,
    Toward,
    WithholdAnswer,
)

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Count:
    notes: int


def sql(text: str) -> Statement:
    return Statement(name="test.statement", purpose="A test's own.", text=text)


INSERT = sql("insert into note (id) values (%(id)s::int)")
COUNT = sql("select count(*)::int as notes from note")


@dataclass
class Proxied:
    """A database behind a proxy; `rows` looks past the proxy."""

    proxy: TcpProxy
    url: str
    direct_url: str

    def rows(self) -> int:
        with psycopg.connect(self.direct_url, autocommit=True) as connection:
            row = connection.execute("select count(*) from note").fetchone()
        assert row is not None
        return int(row[0])


@pytest.fixture
async def proxied(empty_database_url_on_each: str, anyio_backend: str) -> AsyncIterator[Proxied]:
    with psycopg.connect(empty_database_url_on_each, autocommit=True) as connection:
        connection.execute("create table note (id int primary key)")
    parts = conninfo_to_dict(empty_database_url_on_each)
    async with TcpProxy(str(Path(str(parts["host"])) / ".s.PGSQL.5432")) as proxy:
        url = f"postgresql://postgres@127.0.0.1:{proxy.port}/{parts['dbname']}?sslmode=disable&gssencmode=disable"
        yield Proxied(proxy, url, empty_database_url_on_each)


async def alone(database: Database, deadline_seconds: float = 5) -> None:
    await database.execute(INSERT, {"id": 1}, deadline_seconds=deadline_seconds)


async def in_transaction(database: Database, deadline_seconds: float = 5) -> None:
    async with database.transaction(deadline_seconds=deadline_seconds) as tx:
        await tx.one(COUNT, Count)
        await tx.execute(INSERT, {"id": 1})
        await tx.commit()


# For faults that only the deadline ends: long enough for a few statements on a busy machine.
SILENCE_SECONDS: Final = 0.5

Write = Callable[[Database, float], Awaitable[None]]
WRITES = pytest.mark.parametrize(("write", "text"), [(alone, b"insert into"), (in_transaction, b"COMMIT")], ids=["alone", "commit"])


@WRITES
@pytest.mark.parametrize(
    ("fault", "rows", "deadline_seconds"),
    [(CutBeforeQuery, 0, 5), (CutAfterAnswer, 1, 5), (WithholdAnswer, 1, SILENCE_SECONDS)],
    ids=["cut_before", "cut_after", "withheld_after"],
)
async def test_a_commit_whose_answer_is_lost(
    proxied: Proxied, write: Write, text: bytes, fault: Callable[[bytes], Fault], rows: int, deadline_seconds: float
) -> None:
    async with await Database.open(proxied.url) as database:
        assert await database.one(COUNT, Count) == Count(0)
        proxied.proxy.fault = fault(text)
        started = asyncio.get_running_loop().time()
        with pytest.raises(AnswerLost):
            await write(database, deadline_seconds)
        assert asyncio.get_running_loop().time() - started < SILENCE_SECONDS + CANCEL_SECONDS + 0.5
        assert proxied.proxy.struck.is_set()
        assert proxied.rows() == rows
        proxied.proxy.fault = Pass()
        assert await database.one(COUNT, Count) == Count(rows)


@pytest.mark.parametrize(
    ("fault", "deadline_seconds"),
    [
        (CutBeforeQuery(b"insert into"), 5),
        (CutAfterAnswer(b"insert into"), 5),
        (WithholdAnswer(b"insert into"), SILENCE_SECONDS),
        (BlackHole(), SILENCE_SECONDS),
    ],
    ids=["cut_before", "cut_after", "withheld", "black_hole"],
)
async def test_lost_before_commit_nothing_is_committed(proxied: Proxied, fault: Fault, deadline_seconds: float) -> None:
    async with await Database.open(proxied.url) as database:
        assert await database.one(COUNT, Count) == Count(0)
        proxied.proxy.fault = fault
        with pytest.raises(DatabaseUnavailable):
            await in_transaction(database, deadline_seconds)
        assert proxied.rows() == 0
        proxied.proxy.fault = Pass()
        await proxied.proxy.reset()  # or the pool's new connections wait in the black hole


async def test_a_read_is_repeated_once_on_a_new_connection(proxied: Proxied) -> None:
    async with await Database.open(proxied.url, pool_min=1, pool_max=1) as database:
        assert await database.one(COUNT, Count) == Count(0)
        proxied.proxy.fault = CutAfter(0, Toward.CLIENT)

        async def mend() -> None:
            await proxied.proxy.struck.wait()
            proxied.proxy.fault = Pass()

        mending = asyncio.create_task(mend())
        assert await database.one(COUNT, Count, reading=True) == Count(0)
        await mending
        proxied.proxy.fault = CutAfterAnswer(b"count")
        with pytest.raises(DatabaseUnavailable):
            await database.one(COUNT, Count, reading=True, deadline_seconds=1)


async def test_a_silent_network_ends_at_the_deadline(proxied: Proxied) -> None:
    async with await Database.open(proxied.url) as database:
        assert await database.one(COUNT, Count) == Count(0)
        proxied.proxy.fault = BlackHole()
        loop = asyncio.get_running_loop()
        started = loop.time()
        with pytest.raises(DatabaseTrouble):
            await database.execute(INSERT, {"id": 1}, deadline_seconds=0.3)
        assert loop.time() - started < 0.3 + CANCEL_SECONDS + 0.3
        proxied.proxy.fault = Pass()
        await proxied.proxy.reset()
        assert await database.one(COUNT, Count) == Count(0)


@pytest.mark.parametrize("fault", [Split(), Delay(0.002)], ids=["split", "delay"])
async def test_pieces_of_any_size_and_pace_change_nothing(proxied: Proxied, fault: Fault) -> None:
    proxied.proxy.fault = fault
    async with await Database.open(proxied.url, pool_min=1) as database:
        await in_transaction(database)
        assert await database.one(COUNT, Count) == Count(1)


async def test_refused_reset_and_half_closed_connections_come_back(proxied: Proxied) -> None:
    async with await Database.open(proxied.url, pool_min=1, pool_max=2) as database:
        assert await database.one(COUNT, Count) == Count(0)
        proxied.proxy.half_close()
        assert await database.one(COUNT, Count) == Count(0)
        await proxied.proxy.reset()
        assert await database.one(COUNT, Count) == Count(0)
        proxied.proxy.fault = Reset()
        with pytest.raises(DatabaseUnavailable):
            await database.one(COUNT, Count, reading=True, deadline_seconds=0.3)
        proxied.proxy.fault = Pass()
        await proxied.proxy.refuse()
        await proxied.proxy.reset()
        with pytest.raises(DatabaseUnavailable):
            await database.one(COUNT, Count, deadline_seconds=0.3)
        await proxied.proxy.listen_again()
        assert await database.one(COUNT, Count) == Count(0)


async def test_round_trips(proxied: Proxied) -> None:
    """One for a statement alone; a transaction has one per statement and one for COMMIT: BEGIN costs none."""
    async with await Database.open(proxied.url, pool_min=1, pool_max=1) as database:
        await database.one(COUNT, Count)
        before = proxied.proxy.answers
        await database.one(COUNT, Count)
        assert proxied.proxy.answers - before == 1
        before = proxied.proxy.answers
        await in_transaction(database)
        assert proxied.proxy.answers - before == 3
