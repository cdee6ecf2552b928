"""The dispatch fence and the send window that opens with it (design.md "From request to POST" 4 and 5, "A commit whose answer is lost")."""

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.domain.evidence import NotSent, NotSentProof
from gateway.domain.fault_points import Step, through
from gateway.domain.reasons import Reason
from gateway.domain.states import Execution
from gateway.runs.live import LiveRun
from gateway.runs.means import Means
from gateway.runs.prepare import Prepared, before_fence
from gateway.store import runs as store
from gateway.store.errors import DatabaseTrouble, DeadlockOrSerialization
from gateway.store.runs import FenceVerdict
from gateway.upstream.send_gate import SendGate

_FENCE_PAUSE_SECONDS: Final = 0.05

_MISSES: Final = {
    FenceVerdict.LEASE_LOST: Reason.LEASE_LOST,
    FenceVerdict.CONFIGURATION_CHANGED: Reason.CONFIGURATION_CHANGED,
    FenceVerdict.APP_DISABLED: Reason.APP_DISABLED,
    FenceVerdict.RIGHTS_CHANGED: Reason.RIGHTS_CHANGED,
    FenceVerdict.CONVERSATION_DELETED: Reason.CONVERSATION_DELETED,
    FenceVerdict.BINDING_INVALIDATED: Reason.BINDING_INVALIDATED,
    FenceVerdict.THREAD_NOT_FRESH: Reason.THREAD_NOT_FRESH,
    FenceVerdict.INTERRUPT_CHANGED: Reason.INTERRUPT_CHANGED,
    FenceVerdict.INTERRUPT_EXPIRED: Reason.INTERRUPT_EXPIRED,
}


class SendWindow:
    """The time in which the POST may be sent: opened right before the run's first fence statement, once, on a monotonic clock.

    `gate` is what the transport opens right before the first byte; it opens only inside the window.
    """

    __slots__ = ("_clock", "_opened_at", "_seconds", "gate")

    def __init__(self, clock: Callable[[], float], seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._opened_at: float | None = None
        self.gate = SendGate(lambda: self.seconds_left > 0)

    def open(self) -> None:
        """Start the clock. It is never started again."""
        assert self._opened_at is None
        self._opened_at = self._clock()

    @property
    def seconds_left(self) -> float:
        """None of it before it was opened."""
        return 0.0 if self._opened_at is None else self._seconds - (self._clock() - self._opened_at)

    def seal(self) -> NotSentProof | None:
        """The proof that nothing was sent and nothing will be, or None where bytes may have left."""
        return NotSentProof.BEFORE_FENCE if self._opened_at is None else self.gate.seal()


async def fence(means: Means, live: LiveRun, prepared: Prepared, window: SendWindow) -> NotSent | None:
    """Commit the fence. None: it is committed, it is ours, and the window is open; else why the run is released."""
    run_id, token = live.admitted.run_id, live.admitted.attempt_token
    window.open()
    while (left := window.seconds_left) > 0:
        try:
            statement = store.fence(
                means.database,
                run_id=run_id,
                attempt_token=token,
                thread_id=prepared.thread_id,
                endpoint_fingerprint=prepared.application.endpoint_fingerprint,
                fingerprint=prepared.application.fingerprint,
                lease_seconds=means.lease_seconds,
                deadline_seconds=left,
            )
            row = await through(means.at, Step.FENCE, statement)
            verdict = FenceVerdict(row.verdict)
            if verdict is FenceVerdict.DISPATCHED:
                assert row.fenced_at is not None
                live.moved(Execution.DISPATCHED, row.fenced_at)
                return None
            if verdict in _MISSES:
                return before_fence(_MISSES[verdict])
        except (DatabaseTrouble, DeadlockOrSerialization):
            pass
        # An answer lost and a row not changed are alike: an earlier statement of our own may have run. Read before deciding.
        try:
            state = await store.reread(means.database, run_id, token, deadline_seconds=max(window.seconds_left, 0.0))
        except DatabaseTrouble:
            break
        if state is None or not state.ours:
            break
        if state.execution == Execution.DISPATCHED:
            live.moved(Execution.DISPATCHED, state.updated_at)
            return None
        if state.execution != Execution.RESERVED:
            break
        await asyncio.sleep(_FENCE_PAUSE_SECONDS)
    return NotSent(window.gate.seal() or NotSentProof.WINDOW_PASSED)
