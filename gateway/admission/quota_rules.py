"""Quota rules as operators set them, and who uses the most: one set of rules under the commands and the API."""

from typing import Final
from uuid import UUID

from typing_extensions import TypedDict

from gateway.bindings import applications
from gateway.domain.audit import THE_GATEWAY, Actor
from gateway.domain.faults import invalid
from gateway.domain.limits import MAX_SUBJECT_CHARACTERS
from gateway.domain.problems import Code, Refused
from gateway.domain.quota import Scope, Window
from gateway.domain.times import rfc3339
from gateway.identity.tokens import is_name
from gateway.json_shapes import Time
from gateway.store import quotas as rows
from gateway.store.database import Database
from gateway.store.quotas import QuotaRuleRow
from gateway.store.which import Which

MAX_TASKS: Final = 10**15 - 1
"""The largest limit: the largest whole number of a header field (RFC 9651), which every reader of JSON takes for one too."""
WINDOWS: Final = "hour, day or month of the calendar; or one that slides: hours or days as 1h or 30d, up to 366 days."


class QuotaRuleJson(TypedDict):
    """A rule in force. `scope`: whose tasks count together; `app_id`, `group`: only tasks of that application, of its members."""

    quota_rule_id: UUID
    scope: Scope
    app_id: UUID | None
    app: str | None
    group: str | None
    limit: int
    window: str
    created_at: Time


class HeavyUserJson(TypedDict):
    """A user, and the tasks that were sent."""

    account_id: UUID
    subject: str
    tasks: int


class HeavyAppJson(TypedDict):
    """An application, and the tasks that were sent to it."""

    app_id: UUID
    name: str
    tasks: int


class HeaviestJson(TypedDict):
    """Who sent, and what got, the most tasks in the last `window`, most first; without those that were never executed."""

    window: str
    users: list[HeavyUserJson]
    apps: list[HeavyAppJson]


async def set_rule(
    db: Database, *, scope: Scope, window: str, limit: int, which: Which | None, group: str | None, actor: Actor = THE_GATEWAY
) -> QuotaRuleRow:
    """Set the limit of the one rule of this scope, window, application and group. Raises Refused: configuration_invalid, not_found."""
    parsed = check_rule(scope=scope, window=window, limit=limit, of_application=which is not None, group=group)
    application_id = None if which is None else (await applications.find(db, which)).application_id
    rule_id = await rows.set_rule(
        db, scope=scope, window=parsed, task_limit=limit, application_id=application_id, group_name=group, actor=actor
    )
    return await find(db, rule_id)


def check_rule(*, scope: Scope, window: str, limit: int, of_application: bool, group: str | None) -> Window:
    """The window of a rule that can be. Raises Refused(configuration_invalid)."""
    parsed = Window.parse(window)
    if parsed is None:
        raise invalid("window", f"It is {WINDOWS}")
    if not 0 < limit <= MAX_TASKS:
        raise invalid("limit", "It is a whole number of tasks, one at least.")
    if scope is Scope.APP and not of_application:
        raise invalid("app", "A rule of scope app counts the tasks of one application.")
    if scope is Scope.APP and group is not None:
        raise invalid("group", "A rule of scope app counts everybody's tasks; one of scope group those of its members, in an app too.")
    if scope is Scope.GROUP and group is None:
        raise invalid("group", "A rule of scope group counts the tasks of one group's members.")
    if group is not None and not is_name(group):
        raise invalid("group", f"A name has 1 to {MAX_SUBJECT_CHARACTERS} characters and no control characters.")
    return parsed


async def find(db: Database, quota_rule_id: UUID) -> QuotaRuleRow:
    """A rule in force. Raises Refused(not_found)."""
    row = await rows.find(db, quota_rule_id)
    if row is None:
        raise Refused(Code.NOT_FOUND, extra={"field": "rule"})
    return row


async def remove(db: Database, quota_rule_id: UUID, *, actor: Actor = THE_GATEWAY) -> QuotaRuleRow:
    """End a rule; what was charged under it stays charged. The rule as it was. Raises Refused(not_found)."""
    row = await find(db, quota_rule_id)
    if not await rows.remove(db, quota_rule_id, actor=actor):
        raise Refused(Code.NOT_FOUND, extra={"field": "rule"})
    return row


def rule_json(row: QuotaRuleRow) -> QuotaRuleJson:
    """A rule as operators see it."""
    return {
        "quota_rule_id": row.quota_rule_id,
        "scope": Scope(row.scope),
        "app_id": row.application_id,
        "app": row.application_name,
        "group": row.group_name,
        "limit": row.task_limit,
        "window": str(row.window),
        "created_at": rfc3339(row.created_at),
    }


async def heaviest(db: Database, *, window: str, limit: int) -> HeaviestJson:
    """At most `limit` users and applications by their tasks in the last `window`, which slides. Raises Refused(configuration_invalid)."""
    parsed = Window.parse(window)
    if parsed is None or parsed.sliding_seconds is None:
        raise invalid("window", "It is a number of hours or days that ends now, as 1h or 30d, up to 366 days.")
    users = await rows.heaviest_users(db, seconds=parsed.seconds, page_size=limit)
    apps = await rows.heaviest_applications(db, seconds=parsed.seconds, page_size=limit)
    return {
        "window": str(parsed),
        "users": [{"account_id": row.account_id, "subject": row.subject, "tasks": row.tasks} for row in users],
        "apps": [{"app_id": row.application_id, "name": row.name, "tasks": row.tasks} for row in apps],
    }
