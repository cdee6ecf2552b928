"""One served web for each test file: accounts and applications of their own keep the tests apart."""

from collections.abc import AsyncIterator

import pytest

from tests.http.world import World, open_world
from tests.support.postgres import PostgresForTests


@pytest.fixture(scope="module")
async def world(postgres: PostgresForTests, anyio_backend: str) -> AsyncIterator[World]:
    with postgres.migrated_database() as url:
        async with open_world(url) as opened:
            yield opened
