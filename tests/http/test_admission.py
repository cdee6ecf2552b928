"""Admission over real sockets: the one order of checks, what refusals cost (nothing), moderation, quota."""

import asyncio
import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from gateway.admission.local_rules import LocalRules
from gateway.admission.moderation import Asked, Judgement, Provider
from gateway.bindings import applications, providers
from gateway.bindings.applications import Visibility
from gateway.domain.limits import MAX_TEXT_CHARACTERS
from gateway.domain.problems import Code
from gateway.domain.quota import CalendarWindow, Scope, Window
from gateway.store import quotas
from tests.support.scripted_upstream import Answer, Script, finished, gate, message, started
from tests.support.stack import Stack

pytestmark = pytest.mark.anyio

TABLES = ("account", "conversation", "submission", "run", "item", "snapshot", "binding", "evidence", "quota_usage", "quota_charge")


class Broken:
    """A moderator that cannot be asked."""

    provider = Provider.LOCAL

    async def judge(self, asked: Asked) -> Judgement:
        raise ConnectionError(asked.text)


class Hanging:
    """A moderator that never answers."""

    provider = Provider.LOCAL

    async def judge(self, asked: Asked) -> Judgement:
        await asyncio.Event().wait()
        return Judgement()


async def sql(stack: Stack, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    async with await psycopg.AsyncConnection.connect(stack.database_url, autocommit=True) as connection:
        cursor = await connection.execute(statement.encode(), parameters)
        return await cursor.fetchall() if cursor.description else []


async def counts(stack: Stack) -> dict[str, int]:
    """Rows of every table that a submission can write."""
    return {table: (await sql(stack, f"select count(*) from {table}"))[0][0] for table in TABLES}


def code(response: Any) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", "malformed_request"),
        (b"{", "malformed_request"),
        (b"[]", "malformed_request"),
        (b'{"submission_id":"s"}', "malformed_request"),
        (b'{"submission_id":"s","text":["BAD"]}', "malformed_request"),
        (b'{"submission_id":"s","text":"ok","content":[{"type":"text","text":"BAD"}]}', "malformed_request"),
        (b'{"submission_id":"s","text":"ok","metadata":{"text":"BAD"}}', "malformed_request"),
        (b'{"submission_id":"s","text":"BAD","text":"ok"}', "malformed_request"),
        (b'{"submission_id":"s","text":"ok","conversation_id":"7"}', "malformed_request"),
        (b'{"submission_id":"s","text":"ok","conversation_id":NaN}', "malformed_request"),
        (b'{"submission_id":"","text":"ok"}', "malformed_request"),
        (b'{"submission_id":"s\\u0000","text":"ok"}', "malformed_request"),
        (b'{"submission_id":"s s","text":"ok"}', "malformed_request"),
        (b'{"submission_id":"' + b"s" * 201 + b'","text":"ok"}', "malformed_request"),
        (b'{"submission_id":"s","text":' + b"[" * 5000 + b"]" * 5000 + b"}", "malformed_request"),
        (b'{"submission_id":"s","text":' + b"1" * 5000 + b"}", "malformed_request"),
        (b'{"submission_id":"s","text":"\xff"}', "malformed_request"),
        (b'{"submission_id":"s","text":""}', "invalid_text"),
        (b'{"submission_id":"s","text":" \\n\\t"}', "invalid_text"),
        (b'{"submission_id":"s","text":"hi\\u0000"}', "invalid_text"),
        (b'{"submission_id":"s","text":"hi \\ud83d"}', "invalid_text"),
        (b'{"submission_id":"s","text":"' + b"a" * (MAX_TEXT_CHARACTERS + 1) + b'"}', "text_too_long"),
        (b'{"submission_id":"s","text":"' + b"\\u0001" * 11000 + b'"}', "text_too_long"),
    ],
)
async def test_o19_o27_o41_o46_bad_input_is_refused_with_its_code_and_costs_nothing(database_url: str, body: bytes, expected: str) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        ada = (await stack.replica()).client("ada")
        await ada.get("/api/internal/me")
        before = await counts(stack)
        headers = {**ada.headers, "Content-Type": "application/json"}
        response = await ada.http.post(f"/api/internal/apps/{application}/agent/runs", content=body, headers=headers)
        assert response.json()["code"] == expected
        assert await counts(stack) == before
        assert stack.upstream.counts().connections == 0


async def test_the_longest_text_arrives_byte_for_byte(database_url: str) -> None:
    text = "🙂" * (MAX_TEXT_CHARACTERS - 12) + 'é" \\ \u200d می'
    assert len(text) <= MAX_TEXT_CHARACTERS
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        ada = (await stack.replica()).client("ada")
        _, events = await ada.ask(application, "s1", text)
        assert events[-1].type == "RUN_FINISHED"
        assert stack.upstream.posts[0].text == text
        items = await ada.items(application, events[0].data["threadId"])
        assert items[0]["text"] == text


async def test_the_order_of_checks(database_url: str) -> None:
    """Each refusal with every later one due as well: the earlier speaks."""
    async with Stack.over(database_url) as stack:
        visible, hidden = await stack.application(), await stack.application(visibility=Visibility.GROUP, groups=("staff",))
        rules = LocalRules(["forbidden"])
        replica = await stack.replica(moderators=[rules])
        ada, bad_body = replica.client("ada"), {"text": 7}
        run = await ada.ask(visible, "first", "hello")
        conversation_id = run[1][0].data["threadId"]

        async def post(application: Any, body: Mapping[str, object], headers: Any = ada.headers) -> Any:
            return await ada.http.post(f"/api/internal/apps/{application}/agent/runs", json=body, headers=headers)

        forbidden = {"submission_id": "s1", "text": "forbidden", "conversation_id": conversation_id}
        replayed = {"submission_id": "first", "text": "hello"}
        assert code(await post(hidden, bad_body, {})) == (401, "unauthenticated")
        await sql(stack, "update account set state = 'suspended'")
        assert code(await post(hidden, bad_body)) == (403, "account_inactive")
        await sql(stack, "update account set state = 'active'")
        assert code(await post(hidden, bad_body)) == (404, "not_found")
        assert code(await post(visible, bad_body)) == (400, "malformed_request")
        await applications.set_enabled(stack.database, "app-0", enabled=False)
        assert (await post(visible, replayed)).status_code == 200
        assert code(await post(visible, {**replayed, "text": "other"})) == (409, "submission_conflict")
        missing = {**forbidden, "conversation_id": "00000000-0000-0000-0000-000000000000"}
        assert code(await post(visible, missing)) == (409, "app_disabled")
        await applications.set_enabled(stack.database, "app-0", enabled=True)
        replica.gateway.supervisor.draining = True
        assert code(await post(visible, missing)) == (404, "not_found")
        assert code(await post(visible, forbidden)) == (503, "draining")
        assert (await post(visible, replayed)).status_code == 200
        replica.gateway.supervisor.draining = False
        assert code(await post(visible, forbidden)) == (422, "moderation_refused")


async def test_a_provider_that_is_disabled_takes_no_new_work_and_history_stays(database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        ada = (await stack.replica()).client("ada")
        _, events = await ada.ask(application, "s1", "hello")
        await providers.set_enabled(stack.database, "app-0", enabled=False)
        assert code(await ada.submit(application, "s2", "hello")) == (409, "app_disabled")
        assert len(await ada.items(application, events[0].data["threadId"])) == 4


@pytest.mark.parametrize("moderator", [Broken(), Hanging()])
async def test_moderation_that_cannot_be_asked_refuses_and_costs_nothing(database_url: str, moderator: Any) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        settings = stack.settings(GATEWAY_MODERATION_SECONDS="0.2")
        ada = (await stack.replica(settings, moderators=[LocalRules([]), moderator])).client("ada")
        await ada.get("/api/internal/me")
        before = await counts(stack)
        response = await ada.submit(application, "s1", "hello")
        assert code(response) == (503, "moderation_unavailable")
        assert response.json()["retry"] == "same-submission"
        assert "retry-after" in response.headers
        assert await counts(stack) == before
        assert stack.upstream.counts().connections == 0
        asked = "select run_id, text_kind, position, provider, outcome, fault, mode from moderation_verdict order by position"
        fault = "timed_out" if isinstance(moderator, Hanging) else "failed"
        assert await sql(stack, asked) == [
            (None, "message", 0, "local", "allowed", None, "closed"),
            (None, "message", 1, "local", "unavailable", fault, "closed"),
        ]


async def test_verdicts_are_kept_with_the_run_or_without_one_and_never_the_text(database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        ada = (await stack.replica(moderators=[LocalRules(["forbidden"])])).client("ada")
        refused = await ada.submit(application, "s1", "a forbidden CANARY")
        assert code(refused) == (422, "moderation_refused")
        assert refused.json()["categories"] == ["denied_content"]
        assert "forbidden" not in refused.text
        assert "CANARY" not in refused.text
        admitted = (await ada.submit(application, "s2", "a welcome CANARY")).json()
        shown = (
            "select v.submission_id, v.run_id::text, v.provider, v.outcome, v.categories,"
            " v.text_sha256 = sha256(convert_to(i.text, 'UTF8')),"
            " v.duration_seconds between 0 and 5 from moderation_verdict v left join item i on i.run_id = v.run_id and i.position = 0"
            " order by v.verdict_id"
        )
        assert await sql(stack, shown) == [
            ("s1", None, "local", "refused", ["denied_content"], None, True),
            ("s2", admitted["run_id"], "local", "allowed", [], True, True),
        ]
        assert await sql(stack, "select v.text_sha256 from moderation_verdict v where run_id is null") == [
            (hashlib.sha256(b"a forbidden CANARY").digest(),)
        ]
        assert "CANARY" not in str(await sql(stack, "select v::text from moderation_verdict v"))


async def test_quota_is_told_in_headers_and_problems(database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        ada = (await stack.replica()).client("ada", groups=("staff",))
        unlimited = await ada.submit(application, "s0", "hello")
        assert not [name for name in unlimited.headers if name.startswith("ratelimit")]
        await ada.until_over(application, unlimited.json()["run_id"])
        day, month = Window(None, 86_400), Window(CalendarWindow.MONTH, None)
        of_user = await quotas.set_rule(
            stack.database, scope=Scope.USER, window=day, task_limit=2, application_id=application, group_name=None
        )
        of_group = await quotas.set_rule(
            stack.database, scope=Scope.GROUP, window=month, task_limit=9, application_id=None, group_name="staff"
        )
        user, group = f"user-in-app-1d-{str(of_user)[:8]}", f"group-month-{str(of_group)[:8]}"
        response, _ = await ada.ask(application, "s1", "hello")
        policies = sorted([f'"{user}";q=2;w=86400', f'"{group}";q=9;w=2678400'])
        assert sorted(response.headers["ratelimit-policy"].split(", ")) == policies
        assert re.fullmatch(rf'"{user}";r=1;t=\d+', response.headers["ratelimit"])
        replayed, _ = await ada.ask(application, "s1", "hello")
        assert "ratelimit" not in replayed.headers
        await ada.ask(application, "s2", "hello")
        refused = await ada.submit(application, "s3", "hello")
        problem = refused.json()
        assert code(refused) == (429, "quota_exhausted")
        assert refused.headers["ratelimit"] == f'"{user}";r=0;t={refused.headers["retry-after"]}'
        # a day that slides ends a slice of 24 minutes late, and the first task was charged moments ago
        assert 86_400 < int(refused.headers["retry-after"]) <= 86_400 + 1440
        resets_at = datetime.fromisoformat(problem["quota"].pop("resets_at"))
        assert abs(resets_at - datetime.now(UTC) - timedelta(seconds=int(refused.headers["retry-after"]))) < timedelta(seconds=60)
        assert problem["quota"] == {
            "policy": user, "scope": "user", "group": None, "only_this_app": True, "window": "1d", "limit": 2, "used": 2, "remaining": 0,
        }  # fmt: skip
        assert problem["exhausted"] == [user]


async def test_a_refusal_after_the_replay_look_up_yields_to_a_run_that_appeared(database_url: str) -> None:
    """The submission is admitted by another replica while this one is still asking its moderator."""

    class Late:
        provider = Provider.LOCAL

        def __init__(self) -> None:
            self.asked, self.answer = asyncio.Event(), asyncio.Event()

        async def judge(self, asked: Asked) -> Judgement:
            self.asked.set()
            await self.answer.wait()
            return Judgement(("denied_content",))

    async with Stack.over(database_url) as stack:
        application = await stack.application()
        late = Late()
        slow, quick = (await stack.replica(moderators=[late])).client("ada"), (await stack.replica()).client("ada")
        waiting = asyncio.create_task(slow.submit(application, "s1", "hello"))
        await late.asked.wait()
        admitted = await quick.submit(application, "s1", "hello")
        late.answer.set()
        response = await waiting
        assert (response.status_code, response.json()["run_id"]) == (200, admitted.json()["run_id"])


async def test_quota_is_charged_once_and_comes_back_only_for_what_was_never_sent(database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        await sql(
            stack,
            "insert into quota_rule (quota_rule_id, scope, task_limit, calendar_window) values (gen_random_uuid(), 'user', 2, 'month')",
        )
        ada = (await stack.replica()).client("ada")
        stack.upstream.use(Script(threads=[Answer(http_status=500)]))
        _, released = await ada.ask(application, "never-sent", "hello")
        assert released[-1].data["code"] == "thread_failed"
        assert await _used(stack) == 0
        stack.upstream.use(Script(ag_ui=[Answer(http_status=429)]))
        _, failed = await ada.ask(application, "refused", "hello")
        assert failed[-1].data["code"] == "upstream_rejected"
        assert await _used(stack) == 1
        stack.upstream.use(Script())
        await ada.ask(application, "done", "hello")
        await ada.ask(application, "done", "hello")
        assert await _used(stack) == 2
        exhausted = await ada.submit(application, "more", "hello")
        assert code(exhausted) == (429, Code.QUOTA_EXHAUSTED.value)
        assert int(exhausted.headers["retry-after"]) > 0
        assert await _used(stack) == 2
        ben = (await stack.replica()).client("ben")
        assert (await ben.submit(application, "more", "hello")).status_code == 202
        ledger = await sql(stack, "select count(*) filter (where refunded_at is null), count(*) from quota_charge")
        assert ledger == [(3, 4)]


async def test_quota_of_an_application_and_of_a_group_are_not_overshot(database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        insert = "insert into quota_rule (quota_rule_id, scope, application_id, group_name, task_limit, calendar_window) values "
        await sql(stack, insert + "(gen_random_uuid(), 'app', %s, null, 5, 'day')", application)
        await sql(stack, insert + "(gen_random_uuid(), 'group', null, 'staff', 3, 'hour')")
        settings = stack.settings(AGENT_MAX_ACTIVE_PER_APP="100")
        replicas = [await stack.replica(settings), await stack.replica(settings)]
        hold = [*started(), gate("rest"), *message("m", "x"), finished()]
        stack.upstream.use(Script(ag_ui=[Answer(frames=hold)]))
        staff = [replicas[n % 2].client(f"staff-{n}", groups=("staff",)).submit(application, "s", "hi") for n in range(8)]
        others = [replicas[n % 2].client(f"other-{n}").submit(application, "s", "hi") for n in range(8)]
        responses = await asyncio.gather(*staff, *others)
        assert [response.status_code for response in responses[:8]].count(202) <= 3
        assert [response.status_code for response in responses].count(202) == 5
        assert {response.json()["code"] for response in responses if response.status_code == 429} == {"quota_exhausted"}
        stack.upstream.release("rest")


async def _used(stack: Stack) -> int:
    rows = await sql(stack, "select coalesce(sum(used), 0)::bigint from quota_usage")
    return int(rows[0][0])
