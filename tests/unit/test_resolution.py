"""Which resolution is allowed: the whole table, over states, outcomes and evidence."""

from itertools import product

import pytest

from gateway.domain.resolution import Obstacle, Resolution, ResolutionFacts, ResolutionOutcome, resolution
from gateway.domain.states import ALLOWED, ALLOWED_PERSISTENCE, SLOT_HOLDING, Execution, Persistence

E, P = Execution, Persistence
CLOSED = Resolution(E.CLOSED, P.INCOMPLETE, refunds=False)
CLOSED_SAVED = Resolution(E.CLOSED, P.SAVED, refunds=False)
CLOSED_REFUNDED = Resolution(E.CLOSED, P.INCOMPLETE, refunds=True)
SUCCEEDED = Resolution(E.SUCCEEDED, P.INCOMPLETE, refunds=False)
FAILED = Resolution(E.FAILED, P.INCOMPLETE, refunds=False)
NO_STATE, EVIDENCE, EARLY = Obstacle.STATE, Obstacle.EVIDENCE, Obstacle.TOO_EARLY

# (execution, persistence): for each of (seen executing, gate over) = no/no, no/yes, yes/no, yes/yes the results of
# succeeded, failed, not_executed. What is not here waits for nobody.
TABLE: dict[tuple[Execution, Persistence], list[tuple[Resolution | Obstacle, ...]]] = {
    (E.UNKNOWN, persistence): [
        (EARLY, EARLY, EARLY),
        (CLOSED, CLOSED, CLOSED_REFUNDED),
        (CLOSED, CLOSED, EVIDENCE),
        (CLOSED, CLOSED, EVIDENCE),
    ]
    for persistence in P
}
TABLE |= {
    (E.WAITING, persistence): [(EARLY, EARLY, EVIDENCE), *([(closed, closed, EVIDENCE)] * 3)]
    for persistence in P
    for closed in [CLOSED_SAVED if persistence is P.SAVED else CLOSED]
}
TABLE |= {
    (E.SUCCEEDED, persistence): [
        (EARLY, EVIDENCE, EVIDENCE),
        (SUCCEEDED, EVIDENCE, EVIDENCE),
        (SUCCEEDED, EVIDENCE, EVIDENCE),
        (SUCCEEDED, EVIDENCE, EVIDENCE),
    ]
    for persistence in (P.PENDING, P.INCOMPLETE)
}
TABLE |= {
    (E.FAILED, persistence): [
        (EVIDENCE, EARLY, EVIDENCE),
        (EVIDENCE, FAILED, EVIDENCE),
        (EVIDENCE, FAILED, EVIDENCE),
        (EVIDENCE, FAILED, EVIDENCE),
    ]
    for persistence in (P.PENDING, P.INCOMPLETE)
}
EVERYTHING = list(product(E, P, (False, True), (False, True)))


@pytest.mark.parametrize(("execution", "persistence"), list(product(E, P)))
def test_the_table(execution: Execution, persistence: Persistence) -> None:
    rows = TABLE.get((execution, persistence), [(NO_STATE,) * 3] * 4)
    for (seen, over), wanted in zip(product((False, True), repeat=2), rows, strict=True):
        facts = ResolutionFacts(execution, persistence, seen_executing=seen, gate_over=over, resolved=None)
        assert tuple(resolution(facts, outcome) for outcome in ResolutionOutcome) == wanted, facts


def test_it_happens_once_but_for_late_text_that_cannot_be_saved() -> None:
    for execution, persistence, seen, over in EVERYTHING:
        for outcome, earlier in product(ResolutionOutcome, repeat=2):
            facts = ResolutionFacts(execution, persistence, seen_executing=seen, gate_over=over, resolved=earlier)
            if earlier is outcome and persistence is P.PENDING:
                assert resolution(facts, outcome) == Resolution(execution, P.INCOMPLETE, refunds=False)
            else:
                assert resolution(facts, outcome) is Obstacle.RESOLVED


def test_what_is_allowed_is_allowed_by_the_tables_of_states_and_frees_every_slot() -> None:
    for execution, persistence, seen, over in EVERYTHING:
        for outcome in ResolutionOutcome:
            facts = ResolutionFacts(execution, persistence, seen_executing=seen, gate_over=over, resolved=None)
            decided = resolution(facts, outcome)
            if isinstance(decided, Obstacle):
                continue
            assert decided.execution == execution or decided.execution in ALLOWED[execution]
            # Nothing complete is stored of what is still open (run_saved_is_over), so only these can be met.
            if persistence in (P.NONE, P.PARTIAL, P.PENDING):
                assert decided.persistence in ALLOWED_PERSISTENCE[persistence]
            assert decided.execution not in SLOT_HOLDING
            assert decided.refunds == (outcome is ResolutionOutcome.NOT_EXECUTED)
            assert not (decided.refunds and seen)


def test_waiting_only_ever_helps() -> None:
    """Time takes away no resolution and adds no contradiction."""
    for execution, persistence, seen, _ in EVERYTHING:
        for outcome in ResolutionOutcome:
            early, late = (
                resolution(ResolutionFacts(execution, persistence, seen_executing=seen, gate_over=over, resolved=None), outcome)
                for over in (False, True)
            )
            assert early == late or early is Obstacle.TOO_EARLY
            assert late is not Obstacle.TOO_EARLY
