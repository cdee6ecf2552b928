"""Which resolution of a run an operator may record: a pure, total function from what is known of the run (design.md "Execution",
"From request to POST" 5; interface.md "Operators"). SQL repeats its guard; whether the same was recorded before is `runs.resolve`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gateway.domain.states import Execution, Persistence


class ResolutionOutcome(StrEnum):
    """What an operator says became of a run."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    NOT_EXECUTED = "not_executed"


class RunFilter(StrEnum):
    """Which runs an operator lists. UNRESOLVED: those that wait for somebody; ATTENTION: that nobody but an operator can settle; ACTIVE:
    that hold a slot."""

    UNRESOLVED = "unresolved"
    ATTENTION = "attention"
    ACTIVE = "active"
    WAITING = "waiting"
    ALL = "all"


class RunOrder(StrEnum):
    """By since when a run is over, else unknown, else there."""

    NEWEST = "newest"
    OLDEST = "oldest"


class Obstacle(StrEnum):
    """Why a resolution is not allowed. Only TOO_EARLY passes by itself."""

    RESOLVED = "resolved"
    """There is one already: it happens once."""
    STATE = "state"
    """The run is not in a state that waits for an operator."""
    EVIDENCE = "evidence"
    """What is confirmed says otherwise."""
    TOO_EARLY = "too_early"
    """The POST may still be on its way."""


OUTCOME_DOCS: Final[Mapping[ResolutionOutcome, str]] = {
    ResolutionOutcome.SUCCEEDED: "The service did the work. The charge stays.",
    ResolutionOutcome.FAILED: "It began and did not finish, or nobody can tell any more. The charge stays.",
    ResolutionOutcome.NOT_EXECUTED: "The service never got it. The charge comes back, and the message is shown as not sent.",
}
OBSTACLE_DOCS: Final[Mapping[Obstacle, str]] = {
    Obstacle.RESOLVED: "It is resolved already; that happens once.",
    Obstacle.STATE: "The run does not wait for an operator.",
    Obstacle.EVIDENCE: "What is confirmed about the run says otherwise.",
    Obstacle.TOO_EARLY: "The message may still be on its way to the service.",
}
"""Both in words for operators."""


@dataclass(frozen=True, slots=True)
class ResolutionFacts:
    """What the decision rests on. `seen_executing`: RUN_STARTED or a native id is recorded. `gate_over`: by the database's clock, fence +
    send window + total stream deadline is over, so a POST that was under way has arrived or never will. `resolved`: the outcome that is
    recorded already."""

    execution: Execution
    persistence: Persistence
    seen_executing: bool
    gate_over: bool
    resolved: ResolutionOutcome | None


@dataclass(frozen=True, slots=True)
class Resolution:
    """What an allowed resolution does to the run. `refunds`: the charge comes back (contract C4)."""

    execution: Execution
    persistence: Persistence
    refunds: bool


CLOSABLE: Final = frozenset({Execution.UNKNOWN, Execution.WAITING})
"""What a resolution closes, whatever its persistence was."""
AGREES: Final = {Execution.SUCCEEDED: ResolutionOutcome.SUCCEEDED, Execution.FAILED: ResolutionOutcome.FAILED}
"""A run that is known to be over keeps its execution, and the outcome has to say the same."""
UNSAVED: Final = frozenset({Persistence.PENDING, Persistence.INCOMPLETE})
"""What there is to resolve about a run that is over."""


def resolution(facts: ResolutionFacts, outcome: ResolutionOutcome) -> Resolution | Obstacle:
    """What recording `outcome` does, or why it may not be recorded. Obstacles that stay come before the one that passes."""
    if facts.resolved is not None:
        if facts.resolved is outcome and facts.persistence is Persistence.PENDING:
            # Complete text came after the resolution, and cannot be saved: the same again gives it up, and says nothing new.
            return Resolution(facts.execution, Persistence.INCOMPLETE, refunds=False)
        return Obstacle.RESOLVED
    closes = facts.execution in CLOSABLE
    if not closes and not (facts.execution in AGREES and facts.persistence in UNSAVED):
        return Obstacle.STATE
    not_executed = outcome is ResolutionOutcome.NOT_EXECUTED
    # a waiting run asked somebody something: its thread's state confirmed that
    executed = facts.seen_executing or facts.execution is Execution.WAITING
    if (not_executed and executed) or (not closes and AGREES[facts.execution] is not outcome):
        return Obstacle.EVIDENCE
    if not facts.gate_over and (not_executed or not facts.seen_executing):
        return Obstacle.TOO_EARLY
    # What was said before a question is saved, mostly, and stays so.
    asked = facts.execution is Execution.WAITING and facts.persistence is Persistence.SAVED
    persistence = Persistence.SAVED if asked else Persistence.INCOMPLETE
    return Resolution(Execution.CLOSED if closes else facts.execution, persistence, refunds=not_executed)
