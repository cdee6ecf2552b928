"""Retention: a slow loop that removes what is older than the settings keep, a small batch at a time, and says what it did (contract F6)."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

import structlog

from gateway.domain.raised_at import raised_at
from gateway.metrics import RETENTION_REMOVED, SWEEP_FAILURES, Metrics
from gateway.store import retention as store
from gateway.store.database import Database
from gateway.store.errors import StoreError

PERIOD_SECONDS: Final = 300.0
BATCH: Final = 200
"""Rows of one statement (conversations: a tenth): short locks, and a vacuum that keeps up."""
_PAUSE_SECONDS: Final = 0.5

_log: Final[structlog.stdlib.BoundLogger] = structlog.get_logger("gateway.reconciler.retention")


class _Remove(Protocol):
    async def __call__(self, db: Database, *, days: int, after: int, limit: int) -> store.BatchRow: ...


@dataclass(frozen=True, slots=True)
class Retention:
    """Days to keep each; None keeps for good. Row claims make it safe in every replica at once."""

    database: Database
    deleted_days: int | None
    evidence_days: int | None
    audit_days: int | None
    metrics: Metrics = field(default_factory=Metrics)

    async def run(self) -> None:
        """Until cancelled; returns at once where everything is kept."""
        while self._steps():
            await asyncio.sleep(PERIOD_SECONDS * random.uniform(0.5, 1.0))  # noqa: S311 - spreads replicas, guards nothing
            await self.round()

    async def round(self) -> None:
        """Each step until nothing is left to do for it. A step that fails is tried again in the next round."""
        for step in self._steps():
            try:
                while await step():  # noqa: ASYNC110 - a pause between batches, not a wait for anybody
                    await asyncio.sleep(_PAUSE_SECONDS)
            except StoreError as error:
                self.metrics.count(SWEEP_FAILURES)
                _log.warning("retention_failed", error=type(error).__name__)
            except Exception as error:  # noqa: BLE001 - the loop must outlive whatever one row can do to it
                self.metrics.count(SWEEP_FAILURES)
                _log.error("retention_broken", error=type(error).__name__, raised_at=raised_at(error))

    def _steps(self) -> list[Callable[[], Awaitable[bool]]]:
        """Each returns whether there may be more."""
        steps: list[Callable[[], Awaitable[bool]]] = []
        if self.deleted_days is not None:
            steps.append(self._erase)
        if self.evidence_days is not None:
            steps.append(self._by_age("evidence", store.remove_evidence, self.evidence_days))
            steps.append(self._by_age("moderation_verdict", store.remove_verdicts, self.evidence_days))
        if self.audit_days is not None:
            steps.append(self._audit)
        return steps

    async def _erase(self) -> bool:
        assert self.deleted_days is not None
        limit = BATCH // 10
        erased = await store.erase_conversations(self.database, days=self.deleted_days, limit=limit)
        for what, rows in (("conversation", erased.conversations), ("item", erased.items), ("snapshot", erased.snapshots)):
            self._tell(what, rows)
        return erased.conversations == limit

    def _by_age(self, what: str, remove: "_Remove", days: int) -> Callable[[], Awaitable[bool]]:
        """A step that begins at the oldest row and remembers, for one round, how far it came."""
        after = 0

        async def step() -> bool:
            nonlocal after
            batch = await remove(self.database, days=days, after=after, limit=BATCH)
            self._tell(what, batch.removed)
            after = batch.last or after
            return batch.more

        return step

    async def _audit(self) -> bool:
        assert self.audit_days is not None
        return self._tell("audit", await store.prune_audit(self.database, days=self.audit_days, limit=BATCH))

    def _tell(self, what: str, rows: int) -> bool:
        if rows:
            self.metrics.count(RETENTION_REMOVED, what, by=rows)
            _log.info("retention_removed", table=what, rows=rows)
        return rows >= BATCH
