"""Tokens and keys changed by the commands while people use two replicas: nobody is refused but by name, and no run has a wrong token.

The commands and the replicas are processes of their own; the scripted upstream is the judge of what was sent with which token.
"""

import asyncio
import base64
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import uuid4

import psycopg
import pytest

from gateway.bindings.vault import key_id
from gateway.domain.ids import ApplicationId
from tests.db.world import everything_in
from tests.support.processes import ReplicaProcess, kept_environment, replica_process
from tests.support.scripted_upstream import Answer, Script, finished, message, pause, started
from tests.support.stack import ENCRYPTION_KEY, Client, Stack, environment

pytestmark = pytest.mark.anyio

PEOPLE: Final = 6
SOME: Final = 12
"""Good answers before something is done, and after it."""
NEW_TOKEN: Final = "tok_CANARY_of_the_rotation"
NEW_KEY: Final = base64.b64encode(b"the-newer-key-of-32-bytes-length").decode()
SETTINGS: Final = {"AGENT_MAX_ACTIVE_PER_APP": "50"}
TALK: Final = Script(ag_ui=[Answer(frames=[*started(), pause(0.02), *message("m", "an answer"), finished()])])
SIGNAL_SECONDS: Final = 120.0


@dataclass
class Load:
    """People who ask one thing after the other, at both replicas, and write down what came of it."""

    applications: Sequence[ApplicationId]
    clients: Sequence[Client]
    outcomes: list[str] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    enough: asyncio.Event = field(default_factory=asyncio.Event)

    async def person(self, number: int) -> None:
        turn = number
        while not self.enough.is_set():
            client, application = self.clients[turn % len(self.clients)], self.applications[turn % len(self.applications)]
            response, events = await client.ask(application, str(uuid4()), "hi")
            turn += PEOPLE + 1
            if response.status_code == 200:
                last = events[-1].data
                self.outcomes.append(last["type"] if last["type"] == "RUN_FINISHED" else f"{last['type']} {last.get('code')}")
            else:
                self.outcomes.append(f"{response.status_code} {response.json()['code']}")
                await asyncio.sleep(0.02)  # as a person would; a refusal comes at once
            self.changed.set()

    async def until_more(self, outcome: str, number: int = SOME) -> None:
        """Return when so many more had this outcome."""
        wanted = self.outcomes.count(outcome) + number
        async with asyncio.timeout(SIGNAL_SECONDS):
            while self.outcomes.count(outcome) < wanted:
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def load(applications: Sequence[ApplicationId], replicas: Sequence[ReplicaProcess]) -> AsyncIterator[Load]:
    shared = Load(applications, ())
    async with asyncio.TaskGroup() as group:
        for number in range(PEOPLE):
            clients = [replica.client(f"person-{number}") for replica in replicas]
            group.create_task(replace(shared, clients=clients).person(number))
        yield shared
        shared.enough.set()  # each ends with the answer that it waits for


async def command(database_url: str, *argv: str, stdin: str = "", changes: Mapping[str, str] | None = None) -> dict[str, Any]:
    """`gateway ARGV --json` as operators run it; its answer, or the error that it told."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "gateway",
        *argv,
        "--json",
        env={**kept_environment(), **environment(database_url, **(changes or {}))},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(SIGNAL_SECONDS):
        out, err = await process.communicate(stdin.encode())
    assert "CANARY" not in f"{out!r} {err!r}"
    assert "Traceback" not in err.decode()
    document: dict[str, Any] = json.loads(out) if process.returncode == 0 else json.loads(err.splitlines()[-1])
    return document


async def test_a_token_is_rotated_under_load_and_no_run_has_a_wrong_one(database_url: str) -> None:
    async with (
        Stack.over(database_url) as stack,
        replica_process(database_url, changes=SETTINGS) as one,
        replica_process(database_url, changes=SETTINGS) as two,
    ):
        application, other = await stack.application(), await stack.application()
        stack.upstream.use(TALK)
        async with load([application], [one, two]) as people:
            await people.until_more("RUN_FINISHED")
            assert await command(database_url, "apps", "disable", "app-0", "--wait") == {"enabled": False, "changed": True}
            with psycopg.connect(database_url) as connection:
                in_the_way = (
                    "select count(*) from run where application_id = %s and (application_slot is not null or persistence = 'pending')"
                )
                assert connection.execute(in_the_way, (application,)).fetchone() == (0,)
            sent_before = len(stack.upstream.requests)
            stack.upstream.token = NEW_TOKEN  # the service takes the old one no more
            await people.until_more("409 app_disabled")
            assert await command(database_url, "apps", "set-token", "app-0", "--token-file", "-", stdin=f"{NEW_TOKEN}\n") == {
                "changed": True
            }
            await people.until_more("409 app_disabled", 2)
            assert await command(database_url, "apps", "enable", "app-0") == {"enabled": True, "changed": True}
            await people.until_more("RUN_FINISHED")
        assert set(people.outcomes) <= {"RUN_FINISHED", "409 app_disabled", "RUN_ERROR app_disabled"}, Counter(people.outcomes)
        requests = stack.upstream.requests
        assert {request.header("authorization") for request in requests[sent_before:]} == {f"Bearer {NEW_TOKEN}"}
        assert f"Bearer {NEW_TOKEN}" not in {request.header("authorization") for request in requests[:sent_before]}
        with psycopg.connect(database_url) as connection:
            rows = connection.execute("select execution, reason, count(*) from run group by 1, 2").fetchall()
        assert {(execution, reason) for execution, reason, _ in rows} <= {("succeeded", None), ("released", "app_disabled")}
        # Another application of the same service has its own token, which was not changed: it is refused by the service, and says so.
        refused = await one.client("ada").ask(other, "s", "hi")
        assert refused[1][-1].data["code"] == "capabilities_failed"
        assert "CANARY" not in one.log + two.log + everything_in(database_url)


async def test_o36_rekey_under_load_on_two_replicas_fails_no_request(database_url: str) -> None:
    ring = {**SETTINGS, "API_ENCRYPTION_KEY": NEW_KEY, "API_ENCRYPTION_KEYS_PREVIOUS": ENCRYPTION_KEY}
    newest = key_id(base64.b64decode(NEW_KEY))
    async with Stack.over(database_url) as stack:
        applications = [await stack.application() for _ in range(8)]
        stack.upstream.use(TALK)
        async with replica_process(database_url, changes=ring) as one, replica_process(database_url, changes=ring) as two:
            async with load(applications, [one, two]) as people:
                await people.until_more("RUN_FINISHED")
                dry = await command(database_url, "keys", "rekey", "--dry-run", changes=ring)
                assert dry == {"key_id": newest, "moved": 8, "dry_run": True, "unreadable": []}
                done = await asyncio.gather(*(command(database_url, "keys", "rekey", changes=ring) for _ in range(2)))
                assert sum(report["moved"] for report in done) == 8
                await people.until_more("RUN_FINISHED")
            assert set(people.outcomes) == {"RUN_FINISHED"}, Counter(people.outcomes)
            for replica in (one, two):
                assert (await replica.http.get("/readyz")).json()["warnings"] == []
        # Nothing is left under the old key: a replica with the new one alone serves them all.
        async with replica_process(database_url, changes={**SETTINGS, "API_ENCRYPTION_KEY": NEW_KEY}) as last:
            for number, application in enumerate(applications):
                _, events = await last.client(f"late-{number}").ask(application, "s", "hi")
                assert events[-1].type == "RUN_FINISHED"
            assert "token_unreadable" not in last.log
        assert {request.header("authorization") for request in stack.upstream.requests} == {f"Bearer {stack.upstream.token}"}
        assert stack.upstream.token not in one.log + two.log + last.log + everything_in(database_url)
