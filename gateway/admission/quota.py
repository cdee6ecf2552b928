"""What people are told of quota: the state of a rule as JSON, and the refusal of a task that a rule has no room for."""

from collections.abc import Sequence

from typing_extensions import TypedDict

from gateway.domain.problems import Code, Refused
from gateway.domain.quota import RuleState, Scope, tightest
from gateway.domain.times import rfc3339
from gateway.json_shapes import Time


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
