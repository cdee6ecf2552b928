"""Fixtures of all tests: PostgreSQL, native servers, the event loop, the `--slow` switch. What only one folder needs lives there."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from gateway.store.database import Database
from tests.support.native_servers import NATIVE_SERVERS, NativeServer, NativeServers
from tests.support.postgres import MAJORS, PostgresForTests, Servers


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: runs with --slow"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    from tests.support.distribution import InGroups

    return InGroups(config, log)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def postgres_servers() -> Iterator[Servers]:
    servers = Servers()
    yield servers
    servers.stop()


@pytest.fixture(scope="session")
def postgres(postgres_servers: Servers) -> PostgresForTests:
    """The server of most tests: PostgreSQL 18 where it is."""
    return postgres_servers.default()


@pytest.fixture(scope="session", params=MAJORS, ids=lambda major: f"pg{major}")
def each_postgres(request: pytest.FixtureRequest, postgres_servers: Servers) -> PostgresForTests:
    """Each supported major in turn."""
    return postgres_servers.of(request.param)


@pytest.fixture(scope="session")
def native_servers(postgres_servers: Servers) -> Iterator[NativeServers]:
    servers = NativeServers(postgres_servers)
    yield servers
    servers.stop()


@pytest.fixture(scope="session", params=NATIVE_SERVERS)
def native_server(request: pytest.FixtureRequest, native_servers: NativeServers) -> NativeServer:
    """Each native upstream in turn. The tests of one are run by one process (tests/support/distribution.py): each server starts once."""
    return native_servers.of(request.param)


@pytest.fixture
def database_url(postgres: PostgresForTests) -> Iterator[str]:
    """A fresh database with this build's schema."""
    with postgres.migrated_database() as url:
        yield url


@pytest.fixture
def database_url_on_each(each_postgres: PostgresForTests) -> Iterator[str]:
    """As `database_url`, on each supported major in turn."""
    with each_postgres.migrated_database() as url:
        yield url


@pytest.fixture
def empty_database_url(postgres: PostgresForTests) -> Iterator[str]:
    """A fresh database without a schema."""
    with postgres.empty_database() as url:
        yield url


@pytest.fixture
def empty_database_url_on_each(each_postgres: PostgresForTests) -> Iterator[str]:
    """As `empty_database_url`, on each supported major in turn."""
    with each_postgres.empty_database() as url:
        yield url


@pytest.fixture
async def database(database_url: str, anyio_backend: str) -> AsyncIterator[Database]:
    """An open pool on `database_url`."""
    async with await Database.open(database_url) as opened:
        yield opened


@pytest.fixture
async def database_on_each(database_url_on_each: str, anyio_backend: str) -> AsyncIterator[Database]:
    """An open pool on `database_url_on_each`."""
    async with await Database.open(database_url_on_each) as opened:
        yield opened
