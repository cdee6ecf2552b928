"""The check of services for operators' commands."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.bindings.capabilities_check import CapabilitiesCheck
from gateway.http_client import HttpClient
from gateway.settings import Settings


@asynccontextmanager
async def capabilities_check(settings: Settings) -> AsyncIterator[CapabilitiesCheck]:
    """A check with a client of its own."""
    async with HttpClient(connect_seconds=settings.connect_seconds, trusted_hosts=settings.trusted_upstream_hosts) as client:
        yield CapabilitiesCheck(client)
