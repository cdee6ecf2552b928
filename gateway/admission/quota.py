"""What people are told of quota: what is used, as JSON, and the refusal of a task that a rule has no room for."""

from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import TypedDict

from gateway.domain.ids import ApplicationId
from gateway.domain.limits import ActiveLimits
from gateway.domain.problems import Code, Refused
from gateway.domain.quota import RuleState, Scope, rule_states, tightest, tightest_first
from gateway.domain.times import rfc3339
from gateway.identity.accounts import Access
from gateway.json_shapes import Time
from gateway.store import quotas as rows
from gateway.store.database import Database


class QuotaJson(TypedDict):
    """One rule that counts your tasks. `scope`: whose tasks count together; `group`: only those of its members; `only_this_app`: only those
    sent to this application. `resets_at`: when more is left than now, null while nothing is used."""

    policy: str
    scope: Scope
    group: str | None
    only_this_app: bool
    window: str
    limit: int
    used: int
    remaining: int
    resets_at: Time | None


class ActiveJson(TypedDict):
    """Runs that are active now, and how many may be."""

    active: int
    limit: int


class UsageJson(TypedDict):
    """What counts your tasks in this application. `unlimited`: no rule does. `user`: your active runs, in all applications; `app`: those of
    everybody in this one."""

    unlimited: bool
    quotas: list[QuotaJson]
    user: ActiveJson
    app: ActiveJson


@dataclass(frozen=True, slots=True)
class Usage:
    """What is used, for those whose it is."""

    db: Database
    limits: ActiveLimits
    quota_zone: str

    async def of(self, access: Access, application_id: ApplicationId) -> UsageJson:
        """The rules that count the caller's tasks in this application, the tightest first, and the active runs."""
        params = {
            "account_id": access.account_id,
            "application_id": application_id,
            "groups": sorted(access.groups),
            "quota_zone": self.quota_zone,
        }
        row = await rows.usage(self.db, params)
        shown = [quota_json(state) for state in tightest_first(rule_states(row.quota))]
        return {
            "unlimited": not shown,
            "quotas": shown,
            "user": {"active": row.user_active, "limit": self.limits.per_user},
            "app": {"active": row.application_active, "limit": self.limits.per_application},
        }


def quota_json(state: RuleState) -> QuotaJson:
    """One rule as people see it, who are told of their own application."""
    return {
        "policy": state.policy,
        "scope": state.scope,
        "group": state.group_name,
        "only_this_app": state.of_application,
        "window": str(state.window),
        "limit": state.task_limit,
        "used": state.used,
        "remaining": state.remaining,
        "resets_at": rfc3339(state.more_at) if state.more_at else None,
    }


def quota_exhausted(states: Sequence[RuleState]) -> Refused:
    """The refusal by the rules that have no room. The one that is full for longest speaks, so that its wait is true of all of them."""
    speaker = tightest(states)
    assert speaker is not None, "a rule refused"
    full = [state.policy for state in states if not state.has_room]
    return Refused(
        Code.QUOTA_EXHAUSTED,
        retry_after_seconds=speaker.wait_seconds,
        extra={"quota": quota_json(speaker), "exhausted": full},
        quota=states,
    )
