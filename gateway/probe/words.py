"""What was seen, in words: each fault of `upstream` and `sse_parser` as a phrase, and the clause that it breaks. Data, pure functions.

Total over the closed lists of those packages (tests walk them), so that a new fault there needs its words here.
"""

from collections.abc import Mapping
from typing import Final, assert_never

from gateway.domain.evidence import (
    BadResponse,
    LookupStatus,
    NotSent,
    Outcome,
    PostFact,
    Rejected,
    ResponseFault,
    RunErrored,
    RunFinished,
    StreamBroken,
    StreamFact,
)
from gateway.domain.reasons import Reason
from gateway.http_client import CallFault
from gateway.probe.clauses import Clause
from gateway.sse_parser.faults import FAULTS, Detail
from gateway.upstream.faults import UpstreamFailed, UpstreamFault

CALLS: Final[Mapping[CallFault, str]] = {
    CallFault.UNSENDABLE: "the address or a header of it cannot be written as HTTP",
    CallFault.NAME_NOT_RESOLVED: "the host name does not resolve",
    CallFault.ADDRESS_NOT_ALLOWED: "the host has no address that it may have (private ones only for GATEWAY_TRUSTED_UPSTREAM_HOSTS)",
    CallFault.NOT_CONNECTED: "no connection could be made",
    CallFault.TLS_FAILED: "TLS failed: the certificate is not trusted here, or it is not for this name",
    CallFault.TIMED_OUT: "no answer in time",
    CallFault.DISCONNECTED: "the connection was closed without an answer",
    CallFault.REPLY_MALFORMED: "the answer is not HTTP",
    CallFault.REPLY_CUT: "the answer was cut off",
    CallFault.REPLY_TOO_LARGE: "the answer is too large",
    CallFault.REPLY_ENCODED: "the answer has a Content-Encoding, though identity was asked for",
}
REPLY_FAULTS: Final = frozenset({CallFault.REPLY_MALFORMED, CallFault.REPLY_CUT, CallFault.REPLY_TOO_LARGE, CallFault.REPLY_ENCODED})
"""Something came back, and could not be used."""

_FAULTS: Final[Mapping[UpstreamFault, str]] = {
    UpstreamFault.NOT_JSON: "a body that is not strict JSON",
    UpstreamFault.UNEXPECTED_SHAPE: "JSON without what the call is for",
    UpstreamFault.OTHER_ASSISTANT: "JSON that does not name the assistant",
    UpstreamFault.OTHER_IDS: "ids that are not those of the address",
}

_RESPONSES: Final[Mapping[ResponseFault, tuple[Clause, str]]] = {
    ResponseFault.STATUS: (Clause.MESSAGE_TAKEN, "a status that is neither 200 nor a refusal"),
    ResponseFault.CONTENT_TYPE: (Clause.EVENT_STREAM, "status 200 with another Content-Type, or none, or several"),
    ResponseFault.CHARSET: (Clause.EVENT_STREAM, "an event stream in another charset"),
    ResponseFault.CONTENT_ENCODING: (Clause.EVENT_STREAM, "an answer with a Content-Encoding, though identity was asked for"),
    ResponseFault.WRITE_ERROR: (Clause.MESSAGE_TAKEN, "the connection was closed while the request was sent"),
    ResponseFault.RUN_ID: (Clause.RUN_LOCATION, "a response whose head names no run of the thread"),
    ResponseFault.NO_RESPONSE: (Clause.MESSAGE_TAKEN, "the connection ended, or time ran out, without a response"),
}

OF_DETAILS: Final[Mapping[Detail, Clause]] = {
    Detail.NO_EVENT: Clause.TERMINAL,
    Detail.NO_TERMINAL_EVENT: Clause.TERMINAL,
    Detail.OPEN_FRAME: Clause.TERMINAL,
    Detail.FRAME_BYTES: Clause.BOUNDS,
    Detail.KEPT_FRAME_BYTES: Clause.BOUNDS,
    Detail.STREAM_BYTES: Clause.BOUNDS,
    Detail.EVENTS: Clause.BOUNDS,
    Detail.TEXT_BYTES: Clause.BOUNDS,
    Detail.MESSAGES: Clause.BOUNDS,
    Detail.IGNORED_MESSAGES: Clause.BOUNDS,
    Detail.TOOLS: Clause.BOUNDS,
    Detail.ID_LENGTH: Clause.BOUNDS,
    Detail.UTF8: Clause.FRAMES,
    Detail.SYNTAX: Clause.FRAMES,
    Detail.DUPLICATE_KEY: Clause.FRAMES,
    Detail.NUMBER: Clause.FRAMES,
    Detail.DEPTH: Clause.FRAMES,
    Detail.NOT_AN_OBJECT: Clause.FRAMES,
    Detail.TYPE_FIELD: Clause.FRAMES,
    Detail.REQUIRED_FIELD: Clause.FRAMES,
    Detail.OPTIONAL_FIELD: Clause.FRAMES,
    Detail.NATIVE_RUN_VALUE: Clause.NATIVE_RUN,
    Detail.MESSAGE_TUPLE: Clause.FRAMES,
    Detail.FIRST_EVENT: Clause.ORDER,
    Detail.SECOND_RUN_STARTED: Clause.ORDER,
    Detail.MESSAGE_NOT_OPEN: Clause.ORDER,
    Detail.MESSAGE_REOPENED: Clause.ITEM_IDS,
    Detail.TOOL_REOPENED: Clause.ITEM_IDS,
    Detail.CHUNK_WITHOUT_ID: Clause.CHUNKS,
    Detail.CHUNK_WITHOUT_NAME: Clause.CHUNKS,
    Detail.RUN_STARTED_IDS: Clause.RUN_IDS,
    Detail.RUN_FINISHED_IDS: Clause.RUN_IDS,
    Detail.NATIVE_IS_CORRELATION: Clause.NATIVE_DIFFERS,
    Detail.NATIVE_CHANGED: Clause.NATIVE_RUN,
}
"""Which clause each fault of the parser breaks; what it is in words stands with the faults themselves."""

_TIMEOUTS: Final[Mapping[Reason, str]] = {
    Reason.IDLE_TIMEOUT: "no event for GATEWAY_STREAM_IDLE_SECONDS (comments do not count)",
    Reason.TOTAL_TIMEOUT: "the run took longer than GATEWAY_STREAM_TOTAL_SECONDS",
}

_OUTCOMES: Final[Mapping[Outcome, str]] = {
    Outcome.SUCCESS: "RUN_FINISHED",
    Outcome.INTERRUPT: "RUN_FINISHED that says interrupt, or after on_interrupt: the agent asks for something",
    Outcome.CANCELLED: "RUN_FINISHED that says cancelled",
    Outcome.UNRECOGNISED: "RUN_FINISHED with an outcome that is not known",
}

LOOKED_UP: Final[Mapping[LookupStatus, str]] = {
    LookupStatus.SUCCESS: "success",
    LookupStatus.ERROR: "error or timeout",
    LookupStatus.INTERRUPTED: "interrupted",
    LookupStatus.ACTIVE: "pending or running",
    LookupStatus.UNCLEAR: "no status, or one that is not known here",
}


def of_failed(call: str, failed: UpstreamFailed) -> str:
    """What one small call brought; `call` is its method and path."""
    if failed.call is not None:
        return f"{call}: {CALLS[failed.call]}"
    told = _FAULTS.get(failed.fault)
    return f"{call}: status {failed.status}" if told is None else f"{call}: {told}"


def of_post(fact: PostFact, status: int | None) -> tuple[Clause, str]:
    """The clause that is broken when a message that should run brings this instead of a stream, and what was seen."""
    match fact:
        case NotSent():
            return Clause.REACHABLE, "the message: no connection could be made"
        case Rejected() if 300 <= fact.status < 400:
            return Clause.NO_REDIRECT, f"the message: status {fact.status}"
        case Rejected():
            busy = ", which says that the thread is busy" if fact.thread_busy else ""
            return Clause.MESSAGE_TAKEN, f"the message: status {fact.status}{busy}"
        case BadResponse():
            clause, told = _RESPONSES[fact.fault]
            return clause, f"the message: {told}" if status is None or status == 200 else f"the message: status {status}, {told}"
        case _:
            assert_never(fact)


def of_stream(fact: StreamFact) -> tuple[Clause | None, str]:
    """The clause that a stream broke with its end, None for RUN_FINISHED with success; and that end."""
    match fact:
        case StreamBroken(reason=reason) if reason in _TIMEOUTS:
            return Clause.BOUNDS, _TIMEOUTS[reason]
        case StreamBroken():
            detail = Detail(fact.detail)
            return OF_DETAILS[detail], FAULTS[detail][1].rstrip(".")
        case RunErrored():
            return Clause.SUCCESS, "RUN_ERROR: the agent failed"
        case RunFinished():
            return None if fact.outcome is Outcome.SUCCESS else Clause.SUCCESS, _OUTCOMES[fact.outcome]
        case _:
            assert_never(fact)


def in_words(fact: StreamFact | PostFact, status: int | None) -> str:
    """What one POST brought, whatever it was to bring."""
    return of_post(fact, status)[1] if isinstance(fact, NotSent | Rejected | BadResponse) else of_stream(fact)[1]
