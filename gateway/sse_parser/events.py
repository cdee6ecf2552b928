"""The values that pass between the parser's layers: typed events, and what an ignored one was. No rules here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gateway.domain.evidence import Outcome


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
    usage: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunErrorSeen:
    """RUN_ERROR. Its message and code are not kept."""

    usage: Mapping[str, int] = field(default_factory=dict)


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
    subagent: bool


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
