"""The heartbeat of a replica: renews the leases of the runs it holds, and says whether it may believe that another replica is gone.

Both rules are model-checked (docs/model): renew exactly what is held in memory, and expire nobody until one full lease has passed since
this replica's own first good beat, counted from its start and anew after every failed one.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import structlog

from gateway.domain.fault_points import At, Step, pass_by, through
from gateway.domain.ids import AttemptToken, RunId
from gateway.domain.raised_at import raised_at
from gateway.store import leases as store
from gateway.store.database import Database
from gateway.store.errors import StoreError

_AGAIN_SECONDS: Final = 0.2
"""A failed beat is tried again at once, nearly: a database that refuses quickly must not be hammered."""

_LEAVE_SECONDS: Final = 1.0

_log: Final[structlog.stdlib.BoundLogger] = structlog.get_logger("gateway.runs.heartbeat")


@dataclass(slots=True)
class Heartbeat:
    """`held`: the (run, token) pairs that this process holds now. `key_ids`: of its ring. `clock` is monotonic, in seconds."""

    database: Database
    replica_id: UUID
    held: Callable[[], Sequence[tuple[RunId, AttemptToken]]]
    key_ids: Sequence[str]
    period_seconds: float
    lease_seconds: float
    clock: Callable[[], float]
    at: At = pass_by
    _good_since: float | None = field(default=None, init=False)
    _last_good: float | None = field(default=None, init=False)

    def may_expire(self) -> bool:
        """Whether a full lease has passed since the first good beat in a row."""
        return self._good_since is not None and self.clock() - self._good_since >= self.lease_seconds

    @property
    def age_seconds(self) -> float | None:
        """Since the last good beat; None before the first."""
        return None if self._last_good is None else self.clock() - self._last_good

    async def run(self) -> None:
        """Beat until cancelled. A replica without runs beats as well."""
        while True:  # noqa: ASYNC110 - a beat is a matter of time, not of an event
            await asyncio.sleep(self.period_seconds if await self.beat() else _AGAIN_SECONDS)

    async def beat(self) -> bool:
        """One beat; its deadline is its period."""
        sent_at = self.clock()
        try:
            beat = store.beat(
                self.database,
                self.replica_id,
                self.held(),
                key_ids=self.key_ids,
                lease_seconds=self.lease_seconds,
                deadline_seconds=self.period_seconds,
            )
            await through(self.at, Step.HEARTBEAT, beat)
        except Exception as error:  # noqa: BLE001 - a heartbeat that ends takes every lease with it
            self._good_since = None
            _log.warning("heartbeat_failed", error=type(error).__name__, raised_at=raised_at(error))
            return False
        self._last_good = sent_at
        if self._good_since is None:
            self._good_since = sent_at
        return True

    async def leave(self) -> None:
        """After the last beat, with no run held: nobody counts with this replica and its keys any more. Else a lease does it."""
        try:
            await store.leave(self.database, self.replica_id, deadline_seconds=_LEAVE_SECONDS)
        except StoreError as error:
            _log.warning("leave_failed", error=type(error).__name__)
