"""Saving what is pending: the same stored bytes, verified, written as items once (contract D5). Never a second model call."""

from dataclasses import dataclass, field
from typing import Final

import structlog

from gateway.domain import snapshot as snapshots
from gateway.domain.fault_points import At, Step, pass_by, through
from gateway.domain.ids import RunId
from gateway.metrics import SAVES, Metrics
from gateway.store import saves as store
from gateway.store.database import Database
from gateway.store.errors import StoreError
from gateway.store.saves import PendingRow

AT_ONCE: Final = 20
_log: Final[structlog.stdlib.BoundLogger] = structlog.get_logger("gateway.runs.save")


@dataclass(frozen=True, slots=True)
class Save:
    """Any replica can save any pending run: the bytes are in the database."""

    database: Database
    at: At = pass_by
    metrics: Metrics = field(default_factory=Metrics)

    async def due(self) -> None:
        """Save what is due now."""
        for row in await self._claim(AT_ONCE, None):
            await self._save(row)

    async def now(self, run_id: RunId) -> bool:
        """Save this run now, because a person asked. False: it is not pending."""
        if not await store.due_now(self.database, run_id):
            return False
        for row in await self._claim(1, run_id):
            await self._save(row)
        return True

    async def _claim(self, limit: int, run_id: RunId | None) -> list[PendingRow]:
        return await through(self.at, Step.SAVE_CLAIM, store.claim(self.database, limit=limit, run_id=run_id))

    async def _save(self, row: PendingRow) -> None:
        run_id = RunId(row.run_id)
        if snapshots.sha256(row.body) != row.sha256:
            self.metrics.count(SAVES, "hash_differs")
            _log.error("snapshot_hash_differs", run_id=str(run_id))
            return
        try:
            saved = await through(self.at, Step.SAVE, store.save(self.database, run_id, snapshots.parse(row.body), row.sha256))
        except (StoreError, ValueError) as error:
            self.metrics.count(SAVES, "failed")
            _log.error("save_failed", run_id=str(run_id), error=type(error).__name__)
            return
        self.metrics.count(SAVES, "saved" if saved else "not_pending")
        _log.info("saved", run_id=str(run_id), saved=saved)
