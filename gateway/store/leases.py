"""Leases: the heartbeat of a replica, and what happens to runs whose process is gone."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from gateway.domain.ids import AttemptToken, RunId
from gateway.domain.reasons import Reason
from gateway.domain.states import LIVE, SLOT_HOLDING
from gateway.store.database import Database
from gateway.store.statements import statement

_BEAT: Final = statement("leases.beat")
_REPLICAS: Final = statement("leases.replicas")
_LOST: Final = statement("leases.lost")
_LEAVE: Final = statement("leases.leave")
_RELEASE_EXPIRED: Final = statement("leases.release_expired")
_EXPIRE: Final = statement("leases.expire")

BATCH: Final = 100
"""Runs moved by one statement: short locks, and a sweep of a dead replica's runs still takes few of them."""


@dataclass(frozen=True, slots=True)
class ExpiredRow:
    """A run whose lease was lost."""

    run_id: UUID
    refunded: str | None


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """A replica that lives or did, and the ids of its keys, first the one that encrypts; None of a version that does not say."""

    replica_id: UUID
    started_at: datetime
    heartbeat_age_seconds: float
    key_ids: list[str] | None


async def beat(
    db: Database,
    replica_id: UUID,
    held: Sequence[tuple[RunId, AttemptToken]],
    *,
    key_ids: Sequence[str],
    lease_seconds: float,
    deadline_seconds: float,
) -> None:
    """Say that this replica lives and which keys it has, and renew exactly the runs whose tokens it holds. One statement."""
    params = {
        "replica_id": replica_id,
        "key_ids": list(key_ids),
        "run_ids": [run_id for run_id, _ in held],
        "attempt_tokens": [token for _, token in held],
        "lease_seconds": lease_seconds,
        "slot_holding": sorted(state.value for state in SLOT_HOLDING),
    }
    await db.execute(_BEAT, params, deadline_seconds=deadline_seconds)


async def replicas(db: Database, *, lease_seconds: float) -> list[ReplicaRow]:
    """The replicas that live, the oldest first."""
    return await db.all(_REPLICAS, ReplicaRow, {"lease_seconds": lease_seconds}, reading=True)


async def lost(db: Database, *, lease_seconds: float, period_seconds: float, limit: int) -> list[ReplicaRow]:
    """At most `limit` replicas that lived within `period_seconds` and are silent without having left, the last to be heard first."""
    params = {"lease_seconds": lease_seconds, "period_seconds": period_seconds, "limit": limit}
    return await db.all(_LOST, ReplicaRow, params, reading=True)


async def leave(db: Database, replica_id: UUID, *, deadline_seconds: float) -> None:
    """Say that this replica lives no more; it holds no run."""
    await db.execute(_LEAVE, {"replica_id": replica_id}, deadline_seconds=deadline_seconds)


async def release_expired(db: Database) -> list[ExpiredRow]:
    """reserved -> released for runs whose lease is over; at most BATCH."""
    return await db.all(_RELEASE_EXPIRED, ExpiredRow, {"limit": BATCH, "reason": Reason.LEASE_LOST.value})


async def expire(db: Database, *, lookup_first_seconds: float) -> list[ExpiredRow]:
    """dispatched, running -> unknown for runs whose lease is over; at most BATCH."""
    params = {
        "limit": BATCH,
        "reason": Reason.LEASE_LOST.value,
        "live": sorted(state.value for state in LIVE),
        "lookup_first_seconds": lookup_first_seconds,
    }
    return await db.all(_EXPIRE, ExpiredRow, params)
