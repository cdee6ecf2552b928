"""Whether anything is admitted at all: closed and opened by operators, for all replicas (contract F3)."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from gateway.domain.audit import Act, Actor, Entry, TargetKind
from gateway.store import audit
from gateway.store.database import Database
from gateway.store.statements import statement

_AWAIT: Final = statement("admission.await_admissions")
_CLOSE: Final = statement("admission.close")
_OPEN: Final = statement("admission.open")
_CLOSED: Final = statement("admission.closed")
_DEADLINE_SECONDS: Final = 30.0
"""Closing waits for admissions that are under way."""


@dataclass(frozen=True, slots=True)
class ClosedRow:
    """Admission is closed."""

    closed_at: datetime
    actor: str
    reason: str


@dataclass(frozen=True, slots=True)
class _LockedRow:
    locked: str | None


@dataclass(frozen=True, slots=True)
class _ChangedRow:
    closed_at: datetime


async def closed(db: Database) -> ClosedRow | None:
    """Who closed admission and why; None while it is open."""
    return await db.one(_CLOSED, ClosedRow, reading=True)


async def close(db: Database, *, actor: Actor, reason: str) -> bool:
    """Close it. When this returns no admission of anybody can commit any more. False: it was closed already, and nothing is recorded."""
    return await _change(db, Entry(actor, Act.ADMISSION_CLOSE, TargetKind.GATEWAY, "admission", reason))


async def reopen(db: Database, *, actor: Actor, reason: str) -> bool:
    """Open it. False: it was open."""
    return await _change(db, Entry(actor, Act.ADMISSION_OPEN, TargetKind.GATEWAY, "admission", reason))


async def _change(db: Database, entry: Entry) -> bool:
    async with db.transaction(deadline_seconds=_DEADLINE_SECONDS) as tx:
        if entry.act is Act.ADMISSION_CLOSE:
            await tx.one(_AWAIT, _LockedRow)
            changed = await tx.one(_CLOSE, _ChangedRow, {"actor": entry.actor, "reason": entry.reason})
        else:
            changed = await tx.one(_OPEN, _ChangedRow)
        if changed is None:
            return False
        await audit.record(tx, entry)
        await tx.commit()
        return True
