"""Ends of runs that do not go the usual way: a database that refuses, an owner that was too slow, answers that come late."""

import asyncio
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from gateway.admission.local_rules import LocalRules
from gateway.admission.moderation import Asked, TextKind
from gateway.domain.ids import AccountId, ApplicationId
from gateway.store import leases, lookups
from tests.faults.test_lost_answers import proxied
from tests.support.faulty_replica import QUICK
from tests.support.scripted_upstream import Answer, Script, event, finished, gate, message, started
from tests.support.stack import Client, Stack, parse_events, text_of
from tests.support.tcp_proxy import CutAfterAnswer, CutBeforeQuery, Pass

pytestmark = pytest.mark.anyio


async def sql(stack: Stack, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    async with await psycopg.AsyncConnection.connect(stack.database_url, autocommit=True) as connection:
        cursor = await connection.execute(statement.encode(), parameters)
        return await cursor.fetchall() if cursor.description else []


async def until(stack: Stack, statement: str, *parameters: Any) -> None:
    """Poll until `statement` gives true."""
    async with asyncio.timeout(20):
        while not (await sql(stack, statement, *parameters))[0][0]:
            await asyncio.sleep(0.05)


async def until_run(person: Client, application: Any, run_id: str, **wanted: Any) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while True:
            run = await person.run(application, run_id)
            if all(run[name] == value for name, value in wanted.items()):
                return run
            await asyncio.sleep(0.05)


async def test_items_that_the_database_refuses_leave_the_answer_pending_and_it_is_saved_when_they_can_be(database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        ada = (await stack.replica(stack.settings(**QUICK))).client("ada")
        await sql(
            stack,
            "create function refuse() returns trigger language plpgsql as "
            "$$ begin if new.role = 'assistant' then raise exception 'disk full'; end if; return new; end $$",
        )
        await sql(stack, "create trigger refuse before insert on item for each row execute function refuse()")
        _, events = await ada.ask(application, "s1", "hello")
        assert (events[-1].type, events[-1].data["code"]) == ("RUN_ERROR", "save_failed")
        run = await ada.run(application, events[0].data["runId"])
        assert (run["execution"], run["persistence"], run["snapshot"]["complete"]) == ("succeeded", "pending", True)
        assert run["poll_after_seconds"] is not None
        items = await ada.items(application, run["conversation_id"])
        assert [item["position"] for item in items] == [0, 1, 2, 3]
        blocked = await ada.submit(application, "s2", "again", run["conversation_id"])
        assert (blocked.json()["code"], blocked.json()["blocked"]) == ("conversation_blocked", "save_pending")
        await sql(stack, "drop trigger refuse on item")
        refresh = f"/api/internal/apps/{application}/agent/runs/{run['run_id']}/refresh"
        assert (await ada.http.post(refresh, headers=ada.headers)).status_code == 202
        saved = await until_run(ada, application, run["run_id"], persistence="saved")
        assert saved["snapshot"]["sha256"] == run["snapshot"]["sha256"]
        assert await ada.items(application, run["conversation_id"]) == items
        assert stack.upstream.counts().ag_ui == 1


async def test_what_a_holder_saw_after_its_run_expired_is_kept_and_the_run_is_looked_up(database_url: str) -> None:
    """Expired before the native id was known; then it comes, text is shown, and the stream breaks."""
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        ada = (await stack.replica(stack.settings(**QUICK))).client("ada")
        frames = [
            event("RUN_STARTED", threadId="{threadId}", runId="{runId}"),
            gate("native"),
            event("CUSTOM", name="native_run", value={"run_id": "{nativeRunId}"}),
            *message("m1", "shown to the browser"),
            gate("rest"),
        ]
        stack.upstream.use(Script(ag_ui=[Answer(frames=frames, ending="unfinished", ends_as="success")]))
        asking = asyncio.create_task(ada.ask(application, "s1", "hi"))
        await stack.upstream.waiting_at("native")
        await until(stack, "select started_at is not null from run")
        await sql(stack, "update run set lease_until = clock_timestamp() - interval '1 second'")
        await leases.expire(stack.database, lookup_first_seconds=0.2)
        assert await sql(stack, "select execution, attention from run") == [("unknown", "operator")]
        stack.upstream.release("native")
        await stack.upstream.waiting_at("rest")
        await until(stack, "select exists (select from snapshot)")  # a checkpoint of an unknown run
        stack.upstream.release("rest")
        _, events = await asking
        assert text_of(events) == "shown to the browser"
        run = await until_run(ada, application, events[0].data["runId"], execution="succeeded", persistence="incomplete", attention="user")
        items = await ada.items(application, run["conversation_id"])
        assert [item["text"] for item in items] == ["hi", "shown to the browser"]
        async with ada.watch(application, run["run_id"]) as response:
            ending = parse_events(await response.aread())[-1]
        assert (ending.type, ending.data["code"]) == ("RUN_ERROR", "incomplete_answer")


async def test_a_look_up_answer_that_comes_after_the_end_changes_nothing(database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        ada = (await stack.replica()).client("ada")
        stack.upstream.use(Script(ag_ui=[Answer(frames=[*started(), *message("m", "x"), gate("rest"), finished()])]))
        asking = asyncio.create_task(ada.ask(application, "s", "hi"))
        await stack.upstream.waiting_at("rest")
        await until(stack, "select native_run_id is not null from run")
        await sql(stack, "update run set lease_until = clock_timestamp() - interval '1 second'")
        await leases.expire(stack.database, lookup_first_seconds=0.0)
        claim = uuid4()
        claimed = await lookups.claim(stack.database, claim, budget=30, first_seconds=1, limit=1)
        assert len(claimed) == 1
        stack.upstream.release("rest")
        _, events = await asking
        before = await ada.run(application, events[0].data["runId"])
        await lookups.note(stack.database, claimed[0].run_id, claim, status="active", native_status="active")
        await lookups.refuse(stack.database, claimed[0].run_id, claim, why="fingerprint_changed")
        assert await ada.run(application, events[0].data["runId"]) == before
        assert (before["execution"], before["native_status"]) == ("succeeded", None)
        assert await sql(stack, "select count(*) from evidence where kind in ('looked_up', 'lookup_refused')") == [(0,)]


async def test_a_broken_stream_is_never_told_as_complete_when_the_database_is_away(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.runs.settle.CONFIRM_SECONDS", 0.3)
    async with proxied(database_url) as (stack, proxy, replica):
        application = await stack.application()
        ada = replica.client("ada")
        stack.upstream.use(Script(ag_ui=[Answer(frames=[*started(), *message("m", "half"), gate("rest")], ending="unfinished")]))
        asking = asyncio.create_task(ada.ask(application, "s", "hi"))
        await stack.upstream.waiting_at("rest")
        await until(stack, "select native_run_id is not null from run")
        proxy.fault = CutBeforeQuery(b"insert into snapshot")
        stack.upstream.release("rest")
        _, events = await asking
        assert events[-1].data["code"] == "stream_ended"
        proxy.fault = Pass()


async def test_a_lost_admission_answer_and_a_lost_read_back_still_end_in_one_executed_run(database_url: str) -> None:
    async with proxied(database_url) as (stack, proxy, replica):
        application = await stack.application()
        ada = replica.client("ada")
        await ada.get("/api/internal/me")
        proxy.fault = CutAfterAnswer(b"COMMIT")

        async def twice() -> None:
            await proxy.struck.wait()
            proxy.fault = CutBeforeQuery(b"r.config_version, r.token_version")
            await proxy.struck.wait()
            proxy.fault = Pass()

        striking = asyncio.create_task(twice())
        _, events = await ada.ask(application, "s1", "hi")
        await striking
        assert events[-1].type == "RUN_FINISHED"
        assert stack.upstream.counts().ag_ui == 1


async def test_limits_that_were_lowered_hold_for_slots_that_were_taken_before(database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        hold = [*started(), gate("rest"), finished()]
        stack.upstream.use(Script(ag_ui_by_text={"short": [Answer()]}, ag_ui=[Answer(frames=hold)]))
        wide = await stack.replica(stack.settings(AGENT_MAX_ACTIVE_PER_APP="4", AGENT_MAX_ACTIVE_PER_USER="4"))
        narrow = await stack.replica(stack.settings(AGENT_MAX_ACTIVE_PER_APP="2", AGENT_MAX_ACTIVE_PER_USER="2"))
        texts = ["short", "short", "long", "long"]
        stack.upstream.hold("rest")
        # The two short ones take the low numbers, and are over before the others, which keep the high ones.
        stack.upstream.use(Script(ag_ui=[Answer(frames=hold)]))
        runs = [(await wide.client("ada").submit(application, f"s{n}", text)).json() for n, text in enumerate(texts)]
        await stack.upstream.executed(4)
        low = [UUID(run["run_id"]) for run in runs[:2]]
        await sql(
            stack,
            "update run set execution = 'failed', persistence = 'saved', user_slot = null, application_slot = null, finished_at = now()"
            " where run_id = any (%s)",
            low,
        )
        assert await sql(stack, "select application_slot from run where application_slot is not null order by 1") == [(3,), (4,)]
        refused = await narrow.client("ada").submit(application, "one-more", "hi")
        assert (refused.status_code, refused.json()["code"]) == (429, "user_busy")
        refused = await narrow.client("ben").submit(application, "one-more", "hi")
        assert (refused.status_code, refused.json()["code"]) == (429, "app_busy")
        stack.upstream.release("rest")


async def test_refunds_and_admissions_take_quota_rows_in_one_order(database_url: str) -> None:
    """A refund of a run charged to two rules, while an admission holds the first of them and then wants the second: no deadlock."""
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        ada = (await stack.replica()).client("ada")
        stack.upstream.use(Script(ag_ui=[Answer(frames=[*started(), gate("rest"), finished()])]))
        rules: list[UUID] = []
        for _ in range(8):  # the order of a hash is by chance: several pairs of rules
            await sql(stack, "delete from quota_charge; delete from quota_usage; delete from quota_rule")
            rules = sorted(uuid4() for _ in range(2))
            for rule, scope in zip(rules, ("app", "user"), strict=True):
                await sql(
                    stack,
                    "insert into quota_rule (quota_rule_id, scope, application_id, task_limit, calendar_window)"
                    " values (%s, %s, %s, 100, 'day')",
                    rule,
                    scope,
                    application,
                )
            submitted = await ada.submit(application, str(rules[0]), "hi")
            run_id = submitted.json()["run_id"]
            await stack.upstream.waiting_at("rest")
            url = stack.database_url
            async with (
                await psycopg.AsyncConnection.connect(url) as admission,
                await psycopg.AsyncConnection.connect(url, autocommit=True) as refund,
            ):
                lock = "update quota_usage set used = used + 1 where quota_rule_id = %s"
                await admission.execute(lock, (rules[0],))
                refunding = asyncio.create_task(refund.execute("select refund_v1(array[%s]::uuid[])", (run_id,)))
                await until(stack, "select exists (select from pg_stat_activity where wait_event_type = 'Lock')")
                await admission.execute(lock, (rules[1],))  # a deadlock would be raised here or there
                await admission.rollback()
                await refunding
            stack.upstream.release("rest")
            await ada.until_over(application, run_id)
            stack.upstream.hold("rest")
        assert await sql(stack, "select sum(used)::int from quota_usage") == [(0,)]


async def test_an_application_for_human_approval_is_not_run_without_it(database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        await sql(stack, "update application set human_input = true")
        ada = (await stack.replica()).client("ada")
        admitted = await ada.submit(application, "s1", "hi")
        run = await ada.until_over(application, admitted.json()["run_id"])
        assert (run["execution"], run["reason"]) == ("released", "capabilities_failed")
        assert (stack.upstream.counts().threads, stack.upstream.counts().ag_ui) == (0, 0)


async def test_o36_a_token_that_does_not_open_is_refused_before_admission_and_stops_no_look_up_elsewhere(database_url: str) -> None:
    other_key = {"API_ENCRYPTION_KEY": "eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHg="}
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        wrong = await stack.replica(stack.settings(**QUICK, **other_key))
        refused = await wrong.client("ada").submit(application, "s1", "hi")
        assert (refused.status_code, refused.json()["code"]) == (409, "app_disabled")
        assert await sql(stack, "select count(*) from run") == [(0,)]
        # The replica with the wrong ring claims the look-up first; the one with the right ring makes it later.
        frames = [*started(), *message("m", "half")]
        stack.upstream.use(Script(ag_ui=[Answer(frames=frames, ending="unfinished", ends_as="success")]))
        right = await stack.replica(stack.settings(**{**QUICK, "GATEWAY_RECONCILE_SECONDS": "0.5"}))
        _, events = await right.client("ada").ask(application, "s1", "hi")
        run = await until_run(right.client("ada"), application, events[0].data["runId"], execution="succeeded")
        assert run["persistence"] == "incomplete"


async def test_slow_look_ups_delay_no_expiry(database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        replica = await stack.replica(stack.settings(**QUICK, AGENT_MAX_ACTIVE_PER_APP="60"))
        broken = Answer(frames=[*started(), *message("m", "x")], ending="unfinished", ends_as="running")
        stack.upstream.use(Script(ag_ui=[broken], lookup=[Answer(hang=True)]))
        for number in range(20):
            await replica.client(f"user-{number}").submit(application, "s", "hi")
        await until(stack, "select count(*) = 20 from run where execution = 'unknown'")
        # As many as one replica has under way; none of them ends.
        async with asyncio.timeout(20):
            while stack.upstream.counts().lookups < 8:
                await asyncio.sleep(0.05)
        stack.upstream.use(Script(ag_ui=[Answer(frames=[*started(), gate("rest"), finished()])], lookup=[Answer(hang=True)]))
        late = await replica.client("late").submit(application, "s", "hi")
        await stack.upstream.waiting_at("rest")
        # As if another replica had held it, and died.
        await sql(
            stack,
            "update run set attempt_token = gen_random_uuid(), lease_until = clock_timestamp() where run_id = %s",
            late.json()["run_id"],
        )
        async with asyncio.timeout(5):  # a look-up takes ten seconds to give up
            await until(stack, "select execution = 'unknown' from run where run_id = %s", late.json()["run_id"])
        stack.upstream.release("rest")


async def test_a_heartbeat_survives_what_nobody_expected(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    beats, recovered = 0, asyncio.Event()
    beat = leases.beat

    async def sometimes(*arguments: Any, **named: Any) -> None:
        nonlocal beats
        beats += 1
        if beats == 2:
            raise RuntimeError("nobody expected this")
        await beat(*arguments, **named)
        if beats > 3:
            recovered.set()

    monkeypatch.setattr(leases, "beat", sometimes)
    async with Stack.over(database_url) as stack:
        await stack.replica(stack.settings(**QUICK))
        async with asyncio.timeout(10):
            await recovered.wait()


async def test_a_text_that_grows_when_normalised_cannot_make_the_search_long() -> None:
    rules = LocalRules([f"forbidden{number}" for number in range(1000)])

    async def allowed(text: str) -> bool:
        return (await rules.judge(Asked(text, TextKind.MESSAGE, AccountId(uuid4()), ApplicationId(uuid4())))).allowed

    assert not await allowed("\ufdfa" * 16_000)
    assert await allowed("\ufdfa blessings")


async def test_the_delete_receipt_names_a_run_that_was_admitted_at_that_moment(database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        ada = (await stack.replica()).client("ada")
        _, events = await ada.ask(application, "s1", "hi")
        conversation_id = events[0].data["threadId"]
        account_id = (await sql(stack, "select account_id from account"))[0][0]
        run_id = uuid4()
        async with await psycopg.AsyncConnection.connect(stack.database_url) as admission:
            await admission.execute(
                "select * from admit_v1(%s, %s, 's2', %s, %s, %s, 't', %s, %s, %s, %s, 'x', '{}', 5, 5, 30, 'UTC')",
                (account_id, application, b"0" * 32, conversation_id, uuid4(), run_id, uuid4(), uuid4(), uuid4()),
            )
            path = f"/api/internal/apps/{application}/agent/conversations/{conversation_id}"
            deleting = asyncio.create_task(ada.http.delete(path, headers=ada.headers))
            await until(stack, "select exists (select from pg_stat_activity where wait_event_type = 'Lock')")
            await admission.commit()
        assert (await deleting).json()["active_run_id"] == str(run_id)
