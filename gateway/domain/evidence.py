"""Facts about a run: what the parser, the transport and a look-up can bring, and nothing that they have to guess.

Each is a frozen value without payload text. `decide` turns them into transitions; the store appends them as evidence rows, whose kinds are
`EvidenceKind`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

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


class EvidenceKind(StrEnum):
    """Every kind of row in a run's evidence. SQL writes some of them; a test compares."""

    MODERATED = "moderated"
    """Not evidence of its own: the verdict that let its text in, told with the rest."""
    FENCE = "fence"
    STARTED = "started"
    RELEASED = "released"
    REJECTED = "rejected"
    BAD_RESPONSE = "bad_response"
    STREAM_BROKEN = "stream_broken"
    RUN_ERROR = "run_error"
    RUN_FINISHED = "run_finished"
    NATIVE_VERDICT = "native_verdict"
    LEASE_LOST = "lease_lost"
    LOOKED_UP = "looked_up"
    LOOKUP_REFUSED = "lookup_refused"
    SAVED = "saved"
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"


EVIDENCE_DOCS: Final[Mapping[EvidenceKind, str]] = {
    EvidenceKind.MODERATED: "A moderator judged the text before it was taken.",
    EvidenceKind.FENCE: "The fence was committed: from here on the one POST may have been sent.",
    EvidenceKind.STARTED: "The service began: RUN_STARTED with matching ids, or its id for the run.",
    EvidenceKind.RELEASED: "Proven never sent; `proof` says by what.",
    EvidenceKind.REJECTED: "The service refused before any stream byte; `status` is its answer.",
    EvidenceKind.BAD_RESPONSE: "The POST may have arrived, and no usable answer came; `fault` says what came.",
    EvidenceKind.STREAM_BROKEN: "The stream ended without a terminal event that can be believed.",
    EvidenceKind.RUN_ERROR: "The service said RUN_ERROR: it failed.",
    EvidenceKind.RUN_FINISHED: "The service said RUN_FINISHED; `outcome` is what it says of the run.",
    EvidenceKind.NATIVE_VERDICT: "Human approval: what the run and its thread's state say together.",
    EvidenceKind.LEASE_LOST: "The replica that ran it did not say in time that it lives.",
    EvidenceKind.LOOKED_UP: "The service was asked how the run is; `status` is what it said.",
    EvidenceKind.LOOKUP_REFUSED: "It cannot be looked up any more; `why` says the reason.",
    EvidenceKind.SAVED: "The answer was written into the history later, from its stored bytes.",
    EvidenceKind.ACKNOWLEDGED: "Its owner accepted the incomplete answer.",
    EvidenceKind.RESOLVED: "An operator said what became of it.",
}
"""Each in words for operators."""
