"""A submission: the client's idempotency unit, and the fingerprint that tells a replay from a conflict (contract C6)."""

import hashlib
import json
from dataclasses import dataclass

from gateway.domain.confirmation import Answer
from gateway.domain.ids import ClientThread, ConversationId, InterruptId, RunId, SubmissionId
from gateway.domain.states import RunKind


@dataclass(frozen=True, slots=True)
class Submission:
    """One message as accepted from a client: `text` is the canonical text that is moderated, stored and sent, byte for byte.

    `conversation_id` None means "a new conversation"; it also matches the conversation that this submission created. `client_thread`
    names the conversation instead: the one that has this name by now, else a new one that gets it.
    """

    submission_id: SubmissionId
    text: str
    conversation_id: ConversationId | None
    client_thread: ClientThread | None = None

    def fingerprint(self) -> bytes:
        """SHA-256 over kind, exact text, and the client's name of the conversation where there is one.

        A target by id is compared apart: a null target also matches the conversation made for it.
        """
        return _fingerprint(self.kind, self.text, *([] if self.client_thread is None else [self.client_thread]))

    @property
    def kind(self) -> RunKind:
        """A task."""
        return RunKind.TASK


@dataclass(frozen=True, slots=True)
class Decision:
    """A person's answer to a question (contract E6). `run_id` is the run that waits; `interrupt_id` names exactly what was shown."""

    submission_id: SubmissionId
    run_id: RunId
    interrupt_id: InterruptId
    answer: Answer

    def fingerprint(self) -> bytes:
        """SHA-256 over kind, question and answer: all of it, the target included."""
        return _fingerprint(self.kind, str(self.run_id), str(self.interrupt_id), self.answer.action.value, self.answer.comment)

    @property
    def kind(self) -> RunKind:
        """A resume."""
        return RunKind.RESUME


def _fingerprint(kind: RunKind, *content: str | None) -> bytes:
    document = json.dumps([kind.value, *content], ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(document.encode("ascii")).digest()


@dataclass(frozen=True, slots=True)
class Submitted:
    """What was admitted under a submission id. `created_conversation`: the run's conversation was made by this submission."""

    run_id: RunId
    conversation_id: ConversationId
    created_conversation: bool
    fingerprint: bytes

    def is_replayed_by(self, submission: Submission | Decision) -> bool:
        """Whether `submission` is the same one again: same kind and text, or question and answer, and the same target.

        A null target also matches the conversation that the submission created (interface.md "Runs and history").
        """
        if isinstance(submission, Decision) or submission.client_thread is not None:
            return self.fingerprint == submission.fingerprint()
        target = submission.conversation_id
        same_target = self.created_conversation if target is None else target == self.conversation_id
        return same_target and self.fingerprint == submission.fingerprint()
