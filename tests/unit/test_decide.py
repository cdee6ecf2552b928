"""decide: total over every state and every fact, never outside ALLOWED, and row by row what design.md says."""

from dataclasses import replace
from typing import get_args

import pytest

from gateway.domain.decide import Transition, decide
from gateway.domain.evidence import (
    BadResponse,
    Fact,
    LeaseLost,
    LookedUp,
    LookupStatus,
    NativeOutcome,
    NativeRead,
    NotSent,
    NotSentProof,
    Outcome,
    Rejected,
    ResponseFault,
    RunErrored,
    RunFinished,
    StreamBroken,
)
from gateway.domain.reasons import Reason
from gateway.domain.states import ALLOWED, OVER, Attention, Execution

STREAM_REASONS = (
    Reason.STREAM_ENDED,
    Reason.IDLE_TIMEOUT,
    Reason.TOTAL_TIMEOUT,
    Reason.BOUND_EXCEEDED,
    Reason.BAD_FRAME,
    Reason.ID_MISMATCH,
)
REFUSALS = (301, 302, 303, 307, 308, 400, 401, 403, 404, 405, 409, 413, 415, 422, 429)
FACTS: list[Fact] = [
    *(NotSent(proof) for proof in NotSentProof),
    NotSent(NotSentProof.BEFORE_FENCE, Reason.THREAD_FAILED),
    *(Rejected(status, busy) for status in REFUSALS for busy in (False, True)),
    *(BadResponse(fault, status) for fault in ResponseFault for status in (None, 200, 500)),
    *(StreamBroken(reason, "detail") for reason in STREAM_REASONS),
    RunErrored(),
    *(RunFinished(outcome) for outcome in Outcome),
    LeaseLost(),
    *(LookedUp(status) for status in LookupStatus),
    *(NativeRead(outcome) for outcome in NativeOutcome),
]
AFTER_FENCE = (Execution.DISPATCHED, Execution.RUNNING, Execution.UNKNOWN)


def test_facts_are_of_every_kind() -> None:
    assert {type(fact) for fact in FACTS} == set(get_args(Fact))


@pytest.mark.parametrize("state", list(Execution))
@pytest.mark.parametrize("bound", [False, True])
def test_total_and_never_outside_the_table(state: Execution, bound: bool) -> None:
    for fact in FACTS:
        transition = decide(state, fact, thread_bound=bound)
        if transition is None:
            continue
        assert transition.to in ALLOWED[state], fact
        assert (transition.reason is None) is (transition.to in (Execution.SUCCEEDED, Execution.WAITING)), fact


@pytest.mark.parametrize("state", [*sorted(OVER), Execution.WAITING])
def test_what_is_over_is_left_alone(state: Execution) -> None:
    for fact in FACTS:
        assert decide(state, fact) is None


@pytest.mark.parametrize("state", AFTER_FENCE)
@pytest.mark.parametrize(
    ("fact", "transition"),
    [
        (Rejected(400), Transition(Execution.FAILED, Reason.UPSTREAM_REJECTED)),
        (Rejected(307), Transition(Execution.FAILED, Reason.UPSTREAM_REJECTED)),
        (Rejected(429), Transition(Execution.FAILED, Reason.UPSTREAM_REJECTED)),
        (Rejected(404), Transition(Execution.FAILED, Reason.THREAD_GONE, blocks=Reason.THREAD_GONE)),
        (RunErrored(), Transition(Execution.FAILED, Reason.UPSTREAM_ERROR)),
        (RunFinished(Outcome.SUCCESS), Transition(Execution.SUCCEEDED)),
        (NativeRead(NativeOutcome.COMPLETED), Transition(Execution.SUCCEEDED)),
        (NativeRead(NativeOutcome.WAITING), Transition(Execution.WAITING)),
        (
            NativeRead(NativeOutcome.UNSUPPORTED),
            Transition(Execution.FAILED, Reason.INTERRUPT_UNSUPPORTED, blocks=Reason.INTERRUPT_UNSUPPORTED),
        ),
        (NativeRead(NativeOutcome.CANCELLED), Transition(Execution.FAILED, Reason.CANCELLED_UPSTREAM)),
        (NativeRead(NativeOutcome.FAILED), Transition(Execution.FAILED, Reason.UPSTREAM_ERROR)),
        (NativeRead(NativeOutcome.ACTIVE), None),
        (NativeRead(NativeOutcome.UNCLEAR), None),
        (
            RunFinished(Outcome.INTERRUPT),
            Transition(Execution.FAILED, Reason.INTERRUPT_UNSUPPORTED, blocks=Reason.INTERRUPT_UNSUPPORTED),
        ),
        (RunFinished(Outcome.CANCELLED), Transition(Execution.FAILED, Reason.CANCELLED_UPSTREAM)),
        (LookedUp(LookupStatus.SUCCESS), Transition(Execution.SUCCEEDED)),
        (LookedUp(LookupStatus.ERROR), Transition(Execution.FAILED, Reason.UPSTREAM_ERROR)),
        (LookedUp(LookupStatus.INTERRUPTED), Transition(Execution.FAILED, Reason.CANCELLED_UPSTREAM)),
        (LookedUp(LookupStatus.ACTIVE), None),
        (LookedUp(LookupStatus.UNCLEAR), None),
    ],
)
def test_what_settles_settles_from_every_state_after_the_fence(state: Execution, fact: Fact, transition: Transition | None) -> None:
    assert decide(state, fact) == transition


@pytest.mark.parametrize("state", [Execution.DISPATCHED, Execution.RUNNING])
@pytest.mark.parametrize(
    ("fact", "reason"),
    [
        *((StreamBroken(reason, "detail"), reason) for reason in STREAM_REASONS),
        *((BadResponse(fault), Reason.BAD_RESPONSE) for fault in ResponseFault),
        (Rejected(409, thread_busy=True), Reason.THREAD_BUSY),
        (Rejected(404, thread_busy=True), Reason.THREAD_BUSY),
        (RunFinished(Outcome.UNRECOGNISED), Reason.OUTCOME_UNRECOGNISED),
        (LeaseLost(), Reason.LEASE_LOST),
    ],
)
def test_every_doubt_is_unknown(state: Execution, fact: Fact, reason: Reason) -> None:
    assert decide(state, fact) == Transition(Execution.UNKNOWN, reason)
    assert decide(Execution.UNKNOWN, fact) is None


def test_a_thread_that_was_never_used_is_not_gone() -> None:
    assert decide(Execution.DISPATCHED, Rejected(404), thread_bound=False) == Transition(Execution.FAILED, Reason.UPSTREAM_REJECTED)


def test_before_the_fence_only_releases() -> None:
    for fact in FACTS:
        transition = decide(Execution.RESERVED, fact)
        assert transition is None or transition.to is Execution.RELEASED
    assert decide(Execution.RESERVED, LeaseLost()) == Transition(Execution.RELEASED, Reason.LEASE_LOST)


def test_proof_of_not_sent_releases_but_not_what_runs() -> None:
    proof = NotSent(NotSentProof.CONNECTION_NOT_MADE)
    for state in (Execution.RESERVED, Execution.DISPATCHED, Execution.UNKNOWN):
        assert decide(state, proof) == Transition(Execution.RELEASED, Reason.NOT_SENT)
        assert decide(state, replace(proof, reason=Reason.CAPABILITIES_FAILED)) == Transition(
            Execution.RELEASED, Reason.CAPABILITIES_FAILED
        )
    assert decide(Execution.RUNNING, proof) is None


def test_success_needs_one_of_three_facts() -> None:
    for state in Execution:
        for fact in FACTS:
            transition = decide(state, fact)
            if transition is not None and transition.to is Execution.SUCCEEDED:
                assert fact in (RunFinished(Outcome.SUCCESS), LookedUp(LookupStatus.SUCCESS), NativeRead(NativeOutcome.COMPLETED))


def test_a_decision_that_was_not_applied_is_an_operators() -> None:
    fact = NativeRead(NativeOutcome.NOT_APPLIED)
    expected = Transition(Execution.UNKNOWN, Reason.DECISION_NOT_APPLIED, attention=Attention.OPERATOR)
    assert decide(Execution.RUNNING, fact) == expected
    assert decide(Execution.UNKNOWN, fact) is None
