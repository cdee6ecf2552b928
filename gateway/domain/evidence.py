"""Facts about a run: what the parser, the transport and a look-up can bring, and nothing that they have to guess.

Each is a frozen value without payload text. `decide` turns them into transitions; the store appends them as evidence rows.
"""

from dataclasses import dataclass
from enum import StrEnum

from gateway.domain.confirmation import Question
from gateway.domain.reasons import Reason


class Outcome(StrEnum):
    """What RUN_FINISHED says of the run. INTERRUPT also when a CUSTOM on_interrupt was seen before it."""

    SUCCESS = "success"
    INTERRUPT = "interrupt"
    CANCELLED = "cancelled"
    UNRECOGNISED = "unrecognised"


class ResponseFault(StrEnum):
    """Why a response is no event stream of ours, or did not come; each leaves the outcome unknown."""

    STATUS = "status"
    CONTENT_TYPE = "content_type"
    CHARSET = "charset"
    CONTENT_ENCODING = "content_encoding"
    RUN_ID = "run_id"
    """Native profile: the head names no run of our thread."""
    WRITE_ERROR = "write_error"
    NO_RESPONSE = "no_response"


class NotSentProof(StrEnum):
    """The positive signals that no request byte of the POST left (never an exception's class alone)."""

    CONNECTION_NOT_MADE = "connection_not_made"
    WINDOW_PASSED = "window_passed"
    BEFORE_FENCE = "before_fence"


class LookupStatus(StrEnum):
    """What a run look-up said. UNCLEAR: 404, other ids, an unrecognised status, an error: it proves nothing."""

    SUCCESS = "success"
    ERROR = "error"
    INTERRUPTED = "interrupted"
    ACTIVE = "active"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class NotSent:
    """Proven: the one POST was not sent. `reason` is what the person is told."""

    proof: NotSentProof
    reason: Reason = Reason.NOT_SENT


@dataclass(frozen=True, slots=True)
class Rejected:
    """Upstream (or a proxy) answered with a refusal: 3xx or one of the documented 4xx, before any stream byte.

    `thread_busy`: 409, or a 4xx whose body says so; another copy of our POST may be what runs.
    """

    status: int
    thread_busy: bool = False


@dataclass(frozen=True, slots=True)
class BadResponse:
    """The POST was, or may have been, sent and no usable response came. `status` is None when there was none."""

    fault: ResponseFault
    status: int | None = None


@dataclass(frozen=True, slots=True)
class StreamBroken:
    """The stream ended or was given up before a terminal event that could be believed.

    `reason` is one of STREAM_ENDED, IDLE_TIMEOUT, TOTAL_TIMEOUT, BOUND_EXCEEDED, BAD_FRAME, ID_MISMATCH; `detail` is a word from the
    parser's closed list (which bound, which fault), never text from upstream.
    """

    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class RunErrored:
    """RUN_ERROR was the first terminal event. Its message is never kept (wire-contract.md 4.6)."""


@dataclass(frozen=True, slots=True)
class RunFinished:
    """RUN_FINISHED with matching ids was the first terminal event."""

    outcome: Outcome


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """The run's lease expired: its process is gone, or was too slow to say that it lives."""


@dataclass(frozen=True, slots=True)
class LookedUp:
    """A look-up answered with matching ids, or proved nothing. `native_status` is what upstream called it, when recognised."""

    status: LookupStatus


class NativeOutcome(StrEnum):
    """What run look-up and thread state say together (`domain.native`). ACTIVE and UNCLEAR prove nothing."""

    COMPLETED = "completed"
    WAITING = "waiting"
    """Exactly one valid prompt is pending."""
    UNSUPPORTED = "unsupported"
    """It waits for something that cannot be answered here: several interrupts, another form, a breakpoint."""
    CANCELLED = "cancelled"
    FAILED = "failed"
    NOT_APPLIED = "not_applied"
    """A resume ended, and the question that it answered is still pending."""
    ACTIVE = "active"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class NativeRead:
    """The verdict on a native run. `question`: what it waits for, exactly when `outcome` is WAITING."""

    outcome: NativeOutcome
    question: Question | None = None


Fact = NotSent | Rejected | BadResponse | StreamBroken | RunErrored | RunFinished | LeaseLost | LookedUp | NativeRead
"""All that may move a run after admission, other than the fence, RUN_STARTED and an operator's act."""

TerminalFact = RunErrored | RunFinished
StreamFact = StreamBroken | RunErrored | RunFinished
"""What the parser can say at the end of a stream."""
PostFact = NotSent | Rejected | BadResponse
"""What the transport can say when no stream came of the POST."""
