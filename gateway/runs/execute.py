"""One run, from its admission to its end, as a plain coroutine (design.md "From request to POST", "Which failure means what").

prepare -> fence -> the one POST -> reading -> settle. Each step gives either what the next one needs or the fact that ends the run. Nothing
is ever sent twice: the POST is behind the fence, and whatever breaks after it leaves the run unknown.
"""

import asyncio
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

import structlog

from gateway.domain.evidence import BadResponse, Fact, NotSent, Rejected, ResponseFault, RunErrored, RunFinished, StreamBroken
from gateway.domain.fault_points import Step, through
from gateway.domain.raised_at import raised_at
from gateway.domain.reasons import Reason
from gateway.runs.fence import SendWindow, fence
from gateway.runs.live import LiveRun
from gateway.runs.means import Means
from gateway.runs.prepare import Prepared, prepare
from gateway.runs.reading import Reading
from gateway.runs.settle import Ended, Settle
from gateway.upstream.protocol import GenerationRequest, OpenStream
from gateway.upstream.stream_clock import StreamClock

_log: Final[structlog.stdlib.BoundLogger] = structlog.get_logger("gateway.runs.execute")


@dataclass(frozen=True, slots=True)
class Execute:
    """Executes live runs."""

    means: Means

    async def __call__(self, live: LiveRun) -> None:
        """Execute the run. Cancelling it (draining, when the budget is spent) settles it by what is then known."""
        await _Execution(self.means, live).run()


class _Execution:
    """The state of one execution."""

    def __init__(self, means: Means, live: LiveRun) -> None:
        self._means = means
        self._live = live
        self._window = SendWindow(means.clock, means.send_window_seconds)
        self._thread_bound = False
        self._response: OpenStream | None = None
        self._reading: Reading | None = None
        self._posted_at: float | None = None

    async def run(self) -> None:
        fact: Fact
        try:
            fact = await self._until_end()
        except asyncio.CancelledError:
            fact = self._broken_off(Reason.DRAINED)
        except Exception as error:  # noqa: BLE001 - whatever it was, the run must end in a state, not in a lost task
            run_id = str(self._live.admitted.run_id)
            _log.error("run_broken", run_id=run_id, error=type(error).__name__, raised_at=raised_at(error))
            fact = self._broken_off(Reason.STREAM_ENDED)
        may_have_left = self._window.seal() is None
        ended = Ended(fact, self._reading, self._response, self._thread_bound, bytes_may_have_left=may_have_left, posted_at=self._posted_at)
        # A task of its own: a cancellation that comes now must not cut a commit short.
        await asyncio.shield(self._means.own(Settle(self._means, self._live, ended)(), "settle"))

    async def _until_end(self) -> Fact:
        prepared = await prepare(self._means, self._live.admitted)
        if isinstance(prepared, NotSent):
            return prepared
        self._thread_bound = prepared.thread_bound
        missed = await fence(self._means, self._live, prepared, self._window)
        if missed is not None:
            return missed
        return await self._generate(prepared)

    def _broken_off(self, reason: Reason) -> Fact:
        """The fact of an execution that was given up: not sent where that is proven, else in doubt."""
        proof = self._window.seal()
        if proof is not None:
            return NotSent(proof, reason if reason is Reason.DRAINED else Reason.NOT_SENT)
        if self._reading is not None and isinstance(known := self._reading.parser.end(), RunErrored | RunFinished):
            return known  # what broke, broke after the end was known
        return StreamBroken(reason, "given_up")

    async def _generate(self, prepared: Prepared) -> Fact:
        admitted, application = self._live.admitted, prepared.application
        request = GenerationRequest(
            thread_id=prepared.thread_id,
            correlation_id=admitted.correlation_id,
            message_id=str(uuid4()),
            text=admitted.submission.text,
        )
        clock: StreamClock | None = None
        try:
            async with asyncio.timeout(None) as scope:
                clock = StreamClock(self._means.bounds, scope)
                self._posted_at = self._means.clock()
                post = self._means.upstream.generate(application.endpoint, application.capabilities_key, request, self._window.gate)
                opened = await through(self._means.at, Step.POST, post)
                if isinstance(opened, NotSent | Rejected | BadResponse):
                    return opened
                self._response = opened
                self._reading = Reading(self._means, self._live, prepared.thread_id)
                self._means.reading.add(admitted.run_id)
                return await self._reading.to_end(opened, clock)
        except TimeoutError:
            if clock is None or clock.expired is None:
                raise
            return self._timed_out(clock.expired)
        finally:
            self._means.reading.discard(admitted.run_id)
            if clock is not None:
                clock.stop()
            if self._response is not None:
                await self._response.aclose()

    def _timed_out(self, reason: Reason) -> Fact:
        if self._response is not None:
            return StreamBroken(reason, "no_event" if reason is Reason.IDLE_TIMEOUT else "deadline")
        proof = self._window.gate.seal()
        return NotSent(proof) if proof else BadResponse(ResponseFault.NO_RESPONSE)
