"""Admission's statements: the read before the checks, the one transaction, and what a lost answer is judged by."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from gateway.store.applications import UsableRow
from gateway.store.database import Database, Params, Transaction
from gateway.store.statements import statement

_CONTEXT: Final = statement("admission.context")
_SUBMITTED: Final = statement("admission.submitted")
_ADMIT: Final = statement("admission.admit")
_ATTEMPT: Final = statement("admission.attempt")


class Verdict(StrEnum):
    """What admit_v3 and decide_v1 say. Only ADMITTED leaves rows behind; SUBMITTED found those of the same submission id."""

    ADMITTED = "admitted"
    SUBMITTED = "submitted"
    NOT_FOUND = "not_found"
    APP_DISABLED = "app_disabled"
    BACKEND_NOT_SERVED = "backend_not_served"
    ACCOUNT_INACTIVE = "account_inactive"
    CONVERSATION_REFUSED = "conversation_refused"
    USER_BUSY = "user_busy"
    APP_BUSY = "app_busy"
    QUOTA_EXHAUSTED = "quota_exhausted"
    INTERRUPT_NOT_PENDING = "interrupt_not_pending"
    INTERRUPT_EXPIRED = "interrupt_expired"


@dataclass(frozen=True, slots=True)
class ContextRow:
    """What the checks before admission ask about.

    `closed`: why the application takes nothing new. `submitted_*`: the submission's run, when it has one. `conversation_named`: the
    submission names one, by id, or by a name that was given before; `conversation_found`: it is there. `chain_id`: the chain of
    moderators that is in force; None: that of the settings.
    """

    account_id: UUID
    account_state: str
    all_groups: list[str]
    account_roles: list[str]
    visible: bool
    closed: str | None
    token_ciphertext: bytes | None = field(repr=False)
    token_key_id: str | None
    submitted_run_id: UUID | None
    submitted_fingerprint: bytes | None
    submitted_conversation_id: UUID | None
    submitted_created_conversation: bool | None
    conversation_named: bool
    conversation_found: bool
    blocked: str | None
    blocking_run_id: UUID | None
    chain_id: UUID | None


@dataclass(frozen=True, slots=True)
class SubmittedRow:
    """A submission that was admitted before."""

    run_id: UUID
    fingerprint: bytes
    conversation_id: UUID
    created_conversation: bool


@dataclass(frozen=True, slots=True)
class AdmitRow:
    """admit_v3's answer, and decide_v1's. `quota`: each rule that counts the task (see `quotas.UsedRow`); None: no rule does.

    From `backend_type` on: what an admitted task needs of its application, read under admission's locks; decide_v1 does not tell it.
    """

    verdict: str
    run_id: UUID | None
    conversation_id: UUID | None
    created_conversation: bool | None
    fingerprint: bytes | None
    config_version: int | None
    token_version: int | None
    created_at: datetime | None
    blocking_run_id: UUID | None
    blocked: str | None
    quota: list[dict[str, Any]] | None
    backend_type: str | None = None
    assistant_id: str | None = None
    human_input: bool | None = None
    base_url: str | None = None
    token_ciphertext: bytes | None = field(default=None, repr=False)
    token_key_id: str | None = None
    thread_id: str | None = None
    bound_fingerprint: bytes | None = None
    binding_invalidated: bool | None = None

    def usable(self, application_id: UUID) -> UsableRow | None:
        """The application and the binding as they were admitted with; None where they were not told."""
        if self.backend_type is None or self.base_url is None or self.config_version is None or self.token_version is None:
            return None
        return UsableRow(
            application_id=application_id,
            enabled=True,  # a disabled one admits nothing
            backend_type=self.backend_type,
            assistant_id=self.assistant_id,
            human_input=bool(self.human_input),
            config_version=self.config_version,
            token_version=self.token_version,
            token_ciphertext=self.token_ciphertext,
            token_key_id=self.token_key_id,
            base_url=self.base_url,
            thread_id=self.thread_id,
            bound_fingerprint=self.bound_fingerprint,
            binding_invalidated=bool(self.binding_invalidated),
        )


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """The run as admission wrote it; `ours` when it carries our attempt token."""

    run_id: UUID
    conversation_id: UUID
    config_version: int
    token_version: int
    created_at: datetime
    ours: bool


async def context(db: Database, params: Params) -> ContextRow | None:
    """One read for all checks before admission. None: there is no such account yet."""
    return await db.one(_CONTEXT, ContextRow, params, reading=True)


async def submitted(db: Database, params: Params) -> SubmittedRow | None:
    """The submission's run, when it has one."""
    return await db.one(_SUBMITTED, SubmittedRow, params, reading=True)


async def admit(tx: Transaction, params: Params) -> AdmitRow:
    """Run admission inside `tx`; the caller commits or rolls back by the verdict."""
    row = await tx.one(_ADMIT, AdmitRow, params)
    assert row is not None, "admit_v3 gives one row"
    return row


async def attempt(db: Database, run_id: UUID, attempt_token: UUID) -> AttemptRow | None:
    """Read back what admission wrote, in a statement of its own."""
    return await db.one(_ATTEMPT, AttemptRow, {"run_id": run_id, "attempt_token": attempt_token}, reading=True)
