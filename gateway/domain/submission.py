"""A submission: the client's idempotency unit, and the fingerprint that tells a replay from a conflict (contract C6)."""

import hashlib
import json
from dataclasses import dataclass

from gateway.domain.ids import ConversationId, RunId, SubmissionId
from gateway.domain.states import RunKind


@dataclass(frozen=True, slots=True)
class Submission:
    """One message as accepted from a client: `text` is the canonical text that is moderated, stored and sent, byte for byte.

    `conversation_id` None means "a new conversation"; it also matches the conversation that this submission created.
    """

    submission_id: SubmissionId
    text: str
    conversation_id: ConversationId | None

    def fingerprint(self) -> bytes:
        """SHA-256 over kind and exact text. The target is compared apart: a null target also matches the conversation made for it."""
        document = json.dumps([RunKind.TASK.value, self.text], ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(document.encode("ascii")).digest()


@dataclass(frozen=True, slots=True)
class Submitted:
    """What was admitted under a submission id. `created_conversation`: the run's conversation was made by this submission."""

    run_id: RunId
    conversation_id: ConversationId
    created_conversation: bool
    fingerprint: bytes

    def is_replayed_by(self, submission: Submission) -> bool:
        """Whether `submission` is the same one again: same kind and text, and the same target.

        A null target also matches the conversation that the submission created (interface.md "Runs and history").
        """
        target = submission.conversation_id
        same_target = self.created_conversation if target is None else target == self.conversation_id
        return same_target and self.fingerprint == submission.fingerprint()
