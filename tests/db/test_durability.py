"""`gateway check` on what commits are worth: settings of the server, and real standbys, asynchronous and synchronous (contract F3)."""

from collections.abc import Iterator

import psycopg
import pytest

from gateway.cli.check import durable
from gateway.store.database import Database
from gateway.store.migrate import migrate
from tests.support.standby import Pair, pair

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def servers() -> Iterator[Pair]:
    with pair() as made:
        migrate(made.primary_url)
        yield made


async def said(url: str) -> tuple[bool, str]:
    async with await Database.open(url, pool_max=1) as database:
        finding = await durable(database)
    return finding.ok, finding.says


async def test_each_kind_of_durability_is_named(servers: Pair) -> None:
    """In one order, because a standby can be added and not be taken away."""
    assert await said(servers.primary_url) == (True, "commits are durable on this server; it has no standby")
    with psycopg.connect(servers.primary_url, autocommit=True) as connection:
        connection.execute("alter database postgres set synchronous_commit = off")
        assert await said(servers.primary_url) == (False, "synchronous_commit off: what was confirmed can be lost; set it to on")
        connection.execute("alter database postgres reset synchronous_commit")
    servers.start_standby()
    ok, says = await said(servers.primary_url)
    assert (ok, says.partition(":")[0]) == (False, "the standby is asynchronous")
    servers.make_synchronous()
    assert await said(servers.primary_url) == (True, "commits wait for a synchronous standby")
    with psycopg.connect(servers.primary_url, autocommit=True) as connection:
        connection.execute("alter database postgres set synchronous_commit = local")
        ok, says = await said(servers.primary_url)
        assert (ok, says.partition(":")[0]) == (False, "synchronous_commit is local")
        connection.execute("alter database postgres reset synchronous_commit")
        connection.execute("create role watcher login")
        connection.execute("grant pg_read_all_data to watcher")
    hidden = servers.primary_url.replace("postgres@", "watcher@")
    ok, says = await said(hidden)
    assert ok
    assert "pg_monitor" in says
    ok, says = await said(servers.standby_url)
    assert (ok, says.partition(":")[0]) == (False, "this is a standby")
    servers.lose_primary()
    servers.promote()
    assert (await said(servers.url))[0]
