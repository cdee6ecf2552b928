"""Quota rules as operators set them, each act and its audit entry in one commit.

Charging is part of admission (charge_quota_v1), returning a charge part of releasing a run.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID, uuid4

from gateway.domain.audit import THE_GATEWAY, Act, Actor, Entry, TargetKind
from gateway.domain.limits import PAGE_MAX
from gateway.domain.quota import Scope, Window
from gateway.store import audit
from gateway.store.database import Database, Params
from gateway.store.statements import statement
from gateway.store.which import all_pages

_LOCK_RULES: Final = statement("quotas.lock_rules")
_SET_LIMIT: Final = statement("quotas.set_limit")
_CREATE: Final = statement("quotas.create")
_PAGE: Final = statement("quotas.page")
_USAGE: Final = statement("quotas.usage")
_HEAVIEST_USERS: Final = statement("quotas.heaviest_users")
_HEAVIEST_APPLICATIONS: Final = statement("quotas.heaviest_applications")
_REMOVE: Final = statement("quotas.remove")


@dataclass(frozen=True, slots=True)
class QuotaRuleRow:
    """A rule in force."""

    quota_rule_id: UUID
    scope: str
    application_id: UUID | None
    application_name: str | None
    group_name: str | None
    task_limit: int
    calendar_window: str | None
    sliding_seconds: int | None
    created_at: datetime

    @property
    def window(self) -> Window:
        return Window.of(self.calendar_window, self.sliding_seconds)


@dataclass(frozen=True, slots=True)
class UsageRow:
    """`quota` is what `domain.quota.rule_states` reads."""

    quota: list[dict[str, Any]]
    user_active: int
    application_active: int


@dataclass(frozen=True, slots=True)
class HeavyUserRow:
    """A user with a number of tasks."""

    account_id: UUID
    subject: str
    tasks: int


@dataclass(frozen=True, slots=True)
class HeavyApplicationRow:
    """An application with a number of tasks."""

    application_id: UUID
    name: str
    tasks: int


@dataclass(frozen=True, slots=True)
class _RuleId:
    quota_rule_id: UUID


async def set_rule(
    db: Database,
    *,
    scope: Scope,
    window: Window,
    task_limit: int,
    application_id: UUID | None,
    group_name: str | None,
    actor: Actor = THE_GATEWAY,
) -> UUID:
    """Set the limit (tasks in a window) of the one rule of this scope, window, application and group; returns its id.

    `group_name` with scope user: it limits each member of the group. Raises ConstraintViolated: quota_app_names_application,
    quota_group_names_group, quota_limit_form.
    """
    params = {
        "scope": scope.value,
        "calendar_window": window.nearest_calendar.value,
        "sliding_seconds": window.sliding_seconds,
        "task_limit": task_limit,
        "application_id": application_id,
        "group_name": None if scope is Scope.USER else group_name,
        "members_of": group_name if scope is Scope.USER else None,
    }
    async with db.transaction() as tx:
        await tx.execute(_LOCK_RULES)
        changed = await tx.all(_SET_LIMIT, _RuleId, params)
        rule_id = changed[0].quota_rule_id if changed else uuid4()
        if not changed:
            await tx.execute(_CREATE, {**params, "quota_rule_id": rule_id})
        detail = {**params, "application_id": None if application_id is None else str(application_id)}
        await audit.record(tx, Entry(actor, Act.QUOTA_SET, TargetKind.QUOTA_RULE, str(rule_id), detail=detail))
        await tx.commit()
    return rule_id


async def page(db: Database, *, after: UUID | None, page_size: int) -> list[QuotaRuleRow]:
    """The next rules in force, oldest first; `after` None begins."""
    return await db.all(_PAGE, QuotaRuleRow, {"after": after, "page_size": page_size, "quota_rule_id": None}, reading=True)


async def list_rules(db: Database) -> list[QuotaRuleRow]:
    """All rules in force."""
    return await all_pages(lambda after: page(db, after=after, page_size=PAGE_MAX), lambda row: row.quota_rule_id)


async def find(db: Database, quota_rule_id: UUID) -> QuotaRuleRow | None:
    """A rule in force."""
    return await db.one(_PAGE, QuotaRuleRow, {"after": None, "page_size": 1, "quota_rule_id": quota_rule_id}, reading=True)


async def usage(db: Database, params: Params) -> UsageRow:
    """What is used, for one caller in one application."""
    row = await db.one(_USAGE, UsageRow, params, reading=True)
    assert row is not None, "quotas.usage gives one row"
    return row


async def heaviest_users(db: Database, *, seconds: float, page_size: int) -> list[HeavyUserRow]:
    """Users by their tasks of the last `seconds`."""
    return await db.all(_HEAVIEST_USERS, HeavyUserRow, {"seconds": seconds, "page_size": page_size}, reading=True)


async def heaviest_applications(db: Database, *, seconds: float, page_size: int) -> list[HeavyApplicationRow]:
    """Applications by their tasks of the last `seconds`."""
    return await db.all(_HEAVIEST_APPLICATIONS, HeavyApplicationRow, {"seconds": seconds, "page_size": page_size}, reading=True)


async def remove(db: Database, quota_rule_id: UUID, *, actor: Actor = THE_GATEWAY) -> bool:
    """End a rule. False: there is no such rule in force."""
    async with db.transaction() as tx:
        if await tx.execute(_REMOVE, {"quota_rule_id": quota_rule_id}) != 1:
            return False
        await audit.record(tx, Entry(actor, Act.QUOTA_REMOVE, TargetKind.QUOTA_RULE, str(quota_rule_id)))
        await tx.commit()
    return True
