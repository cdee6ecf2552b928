"""A scene before each native server in turn."""

from collections.abc import AsyncIterator

import pytest

from tests.native.scene import Scene
from tests.support.native_servers import NativeServer
from tests.support.stack import Stack


@pytest.fixture
async def scene(native_server: NativeServer, database_url: str, anyio_backend: str) -> AsyncIterator[Scene]:
    async with Stack.over(database_url) as stack:
        replica = await stack.replica()
        application = await stack.application_of(native_server.base_url, native_server.token)
        yield Scene(native_server, stack, replica, application, replica.client("ada"))
