"""Reading the upstream's stream: bytes through the parser to the watchers, the native run id first, checkpoints on the way.

The read never waits for the database (design.md "From request to POST" 7): what is written down on the way is written by tasks of its own.
"""

import asyncio
import contextlib
from functools import partial
from typing import Final

from gateway.domain.evidence import StreamFact
from gateway.domain.fault_points import Step, through
from gateway.domain.ids import NativeRunId
from gateway.domain.states import Execution
from gateway.runs.live import LiveRun
from gateway.runs.means import Means
from gateway.sse_parser.native import NativeParser
from gateway.sse_parser.parser import Batch, StreamParser
from gateway.store import runs as store
from gateway.store.errors import DatabaseTrouble
from gateway.upstream.protocol import OpenStream
from gateway.upstream.stream_clock import StreamClock

HOLD_SECONDS: Final = 0.25
"""How long visible text waits for the commit of the native run id (design.md "From request to POST" 7)."""
NATIVE_ID_SOON_SECONDS: Final = 0.05
"""native_run should follow RUN_STARTED at once; waiting this long for it makes one write of two."""
_GATHER_SECONDS_A_STREAM: Final = 0.001
"""How long a stream that shows text gathers what comes before it hands on more, for each stream that this process reads: handing on is what
streams cost. A few streams hand on at once, fifty or more every 50 ms, as often as pages redraw."""
_GATHER_SECONDS_MIN: Final = 0.002
"""The loop's timers are no finer."""
_GATHER_SECONDS_MAX: Final = 0.05


class Reading:
    """One stream being read. `parser` holds all that was seen; `started`: RUN_STARTED or a native run id was."""

    def __init__(self, means: Means, live: LiveRun, parser: StreamParser | NativeParser) -> None:
        self._means = means
        self._live = live
        self._run_id = live.admitted.run_id
        self._token = live.admitted.attempt_token
        self.parser = parser
        self.started = False
        self.first_text_at: float | None = None
        """On the clock of the means."""
        self._over = False
        self._news = asyncio.Event()
        self._held: list[bytes] | None = None
        self._changed = False
        self._revision = 0
        self._checkpoint_timer: asyncio.TimerHandle | None = None

    def native_run(self, native_run_id: NativeRunId) -> None:
        """The response's head named the run, before any event: it is written down at once."""
        self._note_start(Batch(native_run_id=native_run_id, started=True))

    async def to_end(self, response: OpenStream, clock: StreamClock) -> StreamFact:
        """Read until the first terminal event, which settles; the socket's end is not waited for. Or until the body ends."""
        async for piece in response:
            gathers = self.first_text_at is not None  # the first text goes out at once
            batch = self.parser.feed(piece)
            if batch.activity:
                clock.touch()
            if batch.started or batch.native_run_id is not None:
                self._note_start(batch)
            if batch.changes:
                self._changed = True
                if not gathers:
                    self.first_text_at = self._means.clock()
                self._publish(self._live.frames.changes(batch.changes))
            if batch.end is not None:
                return batch.end
            if gathers:
                await self._gather()
        return self.parser.end()

    def close_open(self, parser: NativeParser) -> None:
        """The run is known to be over, or to wait: what is still open ends for the watchers, too."""
        parser.close_open()
        self._publish(self._live.frames.changes(parser.take_changes().changes))

    def stop(self) -> None:
        """The end is known: nothing more is written down on the way."""
        self._over = True
        self._news.set()
        if self._checkpoint_timer is not None:
            self._checkpoint_timer.cancel()

    def let_go(self) -> None:
        """Publish what waited for the native run id's commit."""
        held, self._held = self._held, None
        if held:
            self._live.channel.publish(b"".join(held))

    async def _gather(self) -> None:
        seconds = min(_GATHER_SECONDS_A_STREAM * len(self._means.reading), _GATHER_SECONDS_MAX)
        if seconds > _GATHER_SECONDS_MIN:
            await asyncio.sleep(seconds)

    def _publish(self, piece: bytes) -> None:
        if self._held is None:
            self._live.channel.publish(piece)
        else:
            self._held.append(piece)

    # --- native id first --------------------------------------------------------------------------------------------------------------

    def _note_start(self, batch: Batch) -> None:
        if batch.native_run_id is not None:
            self._held = []
            asyncio.get_running_loop().call_later(HOLD_SECONDS, self.let_go)
        if not self.started:
            self.started = True
            self._means.own(self._record_start(), "record start")
            self._plan_checkpoint()
        self._news.set()

    async def _record_start(self) -> None:
        """Commit RUN_STARTED and the native run id; text that came with the id is let go when its commit returned."""
        if self.parser.native_run_id is None:
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(NATIVE_ID_SOON_SECONDS):
                    await self._news.wait()
        while not self._over:
            self._news.clear()
            native_run_id = self.parser.native_run_id
            first = self._means.lookup_first_seconds
            write = partial(store.start, self._means.database, self._run_id, self._token, native_run_id, lookup_first_seconds=first)
            moved = await self._means.committed(Step.START, write)
            if moved is not None and self._live.view.execution is Execution.DISPATCHED:
                self._live.moved(Execution.RUNNING, moved.updated_at)
            if native_run_id is not None:
                self.let_go()
                return
            await self._news.wait()

    # --- checkpoints ------------------------------------------------------------------------------------------------------------------

    def _plan_checkpoint(self) -> None:
        self._checkpoint_timer = asyncio.get_running_loop().call_later(self._means.checkpoint_seconds, self._checkpoint_due)

    def _checkpoint_due(self) -> None:
        """While the stream lives, keep what was seen: at most every `checkpoint_seconds`, and only when something was."""
        if self._over:
            return
        if self._changed:
            self._changed = False
            self._means.own(self._checkpoint(), "checkpoint").add_done_callback(lambda _: self._plan_checkpoint())
        else:
            self._plan_checkpoint()

    async def _checkpoint(self) -> None:
        self._revision += 1
        with contextlib.suppress(DatabaseTrouble):  # the next one has all of it
            seen = self.parser.snapshot(complete=False)
            kept = store.checkpoint(self._means.database, self._run_id, self._token, self._revision, seen)
            await through(self._means.at, Step.CHECKPOINT, kept)
