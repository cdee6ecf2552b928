"""decide: a pure, total function from (state, fact) to a transition. The failure table of design.md, and nothing else, is here."""

from dataclasses import dataclass
from typing import assert_never

from gateway.domain.evidence import (
    BadResponse,
    Fact,
    LeaseLost,
    LookedUp,
    LookupStatus,
    NativeOutcome,
    NativeRead,
    NotSent,
    Outcome,
    Rejected,
    RunErrored,
    RunFinished,
    StreamBroken,
)
from gateway.domain.reasons import Reason
from gateway.domain.states import ALLOWED, Attention, Execution


@dataclass(frozen=True, slots=True)
class Transition:
    """Where a run goes. `blocks`: the conversation takes no further task for good, and why. `attention`: who must act next."""

    to: Execution
    reason: Reason | None = None
    blocks: Reason | None = None
    attention: Attention | None = None


def decide(current: Execution, fact: Fact, *, thread_bound: bool = True) -> Transition | None:
    """What `fact` does to a run in `current`; None when it changes nothing.

    `thread_bound`: the conversation used this upstream thread before, so a 404 means that upstream lost it.
    Total: each state and each fact has an answer, and none leaves the table of allowed transitions.
    """
    transition = _target(current, fact, thread_bound)
    if transition is None or transition.to not in ALLOWED[current]:
        return None
    return transition


def _target(current: Execution, fact: Fact, thread_bound: bool) -> Transition | None:
    match fact:
        case NotSent(reason=reason):
            return Transition(Execution.RELEASED, reason)
        case Rejected(thread_busy=True):
            return Transition(Execution.UNKNOWN, Reason.THREAD_BUSY)
        case Rejected(status=404) if thread_bound:
            return Transition(Execution.FAILED, Reason.THREAD_GONE, blocks=Reason.THREAD_GONE)
        case Rejected():
            return Transition(Execution.FAILED, Reason.UPSTREAM_REJECTED)
        case BadResponse():
            return Transition(Execution.UNKNOWN, Reason.BAD_RESPONSE)
        case StreamBroken(reason=reason):
            return Transition(Execution.UNKNOWN, reason)
        case RunErrored():
            return Transition(Execution.FAILED, Reason.UPSTREAM_ERROR)
        case RunFinished(outcome=outcome):
            return _finished(outcome)
        case LeaseLost():
            if current is Execution.RESERVED:
                return Transition(Execution.RELEASED, Reason.LEASE_LOST)
            return Transition(Execution.UNKNOWN, Reason.LEASE_LOST)
        case LookedUp(status=status):
            return _looked_up(status)
        case NativeRead(outcome=native_outcome):
            return _native(native_outcome)
        case _:
            assert_never(fact)


def _finished(outcome: Outcome) -> Transition:
    match outcome:
        case Outcome.SUCCESS:
            return Transition(Execution.SUCCEEDED)
        case Outcome.INTERRUPT:
            return Transition(Execution.FAILED, Reason.INTERRUPT_UNSUPPORTED, blocks=Reason.INTERRUPT_UNSUPPORTED)
        case Outcome.CANCELLED:
            return Transition(Execution.FAILED, Reason.CANCELLED_UPSTREAM)
        case Outcome.UNRECOGNISED:
            return Transition(Execution.UNKNOWN, Reason.OUTCOME_UNRECOGNISED)
        case _:
            assert_never(outcome)


def _looked_up(status: LookupStatus) -> Transition | None:
    match status:
        case LookupStatus.SUCCESS:
            return Transition(Execution.SUCCEEDED)
        case LookupStatus.ERROR:
            return Transition(Execution.FAILED, Reason.UPSTREAM_ERROR)
        case LookupStatus.INTERRUPTED:
            return Transition(Execution.FAILED, Reason.CANCELLED_UPSTREAM)
        case LookupStatus.ACTIVE | LookupStatus.UNCLEAR:
            return None
        case _:
            assert_never(status)


def _native(outcome: NativeOutcome) -> Transition | None:
    match outcome:
        case NativeOutcome.COMPLETED:
            return Transition(Execution.SUCCEEDED)
        case NativeOutcome.WAITING:
            return Transition(Execution.WAITING)
        case NativeOutcome.UNSUPPORTED:
            return Transition(Execution.FAILED, Reason.INTERRUPT_UNSUPPORTED, blocks=Reason.INTERRUPT_UNSUPPORTED)
        case NativeOutcome.CANCELLED:
            return Transition(Execution.FAILED, Reason.CANCELLED_UPSTREAM)
        case NativeOutcome.FAILED:
            return Transition(Execution.FAILED, Reason.UPSTREAM_ERROR)
        case NativeOutcome.NOT_APPLIED:
            return Transition(Execution.UNKNOWN, Reason.DECISION_NOT_APPLIED, attention=Attention.OPERATOR)
        case NativeOutcome.ACTIVE | NativeOutcome.UNCLEAR:
            return None
        case _:
            assert_never(outcome)
