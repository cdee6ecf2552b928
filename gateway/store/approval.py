"""Questions and the decisions about them. Native ids stay inside."""

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from gateway.domain.ids import AccountId, ApplicationId, ClientThread, InterruptId, RunId
from gateway.store.admission import AdmitRow
from gateway.store.database import Database, Params, Transaction
from gateway.store.statements import statement

_QUESTION: Final = statement("approval.question")
_DECIDE: Final = statement("approval.decide")
_RUN_OF_QUESTION: Final = statement("approval.run_of_question")
_ANSWERED: Final = statement("approval.answered")


@dataclass(frozen=True, slots=True)
class AnsweredRow:
    """What a resume run answers: upstream's id of the question, and the digest of what was shown; and upstream's ids of earlier runs."""

    native_id: str
    digest: bytes
    earlier_native_run_ids: list[str]


@dataclass(frozen=True, slots=True)
class QuestionRow:
    """A run, and its question where it asked one. `expired`: by the database's clock."""

    execution: str
    answered_by: UUID | None
    interrupt_id: UUID | None
    comment_max_chars: int | None
    expired: bool


@dataclass(frozen=True, slots=True)
class _RunRow:
    run_id: UUID


async def question(db: Database, run_id: RunId, account_id: AccountId, application_id: ApplicationId) -> QuestionRow | None:
    """The question of a run of this user and application; None for what is missing, foreign or deleted."""
    params = {"run_id": run_id, "account_id": account_id, "application_id": application_id}
    return await db.one(_QUESTION, QuestionRow, params, reading=True)


async def run_of_question(
    db: Database, account_id: AccountId, application_id: ApplicationId, client_thread: ClientThread, interrupt_id: InterruptId
) -> RunId | None:
    """The run that asked this question in the conversation that this user's client calls so, if there is one."""
    params = {
        "account_id": account_id,
        "application_id": application_id,
        "client_thread": client_thread,
        "interrupt_id": interrupt_id,
    }
    row = await db.one(_RUN_OF_QUESTION, _RunRow, params, reading=True)
    return None if row is None else RunId(row.run_id)


async def decide(tx: Transaction, params: Params) -> AdmitRow:
    """Claim the question inside `tx`; the caller commits or rolls back by the verdict."""
    row = await tx.one(_DECIDE, AdmitRow, params)
    assert row is not None, "decide_v1 gives one row"
    return row


async def answered(db: Database, run_id: RunId) -> AnsweredRow | None:
    """The question that the run answers; None for a task."""
    return await db.one(_ANSWERED, AnsweredRow, {"run_id": run_id}, reading=True)
