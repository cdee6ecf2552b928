"""Execution and persistence of a run: the states, the transitions, and what they mean (design.md "Execution").

Everything that may change a run's state is in the two ALLOWED tables. SQL repeats the guard (`update … where execution = any(…)`);
docs/states.md is generated from here and a test compares the tables with the CHECK constraints.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Execution(StrEnum):
    """What is known about the one POST of a run. Who enters and leaves each state: EXECUTION_DOCS."""

    RESERVED = "reserved"
    DISPATCHED = "dispatched"
    RUNNING = "running"
    UNKNOWN = "unknown"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    RELEASED = "released"
    CLOSED = "closed"


class Persistence(StrEnum):
    """What is known about the saving of a run's items."""

    NONE = "none"
    PARTIAL = "partial"
    PENDING = "pending"
    SAVED = "saved"
    INCOMPLETE = "incomplete"


class RunKind(StrEnum):
    """A task carries a new message; a resume carries a decision."""

    TASK = "task"
    RESUME = "resume"


class Attention(StrEnum):
    """Who has to act before the run can go on."""

    OPERATOR = "operator"
    USER = "user"


_E = Execution
_P = Persistence

ALLOWED: Final[Mapping[Execution, frozenset[Execution]]] = {
    _E.RESERVED: frozenset({_E.DISPATCHED, _E.RELEASED}),
    _E.DISPATCHED: frozenset({_E.RUNNING, _E.SUCCEEDED, _E.FAILED, _E.WAITING, _E.UNKNOWN, _E.RELEASED}),
    _E.RUNNING: frozenset({_E.SUCCEEDED, _E.FAILED, _E.WAITING, _E.UNKNOWN}),
    _E.UNKNOWN: frozenset({_E.SUCCEEDED, _E.FAILED, _E.WAITING, _E.CLOSED, _E.RELEASED}),
    _E.WAITING: frozenset({_E.CLOSED}),
    _E.SUCCEEDED: frozenset(),
    _E.FAILED: frozenset(),
    _E.RELEASED: frozenset(),
    _E.CLOSED: frozenset(),
}

ALLOWED_PERSISTENCE: Final[Mapping[Persistence, frozenset[Persistence]]] = {
    _P.NONE: frozenset({_P.PARTIAL, _P.PENDING, _P.SAVED, _P.INCOMPLETE}),
    _P.PARTIAL: frozenset({_P.PENDING, _P.SAVED, _P.INCOMPLETE}),
    _P.PENDING: frozenset({_P.SAVED, _P.INCOMPLETE}),
    _P.SAVED: frozenset(),
    _P.INCOMPLETE: frozenset({_P.PENDING, _P.SAVED}),
}

SLOT_HOLDING: Final = frozenset({_E.RESERVED, _E.DISPATCHED, _E.RUNNING, _E.UNKNOWN})
"""Active: the run row itself is the slot of user, application and conversation."""

LIVE: Final = frozenset({_E.DISPATCHED, _E.RUNNING})
"""A process is believed to read the stream: what expires to unknown when its lease is lost."""

OVER: Final = frozenset({_E.SUCCEEDED, _E.FAILED, _E.RELEASED, _E.CLOSED})
"""Execution is known and will not change."""

REFUNDED: Final = frozenset({_E.RELEASED})
"""States whose entry returns the quota charge; `closed` does so only with the outcome not_executed (contract C4)."""

EXECUTION_DOCS: Final[Mapping[Execution, str]] = {
    _E.RESERVED: "Admission committed: slots, charge and user message exist; nothing was sent.",
    _E.DISPATCHED: "The fence is committed: the one POST may have been sent.",
    _E.RUNNING: "RUN_STARTED with matching ids was seen.",
    _E.UNKNOWN: "Any doubt after the fence, a lost process included. Keeps its slot until a look-up or an operator settles it.",
    _E.WAITING: "Human approval: exactly one valid prompt is pending, confirmed by the thread's state.",
    _E.SUCCEEDED: "RUN_FINISHED, or a look-up that said success.",
    _E.FAILED: "RUN_ERROR, a documented refusal, or a look-up that said error.",
    _E.RELEASED: "Proven never sent. The quota charge is returned.",
    _E.CLOSED: "An operator's resolution, with outcome and reason. The outcome not_executed returns the charge.",
}

PERSISTENCE_DOCS: Final[Mapping[Persistence, str]] = {
    _P.NONE: "Nothing of an answer is stored.",
    _P.PARTIAL: "What was seen of a live or broken stream is stored.",
    _P.PENDING: "The complete snapshot is stored; its items are not.",
    _P.SAVED: "The items are in the history.",
    _P.INCOMPLETE: "Over, and no complete snapshot is known.",
}


def sources(target: Execution) -> frozenset[Execution]:
    """The states from which `target` may be entered: what a guarded update names in its WHERE."""
    return frozenset(state for state, targets in ALLOWED.items() if target in targets)


def persistence_sources(target: Persistence) -> frozenset[Persistence]:
    """The persistence states from which `target` may be entered."""
    return frozenset(state for state, targets in ALLOWED_PERSISTENCE.items() if target in targets)
