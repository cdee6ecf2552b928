"""The values that pass between the parser's layers: typed events, what is ignored, and the closed list of details. No rules here."""

from dataclasses import dataclass
from enum import StrEnum

from gateway.domain.evidence import Outcome, StreamBroken
from gateway.domain.reasons import Reason


class Detail(StrEnum):
    """Why a stream was given up: the only words that StreamBroken.detail takes from the parser. Never text from upstream."""

    # the stream ended (Reason.STREAM_ENDED)
    NO_EVENT = "no_event"
    NO_TERMINAL_EVENT = "no_terminal_event"
    OPEN_FRAME = "open_frame"
    # a bound was hit (Reason.BOUND_EXCEEDED)
    FRAME_BYTES = "frame_bytes"
    KEPT_FRAME_BYTES = "kept_frame_bytes"
    STREAM_BYTES = "stream_bytes"
    EVENTS = "events"
    TEXT_BYTES = "text_bytes"
    MESSAGES = "messages"
    IGNORED_MESSAGES = "ignored_messages"
    TOOLS = "tools"
    ID_LENGTH = "id_length"
    # a frame cannot be read (Reason.BAD_FRAME); the first five are the faults of domain.strict_json
    UTF8 = "utf8"
    SYNTAX = "syntax"
    DUPLICATE_KEY = "duplicate_key"
    NUMBER = "number"
    DEPTH = "depth"
    NOT_AN_OBJECT = "not_an_object"
    TYPE_FIELD = "type_field"
    REQUIRED_FIELD = "required_field"
    OPTIONAL_FIELD = "optional_field"
    NATIVE_RUN_VALUE = "native_run_value"
    # an event contradicts the order of the protocol (Reason.BAD_FRAME)
    FIRST_EVENT = "first_event"
    SECOND_RUN_STARTED = "second_run_started"
    MESSAGE_REOPENED = "message_reopened"
    MESSAGE_NOT_OPEN = "message_not_open"
    TOOL_REOPENED = "tool_reopened"
    CHUNK_WITHOUT_ID = "chunk_without_id"
    CHUNK_WITHOUT_NAME = "chunk_without_name"
    # ids that are not this run's (Reason.ID_MISMATCH)
    RUN_STARTED_IDS = "run_started_ids"
    RUN_FINISHED_IDS = "run_finished_ids"
    NATIVE_IS_CORRELATION = "native_is_correlation"
    NATIVE_CHANGED = "native_changed"


class IgnoredClass(StrEnum):
    """What an ignored event was, for the counts. `unknown`: a type that is not in the table, or a large frame whose type was not read."""

    STEP = "step"
    SNAPSHOT = "snapshot"
    RAW = "raw"
    ACTIVITY = "activity"
    REASONING = "reasoning"
    SUBAGENT = "subagent"
    CUSTOM = "custom"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class RunStarted:
    """Ids as sent; None when absent or not text, which no expected id equals."""

    thread_id: str | None
    run_id: str | None


@dataclass(frozen=True, slots=True)
class RunFinishedSeen:
    """RUN_FINISHED as sent; whether it is this run's is the sequence's to say."""

    thread_id: str | None
    run_id: str | None
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class RunErrorSeen:
    """RUN_ERROR. Its message and code are not kept."""


@dataclass(frozen=True, slots=True)
class NativeRun:
    """CUSTOM native_run: upstream's own id of this run, one of the three accepted shapes, opaque."""

    native_run_id: str


@dataclass(frozen=True, slots=True)
class InterruptAsked:
    """CUSTOM on_interrupt: upstream waits for a human, so what follows is no success."""


@dataclass(frozen=True, slots=True)
class TextStart:
    """`kept` is False for a role other than assistant and for a subagent's message: its text is dropped."""

    message_id: str
    kept: bool
    subagent: bool


@dataclass(frozen=True, slots=True)
class TextContent:
    """One piece of text. Nearly every event is one; the façade passes the plain ones on without making this (`decode.plain_content`)."""

    message_id: str
    delta: str
    subagent: bool


@dataclass(frozen=True, slots=True)
class TextEnd:
    message_id: str


@dataclass(frozen=True, slots=True)
class TextChunk:
    message_id: str | None
    delta: str
    kept: bool
    subagent: bool


@dataclass(frozen=True, slots=True)
class ToolStart:
    tool_id: str
    name: str
    parent_message_id: str | None


@dataclass(frozen=True, slots=True)
class ToolArgs:
    """Argument text is never kept (contract B11); only whose it was."""

    tool_id: str


@dataclass(frozen=True, slots=True)
class ToolEnd:
    tool_id: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A result's content is never kept (contract B11)."""

    tool_id: str


@dataclass(frozen=True, slots=True)
class ToolChunk:
    tool_id: str | None
    name: str | None
    parent_message_id: str | None


@dataclass(frozen=True, slots=True)
class Ignored:
    """An event that changes nothing but the counts."""

    ignored_class: IgnoredClass


Event = (
    TextContent
    | RunStarted
    | RunFinishedSeen
    | RunErrorSeen
    | NativeRun
    | InterruptAsked
    | TextStart
    | TextEnd
    | TextChunk
    | ToolStart
    | ToolArgs
    | ToolEnd
    | ToolResult
    | ToolChunk
    | Ignored
)


def bad_frame(detail: Detail) -> StreamBroken:
    """The fault of a frame that cannot be read or contradicts the protocol."""
    return StreamBroken(Reason.BAD_FRAME, detail)


def bound_exceeded(detail: Detail) -> StreamBroken:
    """The fault of a stream that costs more than StreamBounds allows; `detail` names the bound."""
    return StreamBroken(Reason.BOUND_EXCEEDED, detail)


def id_mismatch(detail: Detail) -> StreamBroken:
    """The fault of ids that are not this run's."""
    return StreamBroken(Reason.ID_MISMATCH, detail)


def stream_ended(detail: Detail) -> StreamBroken:
    """The fact of an end of the stream before any terminal event."""
    return StreamBroken(Reason.STREAM_ENDED, detail)
