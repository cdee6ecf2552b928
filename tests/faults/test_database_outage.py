"""The database server is stopped in mid-stream, really, and started again: running answers are saved, new ones refused, nothing twice."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

import psycopg
import pytest

from gateway.domain.ids import ApplicationId
from gateway.store.embedded import EmbeddedPostgres, EmbeddedPostgresError, find_binaries
from gateway.store.migrate import migrate
from tests.support.faulty_replica import QUICK
from tests.support.invariants import Acknowledged, assert_hold, watch
from tests.support.postgres import folder_for_server
from tests.support.processes import ReplicaProcess, replica_process
from tests.support.require import missing
from tests.support.scripted_upstream import Answer, Script, finished, gate, message, started
from tests.support.stack import Stack, parse_events, text_of

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

SETTINGS: Final = {**QUICK, "AGENT_MAX_ACTIVE_PER_APP": "50"}
BACK_SECONDS: Final = 60.0
"""For what has to happen once the server is back, on a busy machine; by itself it takes a backoff of 5 s at most."""


@pytest.fixture
def server() -> Iterator[EmbeddedPostgres]:
    """A server of the test's own, to be stopped."""
    try:
        binaries = find_binaries()
    except EmbeddedPostgresError as error:
        missing("postgresql", error.message)
        raise AssertionError from None
    with folder_for_server() as folder, EmbeddedPostgres(folder / "postgres", durable=False, binaries=binaries.folder) as running:
        yield running


def streamed(first: str, rest: str) -> Answer:
    return Answer(frames=[*started(), *message("m1", f"{first} before,"), gate(rest), *message("m2", f" {first} after"), finished()])


@asynccontextmanager
async def watching(replica: ReplicaProcess, application: ApplicationId, person: str, text: str) -> AsyncIterator["asyncio.Task[bytes]"]:
    """A browser that reads its stream to the end."""

    async def read() -> bytes:
        async with replica.client(person).stream(application, "s1", text) as response:
            assert response.status_code == 200
            return await response.aread()

    task = asyncio.create_task(read())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until_true(url: str, statement: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection, asyncio.timeout(BACK_SECONDS):
        while (await (await connection.execute(statement.encode())).fetchone()) != (True,):
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("seconds", [8.0, pytest.param(20.0, marks=pytest.mark.slow)])
async def test_a_stopped_database_loses_no_answer_and_admits_nothing(server: EmbeddedPostgres, seconds: float) -> None:
    url = server.create_database("gateway")
    migrate(url)
    await watch(url)
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(
            "insert into quota_rule (quota_rule_id, scope, task_limit, calendar_window) values (gen_random_uuid(), 'user', 9, 'month')"
        )
    async with (
        Stack.over(url) as stack,
        replica_process(url, changes=SETTINGS) as one,
        replica_process(url, changes=SETTINGS) as two,
    ):
        application = await stack.application()
        texts = {"ends during the outage": "during", "ends after the outage": "after"}
        by_text = {text: [streamed(text, name)] for text, name in texts.items()}
        stack.upstream.use(Script(ag_ui_by_text=by_text))
        people = {"during-1": (one, "during"), "during-2": (two, "during"), "after-1": (one, "after"), "after-2": (two, "after")}
        asked = {name: text for text, name in texts.items()}
        async with (
            watching(one, application, "during-1", asked["during"]) as during_1,
            watching(two, application, "during-2", asked["during"]) as during_2,
            watching(one, application, "after-1", asked["after"]) as after_1,
            watching(two, application, "after-2", asked["after"]) as after_2,
        ):
            await until_true(url, "select count(*) = 4 from run where native_run_id is not null and execution = 'running'")
            # One more has not been fenced yet: its thread comes while the database is away, so it cannot be sent.
            stack.upstream.use(Script(ag_ui_by_text=by_text, threads=[Answer(gate="thread"), Answer()]))
            unfenced = await one.client("unfenced").submit(application, "s1", "never sent")
            assert unfenced.status_code == 202
            await stack.upstream.waiting_at("thread")

            await asyncio.to_thread(server.stop)
            back_at = time.monotonic() + seconds
            stack.upstream.release("during")
            stack.upstream.release("thread")
            refused = await refused_until(back_at, application, one, two)
            await asyncio.to_thread(server.start)
            stack.upstream.release("after")

            answers = await asyncio.wait_for(asyncio.gather(during_1, during_2, after_1, after_2), BACK_SECONDS)
        for (_, name), raw in zip(people.values(), answers, strict=True):
            assert text_of(parse_events(raw)) == f"{asked[name]} before, {asked[name]} after"

        acknowledged = [Acknowledged("unfenced", "s1", "never sent", unfenced.json()["run_id"])]
        for person, (replica, name) in people.items():
            run = await until_over(replica, application, person, asked[name], acknowledged)
            assert (run["execution"], run["persistence"], run["reason"]) == ("succeeded", "saved", None)
            items = await replica.client(person).items(application, run["conversation_id"])
            assert [item["text"] for item in items] == [asked[name], f"{asked[name]} before,", f" {asked[name]} after"]
        run = await until_over(one, application, "unfenced", "never sent", acknowledged)
        assert run["execution"] == "released"
        assert stack.upstream.counts().ag_ui == 4
        # What was refused left nothing behind: the same submission is a new one, and executes once.
        for person in refused:
            run = await until_over(two, application, person, "refused at first", acknowledged)
            assert (run["execution"], run["persistence"]) == ("succeeded", "saved")
        assert stack.upstream.counts().ag_ui == 4 + len(refused)
        await assert_hold(url, [application], [stack.upstream], acknowledged)


async def refused_until(back_at: float, application: ApplicationId, *replicas: ReplicaProcess) -> list[str]:
    """While the database is away each submission is refused as one that may be sent again. Gives who was refused."""
    people: list[str] = []
    while time.monotonic() < back_at:
        for number, replica in enumerate(replicas):
            person = f"refused-{len(people)}-{number}"
            response = await replica.client(person).submit(application, "s1", "refused at first")
            assert response.status_code == 503, response.text
            assert response.json()["retry"] == "same-submission"
            people.append(person)
        await asyncio.sleep(0.1)
    return people


async def until_over(
    replica: ReplicaProcess, application: ApplicationId, person: str, text: str, acknowledged: list[Acknowledged]
) -> dict[str, Any]:
    """The run of the person's submission, sent again until it is told, and read until it is over and saved."""
    client = replica.client(person)
    async with asyncio.timeout(BACK_SECONDS):
        while not (response := await client.submit(application, "s1", text)).is_success:
            assert response.status_code == 503, response.text
            await asyncio.sleep(0.1)
        acknowledged.append(Acknowledged(person, "s1", text, response.json()["run_id"]))
        while True:
            run = await client.run(application, response.json()["run_id"])
            if run["finished_at"] is not None and run["persistence"] != "pending":
                return run
            await asyncio.sleep(0.05)
