"""Why one of upstream's small calls (capabilities, threads, look-ups) brought nothing: a value, never an exception or upstream's text."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gateway.domain.strict_json import Json, NotStrictJson, loads
from gateway.http_client import CallFault, Reply

CALL_SECONDS: Final = 10.0
"""One small call as a whole, connecting included. They touch no model; services that answer at all answer in milliseconds."""


class UpstreamFault(StrEnum):
    """The closed list; `UpstreamFailed` adds the status or the transport's word."""

    NO_REPLY = "no_reply"
    """`call` says how."""
    REDIRECT = "redirect"
    """3xx: never followed (contract B1, O-35)."""
    UNAUTHORIZED = "unauthorized"
    """401 or 403: the token."""
    STATUS = "status"
    """Any other status than the one that was asked for."""
    NOT_JSON = "not_json"
    """The body is not strict JSON."""
    UNEXPECTED_SHAPE = "unexpected_shape"
    """JSON without what the call is for: no object, no thread id, one that is not opaque visible ASCII."""
    OTHER_ASSISTANT = "other_assistant"
    """/capabilities does not name the configured assistant (contract B2)."""
    OTHER_IDS = "other_ids"
    """A run look-up answered with ids that are not those of its address (contract B6)."""


@dataclass(frozen=True, slots=True)
class UpstreamFailed:
    """A small call brought nothing. `status` where there was one, `call` where there was no reply."""

    fault: UpstreamFault
    status: int | None = None
    call: CallFault | None = None


def json_object_of(reply: Reply | CallFault, *, expected: frozenset[int]) -> dict[str, Json] | UpstreamFailed:
    """The JSON object of a reply with one of the `expected` statuses; anything else is the fault that it is."""
    if isinstance(reply, CallFault):
        return UpstreamFailed(UpstreamFault.NO_REPLY, call=reply)
    if reply.status not in expected:
        return UpstreamFailed(_fault_of_status(reply.status), status=reply.status)
    try:
        decoded = loads(reply.body)
    except NotStrictJson:
        return UpstreamFailed(UpstreamFault.NOT_JSON, status=reply.status)
    if not isinstance(decoded, dict):
        return UpstreamFailed(UpstreamFault.UNEXPECTED_SHAPE, status=reply.status)
    return decoded


def _fault_of_status(status: int) -> UpstreamFault:
    if 300 <= status < 400:
        return UpstreamFault.REDIRECT
    return UpstreamFault.UNAUTHORIZED if status in {401, 403} else UpstreamFault.STATUS
