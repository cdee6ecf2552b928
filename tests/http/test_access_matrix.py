"""Who may do what: every route of the table, called by everybody, on what is theirs, somebody else's, not there and deleted.

`ROWS` says for whom a route is and what comes of a call that is let through; a route without a row fails. What users are refused as not
found is the same answer, byte for byte, whatever the reason.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from uuid import UUID, uuid4

import httpx
import pytest

from gateway.web.call import RouteSpec
from gateway.web.pages import load_pages
from gateway.web.routes import PUBLIC_ROUTES, page_routes, route_table
from tests.http.world import World

pytestmark = pytest.mark.anyio

ROUTES: Final = (*PUBLIC_ROUTES, *page_routes(load_pages()))
STAFF: Final = ("staff",)


class For(StrEnum):
    """Whom a route is for."""

    ANYBODY = "anybody"
    ACCOUNTS = "anybody with an active account"
    APP_USERS = "those who see the application"
    OWNERS = "the owner, who must still see the application"
    OPERATORS = "operators"


@dataclass(frozen=True)
class Row:
    """`ok`: the status of a call that is let through; `code`: its problem, where the state of the things says no. `fresh`: it uses up what
    it is called on."""

    whom: For
    ok: int = 200
    code: str | None = None
    body: Mapping[str, object] | None = None
    fresh: bool = False


RUN_AGENT_INPUT: Final = {
    "threadId": "a window",
    "messages": [{"id": "m", "role": "user", "content": "hello"}],
    "state": {},
    "tools": [],
    "context": [],
    "forwardedProps": {},
}
SUBMISSION_IDS: Final = {"submit_run": "submission_id", "decide_run": "submission_id", "run_agent": "runId"}
"""A fresh one for each call."""

ROWS: Final[Mapping[str, Row]] = {
    "me": Row(For.ACCOUNTS),
    "list_applications": Row(For.ACCOUNTS),
    "read_application": Row(For.APP_USERS),
    "submit_run": Row(For.APP_USERS, 202, body={"text": "hello"}),
    "read_run": Row(For.OWNERS),
    "refresh_run": Row(For.OWNERS, 202),
    "acknowledge_run": Row(For.OWNERS, 409, "nothing_to_acknowledge"),
    "watch_run": Row(For.OWNERS),
    "decide_run": Row(For.OWNERS, 409, "interrupt_not_pending", body={"interrupt_id": str(uuid4()), "decision": "approve"}),
    "run_agent": Row(For.APP_USERS, body=RUN_AGENT_INPUT),
    "usage": Row(For.APP_USERS),
    "list_conversations": Row(For.APP_USERS),
    "read_conversation": Row(For.OWNERS),
    "rename_conversation": Row(For.OWNERS, body={"title": "a name"}),
    "delete_conversation": Row(For.OWNERS, fresh=True),
    "list_items": Row(For.OWNERS),
    "operator_list_runs": Row(For.OPERATORS),
    "operator_read_run": Row(For.OPERATORS),
    "operator_look_up_run": Row(For.OPERATORS),
    "operator_retry_save": Row(For.OPERATORS),
    "operator_resolve_run": Row(For.OPERATORS, 409, "resolution_not_allowed", body={"outcome": "failed", "reason": "seen"}),
    "operator_list_audit": Row(For.OPERATORS),
    "operator_read_overview": Row(For.OPERATORS),
    "operator_verify_audit": Row(For.OPERATORS),
    "operator_check_edge": Row(For.OPERATORS, 400, "malformed_request", body={}),
    "operator_list_providers": Row(For.OPERATORS),
    "operator_create_provider": Row(For.OPERATORS, 400, "malformed_request", body={}),
    "operator_change_provider": Row(For.OPERATORS, body={}),
    "operator_list_apps": Row(For.OPERATORS),
    "operator_create_app": Row(For.OPERATORS, 400, "malformed_request", body={}),
    "operator_change_app": Row(For.OPERATORS, body={}),
    "operator_set_token": Row(For.OPERATORS, 409, "change_blocked", body={"token": "another"}),
    "operator_list_accounts": Row(For.OPERATORS),
    "operator_create_account": Row(For.OPERATORS, 400, "malformed_request", body={}),
    "operator_change_account": Row(For.OPERATORS, body={}),
    "operator_list_quotas": Row(For.OPERATORS),
    "operator_set_quota": Row(For.OPERATORS, 400, "malformed_request", body={}),
    "operator_remove_quota": Row(For.OPERATORS, fresh=True),
    "operator_usage": Row(For.OPERATORS),
    "operator_show_moderation": Row(For.OPERATORS),
    "operator_set_moderation": Row(For.OPERATORS, 400, "malformed_request", body={}),
    "healthz": Row(For.ANYBODY),
    "readyz": Row(For.ANYBODY),
    "metrics": Row(For.ANYBODY),
    "describe": Row(For.ANYBODY),
    "chat_page": Row(For.ANYBODY),
    "operator_page": Row(For.ANYBODY),
    "page_file": Row(For.ANYBODY),
}


class Caller(StrEnum):
    NOBODY = "nobody"
    STRANGER = "stranger"
    MEMBER = "member"
    OWNER = "owner"
    SUSPENDED = "suspended"
    OPERATOR = "operator"


class Target(StrEnum):
    """What a call is about. Everybody has things of their own, made when all of them saw the application."""

    OWN = "own"
    FOREIGN = "foreign"
    MISSING = "missing"
    DELETED = "deleted"
    MISPLACED = "their own, but asked for under another application that they see"
    MALFORMED = "no id"


@dataclass(frozen=True)
class Things:
    """What one person has in the application."""

    run_id: str
    conversation_id: str
    deleted_run_id: str
    deleted_conversation_id: str


@dataclass
class Estate:
    """One application for the group staff, one for everybody, one for somebody else, and what each caller has in the first."""

    world: World
    app_id: UUID
    public_id: UUID
    private_id: UUID
    provider_id: UUID
    things: dict[Caller, Things]

    def headers(self, caller: Caller) -> dict[str, str]:
        if caller is Caller.NOBODY:
            return {}
        in_group = caller in (Caller.MEMBER, Caller.OWNER, Caller.SUSPENDED)
        return self.world.bearer(f"matrix-{caller}", groups=STAFF if in_group else ())

    async def submitted(self, caller: Caller) -> tuple[str, str]:
        """A new run of that person, and its conversation."""
        headers = self.world.bearer(f"matrix-{caller}", groups=STAFF)
        body = {"submission_id": str(uuid4()), "text": "hello"}
        answer = await self.world.client.post(f"{self.world.agent(self.app_id)}/runs", headers=headers, json=body)
        assert answer.status_code == 202, answer.text
        return answer.json()["run_id"], answer.json()["conversation_id"]

    async def deleted(self, caller: Caller) -> tuple[str, str]:
        """The same, and the conversation is deleted."""
        run_id, conversation_id = await self.submitted(caller)
        headers = self.world.bearer(f"matrix-{caller}", groups=STAFF)
        answer = await self.world.client.delete(f"{self.world.agent(self.app_id)}/conversations/{conversation_id}", headers=headers)
        assert answer.status_code == 200
        return run_id, conversation_id

    async def quota_rule(self) -> str:
        """A rule that is there, and that nobody reaches."""
        body = {"scope": "user", "limit": 1_000_000, "window": "day"}
        answer = await self.world.client.post("/api/operator/quotas", headers=self.headers(Caller.OPERATOR), json=body)
        assert answer.status_code == 200, answer.text
        found: str = answer.json()["quota_rule_id"]
        return found

    async def move_in(self) -> None:
        for caller in Caller:
            if caller is not Caller.NOBODY:
                self.things[caller] = Things(*await self.submitted(caller), *await self.deleted(caller))
        self.world.sql("update account set state = 'suspended' where subject = 'matrix-suspended'")
        self.world.sql("update account set roles = '{operator}' where subject = 'matrix-operator'")

    async def path(self, spec: RouteSpec, row: Row, caller: Caller, target: Target) -> str:
        """The address of the route for this target."""
        owner = Caller.OWNER if caller is Caller.NOBODY else caller
        other = Caller.MEMBER if owner is Caller.OWNER else Caller.OWNER
        things = self.things[other if target is Target.FOREIGN else owner]
        if row.fresh and target is Target.OWN and caller in (Caller.MEMBER, Caller.OWNER):
            _, conversation_id = await self.submitted(caller)
            things = Things(things.run_id, conversation_id, things.deleted_run_id, things.deleted_conversation_id)
        ids = {
            "run_id": things.deleted_run_id if target is Target.DELETED else things.run_id,
            "conversation_id": things.deleted_conversation_id if target is Target.DELETED else things.conversation_id,
            "account_id": str(self.world.account(f"matrix-{owner}")),
            "provider_id": str(self.provider_id),
            "quota_rule_id": await self.quota_rule() if "quota_rule_id" in spec.parameters else "",
            "app_id": str(self.app_id),
            "file": "chat.js",
        }
        leading = spec.parameters[-1] if spec.parameters else None
        if leading == "app_id" and target is Target.FOREIGN and row.whom is For.APP_USERS:
            ids["app_id"] = str(self.private_id)
        elif target is Target.MISPLACED:
            ids["app_id"] = str(self.public_id)
        elif leading is not None and target is Target.MISSING:
            ids[leading] = str(uuid4())
        elif leading is not None and target is Target.MALFORMED:
            ids[leading] = "no-id"
        return spec.path.format(**ids)


@pytest.fixture(scope="module")
async def estate(world: World) -> Estate:
    app_id = world.application(visibility="group", groups=STAFF)
    public_id = world.application()
    private_id = world.application(visibility="group", groups=("others",))
    provider_id = world.sql("select provider_id from application where application_id = %s", app_id)[0][0]
    made = Estate(world, app_id, public_id, private_id, provider_id, {})
    await made.move_in()
    return made


def targets_of(spec: RouteSpec, row: Row) -> list[Target]:
    """Those that make a difference for the route's address."""
    match spec.parameters:
        case ():
            return [Target.OWN]
        case ("app_id", _):
            return list(Target)
        case ("app_id",) if row.whom is For.APP_USERS:
            return [Target.OWN, Target.FOREIGN, Target.MISSING, Target.MALFORMED]
        case ("run_id",):
            return [Target.OWN, Target.FOREIGN, Target.MISSING, Target.DELETED, Target.MALFORMED]
        case _:
            return [Target.OWN, Target.MISSING, Target.MALFORMED]


def expected(row: Row, caller: Caller, target: Target) -> tuple[int, str | None]:
    """The rule, from whom the route is for alone."""
    through, not_found = (row.ok, row.code), (404, "not_found")
    gone = target in (Target.MISSING, Target.MALFORMED)
    if row.whom is For.ANYBODY:
        return not_found if gone else through
    if caller is Caller.NOBODY:
        return 401, "unauthenticated"
    if caller is Caller.SUSPENDED:
        return 403, "account_inactive"
    if row.whom is For.ACCOUNTS:
        return through
    if row.whom is For.OPERATORS:
        if caller is not Caller.OPERATOR:
            return 403, "not_operator"
        return not_found if gone else through
    sees_it = caller in (Caller.MEMBER, Caller.OWNER)
    return through if sees_it and target is Target.OWN else not_found


async def ask(estate: Estate, spec: RouteSpec, row: Row, caller: Caller, target: Target) -> httpx.Response:
    """The answer; of an event stream its head only."""
    content, kind = None, dict[str, str]()
    if row.body is not None:
        name = SUBMISSION_IDS.get(spec.name)
        submission = {} if name is None else {name: str(uuid4())}
        content, kind = json.dumps({**row.body, **submission}), {"Content-Type": "application/json"}
    headers = {**estate.headers(caller), **kind, "X-Request-Id": "matrix"}
    path = await estate.path(spec, row, caller, target)
    async with estate.world.client.stream(spec.method.value, path, headers=headers, content=content) as answer:
        if not answer.headers.get("content-type", "").startswith("text/event-stream"):
            await answer.aread()
        return answer


def told(answer: httpx.Response) -> tuple[int, str | None]:
    problem = answer.headers.get("content-type") == "application/problem+json"
    return answer.status_code, answer.json()["code"] if problem else None


async def test_each_route_has_a_row_and_no_row_is_left_over(world: World) -> None:
    assert set(ROWS) == {spec.name for spec in route_table(world.services)} == {spec.name for spec in ROUTES}


@pytest.mark.parametrize("spec", ROUTES, ids=lambda spec: spec.name)
async def test_access(estate: Estate, spec: RouteSpec) -> None:
    row = ROWS[spec.name]
    wrong, refusals = [], set()
    for caller in Caller:
        for target in targets_of(spec, row):
            answer = await ask(estate, spec, row, caller, target)
            if told(answer) != expected(row, caller, target):
                wrong.append((caller.value, target.value, told(answer), expected(row, caller, target)))
            if answer.status_code == 404:
                headers = tuple(sorted((name, text) for name, text in answer.headers.multi_items() if name != "date"))
                refusals.add((headers, answer.content))
    assert wrong == []
    # Foreign, missing, deleted, out of sight, malformed: one answer. Operators see everything; they are told what is missing.
    if refusals and row.whom is not For.OPERATORS:
        nowhere = await estate.world.client.get("/api/nowhere", headers={"X-Request-Id": "matrix"})
        assert refusals == {(tuple(sorted((n, t) for n, t in nowhere.headers.multi_items() if n != "date")), nowhere.content)}


async def test_a_conversation_in_a_body_is_found_by_its_owner_only(estate: Estate) -> None:
    answers = set()
    mine, other = estate.things[Caller.OWNER], estate.things[Caller.MEMBER]
    for conversation_id in (other.conversation_id, mine.deleted_conversation_id, other.deleted_conversation_id, str(uuid4())):
        body = {"submission_id": "one", "text": "hello", "conversation_id": conversation_id}
        answer = await estate.world.client.post(
            f"{estate.world.agent(estate.app_id)}/runs",
            headers={**estate.headers(Caller.OWNER), "X-Request-Id": "matrix"},
            json=body,
        )
        answers.add((answer.status_code, answer.content))
    assert len(answers) == 1
    assert answers.pop()[0] == 404
    body = {"submission_id": "one", "text": "hello", "conversation_id": mine.conversation_id}
    answer = await estate.world.client.post(f"{estate.world.agent(estate.app_id)}/runs", headers=estate.headers(Caller.OWNER), json=body)
    assert told(answer) == (409, "conversation_busy")


async def test_lists_hold_ones_own_and_what_is_visible(estate: Estate) -> None:
    client, agent = estate.world.client, estate.world.agent(estate.app_id)
    for caller in (Caller.MEMBER, Caller.OWNER):
        listed = (await client.get(f"{agent}/conversations?limit=200", headers=estate.headers(caller))).json()["conversations"]
        own = {
            row[0]
            for row in estate.world.sql(
                "select conversation_id::text from conversation c join account a using (account_id)"
                " where a.subject = %s and c.deleted_at is null",
                f"matrix-{caller}",
            )
        }
        assert {row["conversation_id"] for row in listed} == own
        assert estate.things[caller].conversation_id in own
    for caller, sees in ((Caller.STRANGER, False), (Caller.OPERATOR, False), (Caller.MEMBER, True)):
        apps = (await client.get("/api/internal/apps", headers=estate.headers(caller))).json()["apps"]
        shown = {row["app_id"] for row in apps}
        assert (str(estate.app_id) in shown, str(estate.public_id) in shown, str(estate.private_id) in shown) == (sees, True, False)
