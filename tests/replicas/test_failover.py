"""Postgres restarted, fast and by a crash, then lost, and its synchronous standby promoted, while people chat (contract F3).

Nothing is executed twice, nothing that was confirmed is lost, and nobody is left waiting.
"""

import asyncio
from typing import Final

import psycopg
import pytest

from gateway.store.migrate import migrate
from tests.support.crowd import crowd
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
        async with Stack.over(servers.url) as stack:
            paced = [*started(), *message("m1", "first "), pause(0.4), *message("m2", "second"), finished()]
            stack.upstream.use(Script(ag_ui=[Answer(frames=paced)]))
            application = await stack.application()
            replica = await stack.replica(stack.settings(AGENT_MAX_ACTIVE_PER_APP="50"))
            # Patient: while a database is away for longer than the client tries, its page asks, and people say yes.
            async with crowd(replica.base_url, application, PEOPLE, reading_seconds=0.3, patient=True) as chatting:
                await chatting.until_answered(2)
                for crash in (False, True):
                    await asyncio.to_thread(servers.restart_primary, crash=crash)
                    await chatting.until_answered(2)
                await asyncio.to_thread(servers.lose_primary)
                await asyncio.to_thread(servers.promote)
                await chatting.until_answered(2)
                await chatting.stopped()
                assert (chatting.failed, chatting.unclean, chatting.broken) == ([], [], [])
                await chatting.check_history("first ", "second")
                answered = len(chatting.answered)
            assert stack.upstream.counts().executions == answered
            with psycopg.connect(servers.url) as connection:
                states = connection.execute("select execution, persistence, count(*) from run group by 1, 2").fetchall()
            assert states == [("succeeded", "saved", answered)]
