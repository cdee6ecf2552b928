"""Runs as operators see them, and their resolution. What a resolution may be is `domain.resolution`; look-ups and saves have their own."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from gateway.domain.audit import Actor
from gateway.domain.ids import ApplicationId, RunId
from gateway.domain.resolution import CLOSABLE, UNSAVED, Resolution, ResolutionOutcome, RunFilter, RunOrder
from gateway.store.database import Database, Transaction
from gateway.store.runs import RunRow
from gateway.store.statements import statement

_RUNS: Final = statement("operators.runs")
_EVIDENCE: Final = statement("operators.evidence")
_TEXT: Final = statement("operators.text")
_LOCK: Final = statement("operators.lock")
_RESOLVE: Final = statement("operators.resolve")
_GIVE_UP: Final = statement("operators.give_up")

EVIDENCE_SHOWN: Final = 1000
"""Rows of evidence: a run has a few and one for each look-up, of which people may ask for more than the budget."""


@dataclass(frozen=True, slots=True)
class OperatorRow(RunRow):
    """One run with what only operators see. `snapshot_body` is None here: text is read by `text`.

    `since_at`: since when it is over, else unknown, else there. `blocks_conversation`: why its conversation takes no new task, where this
    run is the cause. `gate_over_at`: from when on every resolution is early no more.
    """

    since_at: datetime
    application_id: UUID
    application_name: str
    subject: str
    unresolved: bool
    conversation_deleted: bool
    blocks_conversation: str | None
    fence_at: datetime | None
    started_at: datetime | None
    native_run_id_known: bool
    can_be_looked_up: bool
    unknown_at: datetime | None
    lookups: int
    next_lookup_at: datetime | None
    lease_live: bool
    acknowledged_at: datetime | None
    resolved_at: datetime | None
    resolved_by: str | None
    stored_complete: bool | None
    stored_sha256: bytes | None
    stored_bytes: int | None
    gate_over_at: datetime | None
    gate_over: bool


@dataclass(frozen=True, slots=True)
class Selection:
    """Which runs, in which order. `older_than_seconds`: by `since_at`. `created_within_seconds`: without it, `all` reads every run."""

    run_filter: RunFilter = RunFilter.UNRESOLVED
    order: RunOrder = RunOrder.NEWEST
    application_id: ApplicationId | None = None
    older_than_seconds: int | None = None
    created_within_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class EvidenceRow:
    """One recorded fact."""

    at: datetime
    kind: str
    detail: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TextRow:
    """What the user wrote (a resume run has nothing), and the canonical bytes of what is stored of the answer."""

    message: str | None
    snapshot_body: bytes | None


@dataclass(frozen=True, slots=True)
class LockedRow:
    """What a resolution rests on. The gate's times are None where there was no fence."""

    execution: str
    persistence: str
    seen_executing: bool
    resolution_outcome: str | None
    resolution_reason: str | None
    gate_over_at: datetime | None
    gate_over_in_seconds: float | None


@dataclass(frozen=True, slots=True)
class _ResolvedRow:
    run_id: UUID
    refunded: str | None


async def page(
    db: Database, selection: Selection, *, after: tuple[datetime, UUID] | None, limit: int, gate_seconds: float
) -> list[OperatorRow]:
    """At most `limit` runs of the selection, after the one at `after` (since_at, run_id)."""
    params = _runs(selection, None, after, limit, gate_seconds)
    return await db.all(_RUNS, OperatorRow, params, reading=True)


async def find(db: Database, run_id: RunId, *, gate_seconds: float) -> OperatorRow | None:
    """The run of that id, whoever's it is."""
    params = _runs(Selection(RunFilter.ALL), run_id, None, 1, gate_seconds)
    return await db.one(_RUNS, OperatorRow, params, reading=True)


def _runs(
    selection: Selection, run_id: RunId | None, after: tuple[datetime, UUID] | None, limit: int, gate_seconds: float
) -> dict[str, object]:
    after_at, after_id = after or (None, None)
    return {
        "run_id": run_id,
        "filter": selection.run_filter.value,
        "oldest_first": selection.order is RunOrder.OLDEST,
        "application_id": selection.application_id,
        "older_than_seconds": selection.older_than_seconds,
        "created_within_seconds": selection.created_within_seconds,
        "after_at": after_at,
        "after_id": after_id,
        "limit": limit,
        "gate_seconds": gate_seconds,
    }


async def evidence(db: Database, run_id: RunId) -> list[EvidenceRow]:
    """What is recorded of the run, oldest first; the newest EVIDENCE_SHOWN."""
    return await db.all(_EVIDENCE, EvidenceRow, {"run_id": run_id, "limit": EVIDENCE_SHOWN}, reading=True)


async def text(tx: Transaction, run_id: RunId) -> TextRow | None:
    """The text of a run; None when its owner deleted the conversation. For who records the reading in the same transaction."""
    return await tx.one(_TEXT, TextRow, {"run_id": run_id})


async def lock(tx: Transaction, run_id: RunId, *, gate_seconds: float) -> LockedRow | None:
    """The run under its row's lock, with what a resolution rests on."""
    return await tx.one(_LOCK, LockedRow, {"run_id": run_id, "gate_seconds": gate_seconds})


async def resolve(
    tx: Transaction,
    run_id: RunId,
    before: LockedRow,
    resolution: Resolution,
    *,
    outcome: ResolutionOutcome,
    reason: str,
    actor: Actor,
    gate_seconds: float,
) -> bool:
    """Record the resolution of a locked run, with evidence and refund. False: the guard refused what `domain.resolution` allowed."""
    params = {
        "run_id": run_id,
        "execution_before": before.execution,
        "persistence_before": before.persistence,
        "execution": resolution.execution.value,
        "persistence": resolution.persistence.value,
        "outcome": outcome.value,
        "reason": reason,
        "actor": actor,
        "closable": sorted(state.value for state in CLOSABLE),
        "unsaved": sorted(state.value for state in UNSAVED),
        "gate_seconds": gate_seconds,
    }
    return await tx.one(_RESOLVE, _ResolvedRow, params) is not None


async def give_up(tx: Transaction, run_id: RunId, *, outcome: ResolutionOutcome, reason: str) -> bool:
    """pending -> incomplete for a locked run that has this very resolution. False: the guard refused."""
    params = {"run_id": run_id, "outcome": outcome.value, "reason": reason}
    return await tx.one(_GIVE_UP, _ResolvedRow, params) is not None
