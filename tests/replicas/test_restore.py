"""A database of an earlier moment takes the place of the lost one, as docs/handbook.md says under "Back up and restore" (contract F3)."""

import asyncio
import json
import sys

import pytest

from gateway.domain.ids import ApplicationId
from gateway.store.migrate import migrate
from tests.replicas.test_lost_replicas import OPEN_RUN, until
from tests.support.faulty_replica import QUICK
from tests.support.processes import kept_environment, replica_process
from tests.support.scripted_upstream import Answer, Script
from tests.support.stack import Stack, environment
from tests.support.standby import Pair, pair

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]


async def gateway(database_url: str, *arguments: str) -> str:
    """An operator's command, at any machine with DATABASE_URL."""
    pipe, env = asyncio.subprocess.PIPE, {**kept_environment(), **environment(database_url)}
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "gateway", *arguments, stdout=pipe, stderr=pipe, env=env)
    out, err = await process.communicate()
    assert process.returncode == 0, err
    return out.decode()


async def test_after_a_restore_nothing_is_executed_until_an_operator_reviewed() -> None:
    with pair() as servers:
        migrate(servers.primary_url)
        servers.start_standby()
        async with Stack.over(servers.url) as stack:
            stack.upstream.use(Script(ag_ui_by_text={"under way": [Answer(frames=OPEN_RUN)]}))
            application = await stack.application()
            run_id = await until_the_loss(stack, servers, application)
            assert stack.upstream.counts().executions == 3
            await gateway(servers.standby_url, "admission", "close", "--reason", "restored, runs under review")
            async with replica_process(servers.standby_url, changes=QUICK) as replica:
                ada, ben, cleo = (replica.client(name) for name in ("ada", "ben", "cleo"))
                # Forgotten, and executed once already: repeated now, it would be executed again.
                refused = await cleo.submit(application, "s1", "forgotten")
                assert (refused.status_code, refused.json()["code"]) == (503, "admission_unavailable")
                assert refused.json()["retry"] == "same-submission"
                # What was under way is looked up, and its owner is asked; what is known is served.
                await until(ben, application, run_id, execution="succeeded", persistence="incomplete", attention="user")
                listed = json.loads(await gateway(servers.standby_url, "runs", "list", "--json"))["runs"]
                assert [run["run_id"] for run in listed] == [run_id]
                replayed = await ada.submit(application, "s1", "known")
                assert (replayed.status_code, replayed.headers["Idempotent-Replayed"]) == (200, "true")
                assert stack.upstream.counts().executions == 3
                await gateway(servers.standby_url, "admission", "open", "--reason", "reviewed")
                answer, events = await ada.ask(application, "s2", "goes on")
                assert (answer.status_code, events[-1].type) == (200, "RUN_FINISHED")
                assert stack.upstream.counts().executions == 4


async def until_the_loss(stack: Stack, servers: Pair, application: ApplicationId) -> str:
    """One run that the backup knows, one that is under way in it, one that it does not know; then the database is lost. The second's id."""
    async with replica_process(servers.primary_url, changes=QUICK) as replica:
        ada, ben, cleo = (replica.client(name) for name in ("ada", "ben", "cleo"))
        assert (await ada.ask(application, "s1", "known"))[1][-1].type == "RUN_FINISHED"
        begun = await ben.submit(application, "s1", "under way")
        run_id = str(begun.json()["run_id"])
        await stack.upstream.waiting_at("rest", timeout_seconds=60)
        await until(ben, application, run_id, execution="running")
        await asyncio.to_thread(servers.stop_following)
        stack.upstream.release("rest")
        await until(ben, application, run_id, persistence="saved")
        assert (await cleo.ask(application, "s1", "forgotten"))[1][-1].type == "RUN_FINISHED"
        replica.kill()
        await replica.ended()
    servers.lose_primary()
    servers.promote()
    return run_id
