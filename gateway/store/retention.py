"""What is removed after its time: deleted conversations' content, evidence, verdicts, the beginning of the audit trail. A batch a call."""

from dataclasses import dataclass
from typing import Final

from gateway.store.database import Database
from gateway.store.statements import Statement, statement

_ERASE: Final = statement("retention.erase_conversations")
_EVIDENCE: Final = statement("retention.remove_evidence")
_VERDICTS: Final = statement("retention.remove_verdicts")
_AUDIT: Final = statement("retention.prune_audit")


@dataclass(frozen=True, slots=True)
class ErasedRow:
    """What a batch of deleted conversations came to."""

    conversations: int
    items: int
    snapshots: int


@dataclass(frozen=True, slots=True)
class BatchRow:
    """How many rows went, the id of the last that was looked at, and whether what follows it may be old, too."""

    removed: int
    last: int | None
    more: bool


@dataclass(frozen=True, slots=True)
class _RemovedRow:
    removed: int


async def erase_conversations(db: Database, *, days: int, limit: int) -> ErasedRow:
    """Erase the content of at most `limit` conversations that are deleted for `days`; none with a run that is unresolved."""
    row = await db.one(_ERASE, ErasedRow, {"days": days, "limit": limit})
    assert row is not None
    return row


async def remove_evidence(db: Database, *, days: int, after: int, limit: int) -> BatchRow:
    """Of the `limit` rows of evidence that follow the one with id `after`, remove what is older than `days`; none of an unresolved run."""
    return await _batch(db, _EVIDENCE, days, after, limit)


async def remove_verdicts(db: Database, *, days: int, after: int, limit: int) -> BatchRow:
    """As `remove_evidence`, of moderators' verdicts."""
    return await _batch(db, _VERDICTS, days, after, limit)


async def prune_audit(db: Database, *, days: int, limit: int) -> int:
    """Take away at most `limit` of the oldest entries that are older than `days`, and 30 at least; the chain is verified from there on."""
    row = await db.one(_AUDIT, _RemovedRow, {"days": days, "limit": limit})
    assert row is not None
    return row.removed


async def _batch(db: Database, which: Statement, days: int, after: int, limit: int) -> BatchRow:
    row = await db.one(which, BatchRow, {"days": days, "after": after, "limit": limit})
    assert row is not None
    return row
