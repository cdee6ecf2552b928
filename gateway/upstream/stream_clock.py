"""The two clocks of an upstream stream: idle and total (field case O-17). One timer a stream, not one an event."""

import asyncio

from gateway.domain.limits import StreamBounds
from gateway.domain.reasons import Reason


class StreamClock:
    """Ends the body of `async with asyncio.timeout(None) as scope` when the stream is idle or takes too long.

    `touch` says that an event came; comments do not count. `expired` is the reason once a bound was hit.
    """

    __slots__ = ("_idle_seconds", "_last", "_loop", "_scope", "_timer", "_total_at", "expired")

    def __init__(self, bounds: StreamBounds, scope: asyncio.Timeout) -> None:
        self._loop = asyncio.get_running_loop()
        self._scope = scope
        self._idle_seconds = bounds.idle_seconds
        self._last = self._loop.time()
        self._total_at = self._last + bounds.total_seconds
        self.expired: Reason | None = None
        self._timer = self._loop.call_at(min(self._last + self._idle_seconds, self._total_at), self._check)

    def touch(self) -> None:
        """An event arrived."""
        self._last = self._loop.time()

    def stop(self) -> None:
        """The stream is over."""
        self._timer.cancel()

    def _check(self) -> None:
        now = self._loop.time()
        idle_at = self._last + self._idle_seconds
        if now >= self._total_at:
            self.expired = Reason.TOTAL_TIMEOUT
        elif now >= idle_at:
            self.expired = Reason.IDLE_TIMEOUT
        if self.expired is None:
            self._timer = self._loop.call_at(min(idle_at, self._total_at), self._check)
        else:
            self._scope.reschedule(now)
