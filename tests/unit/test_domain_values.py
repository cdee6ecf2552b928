"""Small pure values of the domain that have no page of their own: who acted, submissions, refusals, times, fault points."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest

from gateway.domain import fault_points
from gateway.domain.audit import THE_GATEWAY, Act, Entry, TargetKind, cli_actor, web_actor
from gateway.domain.confirmation import Action, Answer
from gateway.domain.fault_points import FAULT_POINTS, FaultPoint, Kind, Moment, Step, pass_by, through
from gateway.domain.faults import invalid
from gateway.domain.ids import ClientThread, ConversationId, InterruptId, RunId, SubmissionId, is_opaque_id, uuid_of
from gateway.domain.problems import PROBLEMS, Code
from gateway.domain.raised_at import raised_at
from gateway.domain.submission import Decision, Submission, Submitted
from gateway.domain.times import rfc3339

ONE, OTHER = UUID(int=1), UUID(int=2)


def test_nobody_of_the_web_passes_for_a_terminal() -> None:
    assert web_actor("cli:root") != cli_actor("root")
    assert len({web_actor("gateway"), cli_actor("gateway"), THE_GATEWAY}) == 3
    assert Entry(THE_GATEWAY, Act.RUN_LOOKUP, TargetKind.RUN, "1").detail == {}


def test_ids_have_one_form() -> None:
    assert uuid_of(str(ONE)) == ONE
    for text in ("", "x", ONE.hex, f"{{{ONE}}}", f"urn:uuid:{ONE}", f"{ONE}\n"):
        assert uuid_of(text) is None
    assert is_opaque_id("!" * 200)
    for text in ("", "!" * 201, "a b", "a\n", "é"):
        assert not is_opaque_id(text)


def submission(text: str = "hi", target: UUID | None = None) -> Submission:
    return Submission(SubmissionId("s1"), text, None if target is None else ConversationId(target))


def test_a_submission_is_replayed_by_the_same_text_to_the_same_target() -> None:
    first = Submitted(RunId(ONE), ConversationId(ONE), True, submission().fingerprint())
    assert first.is_replayed_by(submission())
    assert first.is_replayed_by(submission(target=ONE))
    assert not first.is_replayed_by(submission(target=OTHER))
    assert not first.is_replayed_by(submission("hi "))
    later = Submitted(RunId(ONE), ConversationId(ONE), False, submission().fingerprint())
    assert later.is_replayed_by(submission(target=ONE))
    assert not later.is_replayed_by(submission())


def decision(run: UUID = ONE, interrupt: UUID = ONE, action: Action = Action.APPROVE, comment: str | None = None) -> Decision:
    return Decision(SubmissionId("s1"), RunId(run), InterruptId(interrupt), Answer(action, comment))


def test_a_decision_is_replayed_by_the_same_answer_to_the_same_question() -> None:
    first = Submitted(RunId(OTHER), ConversationId(ONE), False, decision().fingerprint())
    assert first.is_replayed_by(decision())
    others = (decision(OTHER), decision(interrupt=OTHER), decision(action=Action.REJECT), decision(comment=""), submission())
    assert not any(first.is_replayed_by(other) for other in others)


def test_a_submission_by_the_clients_name_of_a_conversation_is_replayed_under_that_name_only() -> None:
    named = replace(submission(), client_thread=ClientThread("mine"))
    first = Submitted(RunId(ONE), ConversationId(ONE), True, named.fingerprint())
    assert first.is_replayed_by(named)
    assert not any(first.is_replayed_by(other) for other in (submission(), replace(named, client_thread=ClientThread("other"))))


def test_a_refusal_names_the_field_and_the_rule_and_no_value() -> None:
    refused = invalid("base_url", "must be HTTPS")
    assert (refused.code, refused.extra) == (Code.CONFIGURATION_INVALID, {"field": "base_url", "rule": "must be HTTPS"})
    assert (str(refused), refused.run_id, refused.retry_after_seconds) == ("configuration_invalid", None, None)
    assert set(PROBLEMS) == set(Code)


def test_times_go_out_in_one_form() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 60, tzinfo=UTC)
    assert rfc3339(moment) == rfc3339(moment.astimezone(timezone(timedelta(hours=5)))) == "2026-01-02T03:04:05.000060Z"


def test_an_error_is_placed_by_file_and_line_without_its_text() -> None:
    assert raised_at(ValueError("secret")) == "unknown"
    with pytest.raises(ValueError, match="secret") as caught:
        raise ValueError("secret")
    assert raised_at(caught.value).startswith("test_domain_values.py:")


@pytest.mark.anyio
async def test_a_step_that_failed_has_no_after() -> None:
    seen: list[str] = []

    async def at(point: FaultPoint) -> None:
        seen.append(str(point))
        if point.step is Step.SAVE:
            raise InterruptedError

    async def work(outcome: int) -> int:
        if not outcome:
            raise ValueError
        return outcome

    assert await through(pass_by, Step.FENCE, work(1)) == 1
    assert await through(at, Step.FENCE, work(2)) == 2
    with pytest.raises(ValueError, match=r"^$"):
        await through(at, Step.POST, work(0))
    never = work(3)
    with pytest.raises(InterruptedError):
        await through(at, Step.SAVE, never)
    with pytest.raises(RuntimeError):  # it was closed, so that nothing warns of a coroutine that nobody awaited
        await never
    assert seen == ["before fence", "after fence", "before post", "before save"]
    await fault_points.pass_by(FAULT_POINTS[0])
    assert len(FAULT_POINTS) == len(Step) * len(Moment)
    assert {step for step in Step if step.kind is Kind.CALL} == {
        Step.CAPABILITIES,
        Step.THREAD,
        Step.STATE,
        Step.POST,
        Step.VERDICT,
        Step.LOOKUP,
    }
