"""Fan-out: the frames of one live run to any number of browsers, none of which can hold it up.

A subscriber that comes late gets what was published so far, then what follows. One that reads too slowly is dropped: its stream just ends,
and it asks for the run. Encoding happened once, before `publish`; pieces that wait are handed on together.
"""

import asyncio
from typing import Final

MAX_PENDING_BYTES: Final = 1024 * 1024
"""What may wait for one slow browser, beyond what it had to catch up on. A quick one has a few hundred bytes waiting."""
_LATE_SECONDS: Final = 0.01
"""How late a read may time out: what keeps one timer for a whole stream of reads that all end at the same heartbeat."""


class Subscription:
    """One watcher's end. `read` is for one task at a time."""

    __slots__ = ("_allowance", "_channel", "_deadline", "_over", "_pending", "_pending_bytes", "_timer", "_waiter")

    def __init__(self, channel: "Channel", backlog: bytes, *, over: bool) -> None:
        self._channel = channel
        self._pending: list[bytes] = [backlog] if backlog else []
        self._pending_bytes = len(backlog)
        self._allowance = len(backlog) + MAX_PENDING_BYTES
        self._over = over
        self._waiter: asyncio.Future[None] | None = None
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def read(self, timeout_seconds: float) -> bytes | None:
        """All that waits, as one piece; b"" when nothing came in time; None when the stream is over."""
        if not self._pending and not self._over:
            loop = asyncio.get_running_loop()
            self._waiter = waiter = loop.create_future()
            self._wake_at(loop, loop.time() + timeout_seconds)
            try:
                await waiter
            finally:
                self._waiter = None
        if self._pending:
            piece = self._pending[0] if len(self._pending) == 1 else b"".join(self._pending)
            self._pending.clear()
            self._allowance = MAX_PENDING_BYTES
            self._pending_bytes = 0
            return piece
        return None if self._over else b""

    def close(self) -> None:
        """Stop watching. The run goes on."""
        self._over = True
        self._pending.clear()
        self._drop_timer()
        self._channel._leave(self)

    def _offer(self, piece: bytes) -> bool:
        """Queue a piece; False when the watcher is too slow and is dropped."""
        if self._pending_bytes + len(piece) > self._allowance:
            self._pending.clear()
            self._finish()
            return False
        self._pending.append(piece)
        self._pending_bytes += len(piece)
        if self._waiter is not None:
            _wake(self._waiter)
        return True

    def _finish(self) -> None:
        self._over = True
        self._drop_timer()
        if self._waiter is not None:
            _wake(self._waiter)

    def _wake_at(self, loop: asyncio.AbstractEventLoop, deadline: float) -> None:
        # A timer for each read would be made and cancelled for each event of a run: this one is moved only when it would come too late.
        self._deadline = deadline
        if self._timer is None or self._timer.when() > deadline + _LATE_SECONDS:
            self._drop_timer()
            self._timer = loop.call_at(deadline, self._timed_out, loop)

    def _timed_out(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._waiter is None:
            return
        if loop.time() < self._deadline:
            self._timer = loop.call_at(self._deadline, self._timed_out, loop)
        else:
            _wake(self._waiter)

    def _drop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Channel:
    """The run's end."""

    __slots__ = ("_closed", "_published", "_subscriptions")

    def __init__(self) -> None:
        self._published: list[bytes] = []
        self._subscriptions: set[Subscription] = set()
        self._closed = False

    def publish(self, piece: bytes) -> None:
        """Hand whole frames to all who watch, and keep them for those who come later. Nothing after `close`."""
        if self._closed or not piece:
            return
        self._published.append(piece)
        for subscription in tuple(self._subscriptions):
            if not subscription._offer(piece):
                self._subscriptions.discard(subscription)

    def close(self) -> None:
        """End every stream after what was published."""
        self._closed = True
        for subscription in self._subscriptions:
            subscription._finish()
        self._subscriptions.clear()

    def subscribe(self) -> Subscription:
        """Watch: first all that was published so far, as one piece."""
        backlog = b"".join(self._published)
        self._published = [backlog] if backlog else []
        subscription = Subscription(self, backlog, over=self._closed)
        if not self._closed:
            self._subscriptions.add(subscription)
        return subscription

    @property
    def watchers(self) -> int:
        """How many browsers watch now."""
        return len(self._subscriptions)

    def _leave(self, subscription: Subscription) -> None:
        self._subscriptions.discard(subscription)


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
