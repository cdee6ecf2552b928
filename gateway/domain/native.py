"""What a native run came to: one total function of its look-up and its thread's state (wire-contract.md 5.2). Pure.

No stream content proves anything there: a run that waits for a person says `success` on one real server and `interrupted` on the other.
"""

from dataclasses import dataclass
from typing import assert_never

from gateway.domain.confirmation import Prompt, Question
from gateway.domain.evidence import LookupStatus, NativeOutcome, NativeRead
from gateway.domain.ids import NativeRunId
from gateway.domain.reasons import Reason


@dataclass(frozen=True, slots=True)
class PendingInterrupt:
    """An interrupt that a thread's state shows. `native_id` is None for one without a usable id, `prompt` for a form that is not ours."""

    native_id: str | None
    prompt: Prompt | None

    @property
    def question(self) -> Question | None:
        """The question, when it is one that can be asked here."""
        return Question(self.native_id, self.prompt) if self.native_id is not None and self.prompt is not None else None


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """A message of the assistant's in a thread's state."""

    native_id: str | None
    text: str


@dataclass(frozen=True, slots=True)
class ThreadState:
    """What is read of GET /threads/{thread}/state. `run_id`: the run that wrote it; `more_to_do`: nodes are left to run."""

    run_id: str | None
    interrupts: tuple[PendingInterrupt, ...]
    more_to_do: bool
    messages: tuple[AssistantMessage, ...]

    def shows(self, answered: "Answered") -> bool:
        """Whether exactly that question is pending. An agent that asks again in the same step gives its question the same id."""
        return any(answered.is_question(pending.question) for pending in self.interrupts)


@dataclass(frozen=True, slots=True)
class Answered:
    """The question that a resume answers, as it was saved: upstream's id of it, and the digest of what was shown.

    `earlier_runs`: upstream's ids of the conversation's other runs, the one that asked among them.
    """

    native_id: str
    digest: bytes
    earlier_runs: frozenset[str]

    def is_question(self, question: Question | None) -> bool:
        """Whether it is `question`, word for word."""
        return question is not None and (question.native_id, question.prompt.digest()) == (self.native_id, self.digest)


def obstacle(state: ThreadState, answered: Answered | None) -> Reason | None:
    """Why nothing may be sent on a thread in this state: an input would destroy what is pending there, and a resume answers exactly what
    its author saw. `answered` is None for a task."""
    if answered is None:
        return Reason.INTERRUPT_PENDING if state.interrupts else None
    return None if len(state.interrupts) == 1 and state.shows(answered) else Reason.INTERRUPT_CHANGED


def native_verdict(status: LookupStatus, state: ThreadState | None, native_run_id: NativeRunId, answered: Answered | None) -> NativeRead:
    """What became of the run: `status` of its look-up, `state` of its thread (None: could not be read), `answered` the question that
    it answered, when it is a resume."""
    match status:
        case LookupStatus.ERROR:
            return NativeRead(NativeOutcome.FAILED)
        case LookupStatus.ACTIVE:
            return NativeRead(NativeOutcome.ACTIVE)
        case LookupStatus.UNCLEAR:
            return NativeRead(NativeOutcome.UNCLEAR)
        case LookupStatus.SUCCESS | LookupStatus.INTERRUPTED:
            return _stopped(status, state, native_run_id, answered)
        case _:
            assert_never(status)


def _stopped(status: LookupStatus, state: ThreadState | None, native_run_id: NativeRunId, answered: Answered | None) -> NativeRead:
    if state is None:
        return NativeRead(NativeOutcome.UNCLEAR)
    if answered is not None and state.shows(answered):
        return NativeRead(NativeOutcome.NOT_APPLIED)
    if state.run_id != native_run_id and not _asks_again(state, answered):
        return NativeRead(NativeOutcome.UNCLEAR)  # the state of another run says nothing about this one
    if len(state.interrupts) > 1:
        return NativeRead(NativeOutcome.UNSUPPORTED)
    if state.interrupts:
        question = state.interrupts[0].question
        return NativeRead(NativeOutcome.UNSUPPORTED) if question is None else NativeRead(NativeOutcome.WAITING, question)
    if status is LookupStatus.INTERRUPTED:
        return NativeRead(NativeOutcome.CANCELLED)
    # It stopped at a breakpoint, which nobody can answer here.
    return NativeRead(NativeOutcome.UNSUPPORTED if state.more_to_do else NativeOutcome.COMPLETED)


def _asks_again(state: ThreadState, answered: Answered | None) -> bool:
    """A step that was resumed and asks again writes no state of its own: what is pending is told in that of the run that began it."""
    return answered is not None and bool(state.interrupts) and state.run_id in answered.earlier_runs


def verified(shown: tuple[AssistantMessage, ...], state: ThreadState, known_before: frozenset[str | None]) -> bool:
    """Whether what was streamed is all that the thread's state has of this run, message for message. State verifies, and never supplies.

    `shown`: the streamed messages of the assistant's; `known_before`: the ids of those that the thread had before the dispatch.
    """
    written = [message for message in state.messages if message.native_id not in known_before]
    return None not in {message.native_id for message in shown} and sorted(shown, key=_key) == sorted(written, key=_key)


def _key(message: AssistantMessage) -> tuple[str, str]:
    return message.native_id or "", message.text
