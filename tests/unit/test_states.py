"""The tables of states: complete, consistent with what they say, and with the design's sentences about them."""

from gateway.domain.reasons import REASON_MESSAGES, Reason
from gateway.domain.states import (
    ALLOWED,
    ALLOWED_PERSISTENCE,
    EXECUTION_DOCS,
    OVER,
    PERSISTENCE_DOCS,
    REFUNDED,
    SLOT_HOLDING,
    Execution,
    Persistence,
    persistence_sources,
    sources,
)


def test_every_state_is_in_every_table() -> None:
    assert set(ALLOWED) == set(EXECUTION_DOCS) == set(Execution)
    assert set(ALLOWED_PERSISTENCE) == set(PERSISTENCE_DOCS) == set(Persistence)
    assert set(REASON_MESSAGES) == set(Reason)


def test_every_state_is_one_of_slot_holding_waiting_or_over() -> None:
    assert SLOT_HOLDING.isdisjoint(OVER)
    assert SLOT_HOLDING | OVER | {Execution.WAITING} == set(Execution)
    assert REFUNDED <= OVER


def test_what_is_over_is_never_left() -> None:
    for state in OVER:
        assert not ALLOWED[state]
    for state in SLOT_HOLDING | {Execution.WAITING}:
        assert ALLOWED[state]


def test_no_state_leads_to_itself_or_back_before_the_fence() -> None:
    for state, targets in ALLOWED.items():
        assert state not in targets
        assert Execution.RESERVED not in targets
    assert sources(Execution.DISPATCHED) == {Execution.RESERVED}
    assert sources(Execution.RUNNING) == {Execution.DISPATCHED}
    assert sources(Execution.RESERVED) == frozenset()


def test_sources_are_the_table_read_backwards() -> None:
    for target in Execution:
        assert sources(target) == {state for state in Execution if target in ALLOWED[state]}
    for saved in Persistence:
        assert persistence_sources(saved) == {state for state in Persistence if saved in ALLOWED_PERSISTENCE[state]}


def test_terminal_evidence_settles_from_wherever_the_post_may_be() -> None:
    after_the_fence = {Execution.DISPATCHED, Execution.RUNNING, Execution.UNKNOWN}
    assert sources(Execution.SUCCEEDED) == after_the_fence
    assert sources(Execution.FAILED) == after_the_fence
    # A running run was seen by upstream: it cannot be proven never sent.
    assert sources(Execution.RELEASED) == {Execution.RESERVED, Execution.DISPATCHED, Execution.UNKNOWN}


def test_late_complete_text_can_always_be_saved() -> None:
    assert persistence_sources(Persistence.PENDING) == {Persistence.NONE, Persistence.PARTIAL, Persistence.INCOMPLETE}
    assert not ALLOWED_PERSISTENCE[Persistence.SAVED]
    for state, targets in ALLOWED_PERSISTENCE.items():
        assert state not in targets
