"""The statements of conversations and their items. Each names the account and the application: ownership is in the SQL itself."""

from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import Any, Final
from uuid import UUID

from gateway.domain.ids import AccountId, ApplicationId, ConversationId, RunId
from gateway.store.database import Database, Transaction
from gateway.store.runs import RunRow
from gateway.store.statements import statement

_CONVERSATIONS: Final = statement("history.conversations")
_ITEMS: Final = statement("history.items")
_RENAME: Final = statement("history.rename")
_REMOVE: Final = statement("history.remove")
_ACTIVE_RUN: Final = statement("history.active_run")
_RUN_EXISTS: Final = statement("history.run_exists")


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose rows: every statement here is limited to them."""

    account_id: AccountId
    application_id: ApplicationId


@dataclass(frozen=True, slots=True)
class ConversationRow:
    """One conversation. `blocked`: why it takes no new task (domain/reasons.py); `blocking_run`: the cause, read in the same moment."""

    conversation_id: UUID
    title: str
    created_at: datetime
    updated_at: datetime
    blocked: str | None
    blocking_run: RunRow | None


@dataclass(frozen=True, slots=True)
class ItemRow:
    """One item, saved or from a snapshot, with what its run says about the user's message."""

    run_id: UUID
    sequence: int
    position: int
    type: str
    role: str | None
    text: str | None
    complete: bool | None
    name: str | None
    status: str | None
    parent_position: int | None
    execution: str
    reason: str | None
    resolution_outcome: str | None


class Step(IntEnum):
    """Which way a page of items goes from its place."""

    ON = 1
    BACK = -1


@dataclass(frozen=True, slots=True)
class RemovedRow:
    """A conversation that was deleted just now."""

    conversation_id: UUID
    deleted_at: datetime


@dataclass(frozen=True, slots=True)
class _RenamedRow:
    conversation_id: UUID


@dataclass(frozen=True, slots=True)
class _RunRow:
    run_id: UUID


async def conversations(db: Database, owner: Owner, *, after: tuple[datetime, ConversationId] | None, limit: int) -> list[ConversationRow]:
    """At most `limit` conversations, newest activity first, after the one at `after`."""
    after_at, after_id = after or (None, None)
    params = _params(owner, conversation_id=None, after_at=after_at, after_id=after_id, limit=limit)
    return await db.all(_CONVERSATIONS, _conversation_row, params, reading=True)


async def conversation(db: Database, owner: Owner, conversation_id: ConversationId) -> ConversationRow | None:
    """One conversation; None for what is missing, foreign or deleted."""
    params = _params(owner, conversation_id=conversation_id, after_at=None, after_id=None, limit=1)
    return await db.one(_CONVERSATIONS, _conversation_row, params, reading=True)


async def items(
    db: Database, owner: Owner, conversation_id: ConversationId, *, place: tuple[int, int], step: Step, limit: int
) -> list[ItemRow]:
    """At most `limit` items beyond the (sequence, position) of `place`, the nearest first. Empty also for a foreign conversation."""
    sequence, position = place
    params = _params(owner, conversation_id=conversation_id, sequence=sequence, position=position, step=int(step), limit=limit)
    return await db.all(_ITEMS, ItemRow, params, reading=True)


async def rename(db: Database, owner: Owner, conversation_id: ConversationId, title: str) -> bool:
    """Give the conversation a title; False for what is missing, foreign or deleted. May be repeated."""
    return await db.one(_RENAME, _RenamedRow, _params(owner, conversation_id=conversation_id, title=title)) is not None


async def remove(tx: Transaction, owner: Owner, conversation_id: ConversationId) -> RemovedRow | None:
    """Delete the conversation softly; None for what is missing, foreign or deleted before. The caller commits."""
    return await tx.one(_REMOVE, RemovedRow, _params(owner, conversation_id=conversation_id))


async def active_run(tx: Transaction, conversation_id: ConversationId) -> UUID | None:
    """The run that goes on in the conversation whose lock `tx` holds."""
    row = await tx.one(_ACTIVE_RUN, _RunRow, {"conversation_id": conversation_id})
    return None if row is None else row.run_id


async def run_exists(db: Database, owner: Owner, run_id: RunId) -> bool:
    """Whether the run is the owner's, in a conversation that is not deleted."""
    return await db.one(_RUN_EXISTS, _RunRow, _params(owner, run_id=run_id), reading=True) is not None


def _params(owner: Owner, **more: object) -> dict[str, object]:
    return {"account_id": owner.account_id, "application_id": owner.application_id, **more}


def _conversation_row(
    *,
    conversation_id: UUID,
    title: str,
    conversation_created_at: datetime,
    conversation_updated_at: datetime,
    blocked: str | None,
    **run: Any,
) -> ConversationRow:
    blocking_run = None if run["run_id"] is None else RunRow(conversation_id=conversation_id, **run)
    return ConversationRow(conversation_id, title, conversation_created_at, conversation_updated_at, blocked, blocking_run)
