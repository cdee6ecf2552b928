"""The treatment table: what happens to each event type of the protocol (contract B13, wire-contract.md 3). Data only.

`decode` dispatches by it, a test compares it with the protocol's own list, and the docs are generated from it. Types that are not in it
are ignored and counted as unknown.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gateway.domain.evidence import Outcome
from gateway.sse_parser.events import IgnoredClass


class Treatment(StrEnum):
    """What is done with an event."""

    VALIDATED = "validated"
    EXPANDED = "expanded"
    BY_NAME = "by_name"
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True)
class Row:
    """One event type. `kept`: its text is kept, so `kept_frame_bytes` bounds its frame. `terminal`: always decoded strictly.

    A start is not `kept`: of it only an id and a short name stay, and a server that copies its own events into `rawEvent` sends a whole
    tool result with it.

    `ignored_class` is set for IGNORED and BY_NAME rows only, and names what the event is counted as.
    """

    treatment: Treatment
    note: str
    kept: bool = False
    terminal: bool = False
    ignored_class: IgnoredClass | None = None


def _validated(note: str, *, kept: bool = False, terminal: bool = False) -> Row:
    return Row(Treatment.VALIDATED, note, kept=kept, terminal=terminal)


def _ignored(ignored_class: IgnoredClass, note: str) -> Row:
    return Row(Treatment.IGNORED, note, ignored_class=ignored_class)


_STEP: Final = _ignored(IgnoredClass.STEP, "Progress of a graph; nothing that is shown.")
_SNAPSHOT: Final = _ignored(IgnoredClass.SNAPSHOT, "Repeats the whole thread; never kept, whatever its size.")
_ACTIVITY: Final = _ignored(IgnoredClass.ACTIVITY, "Not offered.")
_REASONING: Final = _ignored(IgnoredClass.REASONING, "Reasoning is never stored or shown.")
_SUBAGENT: Final = _ignored(IgnoredClass.SUBAGENT, "A subagent's life; its text and its tool steps are dropped too.")

TREATMENTS: Final[Mapping[str, Row]] = {
    "RUN_STARTED": _validated("Must be the first event, with this run's thread and run id."),
    "RUN_FINISHED": _validated("Terminal. Ids must match; the outcome decides. Counts of `usage` are kept as sums.", terminal=True),
    "RUN_ERROR": _validated(
        "Terminal: failed. Also as the first event. Its message is never kept; counts of `usage` are, as sums.", terminal=True
    ),
    "TEXT_MESSAGE_START": _validated("A message begins; only the assistant's is kept, and no subagent's."),
    "TEXT_MESSAGE_CONTENT": _validated("Text of an open message.", kept=True),
    "TEXT_MESSAGE_END": _validated("The message is complete."),
    "TEXT_MESSAGE_CHUNK": Row(Treatment.EXPANDED, "Start and text in one; ends when the next item starts.", kept=True),
    "TOOL_CALL_START": _validated("A tool step begins; its name is validated, else shown as tool. No tool event of a subagent is kept."),
    "TOOL_CALL_ARGS": _validated("Arguments are never kept."),
    "TOOL_CALL_END": _validated("The tool was called."),
    "TOOL_CALL_RESULT": _validated("The tool returned; what it returned is never kept."),
    "TOOL_CALL_CHUNK": Row(Treatment.EXPANDED, "Start and arguments in one; ends when the next item starts."),
    "CUSTOM": Row(
        Treatment.BY_NAME,
        "Two names are acted on, all others are ignored.",
        ignored_class=IgnoredClass.CUSTOM,
    ),
    "STEP_STARTED": _STEP,
    "STEP_FINISHED": _STEP,
    "STATE_SNAPSHOT": _SNAPSHOT,
    "STATE_DELTA": _SNAPSHOT,
    "MESSAGES_SNAPSHOT": _SNAPSHOT,
    "RAW": _ignored(IgnoredClass.RAW, "A framework's own events, often large; never decoded, kept or logged."),
    "ACTIVITY_SNAPSHOT": _ACTIVITY,
    "ACTIVITY_DELTA": _ACTIVITY,
    "REASONING_START": _REASONING,
    "REASONING_MESSAGE_START": _REASONING,
    "REASONING_MESSAGE_CONTENT": _REASONING,
    "REASONING_MESSAGE_END": _REASONING,
    "REASONING_MESSAGE_CHUNK": _REASONING,
    "REASONING_END": _REASONING,
    "REASONING_ENCRYPTED_VALUE": _REASONING,
    "THINKING_START": _REASONING,
    "THINKING_END": _REASONING,
    "THINKING_TEXT_MESSAGE_START": _REASONING,
    "THINKING_TEXT_MESSAGE_CONTENT": _REASONING,
    "THINKING_TEXT_MESSAGE_END": _REASONING,
    "SUBAGENT_STARTED": _SUBAGENT,
    "SUBAGENT_FINISHED": _SUBAGENT,
    "SUBAGENT_ERROR": _SUBAGENT,
}

NATIVE_RUN: Final = "native_run"
ON_INTERRUPT: Final = "on_interrupt"
CUSTOM_NOTES: Final[Mapping[str, str]] = {
    NATIVE_RUN: "Validated: the service's own id of the run, which must not be ours and must not change.",
    ON_INTERRUPT: "Means not finished: a person is waited for, so a RUN_FINISHED behind it is no success.",
}
"""The names of CUSTOM that are acted on."""

OUTCOMES: Final[Mapping[str, Outcome]] = {
    "success": Outcome.SUCCESS,
    "interrupt": Outcome.INTERRUPT,
    "cancelled": Outcome.CANCELLED,
}
"""RUN_FINISHED `outcome.type`. Absent or null is success; anything else is UNRECOGNISED; INTERRUPT once on_interrupt was seen."""
OUTCOME_NOTES: Final[Mapping[Outcome, str]] = {
    Outcome.SUCCESS: "Also when absent or null: the run succeeded.",
    Outcome.INTERRUPT: "Means not finished: the run failed, and its conversation takes no more messages.",
    Outcome.CANCELLED: "Means no success: the run failed.",
    Outcome.UNRECOGNISED: "Whether the run succeeded is unknown.",
}
