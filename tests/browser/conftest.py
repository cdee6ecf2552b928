"""One stack and one browser for all tests of the pages: people and applications of their own keep them apart."""

from collections.abc import AsyncIterator

import pytest

from tests.browser.served import Served, Visit, served_over
from tests.support.postgres import PostgresForTests


@pytest.fixture(scope="session")
async def served(postgres: PostgresForTests, tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncIterator[Served]:
    with postgres.migrated_database() as url:
        async with served_over(url, tmp_path_factory.mktemp("moderation") / "deny.txt") as opened:
            yield opened


@pytest.fixture
async def visit(served: Served) -> AsyncIterator[Visit]:
    async with served.visit() as opened:
        await opened.open()
        yield opened
