"""What a scrape of one replica shows: what it counted, what it is now, and the numbers of the database, asked within a deadline.

Also what feeds the counters from the edges: the duration of each step of a run, and the lag of the event loop.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

from gateway.domain.fault_points import At, FaultPoint, Moment
from gateway.metrics import (
    ASKED,
    BROWSER_STREAMS,
    DATABASE_UP,
    DRAINING,
    HEARTBEAT_AGE,
    LIVE_RUNS,
    LOOP_LAG,
    POOL_ERRORS,
    POOL_QUEUE,
    POOL_QUEUED,
    POOL_REQUESTS,
    POOL_SIZE,
    POOL_WAIT,
    STEPS,
    Metrics,
    Sample,
)
from gateway.store import numbers
from gateway.store.database import Database
from gateway.store.errors import StoreError

ASK_SECONDS: Final = 2.0
"""A scraper's patience is 10 s by default; a database that needs longer than this is what the scrape has to tell."""
KEPT_SECONDS: Final = 5.0
"""Several scrapers, or one that asks too often, cost the database no more than this."""
_LAG_PERIOD_SECONDS: Final = 0.5
_ASKED_BY_NAME: Final = {family.name: family for family in ASKED}

_began_at: Final[ContextVar[float]] = ContextVar("step_began_at")


def measured(at: At, metrics: Metrics, clock: Callable[[], float]) -> At:
    """`at`, and the duration of each step that is answered. A step that fails has no duration: it is counted by what it ends in."""

    async def measure(point: FaultPoint) -> None:
        if point.moment is Moment.BEFORE:
            await at(point)
            _began_at.set(clock())
        else:
            metrics.observe(STEPS, clock() - _began_at.get(), point.step.value)
            await at(point)

    return measure


async def watch_loop(metrics: Metrics) -> None:
    """Until cancelled: how late a timer is."""
    loop = asyncio.get_running_loop()
    while True:
        due_at = loop.time() + _LAG_PERIOD_SECONDS
        await asyncio.sleep(_LAG_PERIOD_SECONDS)
        metrics.observe(LOOP_LAG, max(loop.time() - due_at, 0.0))


@dataclass(slots=True)
class Scrape:
    """Answers GET /metrics. The callables read this replica; `clock` is monotonic, in seconds."""

    metrics: Metrics
    database: Database
    lease_seconds: float
    live_runs: Callable[[], int]
    browser_streams: Callable[[], int]
    draining: Callable[[], bool]
    heartbeat_age: Callable[[], float | None]
    clock: Callable[[], float]
    _asking: "asyncio.Task[list[Sample]] | None" = field(default=None, init=False)
    _asked_at: float = field(default=0.0, init=False)

    async def __call__(self) -> bytes:
        """The exposition, within ASK_SECONDS whatever the database does."""
        asked = await self._asked()
        return self.metrics.text([*self._read(), *asked])

    def _read(self) -> Iterator[Sample]:
        yield Sample(LIVE_RUNS, self.live_runs())
        yield Sample(BROWSER_STREAMS, self.browser_streams())
        yield Sample(DRAINING, float(self.draining()))
        if (age := self.heartbeat_age()) is not None:
            yield Sample(HEARTBEAT_AGE, age)
        pool = self.database.pool_numbers()
        yield Sample(POOL_SIZE, pool.idle, ("idle",))
        yield Sample(POOL_SIZE, pool.used, ("used",))
        yield Sample(POOL_QUEUE, pool.waiting)
        yield Sample(POOL_REQUESTS, pool.requests)
        yield Sample(POOL_QUEUED, pool.queued)
        yield Sample(POOL_WAIT, pool.wait_seconds)
        yield Sample(POOL_ERRORS, pool.errors)

    async def _asked(self) -> list[Sample]:
        if self._asking is None or self.clock() - self._asked_at > KEPT_SECONDS:
            self._asked_at = self.clock()
            self._asking = asyncio.create_task(self._ask())
        # Scrapers share one question, and one that hangs up does not cancel it for the others.
        return await asyncio.shield(self._asking)

    async def _ask(self) -> list[Sample]:
        try:
            rows = await numbers.gauges(self.database, lease_seconds=self.lease_seconds, deadline_seconds=ASK_SECONDS)
        except StoreError:
            return [Sample(DATABASE_UP, 0.0)]
        shown = [Sample(DATABASE_UP, 1.0)]
        for row in rows:
            shown.append(Sample(_ASKED_BY_NAME[row.family], row.value, () if row.label is None else (row.label,)))
        return shown
