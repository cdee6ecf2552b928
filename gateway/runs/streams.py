"""A browser's stream of a run: live where this process executes it, else from what the database knows, until the run is over."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from gateway.domain.ids import ApplicationId, RunId
from gateway.domain.snapshot import Item, MessageItem
from gateway.domain.states import Execution
from gateway.identity.accounts import Access
from gateway.runs.frames import Frames
from gateway.runs.live import LiveRuns
from gateway.runs.read import POLL_SECONDS, Reads, RunView
from gateway.runs.submit import Submitted


class Stream(Protocol):
    """Whole SSE frames for one browser."""

    async def read(self, timeout_seconds: float) -> bytes | None:
        """The next piece; b"" when nothing came in time (send a heartbeat); None when the stream is over."""
        ...

    def close(self) -> None:
        """Stop watching; the run goes on."""
        ...


@dataclass(frozen=True, slots=True)
class Streams:
    """Opens streams for owners of runs. `draining`: no stream outlives the wish to stop."""

    live_runs: LiveRuns
    reads: Reads
    draining: Callable[[], bool]

    def of(self, submitted: Submitted) -> Stream:
        """The stream that answers a submission. It was authorised a moment ago: nothing is read again."""
        live = self.live_runs.get(submitted.view.run_id)
        if live is not None:
            return live.channel.subscribe()
        return StoredStream(self.reads, submitted.access, submitted.application_id, submitted.view, self.draining)

    async def open(self, access: Access, application_id: ApplicationId, run_id: RunId) -> Stream:
        """The stream of a run from its beginning. Raises Refused(not_found)."""
        view = await self.reads.run(access, application_id, run_id)
        live = self.live_runs.get(run_id)
        if live is not None:
            return live.channel.subscribe()
        return StoredStream(self.reads, access, application_id, view, self.draining)


class StoredStream:
    """The stream of a run that this process does not execute: frames from the stored snapshot, asked for again while it is under way."""

    def __init__(self, reads: Reads, access: Access, application_id: ApplicationId, view: RunView, draining: Callable[[], bool]) -> None:
        self._reads = reads
        self._access = access
        self._application_id = application_id
        self._frames = Frames(view.run_id, view.conversation_id)
        self._view: RunView = view
        self._items: tuple[Item, ...] = ()
        self._begun = False
        self._over = False
        self._draining = draining

    async def read(self, timeout_seconds: float) -> bytes | None:
        """As Stream.read. Raises Refused or a store error when the run can no longer be read: the stream ends without a terminal frame."""
        if self._over:
            return None
        if not self._begun:
            self._begun = True
            return self._frames.started() + self._news(self._view, changed=True)
        if self._draining():
            self._over = True
            return self._frames.status(self._view)
        return await self._poll(timeout_seconds)

    def close(self) -> None:
        self._over = True

    async def _poll(self, timeout_seconds: float) -> bytes | None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        while (left := deadline - loop.time()) > 0:
            # The database does not say when a run changes (no LISTEN through a pooler): wait a little and ask.
            await asyncio.sleep(min(POLL_SECONDS, left))
            earlier, self._view = (
                self._view,
                await self._reads.run(self._access, self._application_id, self._view.run_id, known_revision=self._view.snapshot_revision),
            )
            if piece := self._news(self._view, changed=_status(self._view) != _status(earlier)):
                return piece
        return b""

    def _news(self, view: RunView, *, changed: bool) -> bytes:
        items = view.snapshot.items if view.snapshot else self._items  # no snapshot: nothing newer than what was shown
        if view.execution is Execution.WAITING:
            # What was said before a question is over, whether all of it is known or not: the protocol wants messages ended.
            items = tuple(replace(item, complete=True) if isinstance(item, MessageItem) else item for item in items)
        piece = self._frames.difference(self._items, items)
        self._items = items
        if changed:
            piece = self._frames.status(view) + piece
        # An unknown run may stay so for long: its stream ends with what is known, and polling goes on.
        if not view.under_way or view.execution is Execution.UNKNOWN:
            self._over = True
            piece += self._frames.ending(view)
        return piece


def _status(view: RunView) -> tuple[object, ...]:
    """What a change of makes a new gateway.run frame."""
    return (view.execution, view.persistence, view.reason, view.attention, view.resolution)
