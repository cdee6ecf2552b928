"""f(run look-up, thread state): total, row by row as real servers answer, and every recorded pair has its verdict."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import pytest

from gateway.domain import strict_json
from gateway.domain.confirmation import MAX_COMMENT_CHARACTERS, Prompt, Question
from gateway.domain.evidence import LookupStatus, NativeOutcome, NativeRead
from gateway.domain.ids import NativeRunId
from gateway.domain.native import Answered, AssistantMessage, PendingInterrupt, ThreadState, native_verdict, obstacle, verified
from gateway.domain.reasons import Reason
from gateway.domain.strict_json import Json
from gateway.domain.thread_state import parse_state, text_of
from gateway.upstream.faults import UpstreamFailed
from gateway.upstream.lookup import run_status

SAMPLES = Path(__file__).parent.parent / "samples"
RUN = NativeRunId("run-1")
PROMPT = Prompt("Send?", "", 100, None)
QUESTION = Question("int-1", PROMPT)
ASKED = PendingInterrupt("int-1", PROMPT)
OTHER = PendingInterrupt("int-2", PROMPT)
FOREIGN = PendingInterrupt("int-3", None)
EMPTY = ThreadState("run-1", (), False, ())
ANSWERED = Answered("int-1", PROMPT.digest(), frozenset({"run-0"}))
STOPPED = (LookupStatus.SUCCESS, LookupStatus.INTERRUPTED)
STATES = [
    None,
    *(
        ThreadState(run_id, interrupts, more, ())
        for run_id in ("run-1", "run-0", "run-2", None)
        for interrupts in ((), (ASKED,), (FOREIGN,), (ASKED, OTHER), (PendingInterrupt(None, None),))
        for more in (False, True)
    ),
]


@pytest.mark.parametrize("status", list(LookupStatus))
def test_total(status: LookupStatus) -> None:
    for state, answered in product(STATES, (None, ANSWERED)):
        read = native_verdict(status, state, RUN, answered)
        assert (read.question is not None) is (read.outcome is NativeOutcome.WAITING)
        # nothing is over, and nothing waits, that both of them did not say
        if read.outcome in (NativeOutcome.COMPLETED, NativeOutcome.WAITING, NativeOutcome.CANCELLED, NativeOutcome.UNSUPPORTED):
            assert state is not None
            assert state.run_id == RUN or (answered is not None and state.interrupts and state.run_id == "run-0")
            assert status in STOPPED


@pytest.mark.parametrize(
    ("status", "state", "answered", "outcome"),
    [
        (LookupStatus.SUCCESS, EMPTY, None, NativeOutcome.COMPLETED),
        (LookupStatus.SUCCESS, EMPTY, ANSWERED, NativeOutcome.COMPLETED),
        (LookupStatus.SUCCESS, replace(EMPTY, more_to_do=True), None, NativeOutcome.UNSUPPORTED),
        (LookupStatus.INTERRUPTED, EMPTY, None, NativeOutcome.CANCELLED),
        (LookupStatus.INTERRUPTED, replace(EMPTY, more_to_do=True), None, NativeOutcome.CANCELLED),
        *((status, replace(EMPTY, interrupts=(ASKED, OTHER)), None, NativeOutcome.UNSUPPORTED) for status in STOPPED),
        *((status, replace(EMPTY, interrupts=(FOREIGN,)), None, NativeOutcome.UNSUPPORTED) for status in STOPPED),
        *((status, replace(EMPTY, interrupts=(ASKED,)), ANSWERED, NativeOutcome.NOT_APPLIED) for status in STOPPED),
        *((status, replace(EMPTY, run_id="run-0", interrupts=(ASKED,)), ANSWERED, NativeOutcome.NOT_APPLIED) for status in STOPPED),
        *((status, replace(EMPTY, interrupts=(ASKED, OTHER)), ANSWERED, NativeOutcome.NOT_APPLIED) for status in STOPPED),
        *((status, replace(EMPTY, run_id="run-0"), None, NativeOutcome.UNCLEAR) for status in STOPPED),
        *((status, None, answered, NativeOutcome.UNCLEAR) for status in STOPPED for answered in (None, ANSWERED)),
        *((LookupStatus.ERROR, state, None, NativeOutcome.FAILED) for state in STATES),
        *((LookupStatus.ACTIVE, state, None, NativeOutcome.ACTIVE) for state in STATES),
        *((LookupStatus.UNCLEAR, state, None, NativeOutcome.UNCLEAR) for state in STATES),
    ],
)
def test_rows(status: LookupStatus, state: ThreadState | None, answered: Answered | None, outcome: NativeOutcome) -> None:
    assert native_verdict(status, state, RUN, answered) == NativeRead(outcome)


@pytest.mark.parametrize("status", STOPPED)
def test_o39_one_valid_prompt_is_waiting_whatever_the_run_is_called(status: LookupStatus) -> None:
    state = replace(EMPTY, interrupts=(ASKED,), more_to_do=True)
    assert native_verdict(status, state, RUN, None) == NativeRead(NativeOutcome.WAITING, QUESTION)
    assert native_verdict(status, replace(state, interrupts=(OTHER,)), RUN, ANSWERED) == NativeRead(
        NativeOutcome.WAITING, Question("int-2", PROMPT)
    )


def test_a_step_that_asks_again_gives_its_question_the_same_id() -> None:
    again = replace(PROMPT, title="Really?")
    state = ThreadState("run-0", (PendingInterrupt("int-1", again),), True, ())
    assert native_verdict(LookupStatus.SUCCESS, state, RUN, ANSWERED) == NativeRead(NativeOutcome.WAITING, Question("int-1", again))
    assert native_verdict(LookupStatus.SUCCESS, state, RUN, None) == NativeRead(NativeOutcome.UNCLEAR)
    stranger = replace(state, run_id="run-2")
    assert native_verdict(LookupStatus.SUCCESS, stranger, RUN, ANSWERED) == NativeRead(NativeOutcome.UNCLEAR)


def test_what_stands_against_a_dispatch() -> None:
    pending = replace(EMPTY, interrupts=(ASKED,))
    assert obstacle(EMPTY, None) is None
    assert obstacle(pending, None) is Reason.INTERRUPT_PENDING
    assert obstacle(replace(EMPTY, interrupts=(FOREIGN,)), None) is Reason.INTERRUPT_PENDING
    assert obstacle(pending, ANSWERED) is None
    assert obstacle(EMPTY, ANSWERED) is Reason.INTERRUPT_CHANGED
    assert obstacle(replace(EMPTY, interrupts=(ASKED, FOREIGN)), ANSWERED) is Reason.INTERRUPT_CHANGED
    assert obstacle(replace(EMPTY, interrupts=(OTHER,)), ANSWERED) is Reason.INTERRUPT_CHANGED
    changed = PendingInterrupt("int-1", replace(PROMPT, expires_at=datetime(2026, 1, 1, tzinfo=UTC)))
    assert obstacle(replace(EMPTY, interrupts=(changed,)), ANSWERED) is Reason.INTERRUPT_CHANGED


def test_state_verifies_and_never_supplies() -> None:
    said = AssistantMessage("m-1", "Hello")
    earlier = AssistantMessage("m-0", "Before")
    state = replace(EMPTY, messages=(earlier, said))
    assert verified((said,), state, frozenset({"m-0"}))
    assert not verified((), state, frozenset({"m-0"})), "more in the state than was shown"
    assert not verified((said,), state, frozenset()), "an earlier message that nobody showed"
    assert not verified((said,), replace(EMPTY, messages=(earlier,)), frozenset({"m-0"})), "shown, and not in the state"
    assert not verified((AssistantMessage("m-1", "Hell"),), state, frozenset({"m-0"})), "other text"
    assert not verified((said, said), state, frozenset({"m-0"}))
    assert not verified((AssistantMessage(None, "x"),), replace(EMPTY, messages=(AssistantMessage(None, "x"),)), frozenset())


def state_of(sample: str) -> ThreadState | None:
    told = strict_json.loads((SAMPLES / sample).read_bytes())
    return parse_state(told) if isinstance(told, dict) else None


def read(family: str, run: str, state: str, answered: str | None = None) -> NativeRead:
    """The verdict on two recorded answers. A 404 is no run at all."""
    meta = json.loads((SAMPLES / family / f"run_get_{run}.meta.json").read_text())
    told = json.loads((SAMPLES / family / f"run_get_{run}.json").read_text())
    thread_id, run_id = meta["request"]["path"].split("/")[2::2]
    status = run_status(told if meta["status"] == 200 else {}, thread_id, run_id)
    asked = LookupStatus.UNCLEAR if isinstance(status, UpstreamFailed) else status
    shown = state_of(f"{family}/state_{state}.json")
    return native_verdict(asked, shown, NativeRunId(run_id), Answered(answered, RECORDED.digest(), frozenset()) if answered else None)


NO_STATE = "empty_thread"
RECORDED = Prompt("Send the report?", "The report goes to finance.", MAX_COMMENT_CHARACTERS, None)
QUESTION_OF = {"langgraph-api": "80720ef8f5ea4308743258ec9d69958c", "aegra-api": "b2c15d2e596d26aa9b5dcf3136e412a3"}


@pytest.mark.parametrize(
    ("family", "run", "state", "outcome"),
    [
        ("langgraph-api", "confirm_interrupted", "confirm_pending", NativeOutcome.WAITING),
        ("aegra-api", "confirm_interrupted", "confirm_pending", NativeOutcome.WAITING),
        ("langgraph-api", "confirm_interrupted", "confirm2_pending", NativeOutcome.UNCLEAR),
        ("langgraph-api", "confirm_resumed", "confirm_after", NativeOutcome.COMPLETED),
        ("aegra-api", "confirm_resumed", "confirm_after", NativeOutcome.COMPLETED),
        ("langgraph-api", "confirm_first_after_resume", "confirm_after", NativeOutcome.UNCLEAR),
        ("langgraph-api", "boom", "boom", NativeOutcome.FAILED),
        ("langgraph-api", "boom_mid", "boom", NativeOutcome.FAILED),
        ("aegra-api", "boom", NO_STATE, NativeOutcome.FAILED),
        ("langgraph-api", "timeout", NO_STATE, NativeOutcome.FAILED),
        ("langgraph-api", "cancelled_interrupt", "after_cancel_interrupt", NativeOutcome.CANCELLED),
        ("langgraph-api", "cancelled_rollback", "after_cancel_rollback", NativeOutcome.UNCLEAR),
        ("langgraph-api", "pending", NO_STATE, NativeOutcome.ACTIVE),
        ("langgraph-api", "running", NO_STATE, NativeOutcome.ACTIVE),
        ("aegra-api", "running", NO_STATE, NativeOutcome.ACTIVE),
        ("langgraph-api", "success", NO_STATE, NativeOutcome.UNCLEAR),
        ("aegra-api", "success", NO_STATE, NativeOutcome.UNCLEAR),
        ("langgraph-api", "after_disconnect_None", NO_STATE, NativeOutcome.UNCLEAR),
        ("langgraph-api", "after_disconnect_cancel", NO_STATE, NativeOutcome.UNCLEAR),
        ("aegra-api", "after_disconnect_None", NO_STATE, NativeOutcome.UNCLEAR),
    ],
)
def test_recorded_runs_and_states(family: str, run: str, state: str, outcome: NativeOutcome) -> None:
    verdict = read(family, run, state)
    assert verdict.outcome is outcome
    if outcome is NativeOutcome.WAITING:
        assert verdict.question is not None
        assert (verdict.question.native_id, verdict.question.prompt.title) == (QUESTION_OF[family], "Send the report?")
    assert "abc123" not in repr(verdict)


@pytest.mark.parametrize("family", sorted(QUESTION_OF))
def test_recorded_resumes_that_were_not_applied(family: str) -> None:
    assert read(family, "confirm_interrupted", "confirm_pending", QUESTION_OF[family]).outcome is NativeOutcome.NOT_APPLIED


@pytest.mark.parametrize("family", sorted(QUESTION_OF))
@pytest.mark.parametrize("sample", ["state_confirm2_pending"])
def test_recorded_states_with_several_questions_are_unsupported(family: str, sample: str) -> None:
    state = state_of(f"{family}/{sample}.json")
    assert state is not None
    assert state.run_id is not None
    assert len(state.interrupts) == 2
    assert native_verdict(LookupStatus.SUCCESS, state, NativeRunId(state.run_id), None) == NativeRead(NativeOutcome.UNSUPPORTED)


def test_every_recorded_look_up_and_state_is_in_a_test() -> None:
    """A sample that nobody reads proves nothing."""
    text = Path(__file__).read_text()
    for family in QUESTION_OF:
        for path in (SAMPLES / family).glob("run_get_*.json"):
            if not path.name.endswith(".meta.json"):
                assert f'"{family}", "{path.stem.removeprefix("run_get_")}"' in text, path.name


@pytest.mark.parametrize("sample", sorted(path.relative_to(SAMPLES).as_posix() for path in SAMPLES.glob("*-api/state_*.json")))
def test_every_recorded_state_is_read(sample: str) -> None:
    if sample.endswith(".meta.json"):
        return
    status = json.loads((SAMPLES / sample.replace(".json", ".meta.json")).read_text())["status"]
    state = state_of(sample)
    assert (state is not None) is (status == 200)
    assert state is None or "abc123" not in repr(state)
    assert all(pending.question is not None for pending in (state.interrupts if state else ()))


STATE: dict[str, Json] = {"values": {"messages": []}, "next": [], "tasks": [], "interrupts": [], "metadata": {"run_id": "run-1"}}
VALUE: Json = {
    "type": "agentifui.acceptance.confirmation",
    "version": 1,
    "title": "Send?",
    "description": "",
    "actions": ["approve", "reject"],
    "expires_at": None,
}


@pytest.mark.parametrize(
    "told", [{}, {**STATE, "tasks": None}, {**STATE, "next": "x"}, {**STATE, "values": []}, {**STATE, "interrupts": None}]
)
def test_states_of_another_form_prove_nothing(told: dict[str, Json]) -> None:
    assert parse_state(told) is None


def pending_of(*, tasks: list[Json], listed: list[Json]) -> list[tuple[str | None, bool]]:
    state = parse_state({**STATE, "tasks": [{"interrupts": tasks}], "interrupts": listed})
    assert state is not None
    return [(pending.native_id, pending.prompt is not None) for pending in state.interrupts]


def test_interrupts_are_counted_once_and_never_overlooked() -> None:
    one: Json = {"id": "i1", "value": VALUE}
    assert pending_of(tasks=[one], listed=[one]) == [("i1", True)]
    assert parse_state({**STATE, "tasks": [{"interrupts": None}, "text"]}) == parse_state(STATE)
    assert pending_of(tasks=[one], listed=[]) == [("i1", True)]
    assert pending_of(tasks=[], listed=[one]) == [("i1", True)]
    assert pending_of(tasks=[one], listed=[{"id": "i1", "value": None}]) == [("i1", True), (None, False)]
    assert pending_of(tasks=[{"value": VALUE}], listed=[]) == [(None, False)]
    assert pending_of(tasks=[{"id": "has space", "value": VALUE}, "text"], listed=[]) == [(None, False), (None, False)]


def test_text_of_content() -> None:
    assert text_of("Hi\x00") == "Hi\ufffd"
    assert text_of(["a", {"type": "text", "text": "b"}, {"type": "image", "text": "c"}, {"type": "text"}, 7]) == "ab"
    assert text_of(None) == ""
