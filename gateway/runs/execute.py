"""One run, from its admission to its end, as a plain coroutine (design.md "From request to POST", "Which failure means what").

prepare -> fence -> the one POST -> reading -> settle. Each step gives either what the next one needs or the fact that ends the run. Nothing
is ever sent twice: the POST is behind the fence, and whatever breaks after it leaves the run unknown.
"""

import asyncio
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

import structlog

from gateway.domain.evidence import (
    BadResponse,
    Fact,
    NativeOutcome,
    NativeRead,
    NotSent,
    Outcome,
    PostFact,
    Rejected,
    ResponseFault,
    RunErrored,
    RunFinished,
    StreamBroken,
)
from gateway.domain.fault_points import Step, through
from gateway.domain.raised_at import raised_at
from gateway.domain.reasons import Reason
from gateway.domain.submission import Submission
from gateway.runs.fence import SendWindow, fence
from gateway.runs.live import LiveRun
from gateway.runs.means import Means
from gateway.runs.prepare import Prepared, prepare
from gateway.runs.reading import Reading
from gateway.runs.settle import Ended, Settle
from gateway.runs.verdict import verdict
from gateway.sse_parser.native import NativeParser
from gateway.sse_parser.parser import StreamParser
from gateway.upstream.protocol import GenerationRequest, NativeRequest, OpenRun, OpenStream
from gateway.upstream.run_input import ResumeCommand, UserInput
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
        self._complete = False
        self._marked = False

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
        ended = Ended(
            fact,
            self._reading,
            self._response,
            self._thread_bound,
            bytes_may_have_left=self._window.seal() is None,
            complete=self._complete or fact == RunFinished(Outcome.SUCCESS),
            marked=self._marked,
            posted_at=self._posted_at,
        )
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
        fact = await self._generate(prepared)
        if isinstance(fact, StreamBroken) and self._reading is not None and isinstance(self._reading.parser, NativeParser):
            return await self._native_verdict(prepared, self._reading, self._reading.parser, fact)
        return fact

    async def _native_verdict(self, prepared: Prepared, reading: Reading, parser: NativeParser, broken: StreamBroken) -> Fact:
        parser.end()
        found = await verdict(self._means, prepared, parser, broken, self._response.end if self._response else None)
        if isinstance(found.fact, NativeRead) and found.fact.outcome in (NativeOutcome.COMPLETED, NativeOutcome.WAITING):
            reading.close_open(parser)
        self._complete = found.complete
        return found.fact

    def _broken_off(self, reason: Reason) -> Fact:
        """The fact of an execution that was given up: not sent where that is proven, else in doubt."""
        proof = self._window.seal()
        if proof is not None:
            return NotSent(proof, reason if reason is Reason.DRAINED else Reason.NOT_SENT)
        if self._reading is not None and isinstance(known := self._reading.parser.end(), RunErrored | RunFinished):
            return known  # what broke, broke after the end was known
        return StreamBroken(reason, "given_up")

    async def _generate(self, prepared: Prepared) -> Fact:
        run_id = self._live.admitted.run_id
        clock: StreamClock | None = None
        try:
            async with asyncio.timeout(None) as scope:
                clock = StreamClock(self._means.bounds, scope)
                self._posted_at = self._means.clock()
                opened = await through(self._means.at, Step.POST, self._native(prepared) if prepared.native else self._bridge(prepared))
                if isinstance(opened, NotSent | Rejected | BadResponse):
                    return opened
                self._response, self._reading = opened
                self._means.reading.add(run_id)
                return await self._reading.to_end(self._response, clock)
        except TimeoutError:
            if clock is None or clock.expired is None:
                raise
            return self._timed_out(clock.expired)
        finally:
            self._means.reading.discard(run_id)
            if clock is not None:
                clock.stop()
            if self._response is not None:
                await self._response.aclose()

    async def _bridge(self, prepared: Prepared) -> tuple[OpenStream, Reading] | PostFact:
        admitted, application = self._live.admitted, prepared.application
        assert isinstance(admitted.submission, Submission), "only the native profile has decisions"
        correlation_id, text = admitted.correlation_id, admitted.submission.text
        request = GenerationRequest(prepared.thread_id, correlation_id, message_id=str(uuid4()), text=text)
        opened = await self._means.upstream.generate(application.endpoint, application.capabilities_key, request, self._window.gate)
        if not isinstance(opened, OpenStream):
            return opened
        parser = StreamParser(thread_id=prepared.thread_id, correlation_id=str(correlation_id), bounds=self._means.bounds)
        return opened, Reading(self._means, self._live, parser)

    async def _native(self, prepared: Prepared) -> tuple[OpenStream, Reading] | PostFact:
        admitted, application = self._live.admitted, prepared.application
        content: UserInput | ResumeCommand
        if isinstance(admitted.submission, Submission):
            content = UserInput(str(uuid4()), admitted.submission.text)
        else:
            assert prepared.answered is not None
            content = ResumeCommand(prepared.answered.native_id, admitted.submission.answer)
        request = NativeRequest(prepared.thread_id, application.endpoint.assistant_id, admitted.correlation_id, content)
        self._marked = True
        opened = await self._means.native.run(application.endpoint, application.capabilities_key, request, self._window.gate)
        if not isinstance(opened, OpenRun):
            return opened
        reading = Reading(self._means, self._live, NativeParser(native_run_id=opened.native_run_id, bounds=self._means.bounds))
        reading.native_run(opened.native_run_id)
        return opened.stream, reading

    def _timed_out(self, reason: Reason) -> Fact:
        if self._response is not None:
            return StreamBroken(reason, "no_event" if reason is Reason.IDLE_TIMEOUT else "deadline")
        proof = self._window.gate.seal()
        return NotSent(proof) if proof else BadResponse(ResponseFault.NO_RESPONSE)
