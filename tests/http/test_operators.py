"""Operators over the whole stack: what they see, and what they may record of a run in each state."""

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import httpx
import psycopg
import pytest

from gateway.admission.local_rules import LocalRules
from gateway.domain.audit import cli_actor
from gateway.domain.ids import ApplicationId
from gateway.store import admission_gate
from gateway.web.routes import PUBLIC_ROUTES
from tests.support.described import Described
from tests.support.scripted_upstream import Answer, Frame, Script, event, failed, finished, gate, message, started
from tests.support.stack import Client, Replica, Stack

pytestmark = pytest.mark.anyio

RUNS: Final = "/api/operator/runs"
AUDIT: Final = "/api/operator/audit"
STILL: Final = {"GATEWAY_RECONCILE_SECONDS": "3600", "AGENT_MAX_ACTIVE_PER_APP": "100"}
"""The reconciler does nothing that a test did not ask for."""
HALF: Final[list[Frame]] = [
    *started(),
    event("TEXT_MESSAGE_START", messageId="m1", role="assistant"),
    event("TEXT_MESSAGE_CONTENT", messageId="m1", delta="what was seen"),
]
NO_ID: Final[list[Frame]] = [HALF[0], *HALF[2:]]
BROKEN: Final = Script(ag_ui=[Answer(frames=HALF, ending="unfinished")])
NEVER_SEEN: Final = Script(ag_ui=[Answer(http_status=500)])
OUTCOMES: Final = ("succeeded", "failed", "not_executed")


@dataclass(frozen=True)
class Office:
    """A stack with one application and one operator."""

    stack: Stack
    replica: Replica
    application: ApplicationId
    operator: Client

    async def sql(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        async with await psycopg.AsyncConnection.connect(self.stack.database_url, autocommit=True) as connection:
            cursor = await connection.execute(statement.encode(), parameters)
            return await cursor.fetchall() if cursor.description else []

    async def run(self, script: Script, subject: str = "ada", conversation_id: str | None = None) -> str:
        """A run under `script`, over or unknown."""
        self.stack.upstream.use(script)
        person = self.replica.client(subject)
        response, events = await person.ask(self.application, str(uuid4()), "the question", conversation_id)
        assert response.status_code == 200, response.text
        return str(events[0].data["runId"])

    async def post(self, path: str, body: object = None, *, client: Client | None = None) -> httpx.Response:
        who = client or self.operator
        return await who.http.post(path, headers=who.headers, json=body)

    async def resolve(self, run_id: str, outcome: str, reason: str = "looked at the service", *, client: Client | None = None) -> Any:
        return await self.post(f"{RUNS}/{run_id}/resolve", {"outcome": outcome, "reason": reason}, client=client)

    async def see(self, run_id: str, **query: str) -> dict[str, Any]:
        response = await self.operator.get(f"{RUNS}/{run_id}", params=query)
        assert response.status_code == 200, response.text
        return dict(response.json())

    async def listed(self, **query: str) -> list[str]:
        response = await self.operator.get(RUNS, params=query)
        assert response.status_code == 200, response.text
        return [run["run_id"] for run in response.json()["runs"]]

    async def audited(self) -> list[tuple[str, str, str | None]]:
        """(actor, act, target) of what was done to runs, oldest first."""
        entries = (await self.operator.get(AUDIT, params={"limit": "200"})).json()["audit"]
        return [(entry["actor"], entry["act"], entry["target"]["id"]) for entry in reversed(entries) if entry["act"].startswith("run_")]

    async def time_passes(self, run_id: str) -> None:
        """The fence was an hour ago: whatever was under way has arrived."""
        await self.sql("update run set fence_at = fence_at - interval '1 hour' where run_id = %s", run_id)

    async def conversation_of(self, run_id: str) -> str:
        return str((await self.see(run_id))["conversation_id"])

    async def used(self) -> int:
        return int((await self.sql("select coalesce(sum(used), 0) from quota_usage"))[0][0])

    async def slots(self) -> int:
        return int((await self.sql("select count(*) from run where user_slot is not null"))[0][0])


@asynccontextmanager
async def office(database_url: str, changes: Mapping[str, str] = STILL) -> AsyncIterator[Office]:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        replica = await stack.replica(stack.settings(**changes))
        opened = Office(stack, replica, application, replica.client("olga", roles=("operator",)))
        await opened.sql(
            "insert into quota_rule (quota_rule_id, scope, application_id, task_limit, calendar_window) values (%s, 'app', %s, 999, 'day')",
            uuid4(),
            application,
        )
        yield opened


# --- who may ------------------------------------------------------------------------------------------------------------------------------


async def test_users_are_refused_and_strangers_are_not_known(database_url: str) -> None:
    async with office(database_url) as desk:
        run_id = await desk.run(NEVER_SEEN)
        user = desk.replica.client("ada")
        stranger = Client(desk.replica.http, {})
        body = {"outcome": "failed", "reason": "mine"}
        posts = [("lookup", None), ("retry-save", None), ("resolve", body)]
        for client, status, code in ((user, 403, "not_operator"), (stranger, 401, "unauthenticated")):
            answers = [await client.get(path) for path in (RUNS, f"{RUNS}/{run_id}", f"{RUNS}/{run_id}?text=true", AUDIT)]
            answers += [await desk.post(f"{RUNS}/{run_id}/{act}", sent, client=client) for act, sent in posts]
            assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {(status, code)}
        assert (await desk.see(run_id))["execution"] == "unknown"
        assert await desk.audited() == []


async def test_an_operator_by_account_may_and_loses_it_with_the_next_request(database_url: str) -> None:
    async with office(database_url) as desk:
        await desk.sql("insert into account (account_id, subject, roles) values (%s, 'ola', '{operator}')", uuid4())
        ola = desk.replica.client("ola")
        assert (await ola.get(RUNS)).status_code == 200
        await desk.sql("update account set state = 'suspended' where subject = 'ola'")
        assert (await ola.get(RUNS)).json()["code"] == "account_inactive"


# --- what they see ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [finished, failed])
async def test_what_a_run_cost_is_kept_with_its_evidence_as_numbers(database_url: str, end: Any) -> None:
    usage = [{"provider": "CANARY", "model": "CANARY", "inputTokens": 12, "outputTokens": 3}, {"inputTokens": 1, "prompt": "CANARY"}]
    async with office(database_url) as desk:
        run_id = await desk.run(Script(ag_ui=[Answer(frames=[*started(), *message("m", "x"), end(usage=usage)])]))
        [ended] = [fact for fact in (await desk.see(run_id))["evidence"] if fact["kind"] in ("run_finished", "run_error")]
        assert ended["detail"]["usage"] == {"input_tokens": 13, "output_tokens": 3}
        assert await desk.sql("select count(*) from evidence e where strpos(e::text, 'CANARY') > 0") == [(0,)]
        without = await desk.run(Script(ag_ui=[Answer(frames=[*started(), end()])]))
        assert "usage" not in (await desk.see(without))["evidence"][-1]["detail"]


async def test_a_run_with_its_evidence_what_it_blocks_and_which_acts_it_allows(database_url: str) -> None:
    async with office(database_url) as desk:
        run_id = await desk.run(BROKEN)
        run = await desk.see(run_id)
        assert (run["execution"], run["persistence"], run["subject"], run["app_name"]) == ("unknown", "partial", "ada", "app-0")
        assert run["unresolved"] is True
        assert run["blocks"] == {"conversation": "run_active", "slots": True, "app_changes": True}
        # "started" is a fact of its own only where it was committed before the stream broke
        assert [fact["kind"] for fact in run["evidence"] if fact["kind"] != "started"] == ["moderated", "fence", "stream_broken"]
        digest = hashlib.sha256(b"the question").hexdigest()
        verdict = {"provider": "none", "outcome": "allowed", "duration_seconds": 0, "text_kind": "message", "text_sha256": digest}
        assert run["evidence"][0]["detail"] == verdict
        assert [fact["at"] for fact in run["evidence"]] == sorted(fact["at"] for fact in run["evidence"])
        assert run["native_run_id_known"] is True
        assert (run["stored"]["complete"], run["snapshot"], run["message"]) == (False, None, None)
        acts = run["acts"]
        assert (acts["lookup"], acts["retry_save"]) == (True, False)
        assert [(one["outcome"], one["allowed"], one["why"]) for one in acts["resolve"]] == [
            ("succeeded", True, None),
            ("failed", True, None),
            ("not_executed", False, "evidence"),
        ]
        shown = str((run, (await desk.operator.get(RUNS)).json(), await desk.see(run_id, text="true")))
        for native in await desk.sql("select r.native_run_id, b.thread_id from run r join binding b using (conversation_id)"):
            assert not [one for one in native if one in shown]


async def test_text_only_when_asked_for_and_audited(database_url: str) -> None:
    async with office(database_url) as desk:
        run_id = await desk.run(BROKEN)
        assert "what was seen" not in str(await desk.see(run_id)) + str(await desk.see(run_id, text="false"))
        assert "the question" not in str(await desk.see(run_id)) + str((await desk.operator.get(RUNS)).json())
        assert await desk.audited() == []
        run = await desk.see(run_id, text="true")
        assert (run["message"], [item["text"] for item in run["snapshot"]["items"]]) == ("the question", ["what was seen"])
        assert await desk.audited() == [("web:olga", "run_text_read", run_id)]
        for path in (f"{RUNS}/{run_id}?text=1", f"{RUNS}/{run_id}?text=true&text=true"):
            assert (await desk.operator.get(path)).json()["code"] == "malformed_request"
        trail = (await desk.sql("select t::text from audit t"))[0][0]
        assert "question" not in trail
        assert "seen" not in trail


async def test_a_deleted_conversation_keeps_its_slot_and_shows_its_text_to_nobody(database_url: str) -> None:
    async with office(database_url) as desk:
        run_id = await desk.run(BROKEN)
        conversation_id = await desk.conversation_of(run_id)
        ada = desk.replica.client("ada")
        address = f"/api/internal/apps/{desk.application}/agent/conversations/{conversation_id}"
        assert (await ada.http.delete(address, headers=ada.headers)).status_code == 200
        assert await desk.listed() == [run_id]
        run = await desk.see(run_id, text="true")
        assert (run["conversation_deleted"], run["message"], run["snapshot"]) == (True, None, None)
        assert await desk.audited() == []
        assert (await desk.resolve(run_id, "failed")).status_code == 200
        assert await desk.slots() == 0


async def test_the_list_is_filtered_ordered_and_read_page_by_page(database_url: str) -> None:
    async with office(database_url) as desk:
        broken = [await desk.run(BROKEN, f"user-{n}") for n in range(3)]
        unseen = await desk.run(NEVER_SEEN, "user-3")
        saved = await desk.run(Script(), "user-4")
        other = await desk.stack.application()
        assert await desk.listed() == await desk.listed(state="unresolved") == [unseen, *reversed(broken)]
        assert await desk.listed(state="attention") == [unseen]
        assert await desk.listed(state="active") == [unseen, *reversed(broken)]
        assert await desk.listed(state="all") == [saved, unseen, *reversed(broken)]
        assert await desk.listed(state="waiting") == []
        assert await desk.listed(state="all", app_id=str(other)) == []
        assert await desk.listed(app_id=str(desk.application)) == [unseen, *reversed(broken)]
        found: list[str] = []
        query = {"state": "all", "limit": "2"}
        while True:
            page = (await desk.operator.get(RUNS, params=query)).json()
            found += [run["run_id"] for run in page["runs"]]
            if page["next"] is None:
                break
            last = query = {**query, "cursor": page["next"]}
        assert found == [saved, unseen, *reversed(broken)]
        for wrong in (
            {"state": "broken"},
            {"limit": "0"},
            {"app_id": "x"},
            {"cursor": "x"},
            {**last, "state": "unresolved"},
            {**last, "app_id": str(other)},
        ):
            assert (await desk.operator.get(RUNS, params=wrong)).json()["code"] == "malformed_request", wrong
        audit = await desk.operator.get(AUDIT, params={"cursor": last["cursor"]})
        assert audit.json()["code"] == "malformed_request"


async def test_what_does_not_exist_is_404(database_url: str) -> None:
    async with office(database_url) as desk:
        for run_id in (str(uuid4()), "x"):
            answers = [await desk.operator.get(f"{RUNS}/{run_id}"), await desk.resolve(run_id, "failed")]
            answers += [await desk.post(f"{RUNS}/{run_id}/{act}") for act in ("lookup", "retry-save")]
            assert {answer.json()["code"] for answer in answers} == {"not_found"}


async def test_the_trail_is_read_page_by_page(database_url: str) -> None:
    async with office(database_url) as desk:
        await desk.sql("select audit_v1('cli:root', 'run_lookup', 'run', n::text, null, '{}') from generate_series(1, 5) n")
        wanted = [int(row[0]) for row in await desk.sql("select audit_id from audit order by audit_id desc")]
        found: list[int] = []
        query = {"limit": "2"}
        while True:
            page = (await desk.operator.get(AUDIT, params=query)).json()
            found += [entry["audit_id"] for entry in page["audit"]]
            if page["next"] is None:
                break
            query["cursor"] = page["next"]
        assert found == wanted


# --- resolve ------------------------------------------------------------------------------------------------------------------------------


async def unknown_unseen(desk: Office, subject: str) -> str:
    return await desk.run(NEVER_SEEN, subject)


async def unknown_unseen_long_ago(desk: Office, subject: str) -> str:
    run_id = await desk.run(NEVER_SEEN, subject)
    await desk.time_passes(run_id)
    return run_id


async def unknown_started(desk: Office, subject: str) -> str:
    return await desk.run(Script(ag_ui=[Answer(frames=NO_ID, ending="unfinished")]), subject)


async def unknown_with_id(desk: Office, subject: str) -> str:
    return await desk.run(BROKEN, subject)


async def unknown_with_id_long_ago(desk: Office, subject: str) -> str:
    run_id = await desk.run(BROKEN, subject)
    await desk.time_passes(run_id)
    return run_id


async def waiting(desk: Office, subject: str) -> str:
    """A state of the native profile, written past the guards: nothing here brings it yet."""
    run_id = await desk.run(BROKEN, subject)
    await desk.sql("update run set execution = 'waiting', user_slot = null, application_slot = null where run_id = %s", run_id)
    return run_id


async def succeeded_incomplete(desk: Office, subject: str) -> str:
    return await looked_up(desk, subject, "success")


async def failed_incomplete(desk: Office, subject: str) -> str:
    return await looked_up(desk, subject, "error")


async def looked_up(desk: Office, subject: str, status: str) -> str:
    run_id = await desk.run(Script(ag_ui=BROKEN.ag_ui, lookup_status={"*": status}), subject)
    assert (await desk.post(f"{RUNS}/{run_id}/lookup")).json()["persistence"] == "incomplete"
    return run_id


async def succeeded_pending(desk: Office, subject: str) -> str:
    """As a save leaves it that could write the snapshot and not the items."""
    run_id = await desk.run(Script(), subject)
    await desk.sql("delete from item where run_id = %s and position > 0", run_id)
    await desk.sql("update run set persistence = 'pending', next_save_at = now() + interval '1 hour' where run_id = %s", run_id)
    return run_id


async def succeeded_saved(desk: Office, subject: str) -> str:
    return await desk.run(Script(), subject)


async def failed_saved(desk: Office, subject: str) -> str:
    return await desk.run(Script(ag_ui=[Answer(frames=[*HALF, event("RUN_ERROR", message="x")])]), subject)


async def released(desk: Office, subject: str) -> str:
    return await desk.run(Script(threads=[Answer(http_status=503)]), subject)


async def running(desk: Office, subject: str) -> str:
    desk.stack.upstream.use(Script(ag_ui=[Answer(frames=[*HALF, gate(subject)], ending="unfinished")]))
    run_id = await submitted(desk, subject)
    async with asyncio.timeout(10):
        while not (await desk.see(run_id))["native_run_id_known"]:
            await asyncio.sleep(0.02)
    return run_id


async def reserved(desk: Office, subject: str) -> str:
    desk.stack.upstream.use(Script(threads=[Answer(gate=subject, http_status=503)]))
    return await submitted(desk, subject)


async def submitted(desk: Office, subject: str) -> str:
    """A run that waits upstream at the gate of that name."""
    response = await desk.replica.client(subject).submit(desk.application, str(uuid4()), "the question")
    await desk.stack.upstream.waiting_at(subject)
    return str(response.json()["run_id"])


CLOSED, CLOSED_REFUNDED = ("closed", "incomplete", 0), ("closed", "incomplete", -1)
SUCCEEDED, FAILED = ("succeeded", "incomplete", 0), ("failed", "incomplete", 0)
NEVER: Final = ("state", "state", "state")
STATES: Final = {
    # the results of succeeded, failed, not_executed: (execution, persistence, change of the charge), or why it is refused
    unknown_unseen: ("too_early", "too_early", "too_early"),
    unknown_unseen_long_ago: (CLOSED, CLOSED, CLOSED_REFUNDED),
    unknown_started: (CLOSED, CLOSED, "evidence"),
    unknown_with_id: (CLOSED, CLOSED, "evidence"),
    unknown_with_id_long_ago: (CLOSED, CLOSED, "evidence"),
    waiting: (CLOSED, CLOSED, "evidence"),
    succeeded_incomplete: (SUCCEEDED, "evidence", "evidence"),
    failed_incomplete: ("evidence", FAILED, "evidence"),
    succeeded_pending: (SUCCEEDED, "evidence", "evidence"),
    succeeded_saved: NEVER,
    failed_saved: NEVER,
    released: NEVER,
    running: NEVER,
    reserved: NEVER,
}


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
async def test_every_outcome_from_every_state(database_url: str, state: Any) -> None:
    async with office(database_url) as desk:
        for number, (outcome, wanted) in enumerate(zip(OUTCOMES, STATES[state], strict=True)):
            run_id = await state(desk, f"user-{number}")
            before, used = await desk.see(run_id), await desk.used()
            said = {one["outcome"]: one for one in before["acts"]["resolve"]}[outcome]
            answer = await desk.resolve(run_id, outcome)
            after = await desk.see(run_id)
            if isinstance(wanted, str):
                problem = answer.json()
                assert (answer.status_code, problem["code"], problem["why"]) == (409, "resolution_not_allowed", wanted)
                assert (said["allowed"], said["why"], said["allowed_from"]) == (False, wanted, problem.get("allowed_from"))
                assert ("allowed_from" in problem) == ("retry-after" in answer.headers) == (wanted == "too_early")
                changes = {"acts", "updated_at", "evidence", "lease_live", "poll_after_seconds"}  # of what goes on by itself
                assert {name: value for name, value in after.items() if name not in changes} == {
                    name: value for name, value in before.items() if name not in changes
                }
                assert await desk.used() == used
                continue
            assert answer.status_code == 200
            assert answer.json() == after
            assert said == {"outcome": outcome, "allowed": True, "why": None, "allowed_from": None}
            assert (after["execution"], after["persistence"], await desk.used() - used) == wanted
            assert after["resolution"] == {"outcome": outcome, "reason": "looked at the service"}
            assert (after["resolved_by"], after["attention"], after["unresolved"]) == ("web:olga", None, False)
            assert after["blocks"] == {"conversation": None, "slots": False, "app_changes": False}
            assert after["finished_at"] is not None
            assert after["stored"] == before["stored"]
            assert [fact["kind"] for fact in after["evidence"]].count("resolved") == 1
            # The owner sees it, and the conversation goes on.
            owner = desk.replica.client(f"user-{number}")
            assert (await owner.run(desk.application, run_id))["resolution"] == after["resolution"]
            sent = (await owner.items(desk.application, after["conversation_id"]))[0]["state"]
            assert sent == ("not_sent" if outcome == "not_executed" else "accepted")
            following = await desk.run(Script(), f"user-{number}", after["conversation_id"])
            assert (await desk.see(following))["persistence"] == "saved"
        for number in range(len(OUTCOMES)):
            desk.stack.upstream.release(f"user-{number}")


async def test_the_gate_opens_by_the_databases_clock(database_url: str) -> None:
    quick = {
        "GATEWAY_LEASE_SECONDS": "2",
        "GATEWAY_HEARTBEAT_SECONDS": "0.3",
        "GATEWAY_SEND_WINDOW_SECONDS": "0.2",
        "GATEWAY_STREAM_IDLE_SECONDS": "1",
        "GATEWAY_STREAM_TOTAL_SECONDS": "1",
    }
    async with office(database_url, {**STILL, **quick}) as desk:
        run_id = await desk.run(NEVER_SEEN)
        early = await desk.resolve(run_id, "not_executed")
        assert (early.status_code, early.json()["why"], early.headers["retry-after"]) == (409, "too_early", "2")
        async with asyncio.timeout(10):
            while (answer := await desk.resolve(run_id, "not_executed")).status_code == 409:
                await asyncio.sleep(0.05)
        assert answer.json()["execution"] == "closed"
        ((from_then_on, waited),) = await desk.sql(
            "select fence_at + interval '1.2 seconds' = %s::timestamptz, resolved_at >= fence_at + interval '1.2 seconds' from run"
            " where run_id = %s",
            early.json()["allowed_from"],
            run_id,
        )
        assert (from_then_on, waited) == (True, True)


async def test_the_same_again_is_the_same_result_and_another_is_refused(database_url: str) -> None:
    async with office(database_url) as desk:
        run_id = await desk.run(BROKEN)
        first = await desk.resolve(run_id, "failed", "  seen in its log ")
        again = await desk.resolve(run_id, "failed", "seen in its log", client=desk.replica.client("ola", roles=("operator",)))
        assert (first.status_code, again.status_code) == (200, 200)
        assert first.json() == again.json()
        for outcome, reason in (("failed", "another reason"), ("succeeded", "seen in its log"), ("not_executed", "x")):
            other = await desk.resolve(run_id, outcome, reason)
            assert (other.status_code, other.json()["code"], other.json()["run_id"]) == (409, "already_resolved", run_id)
        assert await desk.audited() == [("web:olga", "run_resolve", run_id)]
        ((reason, detail),) = await desk.sql("select reason, detail from audit where act = 'run_resolve'")
        assert reason == "seen in its log"
        assert detail == {
            "outcome": "failed",
            "was_execution": "unknown",
            "was_persistence": "partial",
            "execution": "closed",
            "persistence": "incomplete",
            "refunded": False,
        }


MALFORMED: Final[list[tuple[object, str]]] = [
    ({"outcome": "failed", "reason": " "}, "invalid_text"),
    ({"outcome": "failed", "reason": "a\x00b"}, "invalid_text"),
    ({"outcome": "failed", "reason": "x" * 1001}, "text_too_long"),
    ({"outcome": "failed"}, "malformed_request"),
    ({"outcome": "failed", "reason": None}, "malformed_request"),
    ({"outcome": "released", "reason": "x"}, "malformed_request"),
    ({"outcome": ["failed"], "reason": "x"}, "malformed_request"),
    ({"outcome": "failed", "reason": "x", "text": "y"}, "malformed_request"),
    ([], "malformed_request"),
]


async def test_a_malformed_resolution_changes_nothing(database_url: str) -> None:
    async with office(database_url) as desk:
        run_id = await desk.run(BROKEN)
        for body, code in MALFORMED:
            assert (await desk.post(f"{RUNS}/{run_id}/resolve", body)).json()["code"] == code, body
        assert (await desk.see(run_id))["execution"] == "unknown"
        assert await desk.audited() == []


async def test_two_operators_at_once_have_one_winner(database_url: str) -> None:
    rounds = 20
    async with office(database_url) as desk:
        other = (await desk.stack.replica(desk.stack.settings(**STILL))).client("ola", roles=("operator",))
        runs = [await desk.run(BROKEN, f"user-{n}") for n in range(rounds)]
        for run_id in runs:
            answers = await asyncio.gather(
                desk.resolve(run_id, "succeeded"), desk.resolve(run_id, "failed", client=other), desk.resolve(run_id, "not_executed")
            )
            assert sorted(answer.status_code for answer in answers[:2]) == [200, 409]
            assert {answer.json()["code"] for answer in answers[:2] if answer.status_code == 409} == {"already_resolved"}
            assert answers[2].json()["code"] in ("resolution_not_allowed", "already_resolved")
            won = next(answer for answer in answers if answer.status_code == 200).json()
            assert (await desk.see(run_id))["resolution"] == won["resolution"]
        same = await desk.run(BROKEN, "user-same")
        alike = await asyncio.gather(*(desk.resolve(same, "failed", client=who) for who in (desk.operator, other) * 4))
        assert {answer.status_code for answer in alike} == {200}
        assert [target for _, _, target in await desk.audited()] == [*runs, same]
        ((resolved,),) = await desk.sql("select count(*) from evidence where kind = 'resolved'")
        assert resolved == rounds + 1
        assert await desk.slots() == 0


async def test_a_charge_comes_back_once_and_only_for_not_executed(database_url: str) -> None:
    async with office(database_url) as desk:
        run_id = await desk.run(NEVER_SEEN)
        await desk.time_passes(run_id)
        assert await desk.used() == 1
        answers = await asyncio.gather(*(desk.resolve(run_id, "not_executed") for _ in range(4)))
        assert {answer.status_code for answer in answers} == {200}
        assert await desk.used() == 0
        assert await desk.sql("select count(*) from quota_charge where refunded_at is not null") == [(1,)]


async def test_a_resume_that_was_not_executed_gives_the_decision_back(database_url: str) -> None:
    """The claim of a decision is set as the native profile will: nothing here makes a resume run yet."""
    async with office(database_url) as desk:
        asked = await waiting(desk, "ada")
        conversation_id = await desk.conversation_of(asked)
        await desk.sql("update run set execution = 'closed', resolution_outcome = 'failed', resolution_reason = 'x', resolved_at = now(),"
                       " finished_at = now() where run_id = %s", asked)  # fmt: skip
        resume = await desk.run(NEVER_SEEN, "ada", conversation_id)
        await desk.sql("update run set execution = 'waiting', resolution_outcome = null, resolution_reason = null, resolved_at = null,"
                       " finished_at = null, answered_by = %s where run_id = %s", resume, asked)  # fmt: skip
        await desk.sql("update run set kind = 'resume' where run_id = %s", resume)
        assert (await desk.see(asked))["answered_by"] == resume
        await desk.time_passes(resume)
        assert (await desk.resolve(resume, "not_executed")).status_code == 200
        run = await desk.see(asked)
        assert (run["execution"], run["answered_by"], run["blocks"]["conversation"]) == ("waiting", None, "waiting_for_decision")


async def test_late_complete_text_is_kept_and_changes_no_resolution(database_url: str) -> None:
    """An operator closes a run that its owner, only slow, still reads: the text comes and is saved; the run stays closed."""
    async with office(database_url) as desk:
        frames = [
            *HALF,
            gate("rest"),
            event("TEXT_MESSAGE_END", messageId="m1"),
            event("RUN_FINISHED", threadId="{threadId}", runId="{runId}"),
        ]
        desk.stack.upstream.use(Script(ag_ui=[Answer(frames=frames)]))
        ada = desk.replica.client("ada")
        submitted = (await ada.submit(desk.application, "s1", "the question")).json()
        run_id = submitted["run_id"]
        await desk.stack.upstream.waiting_at("rest")
        async with asyncio.timeout(10):
            while not (await desk.see(run_id))["native_run_id_known"]:
                await asyncio.sleep(0.02)
        await desk.sql("update run set execution = 'unknown', unknown_at = now() where run_id = %s", run_id)
        assert (await desk.resolve(run_id, "failed")).status_code == 200
        desk.stack.upstream.release("rest")
        run = await ada.until_over(desk.application, run_id)
        assert (run["execution"], run["persistence"], run["resolution"]["outcome"]) == ("closed", "saved", "failed")
        items = await ada.items(desk.application, submitted["conversation_id"])
        assert [(item["text"], item["complete"]) for item in items] == [("the question", True), ("what was seen", True)]
        assert await desk.slots() == 0


async def test_late_text_of_a_resolved_run_that_cannot_be_saved_is_given_up_by_the_same_again(database_url: str) -> None:
    """As a late holder leaves it that could write the snapshot and not the items."""
    async with office(database_url) as desk:
        run_id = await desk.run(BROKEN)
        assert (await desk.resolve(run_id, "failed")).status_code == 200
        await desk.sql("update run set persistence = 'pending', next_save_at = now() + interval '1 hour' where run_id = %s", run_id)
        run = await desk.see(run_id)
        assert (run["unresolved"], run["blocks"]["conversation"]) == (True, "save_pending")
        assert [one["outcome"] for one in run["acts"]["resolve"] if one["allowed"]] == ["failed"]
        assert (await desk.resolve(run_id, "failed", "another reason")).json()["code"] == "already_resolved"
        for _ in range(2):
            after = (await desk.resolve(run_id, "failed")).json()
            assert (after["execution"], after["persistence"], after["unresolved"]) == ("closed", "incomplete", False)
            assert (after["resolution"], after["resolved_at"]) == (run["resolution"], run["resolved_at"])
        assert await desk.audited() == [("web:olga", "run_resolve", run_id)] * 2


# --- look up, save ------------------------------------------------------------------------------------------------------------------------


async def test_a_look_up_is_granted_done_and_audited(database_url: str) -> None:
    async with office(database_url) as desk:
        run_id = await desk.run(Script(ag_ui=BROKEN.ag_ui, lookup_status={"*": "running"}))
        for number in (1, 2):
            run = (await desk.post(f"{RUNS}/{run_id}/lookup")).json()
            assert (run["execution"], run["native_status"], run["lookups"]) == ("unknown", "active", number)
        desk.stack.upstream.use(Script(lookup_status={"*": "error"}))
        run = (await desk.post(f"{RUNS}/{run_id}/lookup")).json()
        assert (run["execution"], run["reason"]) == ("failed", "upstream_error")
        assert [fact["kind"] for fact in run["evidence"]][-3:] == ["looked_up"] * 3
        assert desk.stack.upstream.counts().lookups == 3
        assert desk.stack.upstream.counts().ag_ui == 1
        # Nothing more to ask: given as it is, and no act.
        assert (await desk.post(f"{RUNS}/{run_id}/lookup")).json()["execution"] == "failed"
        assert await desk.audited() == [("web:olga", "run_lookup", run_id)] * 3


async def test_a_run_without_a_native_id_is_not_looked_up(database_url: str) -> None:
    async with office(database_url) as desk:
        run_id = await desk.run(NEVER_SEEN)
        run = (await desk.post(f"{RUNS}/{run_id}/lookup")).json()
        assert (run["execution"], run["acts"]["lookup"], run["attention"]) == ("unknown", False, "operator")
        assert desk.stack.upstream.counts().lookups == 0
        assert await desk.audited() == []


async def test_a_pending_run_is_saved_now_from_its_stored_bytes(database_url: str) -> None:
    async with office(database_url) as desk:
        run_id = await succeeded_pending(desk, "ada")
        before = await desk.see(run_id)
        assert (before["acts"]["retry_save"], before["blocks"]["conversation"]) == (True, "save_pending")
        for _ in range(2):
            run = (await desk.post(f"{RUNS}/{run_id}/retry-save")).json()
            assert (run["persistence"], run["stored"]) == ("saved", before["stored"])
        items = await desk.replica.client("ada").items(desk.application, run["conversation_id"])
        assert [item["position"] for item in items] == [0, 1, 2, 3]
        assert desk.stack.upstream.counts().ag_ui == 1
        assert await desk.audited() == [("web:olga", "run_save_retry", run_id)]


async def test_o21_a_run_that_is_running_for_ever_is_settled_by_one_act(database_url: str) -> None:
    budget = 3
    quick = {"GATEWAY_LOOKUP_MAX": str(budget), "GATEWAY_LOOKUP_FIRST_SECONDS": "0.05"}
    async with office(database_url, {**STILL, **quick}) as desk:
        ada = desk.replica.client("ada")
        run_id = await desk.run(Script(ag_ui=BROKEN.ag_ui, lookup_status={"*": "running"}))
        conversation_id = await desk.conversation_of(run_id)
        async with asyncio.timeout(20):
            while await desk.listed(state="attention") != [run_id]:
                await desk.replica.gateway.reconciler.sweep()
        for _ in range(3):
            await desk.sql("update run set next_lookup_at = now() - interval '1 hour'")
            await desk.replica.gateway.reconciler.sweep()
        assert desk.stack.upstream.counts().lookups == budget
        # The slot stays, and the owner is told who is asked.
        run = await ada.run(desk.application, run_id)
        assert (run["execution"], run["attention"], run["native_status"]) == ("unknown", "operator", "active")
        assert (await ada.submit(desk.application, "s2", "again")).json()["code"] == "user_busy"
        assert (await ada.submit(desk.application, "s2", "again", conversation_id)).json()["code"] == "conversation_busy"
        # By hand one more, and no more than that.
        assert (await desk.post(f"{RUNS}/{run_id}/lookup")).json()["lookups"] == budget + 1
        await desk.sql("update run set next_lookup_at = now() - interval '1 hour'")
        await desk.replica.gateway.reconciler.sweep()
        assert desk.stack.upstream.counts().lookups == budget + 1
        assert (await desk.resolve(run_id, "failed", "its worker died")).status_code == 200
        assert await desk.listed() == []
        assert await desk.slots() == 0
        assert (await desk.see(await desk.run(Script(), "ada", conversation_id)))["persistence"] == "saved"
        assert desk.stack.upstream.counts().ag_ui == 2
        assert await desk.audited() == [("web:olga", "run_lookup", run_id), ("web:olga", "run_resolve", run_id)]


# --- live numbers -------------------------------------------------------------------------------------------------------------------------


async def test_the_overview_tells_what_is_under_way_and_what_came_to_nothing(database_url: str) -> None:
    async with office(database_url) as desk:
        idle = await desk.stack.application()
        strict = await desk.stack.replica(desk.stack.settings(**STILL), moderators=[LocalRules(["forbidden"])])
        assert (await strict.client("ada").submit(desk.application, "s", "a forbidden word")).json()["code"] == "moderation_refused"
        other = await desk.stack.replica(desk.stack.settings(**STILL, API_ENCRYPTION_KEY=base64.b64encode(b"o" * 32).decode()))
        for replica in (desk.replica, other, strict):
            await replica.gateway.heartbeat.beat()

        async def overview() -> dict[str, Any]:
            answer = await desk.operator.get("/api/operator/overview")
            assert answer.status_code == 200, answer.text
            await Described(PUBLIC_ROUTES).check(answer)
            return dict(answer.json())

        seen = await overview()
        counts = ("active_runs", "waiting_runs", "unresolved_runs", "attention_runs")
        assert [seen[name] for name in counts] == [0, 0, 0, 0]
        assert (seen["saving"], seen["refusals"]["by_reason"]) == ({"pending": 0, "oldest_seconds": None}, [])
        assert (seen["refusals"]["moderation_refused"], seen["refusals"]["moderation_unavailable"]) == (1, 0)
        assert {replica["replica_id"]: (replica["same_keys"], replica["key_ids"]) for replica in seen["replicas"]} == {
            str(replica.gateway.heartbeat.replica_id): (replica is not other, list(replica.gateway.vault.key_ids))
            for replica in (desk.replica, other, strict)
        }
        assert all(0 <= replica["heartbeat_age_seconds"] < 30 for replica in seen["replicas"])

        await desk.run(NEVER_SEEN)
        await desk.run(BROKEN, "ben")
        pending = await desk.run(Script(), "cid")
        await desk.sql("update run set persistence = 'pending', finished_at = finished_at - interval '1 hour' where run_id = %s", pending)
        await desk.run(Script(threads=[Answer(http_status=500)]), "dan")
        desk.stack.upstream.use(Script(ag_ui=[Answer(frames=[*started(), gate("rest")])]))
        running = await desk.replica.client("eve").submit(desk.application, "s", "hi")
        assert running.status_code == 202
        await desk.stack.upstream.waiting_at("rest")
        seen = await overview()
        assert [seen[name] for name in counts] == [3, 0, 3, 1]
        assert seen["saving"]["pending"] == 1
        assert 3600 <= seen["saving"]["oldest_seconds"] < 3700
        numbers = ("active_runs", "unknown_runs", "unresolved_runs", "pending_saves", "slots")
        assert [(app["app_id"], [app[name] for name in numbers]) for app in seen["apps"]] == [
            (str(desk.application), [3, 2, 3, 1, 100]),
            (str(idle), [0, 0, 0, 0, 100]),
        ]
        assert seen["refusals"]["by_reason"] == [{"execution": "released", "reason": "thread_failed", "runs": 1}]
        desk.stack.upstream.release("rest")


async def test_the_overview_tells_of_closed_admission_lost_replicas_and_what_this_replica_counted(database_url: str) -> None:
    async with office(database_url) as desk:
        await desk.run(Script())
        lost = uuid4()
        await desk.sql("insert into replica (replica_id, heartbeat_at) values (%s, now() - interval '1 hour')", lost)
        await desk.sql("insert into replica (replica_id, heartbeat_at) values (%s, now() - interval '2 days')", uuid4())
        seen = (await desk.operator.get("/api/operator/overview")).json()
        assert seen["admission_closed"] is None
        assert [replica["replica_id"] for replica in seen["lost_replicas"]] == [str(lost)]
        assert 3600 <= seen["lost_replicas"][0]["heartbeat_age_seconds"] < 3700
        assert seen["admissions"] == [{"result": "admitted", "submissions": 1}]
        await admission_gate.close(desk.stack.database, actor=cli_actor("olga"), reason="restored")
        answer = await desk.replica.client("ben").submit(desk.application, "s", "hi")
        assert answer.json()["code"] == "admission_unavailable"
        answer = await desk.operator.get("/api/operator/overview")
        await Described(PUBLIC_ROUTES).check(answer)
        closed = answer.json()["admission_closed"]
        assert (closed["actor"], closed["reason"]) == ("cli:olga", "restored")
        assert {"result": "admission_unavailable", "submissions": 1} in answer.json()["admissions"]


async def test_the_trail_says_whether_it_is_as_it_was_written(database_url: str) -> None:
    async with office(database_url) as desk:
        run_id = await desk.run(NEVER_SEEN)
        await desk.time_passes(run_id)
        assert (await desk.resolve(run_id, "not_executed")).status_code == 200
        answer = await desk.operator.get(f"{AUDIT}/chain")
        await Described(PUBLIC_ROUTES).check(answer)
        newest = (await desk.operator.get(AUDIT)).json()["audit"][0]
        assert answer.json() == {"entries": newest["audit_id"], "sha256": newest["sha256"], "broken": None}
        await desk.sql("alter table audit disable trigger all")
        await desk.sql("update audit set actor = 'web:mallory' where audit_id = %s", newest["audit_id"])
        answer = await desk.operator.get(f"{AUDIT}/chain")
        await Described(PUBLIC_ROUTES).check(answer)
        assert answer.json()["broken"] == {"audit_id": newest["audit_id"], "why": "hash_differs"}


async def test_runs_by_age_in_both_orders_and_in_pages(database_url: str) -> None:
    async with office(database_url) as desk:
        runs = [await desk.run(NEVER_SEEN, subject) for subject in ("ada", "ben", "cid")]
        await desk.sql("update run set unknown_at = unknown_at - interval '2 hours' where run_id = %s", runs[0])
        await desk.sql("update run set created_at = created_at - interval '2 days' where run_id = %s", runs[1])
        assert await desk.listed() == runs[::-1]
        assert await desk.listed(order="oldest") == runs
        assert await desk.listed(older_than_seconds="3600") == runs[:1]
        assert await desk.listed(created_within_seconds="86400", state="all") == [runs[2], runs[0]]
        first = (await desk.operator.get(RUNS, params={"order": "oldest", "limit": "2"})).json()
        second = (await desk.operator.get(RUNS, params={"order": "oldest", "limit": "2", "cursor": first["next"]})).json()
        assert [run["run_id"] for page in (first, second) for run in page["runs"]] == runs
        assert second["next"] is None
        for query in ({"order": "best"}, {"older_than_seconds": "-1"}, {"created_within_seconds": "999999999"}, {"cursor": first["next"]}):
            answer = await desk.operator.get(RUNS, params=query)
            assert answer.json()["code"] == "malformed_request", query
