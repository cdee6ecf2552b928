"""Fan-out: the frames of one live run to any number of browsers, none of which can hold it up.

A subscriber that comes late gets what was published so far, then what follows. One that reads too slowly is dropped: its stream just ends,
and it asks for the run. Encoding happened once, before `publish`; pieces that wait are handed on together.
"""

import asyncio
from typing import Final

MAX_PENDING_BYTES: Final = 1024 * 1024
"""What may wait for one slow browser, beyond what it had to catch up on. A quick one has a few hundred bytes waiting."""


class Subscription:
    """One watcher's end. `read` is for one task at a time."""

    __slots__ = ("_allowance", "_channel", "_over", "_pending", "_pending_bytes", "_waiter")

    def __init__(self, channel: "Channel", backlog: bytes, *, over: bool) -> None:
        self._channel = channel
        self._pending: list[bytes] = [backlog] if backlog else []
        self._pending_bytes = len(backlog)
        self._allowance = len(backlog) + MAX_PENDING_BYTES
        self._over = over
        self._waiter: asyncio.Future[None] | None = None

    async def read(self, timeout_seconds: float) -> bytes | None:
        """All that waits, as one piece; b"" when nothing came in time; None when the stream is over."""
        if not self._pending and not self._over:
            loop = asyncio.get_running_loop()
            self._waiter = waiter = loop.create_future()
            timer = loop.call_later(timeout_seconds, _wake, waiter)
            try:
                await waiter
            finally:
                timer.cancel()
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
        if self._waiter is not None:
            _wake(self._waiter)


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
