"""Quota in headers: the tightest rules first, and never more than a few of them."""

from uuid import UUID

from gateway.domain.quota import RuleState, Scope, Window
from gateway.web.rate_limit import MAX_POLICIES, rate_limit_headers


def rule(number: int) -> RuleState:
    """One of many groups' rules, of which `number` tasks are left."""
    return RuleState(
        quota_rule_id=UUID(int=number << 96),
        scope=Scope.GROUP,
        group_name=f"group-{number}",
        of_application=False,
        window=Window.of("day", None),
        task_limit=1000,
        used=1000 - number,
        has_room=True,
        more_at=None,
        more_in_seconds=None,
    )


def test_somebody_with_many_rules_gets_the_tightest_in_a_header_of_bounded_length() -> None:
    headers = rate_limit_headers([rule(number) for number in range(200, 0, -1)])
    policies = headers["RateLimit-Policy"].split(", ")
    assert policies == [f'"{rule(number).policy}";q=1000;w=86400' for number in range(1, MAX_POLICIES + 1)]
    assert headers["RateLimit"].startswith(f'"{rule(1).policy}";r=1')
    assert sum(len(name) + len(text) for name, text in headers.items()) < 1024


def test_no_rule_is_no_header() -> None:
    assert rate_limit_headers([]) == {}
