"""Quota in the header fields of the IETF's draft-ietf-httpapi-ratelimit-headers (revision 10 on): policies, and the one that speaks.

Lists of structured-field strings (RFC 9651):

    RateLimit-Policy: "user-day-1b2c3d4e";q=20;w=86400
    RateLimit: "user-day-1b2c3d4e";r=3;t=5400
"""

from collections.abc import Mapping, Sequence
from typing import Final

from gateway.domain.quota import RuleState, tightest_first

MAX_POLICIES: Final = 8
"""Somebody in many groups may have more rules; a header that grows with them would be cut or refused on the way. `/usage` has them all."""


def rate_limit_headers(states: Sequence[RuleState]) -> Mapping[str, str]:
    """The tightest rules that count the task as policies, and what is left of the tightest; nothing where no rule does."""
    policies = tightest_first(states)[:MAX_POLICIES]
    if not policies:
        return {}
    speaker = policies[0]
    wait = "" if speaker.wait_seconds is None else f";t={speaker.wait_seconds}"
    return {
        "RateLimit-Policy": ", ".join(f'"{state.policy}";q={state.task_limit};w={state.window.seconds}' for state in policies),
        "RateLimit": f'"{speaker.policy}";r={speaker.remaining}{wait}',
    }
