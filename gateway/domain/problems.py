"""Every refusal that a caller can get: code, status, title, what to do next. One table (interface.md "Problems").

`detail` is fixed here; it never comes from an exception or from upstream. docs/problems.md is generated from PROBLEMS.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gateway.domain.ids import RunId
from gateway.domain.quota import RuleState


class Retry(StrEnum):
    """What a client may do about a problem."""

    NEVER = "never"
    LATER = "later"
    SAME_SUBMISSION = "same-submission"
    NEW_SUBMISSION = "new-submission"
    POLL_RUN = "poll-run"
    OPERATOR = "operator"


class Code(StrEnum):
    """Stable problem codes."""

    MALFORMED_REQUEST = "malformed_request"
    REQUEST_TOO_LARGE = "request_too_large"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    TEXT_TOO_LONG = "text_too_long"
    INVALID_TEXT = "invalid_text"
    UNSUPPORTED_INPUT = "unsupported_input"
    CONFIGURATION_INVALID = "configuration_invalid"
    UPSTREAM_CHECK_FAILED = "upstream_check_failed"
    MODERATION_REFUSED = "moderation_refused"
    UNAUTHENTICATED = "unauthenticated"
    ACCOUNT_INACTIVE = "account_inactive"
    ORIGIN_NOT_ALLOWED = "origin_not_allowed"
    NOT_OPERATOR = "not_operator"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    NOT_ACCEPTABLE = "not_acceptable"
    SUBMISSION_CONFLICT = "submission_conflict"
    CONVERSATION_BUSY = "conversation_busy"
    CONVERSATION_BLOCKED = "conversation_blocked"
    BINDING_INVALIDATED = "binding_invalidated"
    BACKEND_NOT_SERVED = "backend_not_served"
    APP_DISABLED = "app_disabled"
    CHANGE_BLOCKED = "change_blocked"
    BACKEND_TYPE_FIXED = "backend_type_fixed"
    INTERRUPT_NOT_PENDING = "interrupt_not_pending"
    INTERRUPT_EXPIRED = "interrupt_expired"
    TASK_ALREADY_DONE = "task_already_done"
    ALREADY_RESOLVED = "already_resolved"
    RESOLUTION_NOT_ALLOWED = "resolution_not_allowed"
    NOTHING_TO_ACKNOWLEDGE = "nothing_to_acknowledge"
    ALREADY_EXISTS = "already_exists"
    USER_BUSY = "user_busy"
    APP_BUSY = "app_busy"
    QUOTA_EXHAUSTED = "quota_exhausted"
    INTERNAL_ERROR = "internal_error"
    MODERATION_UNAVAILABLE = "moderation_unavailable"
    ADMISSION_UNAVAILABLE = "admission_unavailable"
    DATABASE_UNAVAILABLE = "database_unavailable"
    DRAINING = "draining"
    IDENTITY_UNAVAILABLE = "identity_unavailable"


@dataclass(frozen=True, slots=True)
class ProblemType:
    """One row of the table. `retry_after_seconds`: sent as `Retry-After` when the refusal knows no better figure."""

    status: int
    title: str
    detail: str
    retry: Retry
    retry_after_seconds: int | None = None


_P = ProblemType
_R = Retry

PROBLEMS: Final[Mapping[Code, ProblemType]] = {
    Code.MALFORMED_REQUEST: _P(
        400,
        "Malformed request",
        "The request is not what this address takes: bad JSON, a wrong type, a duplicate or unknown key, or a bad cursor. Correct it.",
        _R.NEVER,
    ),
    Code.REQUEST_TOO_LARGE: _P(413, "Request too large", "The body is larger than this address takes. Send less.", _R.NEVER),
    Code.UNSUPPORTED_MEDIA_TYPE: _P(415, "Unsupported media type", "Send the body as application/json.", _R.NEVER),
    Code.TEXT_TOO_LONG: _P(
        422, "Text too long", "A message has at most 16,000 characters, and 64 KiB when encoded. Shorten it.", _R.NEW_SUBMISSION
    ),
    Code.INVALID_TEXT: _P(
        422,
        "Invalid text",
        "The text is empty or has characters that cannot be stored (NUL, half of a pair). Correct it.",
        _R.NEW_SUBMISSION,
    ),
    Code.UNSUPPORTED_INPUT: _P(
        422, "Unsupported input", "Only a text message can be sent here: no files, tools, state or context.", _R.NEVER
    ),
    Code.CONFIGURATION_INVALID: _P(422, "Configuration invalid", "The configuration breaks a rule; the field named says which.", _R.NEVER),
    Code.UPSTREAM_CHECK_FAILED: _P(
        422,
        "Upstream check failed",
        "The agent service did not accept the new token or did not name the assistant. Nothing was changed.",
        _R.LATER,
    ),
    Code.MODERATION_REFUSED: _P(
        422,
        "Refused by moderation",
        "The message was not taken; `categories` and `advice` say why. Change it and send it anew.",
        _R.NEW_SUBMISSION,
    ),
    Code.UNAUTHENTICATED: _P(401, "Not signed in", "Sign in, or send a valid bearer token.", _R.SAME_SUBMISSION),
    Code.ACCOUNT_INACTIVE: _P(403, "Account inactive", "This account is suspended. Ask an operator.", _R.OPERATOR),
    Code.ORIGIN_NOT_ALLOWED: _P(403, "Origin not allowed", "With a session cookie this request needs an allowed Origin header.", _R.NEVER),
    Code.NOT_OPERATOR: _P(403, "Operators only", "This needs the operator role.", _R.NEVER),
    Code.NOT_FOUND: _P(404, "Not found", "There is nothing here that you may see.", _R.NEVER),
    Code.METHOD_NOT_ALLOWED: _P(
        405, "Method not allowed", "This address does not take that method; the Allow header says which.", _R.NEVER
    ),
    Code.NOT_ACCEPTABLE: _P(406, "Not acceptable", "This address answers with JSON or, where documented, an event stream.", _R.NEVER),
    Code.SUBMISSION_CONFLICT: _P(
        409, "Submission conflict", "This submission id was used for other content. Make a new id for a new message.", _R.NEW_SUBMISSION
    ),
    Code.CONVERSATION_BUSY: _P(
        409, "Conversation busy", "A message is still being answered in this conversation. Wait for that run, then send again.", _R.POLL_RUN
    ),
    Code.CONVERSATION_BLOCKED: _P(
        409, "Conversation blocked", "This conversation takes no new message; its state says why. Start a new one to go on.", _R.NEVER
    ),
    Code.BINDING_INVALIDATED: _P(
        409,
        "Conversation closed by a change",
        "The application's service was changed. This conversation stays readable; start a new one.",
        _R.NEVER,
    ),
    Code.BACKEND_NOT_SERVED: _P(
        409, "Backend not served by this gateway", "This application is listed here, but its backend is served elsewhere.", _R.NEVER
    ),
    Code.APP_DISABLED: _P(409, "Application disabled", "This application is switched off. Its history stays readable.", _R.LATER),
    Code.CHANGE_BLOCKED: _P(
        409, "Change blocked", "Runs of this application are active or not saved yet; wait for those listed.", _R.LATER
    ),
    Code.BACKEND_TYPE_FIXED: _P(
        409,
        "Backend type fixed",
        "An application with history keeps its backend type and human_input. Make a separate application.",
        _R.NEVER,
    ),
    Code.INTERRUPT_NOT_PENDING: _P(409, "Nothing to decide", "This question was answered already or is no longer asked.", _R.POLL_RUN),
    Code.INTERRUPT_EXPIRED: _P(409, "Too late to decide", "The time to decide is over.", _R.NEVER),
    Code.TASK_ALREADY_DONE: _P(
        409, "Task already done", "This conversation's one task is done. Start a new conversation for another.", _R.NEVER
    ),
    Code.ALREADY_RESOLVED: _P(409, "Already resolved", "Somebody resolved this run before, with another outcome or reason.", _R.NEVER),
    Code.RESOLUTION_NOT_ALLOWED: _P(
        409, "Resolution not allowed", "The run's state or evidence does not allow this outcome, or not yet.", _R.LATER
    ),
    Code.NOTHING_TO_ACKNOWLEDGE: _P(
        409, "Nothing to acknowledge", "Only an incomplete answer of a run that succeeded can be accepted.", _R.NEVER
    ),
    Code.ALREADY_EXISTS: _P(409, "Already exists", "That name is taken. Choose another.", _R.NEVER),
    Code.USER_BUSY: _P(
        429,
        "Another message is being answered",
        "You have as many active runs as are allowed at once. Wait for one to end.",
        _R.POLL_RUN,
        5,
    ),
    Code.APP_BUSY: _P(
        429,
        "Application busy",
        "This application answers as many messages as are allowed at once. Try again shortly.",
        _R.SAME_SUBMISSION,
        5,
    ),
    Code.QUOTA_EXHAUSTED: _P(
        429,
        "Quota used up",
        "As many messages as a rule allows were sent; `quota` says which rule, how much it allows, and when it allows more.",
        _R.LATER,
        60,
    ),
    Code.INTERNAL_ERROR: _P(
        500,
        "Internal error",
        "Something went wrong here. Ask again with the same submission id; nothing is done twice.",
        _R.SAME_SUBMISSION,
    ),
    Code.MODERATION_UNAVAILABLE: _P(
        503,
        "Moderation unavailable",
        "The message could not be checked, so it was not sent and costs nothing. Try again.",
        _R.SAME_SUBMISSION,
        5,
    ),
    Code.ADMISSION_UNAVAILABLE: _P(
        503, "Admission unavailable", "New messages cannot be taken now. Try again with the same submission id.", _R.SAME_SUBMISSION, 5
    ),
    Code.DATABASE_UNAVAILABLE: _P(
        503, "Database unavailable", "The database cannot be asked now. Try again with the same submission id.", _R.SAME_SUBMISSION, 5
    ),
    Code.IDENTITY_UNAVAILABLE: _P(
        503,
        "Identity provider unavailable",
        "Your sign-in cannot be checked now: the identity provider's keys cannot be had. Try again with the same submission id.",
        _R.SAME_SUBMISSION,
        5,
    ),
    Code.DRAINING: _P(503, "Restarting", "This server is being restarted. Try again with the same submission id.", _R.SAME_SUBMISSION, 2),
}


class Refused(Exception):
    """A caller's request is refused with a documented problem. Nothing was charged, reserved or half-written.

    `run_id`: the run that is in the way or was meant; `retry_after_seconds` overrides the table's figure; `extra` holds further public
    members (RFC 9457), as `runs` of change_blocked or `field` of configuration_invalid. `quota`: the rules that were asked, for headers.
    """

    def __init__(
        self,
        code: Code,
        *,
        run_id: RunId | None = None,
        retry_after_seconds: int | None = None,
        extra: Mapping[str, object] | None = None,
        quota: Sequence[RuleState] = (),
    ) -> None:
        super().__init__(code.value)
        self.code = code
        self.run_id = run_id
        self.retry_after_seconds = retry_after_seconds
        self.extra = dict(extra or {})
        self.quota = tuple(quota)
