"""Postgres restarted, fast and by a crash, then lost, and its synchronous standby promoted, while people chat (contract F3).

Nothing is executed twice, nothing that was confirmed is lost, and nobody is left waiting.
"""

import asyncio
from contextlib import AsyncExitStack
from typing import Final

import httpx
import psycopg
import pytest

from gateway.store.migrate import migrate
from tests.support.person import Person
from tests.support.scripted_upstream import Answer, Script, finished, message, pause, started
from tests.support.stack import Stack
from tests.support.standby import pair

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

PEOPLE: Final = 4


async def test_restarts_and_a_failover_lose_nothing_and_double_nothing() -> None:
    with pair() as servers:
        migrate(servers.primary_url)
        servers.start_standby()
        servers.make_synchronous()
        async with Stack.over(servers.url) as stack, AsyncExitStack() as exits:
            paced = [*started(), *message("m1", "first "), pause(0.4), *message("m2", "second"), finished()]
            stack.upstream.use(Script(ag_ui=[Answer(frames=paced)]))
            application = await stack.application()
            replica = await stack.replica(stack.settings(AGENT_MAX_ACTIVE_PER_APP="50"))
            http = await exits.enter_async_context(httpx.AsyncClient(base_url=replica.base_url, timeout=90.0, trust_env=False))
            stop = asyncio.Event()
            crowd = [Person(f"person-{number}", http, application, stop) for number in range(PEOPLE)]
            chatting = [asyncio.create_task(person.chat()) for person in crowd]

            async def answered(more: int) -> None:
                """Everybody got so many answers more: signals would have to come from what is being broken."""
                before = [len(person.sent) for person in crowd]
                async with asyncio.timeout(120):
                    while any(len(p.sent) < b + more for p, b in zip(crowd, before, strict=True)) and not any(p.failures for p in crowd):
                        await asyncio.sleep(0.05)

            await answered(2)
            for crash in (False, True):
                await asyncio.to_thread(servers.restart_primary, crash=crash)
                await answered(2)
            await asyncio.to_thread(servers.lose_primary)
            await asyncio.to_thread(servers.promote)
            await answered(2)
            stop.set()
            await asyncio.gather(*chatting)
            assert [failure for person in crowd for failure in person.failures] == []
            for person in crowd:
                assert await person.heard() == person.expected("first ", "second")
            assert stack.upstream.counts().executions == sum(len(person.sent) for person in crowd)
            with psycopg.connect(servers.url) as connection:
                assert connection.execute("select distinct execution, persistence from run").fetchall() == [("succeeded", "saved")]
