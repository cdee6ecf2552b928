"""The reconciler's loop. Row claims (`for update skip locked`) make it safe in every replica at once; there is no leader."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import structlog

from gateway.domain.fault_points import At, Step, pass_by, through
from gateway.domain.raised_at import raised_at
from gateway.domain.states import Execution
from gateway.metrics import LEASES_LOST, SWEEP_FAILURES, Metrics
from gateway.runs.look_up import LookUp
from gateway.runs.save import Save
from gateway.store import leases
from gateway.store.database import Database
from gateway.store.errors import StoreError

_log: Final[structlog.stdlib.BoundLogger] = structlog.get_logger("gateway.reconciler")


@dataclass(frozen=True, slots=True)
class Reconciler:
    """`may_expire`: this replica's own beats allow it to believe that another is gone."""

    database: Database
    look_up: LookUp
    save: Save
    may_expire: Callable[[], bool]
    period_seconds: float
    lookup_first_seconds: float
    at: At = pass_by
    metrics: Metrics = field(default_factory=Metrics)

    async def run(self) -> None:
        """Sweep until cancelled. Look-ups wait for other services, so they have a loop of their own: a slow one delays nobody's expiry."""
        await asyncio.gather(
            self._forever(self._expire, self.save.due, self.look_up.exhaust),
            self._forever(self._look_up),
        )

    async def sweep(self) -> None:
        """One round of everything."""
        for step in (self._expire, self.save.due, self._look_up, self.look_up.exhaust):
            await self._safely(step)

    async def _forever(self, *steps: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(self.period_seconds * random.uniform(0.7, 1.0))  # noqa: S311 - spreads replicas, guards nothing
            for step in steps:
                await self._safely(step)

    async def _safely(self, step: Callable[[], Awaitable[None]]) -> None:
        """A step that fails is tried again in the next round; the others go on."""
        try:
            await step()
        except StoreError as error:
            self.metrics.count(SWEEP_FAILURES)
            _log.warning("sweep_step_failed", error=type(error).__name__)
        except Exception as error:  # noqa: BLE001 - the loop must outlive whatever one run's row can do to it
            self.metrics.count(SWEEP_FAILURES)
            _log.error("sweep_step_broken", error=type(error).__name__, raised_at=raised_at(error))

    async def _expire(self) -> None:
        if not self.may_expire():
            return
        released = await through(self.at, Step.RELEASE_EXPIRED, leases.release_expired(self.database))
        expired = await through(self.at, Step.EXPIRE, leases.expire(self.database, lookup_first_seconds=self.lookup_first_seconds))
        for execution, rows in ((Execution.RELEASED, released), (Execution.UNKNOWN, expired)):
            for row in rows:
                self.metrics.count(LEASES_LOST, execution.value)
                _log.warning("lease_lost", run_id=str(row.run_id), execution=execution.value)

    async def _look_up(self) -> None:
        while claimed := await self.look_up.claim_due():
            outcomes = await asyncio.gather(*(self.look_up.ask(one) for one in claimed), return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    _log.warning("lookup_failed", error=type(outcome).__name__)
