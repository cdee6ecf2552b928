"""Saving from stored bytes: the items of a pending run, written once, by whichever replica comes first."""

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from gateway.domain.ids import RunId
from gateway.domain.snapshot import Snapshot
from gateway.store.database import Database, Transaction
from gateway.store.runs import item_params
from gateway.store.statements import statement

_CLAIM: Final = statement("saves.claim")
_DUE_NOW: Final = statement("saves.due_now")
_SAVE: Final = statement("saves.save")

AGAIN_SECONDS: Final = 10.0
"""How long after a failed save the next is tried."""


@dataclass(frozen=True, slots=True)
class PendingRow:
    """The stored snapshot of a pending run."""

    run_id: UUID
    body: bytes
    sha256: bytes


@dataclass(frozen=True, slots=True)
class _SavedRow:
    run_id: UUID
    written: str | None


async def claim(db: Database, *, limit: int, run_id: RunId | None = None) -> list[PendingRow]:
    """Claim pending runs whose save is due, or only `run_id` when it is due."""
    return await db.all(_CLAIM, PendingRow, {"limit": limit, "again_seconds": AGAIN_SECONDS, "run_id": run_id})


async def due_now(within: Database | Transaction, run_id: RunId) -> bool:
    """Make the save of a pending run due. False: it is not pending."""
    return await within.execute(_DUE_NOW, {"run_id": run_id}) > 0


async def save(db: Database, run_id: RunId, snapshot: Snapshot, sha256: bytes) -> bool:
    """pending -> saved with exactly the items of `snapshot`, whose stored hash must be `sha256`. False: no longer pending."""
    params = {"run_id": run_id, "sha256": sha256, **item_params(run_id, snapshot.items)}
    return await db.one(_SAVE, _SavedRow, params) is not None
