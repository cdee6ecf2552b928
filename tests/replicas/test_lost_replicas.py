"""What happens when a replica dies, or is only slow: leases, look-ups, checkpoints, late evidence."""

import asyncio
from typing import Any, Final

import psycopg
import pytest

from tests.support.faulty_replica import QUICK
from tests.support.processes import ReplicaProcess, replica_process
from tests.support.scripted_upstream import Answer, Frame, Script, finished, gate, message, started
from tests.support.stack import Client, Stack, parse_events, text_of

pytestmark = pytest.mark.anyio

OPEN_RUN: Final[list[Frame]] = [*started(), *message("m1", "what was seen"), gate("rest"), *message("m2", " and the rest"), finished()]


async def until(person: Client, application: Any, run_id: str, **wanted: Any) -> dict[str, Any]:
    """The run once it is as wanted."""
    async with asyncio.timeout(20):
        while True:
            run = await person.run(application, run_id)
            if all(run[name] == value for name, value in wanted.items()):
                return run
            await asyncio.sleep(0.05)


async def until_row(stack: Stack, statement: str, *parameters: Any) -> None:
    """Poll the database until `statement` gives true."""
    async with await psycopg.AsyncConnection.connect(stack.database_url, autocommit=True) as connection, asyncio.timeout(20):
        while True:
            row = await (await connection.execute(statement.encode(), parameters)).fetchone()
            if row is not None and row[0]:
                return
            await asyncio.sleep(0.05)


async def begin(stack: Stack, replica: ReplicaProcess, application: Any) -> str:
    """A run that waits upstream at the gate "rest", its native id recorded."""
    submitted = await replica.client("ada").submit(application, "s1", "hello")
    await stack.upstream.waiting_at("rest")
    run_id = str(submitted.json()["run_id"])
    await until_row(stack, "select native_run_id is not null from run where run_id = %s", run_id)
    return run_id


@pytest.mark.parametrize(
    ("status", "execution", "persistence", "attention", "slots"),
    [
        ("success", "succeeded", "incomplete", "user", 0),
        ("error", "failed", "incomplete", None, 0),
        ("running", "unknown", "partial", "operator", 1),
        ("strange", "unknown", "partial", "operator", 1),
    ],
)
async def test_o04_a_killed_replica_leaves_unknown_and_another_looks_the_run_up(
    database_url: str, status: str, execution: str, persistence: str, attention: str | None, slots: int
) -> None:
    async with (
        Stack.over(database_url) as stack,
        replica_process(database_url, changes=QUICK) as one,
        replica_process(database_url, changes=QUICK) as two,
    ):
        application = await stack.application()
        stack.upstream.use(Script(ag_ui=[Answer(frames=OPEN_RUN)], lookup_status={"*": status}))
        run_id = await begin(stack, one, application)
        await until_row(stack, "select exists (select from snapshot where run_id = %s)", run_id)  # a checkpoint
        one.kill()
        ada = two.client("ada")
        run = await until(ada, application, run_id, execution=execution, attention=attention)
        assert run["persistence"] == persistence
        items = await ada.items(application, run["conversation_id"])
        assert [item["text"] for item in items] == ["hello", "what was seen"]
        await until_row(stack, "select count(*) = %s from run where user_slot is not null", slots)
        assert stack.upstream.counts().ag_ui == 1
        if execution == "unknown":
            # The budget is used up: a look-up that would be due is not made.
            assert stack.upstream.counts().lookups == 4
            due = "select greatest(next_lookup_at, updated_at + interval '2 seconds') < clock_timestamp() from run where run_id = %s"
            await until_row(stack, due, run_id)
            assert stack.upstream.counts().lookups == 4
            # A person asks: one more, which settles it.
            stack.upstream.use(Script(lookup_status={"*": "success"}))
            refreshed = await ada.http.post(f"/api/internal/apps/{application}/agent/runs/{run_id}/refresh", headers=ada.headers)
            assert (refreshed.status_code, refreshed.json()["execution"]) == (202, "unknown")
            run = await until(ada, application, run_id, execution="succeeded", persistence="incomplete", attention="user")
            assert stack.upstream.counts().lookups == 5
        if run["attention"] == "user":
            await accept(ada, application, run)


async def accept(ada: Client, application: Any, run: dict[str, Any]) -> None:
    """The conversation is blocked until its owner accepts the incomplete answer, and open then."""
    path = f"/api/internal/apps/{application}/agent/runs/{run['run_id']}/acknowledge"
    refused = await ada.submit(application, "next", "and now?", run["conversation_id"])
    assert (refused.json()["code"], refused.json()["blocked"]) == ("conversation_blocked", "incomplete_answer")
    for _ in range(2):
        accepted = await ada.http.post(path, headers=ada.headers)
        assert (accepted.status_code, accepted.json()["attention"]) == (200, None)
    going_on = await ada.submit(application, "next", "and now?", run["conversation_id"])
    assert going_on.status_code == 202
    nothing = await ada.http.post(path.replace(run["run_id"], going_on.json()["run_id"]), headers=ada.headers)
    assert (nothing.status_code, nothing.json()["code"]) == (409, "nothing_to_acknowledge")


async def test_o24_three_active_runs_of_a_killed_replica_are_each_handled_once(database_url: str) -> None:
    changes = {**QUICK, "AGENT_MAX_ACTIVE_PER_APP": "9"}
    async with (
        Stack.over(database_url) as stack,
        replica_process(database_url, changes=changes) as one,
        replica_process(database_url, changes=changes) as two,
        replica_process(database_url, changes=changes) as three,
    ):
        application = await stack.application()
        stack.upstream.use(Script(ag_ui=[Answer(frames=OPEN_RUN)], lookup_status={"*": "error"}))
        runs = [await one.client(f"user-{n}").submit(application, "s1", "hello") for n in range(3)]
        await until_row(stack, "select count(*) = 3 from run where native_run_id is not null")
        one.kill()
        for number, response in enumerate(runs):
            person = (two if number % 2 else three).client(f"user-{number}")
            await until(person, application, response.json()["run_id"], execution="failed")
        assert stack.upstream.counts().ag_ui == 3
        assert set(stack.upstream.counts().lookups_by_native_run_id.values()) == {1}
        again = await two.client("user-0").submit(application, "s2", "hello")
        assert again.status_code == 202


async def test_a_replica_that_was_only_slow_brings_its_complete_answer(database_url: str) -> None:
    """Frozen for longer than its lease: unknown meanwhile; thawed, it settles with the true end and the whole text."""
    async with (
        Stack.over(database_url) as stack,
        replica_process(database_url, changes=QUICK) as one,
        replica_process(database_url, changes=QUICK) as two,
    ):
        application = await stack.application()
        stack.upstream.use(Script(ag_ui=[Answer(frames=OPEN_RUN)], lookup_status={"*": "running"}))
        run_id = await begin(stack, one, application)
        one.freeze()
        ada = two.client("ada")
        await until(ada, application, run_id, execution="unknown")
        stack.upstream.release("rest")
        one.thaw()
        run = await until(ada, application, run_id, execution="succeeded", persistence="saved")
        items = await ada.items(application, run["conversation_id"])
        assert "".join(item["text"] for item in items[1:]) == "what was seen and the rest"


async def test_late_complete_text_is_kept_after_a_look_up_settled_first(database_url: str) -> None:
    async with (
        Stack.over(database_url) as stack,
        replica_process(database_url, changes=QUICK) as one,
        replica_process(database_url, changes=QUICK) as two,
    ):
        application = await stack.application()
        stack.upstream.use(Script(ag_ui=[Answer(frames=OPEN_RUN)], lookup_status={"*": "success"}))
        run_id = await begin(stack, one, application)
        one.freeze()
        ada = two.client("ada")
        await until(ada, application, run_id, execution="succeeded", persistence="incomplete", attention="user")
        stack.upstream.release("rest")
        one.thaw()
        run = await until(ada, application, run_id, persistence="saved")
        assert (run["execution"], run["attention"], run["snapshot"]["complete"]) == ("succeeded", None, True)


async def test_a_run_that_was_never_fenced_is_released_and_its_charge_returned(database_url: str) -> None:
    async with (
        Stack.over(database_url) as stack,
        replica_process(database_url, changes=QUICK) as one,
        replica_process(database_url, changes=QUICK) as two,
    ):
        application = await stack.application()
        async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
            await connection.execute(
                "insert into quota_rule (quota_rule_id, scope, task_limit, calendar_window) values (gen_random_uuid(), 'user', 5, 'day')"
            )
        stack.upstream.use(Script(threads=[Answer(gate="thread")]))
        submitted = await one.client("ada").submit(application, "s1", "hello")
        await stack.upstream.waiting_at("thread")
        one.kill()
        ada = two.client("ada")
        run = await until(ada, application, submitted.json()["run_id"], execution="released")
        assert run["reason"] == "lease_lost"
        await until_row(stack, "select sum(used) = 0 from quota_usage")
        stack.upstream.release("thread")
        assert stack.upstream.counts().ag_ui == 0
        assert (await ada.submit(application, "s2", "hello")).status_code == 202


async def test_o03_another_replica_serves_the_stream_from_checkpoints(database_url: str) -> None:
    async with (
        Stack.over(database_url) as stack,
        replica_process(database_url, changes=QUICK) as one,
        replica_process(database_url, changes=QUICK) as two,
    ):
        application = await stack.application()
        stack.upstream.use(Script(ag_ui=[Answer(frames=OPEN_RUN)]))
        run_id = await begin(stack, one, application)
        async with two.client("ada").watch(application, run_id) as response:
            pieces = response.aiter_raw()
            raw = b""
            while "what was seen" not in text_of(parse_events(raw)):
                raw += await anext(pieces)
            run = await two.client("ada").run(application, run_id)
            assert (run["execution"], run["persistence"], run["snapshot"]["complete"]) == ("running", "partial", False)
            stack.upstream.release("rest")
            async for piece in pieces:
                raw += piece
        events = parse_events(raw)
        assert text_of(events) == "what was seen and the rest"
        assert events[-1].type == "RUN_FINISHED"


async def test_a_living_owner_is_not_expired(database_url: str) -> None:
    async with (
        Stack.over(database_url) as stack,
        replica_process(database_url, changes=QUICK) as one,
        replica_process(database_url, changes=QUICK),
    ):
        application = await stack.application()
        stack.upstream.use(Script(ag_ui=[Answer(frames=OPEN_RUN)]))
        run_id = await begin(stack, one, application)
        # Two whole leases pass, by the database's clock.
        await until_row(stack, "select clock_timestamp() > created_at + interval '4.5 seconds' from run where run_id = %s", run_id)
        run = await one.client("ada").run(application, run_id)
        assert run["execution"] == "running"
        stack.upstream.release("rest")
        await until(one.client("ada"), application, run_id, execution="succeeded", persistence="saved")
