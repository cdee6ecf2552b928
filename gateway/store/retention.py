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
class _RemovedRow:
    removed: int


async def erase_conversations(db: Database, *, days: int, limit: int) -> ErasedRow:
    """Erase the content of at most `limit` conversations that are deleted for `days`; none with a run that is unresolved."""
    row = await db.one(_ERASE, ErasedRow, {"days": days, "limit": limit})
    assert row is not None
    return row


async def remove_evidence(db: Database, *, days: int, limit: int) -> int:
    """Remove at most `limit` rows of evidence that are older than `days`; none of a run that is unresolved."""
    return await _removed(db, _EVIDENCE, days, limit)


async def remove_verdicts(db: Database, *, days: int, limit: int) -> int:
    """As `remove_evidence`, of moderators' verdicts."""
    return await _removed(db, _VERDICTS, days, limit)


async def prune_audit(db: Database, *, days: int, limit: int) -> int:
    """Take away at most `limit` of the oldest entries that are older than `days`, and 30 at least; the chain is verified from there on."""
    return await _removed(db, _AUDIT, days, limit)


async def _removed(db: Database, which: Statement, days: int, limit: int) -> int:
    row = await db.one(which, _RemovedRow, {"days": days, "limit": limit})
    assert row is not None
    return row.removed
