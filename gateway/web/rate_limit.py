"""Quota in the header fields of the IETF's draft-ietf-httpapi-ratelimit-headers (revision 10 on): policies, and the one that speaks.

Lists of structured-field strings (RFC 9651):

    RateLimit-Policy: "user-day-1b2c3d4e";q=20;w=86400
    RateLimit: "user-day-1b2c3d4e";r=3;t=5400
"""

from collections.abc import Mapping, Sequence

from gateway.domain.quota import RuleState, tightest


def rate_limit_headers(states: Sequence[RuleState]) -> Mapping[str, str]:
    """Every rule that counts the task as a policy, and what is left of the tightest; nothing where no rule does."""
    speaker = tightest(states)
    if speaker is None:
        return {}
    wait = "" if speaker.wait_seconds is None else f";t={speaker.wait_seconds}"
    return {
        "RateLimit-Policy": ", ".join(f'"{state.policy}";q={state.task_limit};w={state.window.seconds}' for state in states),
        "RateLimit": f'"{speaker.policy}";r={speaker.remaining}{wait}',
    }
