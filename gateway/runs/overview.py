"""The overview of operators: live numbers of all replicas, as far as the database knows them."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from typing_extensions import TypedDict

from gateway.bindings.keys import is_same_ring
from gateway.domain.limits import PAGE_MAX
from gateway.domain.reasons import Reason
from gateway.domain.states import Execution
from gateway.domain.times import rfc3339
from gateway.json_shapes import Time
from gateway.metrics import ADMISSIONS, Metrics
from gateway.store import admission_gate, leases
from gateway.store import overview as store
from gateway.store.database import Database

REFUSALS_SECONDS: Final = 24 * 3600.0


class SavingJson(TypedDict):
    """Complete answers that are stored and whose items are not, and for how long the oldest has been so."""

    pending: int
    oldest_seconds: float | None


class AppNumbersJson(TypedDict):
    """What one application has under way. `slots`: how many runs may be active in it at once."""

    app_id: UUID
    name: str
    enabled: bool
    active_runs: int
    slots: int
    unknown_runs: int
    unresolved_runs: int
    pending_saves: int


class ReplicaJson(TypedDict):
    """A replica. `heartbeat_age_seconds`: since it last said that it lives, and renewed the leases of its runs. `key_ids`: of its ring,
    first the one that encrypts; null of a version that does not say."""

    replica_id: UUID
    started_at: Time
    heartbeat_age_seconds: float
    key_ids: list[str] | None
    same_keys: bool


class ClosedJson(TypedDict):
    """Since when, by whom and why nothing is admitted on any replica."""

    closed_at: Time
    actor: str
    reason: str


class AdmissionJson(TypedDict):
    """Submissions of one result: `admitted`, `replayed`, or the code of the refusal."""

    result: str
    submissions: int


class RefusalJson(TypedDict):
    """How many runs were released or failed for one reason."""

    execution: Execution
    reason: Reason
    runs: int


class RefusalsJson(TypedDict):
    """What came to nothing in the last `period_seconds`: runs by reason, and texts that moderation refused or could not judge.

    Other refusals before there was a run are not in the database: `admissions` and the metrics count them.
    """

    period_seconds: float
    by_reason: list[RefusalJson]
    moderation_refused: int
    moderation_unavailable: int


class OverviewJson(TypedDict):
    """Live numbers of all replicas. `admission_closed`: null while new work is taken. `apps`: the busiest first. `same_keys` compares with
    the replica that answers. `lost_replicas`: that fell silent within `refusals.period_seconds` without having left. `admissions`: counted
    by the replica that answers, since it started.
    """

    at: Time
    active_runs: int
    waiting_runs: int
    unresolved_runs: int
    attention_runs: int
    saving: SavingJson
    admission_closed: ClosedJson | None
    apps: list[AppNumbersJson]
    replicas: list[ReplicaJson]
    lost_replicas: list[ReplicaJson]
    refusals: RefusalsJson
    admissions: list[AdmissionJson]


@dataclass(frozen=True, slots=True)
class Overview:
    """Reads it. `key_ids`: of this replica's ring; `max_per_application`: the slots of one; `metrics`: what this replica counted."""

    database: Database
    key_ids: Sequence[str]
    lease_seconds: float
    max_per_application: int
    metrics: Metrics

    async def read(self) -> OverviewJson:
        """The numbers of now."""
        (closed, replicas, lost), (totals, applications, refusals, moderation) = await asyncio.gather(
            asyncio.gather(
                admission_gate.closed(self.database),
                leases.replicas(self.database, lease_seconds=self.lease_seconds),
                leases.lost(self.database, lease_seconds=self.lease_seconds, period_seconds=REFUSALS_SECONDS, limit=PAGE_MAX),
            ),
            asyncio.gather(
                store.totals(self.database),
                store.applications(self.database, limit=PAGE_MAX),
                store.refusals(self.database, period_seconds=REFUSALS_SECONDS),
                store.moderation(self.database, period_seconds=REFUSALS_SECONDS),
            ),
        )
        texts = {row.outcome: row.texts for row in moderation}
        return {
            "at": rfc3339(totals.at),
            "active_runs": totals.active_runs,
            "waiting_runs": totals.waiting_runs,
            "unresolved_runs": totals.unresolved_runs,
            "attention_runs": totals.attention_runs,
            "saving": {"pending": totals.pending_saves, "oldest_seconds": totals.oldest_pending_seconds},
            "admission_closed": _closed(closed),
            "apps": [self._application(row) for row in applications],
            "replicas": [self._replica(row) for row in replicas],
            "lost_replicas": [self._replica(row) for row in lost],
            "refusals": {
                "period_seconds": REFUSALS_SECONDS,
                "by_reason": [{"execution": Execution(row.execution), "reason": Reason(row.reason), "runs": row.runs} for row in refusals],
                "moderation_refused": texts.get("refused", 0),
                "moderation_unavailable": texts.get("unavailable", 0),
            },
            "admissions": [{"result": result, "submissions": count} for result, count in sorted(self.metrics.counted(ADMISSIONS).items())],
        }

    def _application(self, row: store.ApplicationNumbersRow) -> AppNumbersJson:
        return {
            "app_id": row.application_id,
            "name": row.name,
            "enabled": row.enabled,
            "active_runs": row.active_runs,
            "slots": self.max_per_application,
            "unknown_runs": row.unknown_runs,
            "unresolved_runs": row.unresolved_runs,
            "pending_saves": row.pending_saves,
        }

    def _replica(self, row: leases.ReplicaRow) -> ReplicaJson:
        return {
            "replica_id": row.replica_id,
            "started_at": rfc3339(row.started_at),
            "heartbeat_age_seconds": row.heartbeat_age_seconds,
            "key_ids": row.key_ids,
            "same_keys": is_same_ring(row.key_ids, self.key_ids),
        }


def _closed(row: admission_gate.ClosedRow | None) -> ClosedJson | None:
    return None if row is None else {"closed_at": rfc3339(row.closed_at), "actor": row.actor, "reason": row.reason}
