"""One run, from its admission to its end, as a plain coroutine (design.md "From request to POST", "Which failure means what").

prepare -> fence -> the one POST -> stream -> settle. Each step gives either what the next one needs or the fact that ends the run. Nothing
is ever sent twice: the POST is behind the fence, and whatever breaks after it leaves the run unknown.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar
from uuid import uuid4

import structlog

from gateway.bindings.resolve import Resolve, UsableApplication
from gateway.domain.decide import Transition, decide
from gateway.domain.evidence import (
    BadResponse,
    Fact,
    NotSent,
    NotSentProof,
    Rejected,
    ResponseFault,
    RunErrored,
    RunFinished,
    StreamBroken,
    StreamFact,
)
from gateway.domain.fault_points import At, Step, pass_by, through
from gateway.domain.ids import RunId, ThreadId
from gateway.domain.limits import StreamBounds
from gateway.domain.raised_at import raised_at
from gateway.domain.reasons import Reason
from gateway.domain.snapshot import Snapshot
from gateway.domain.states import Attention, Execution, Persistence
from gateway.runs.live import LiveRun
from gateway.runs.read import run_view
from gateway.runs.stream_clock import StreamClock
from gateway.runs.submit import Own
from gateway.runs.until_committed import until_committed
from gateway.sse_parser.parser import Batch, StreamParser
from gateway.store import runs as store
from gateway.store.database import Database
from gateway.store.errors import DatabaseTrouble, DeadlockOrSerialization, StoreError
from gateway.store.runs import FenceVerdict, SettledRow, Settlement
from gateway.upstream.protocol import GenerationRequest, OpenStream, SendGate, Upstream

HOLD_SECONDS: Final = 0.25
"""How long visible text waits for the commit of the native run id (design.md "From request to POST" 7)."""
NATIVE_ID_SOON_SECONDS: Final = 0.05
"""native_run should follow RUN_STARTED at once; waiting this long for it makes one write of two."""
CONFIRM_SECONDS: Final = 10.0
"""How long after upstream finished the browser waits to hear that the answer is saved (interface.md "The stream")."""
_FENCE_PAUSE_SECONDS: Final = 0.05
_REFUSED_PAUSE_SECONDS: Final = 1.0
_REFUSED_LONGEST_SECONDS: Final = 30.0
"""A settlement that the database refuses, not for being away: something is wrong there, and the only copy of the answer is here."""
_GATHER_SECONDS_A_STREAM: Final = 0.001
"""How long a stream that shows text gathers what comes before it hands on more, for each stream that this process reads: handing on is what
streams cost. A few streams hand on at once, fifty or more every 50 ms, as often as pages redraw."""
_GATHER_SECONDS_MIN: Final = 0.002
"""The loop's timers are no finer."""
_GATHER_SECONDS_MAX: Final = 0.05
_Result = TypeVar("_Result")

_log: Final[structlog.stdlib.BoundLogger] = structlog.get_logger("gateway.runs.execute")

_MISSES: Final = {
    FenceVerdict.LEASE_LOST: Reason.LEASE_LOST,
    FenceVerdict.CONFIGURATION_CHANGED: Reason.CONFIGURATION_CHANGED,
    FenceVerdict.APP_DISABLED: Reason.APP_DISABLED,
    FenceVerdict.RIGHTS_CHANGED: Reason.RIGHTS_CHANGED,
    FenceVerdict.CONVERSATION_DELETED: Reason.CONVERSATION_DELETED,
    FenceVerdict.BINDING_INVALIDATED: Reason.BINDING_INVALIDATED,
    FenceVerdict.THREAD_NOT_FRESH: Reason.THREAD_NOT_FRESH,
}


@dataclass(frozen=True, slots=True)
class Execute:
    """What executing a run needs. `clock` is monotonic, in seconds. `reading`: the runs whose streams are read now."""

    database: Database
    resolve: Resolve
    upstream: Upstream
    bounds: StreamBounds
    lease_seconds: float
    send_window_seconds: float
    lookup_first_seconds: float
    checkpoint_seconds: float
    own: Own
    clock: Callable[[], float]
    at: At = pass_by
    reading: set[RunId] = field(default_factory=set)

    async def __call__(self, live: LiveRun) -> None:
        """Execute the run. Cancelling it (draining, when the budget is spent) settles it by what is then known."""
        await _Execution(self, live).run()


@dataclass(frozen=True, slots=True)
class _Prepared:
    """All from one frozen read of configuration and token. `thread_bound`: the conversation used this thread before."""

    application: UsableApplication
    thread_id: ThreadId
    thread_bound: bool


class _Execution:
    """The state of one execution."""

    def __init__(self, deps: Execute, live: LiveRun) -> None:
        self._deps = deps
        self._live = live
        self._run_id = live.admitted.run_id
        self._token = live.admitted.attempt_token
        self._thread_bound = False
        self._window_opened_at: float | None = None
        self._gate = SendGate(self._may_send)
        self._parser: StreamParser | None = None
        self._started = False
        self._over = False
        self._news = asyncio.Event()
        self._held: list[bytes] | None = None
        self._response: OpenStream | None = None
        self._changed = False
        self._revision = 0
        self._checkpoint_timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        fact: Fact
        try:
            fact = await self._until_end()
        except asyncio.CancelledError:
            fact = self._broken_off(Reason.DRAINED)
        except Exception as error:  # noqa: BLE001 - whatever it was, the run must end in a state, not in a lost task
            _log.error("run_broken", run_id=str(self._run_id), error=type(error).__name__, raised_at=raised_at(error))
            fact = self._broken_off(Reason.STREAM_ENDED)
        # A task of its own: a cancellation that comes now must not cut a commit short.
        await asyncio.shield(self._deps.own(self._end(fact), "settle"))

    async def _until_end(self) -> Fact:
        prepared = await self._prepare()
        if isinstance(prepared, NotSent):
            return prepared
        self._thread_bound = prepared.thread_bound
        missed = await self._fence(prepared)
        if missed is not None:
            return missed
        return await self._generate(prepared)

    def _broken_off(self, reason: Reason) -> Fact:
        """The fact of an execution that was given up: not sent where that is proven, else in doubt."""
        proof = NotSentProof.BEFORE_FENCE if self._window_opened_at is None else self._gate.seal()
        if proof is not None:
            return NotSent(proof, reason if reason is Reason.DRAINED else Reason.NOT_SENT)
        if self._parser is not None and isinstance(known := self._parser.end(), RunErrored | RunFinished):
            return known  # what broke, broke after the end was known
        return StreamBroken(reason, "given_up")

    # --- before the fence -------------------------------------------------------------------------------------------------------------

    async def _prepare(self) -> _Prepared | NotSent:
        admitted = self._live.admitted
        try:
            application = await self._deps.resolve.usable(admitted.application_id, admitted.conversation_id)
        except DatabaseTrouble:
            return _before_fence(Reason.NOT_SENT)
        if application is None or not application.enabled:
            return _before_fence(Reason.APP_DISABLED)
        if (application.config_version, application.token_version) != (admitted.config_version, admitted.token_version):
            return _before_fence(Reason.CONFIGURATION_CHANGED)
        if not application.binding_valid:
            return _before_fence(Reason.BINDING_INVALIDATED)
        upstream, endpoint, key = self._deps.upstream, application.endpoint, application.capabilities_key
        if await through(self._deps.at, Step.CAPABILITIES, upstream.check_capabilities(endpoint, key)) is None:
            return _before_fence(Reason.CAPABILITIES_FAILED)
        if application.thread_id is not None:
            return _Prepared(application, application.thread_id, thread_bound=True)
        thread_id = await through(self._deps.at, Step.THREAD, upstream.create_thread(endpoint, key))
        if thread_id is None:
            return _before_fence(Reason.THREAD_FAILED)
        return _Prepared(application, thread_id, thread_bound=False)

    # --- the fence --------------------------------------------------------------------------------------------------------------------

    async def _fence(self, prepared: _Prepared) -> NotSent | None:
        """None: the fence is committed, and it is ours. The clock of the send window starts here and never again."""
        self._window_opened_at = self._deps.clock()
        while (left := self._window_left()) > 0:
            try:
                fence = store.fence(
                    self._deps.database,
                    run_id=self._run_id,
                    attempt_token=self._token,
                    thread_id=prepared.thread_id,
                    endpoint_fingerprint=prepared.application.endpoint_fingerprint,
                    fingerprint=prepared.application.fingerprint,
                    lease_seconds=self._deps.lease_seconds,
                    deadline_seconds=left,
                )
                row = await through(self._deps.at, Step.FENCE, fence)
                verdict = FenceVerdict(row.verdict)
                if verdict is FenceVerdict.DISPATCHED:
                    assert row.fenced_at is not None
                    self._live.moved(Execution.DISPATCHED, row.fenced_at)
                    return None
                if verdict in _MISSES:
                    return _before_fence(_MISSES[verdict])
            except (DatabaseTrouble, DeadlockOrSerialization):
                pass
            # An answer lost and a row not changed are alike: an earlier statement of our own may have run. Read before deciding.
            try:
                state = await store.reread(self._deps.database, self._run_id, self._token, deadline_seconds=max(self._window_left(), 0.0))
            except DatabaseTrouble:
                break
            if state is None or not state.ours:
                break
            if state.execution == Execution.DISPATCHED:
                self._live.moved(Execution.DISPATCHED, state.updated_at)
                return None
            if state.execution != Execution.RESERVED:
                break
            await asyncio.sleep(_FENCE_PAUSE_SECONDS)
        return NotSent(self._gate.seal() or NotSentProof.WINDOW_PASSED)

    def _window_left(self) -> float:
        assert self._window_opened_at is not None
        return self._deps.send_window_seconds - (self._deps.clock() - self._window_opened_at)

    def _may_send(self) -> bool:
        return self._window_opened_at is not None and self._window_left() > 0

    # --- the one POST and its stream --------------------------------------------------------------------------------------------------

    async def _generate(self, prepared: _Prepared) -> Fact:
        admitted = self._live.admitted
        request = GenerationRequest(
            thread_id=prepared.thread_id,
            correlation_id=admitted.correlation_id,
            message_id=str(uuid4()),
            text=admitted.submission.text,
        )
        clock: StreamClock | None = None
        try:
            async with asyncio.timeout(None) as scope:
                clock = StreamClock(self._deps.bounds, scope)
                application = prepared.application
                post = self._deps.upstream.generate(application.endpoint, application.capabilities_key, request, self._gate)
                opened = await through(self._deps.at, Step.POST, post)
                if isinstance(opened, NotSent | Rejected | BadResponse):
                    return opened
                self._response = opened
                return await self._read(opened, clock, prepared.thread_id)
        except TimeoutError:
            if clock is None or clock.expired is None:
                raise
            return self._timed_out(clock.expired)
        finally:
            self._deps.reading.discard(self._run_id)
            if clock is not None:
                clock.stop()
            if self._response is not None:
                await self._response.aclose()

    def _timed_out(self, reason: Reason) -> Fact:
        if self._response is not None:
            return StreamBroken(reason, "no_event" if reason is Reason.IDLE_TIMEOUT else "deadline")
        proof = self._gate.seal()
        return NotSent(proof) if proof else BadResponse(ResponseFault.NO_RESPONSE)

    async def _read(self, response: OpenStream, clock: StreamClock, thread_id: ThreadId) -> StreamFact:
        admitted = self._live.admitted
        parser = self._parser = StreamParser(thread_id=thread_id, correlation_id=str(admitted.correlation_id), bounds=self._deps.bounds)
        shows_text = False
        self._deps.reading.add(self._run_id)
        async for piece in response:
            batch = parser.feed(piece)
            if batch.activity:
                clock.touch()
            if batch.started or batch.native_run_id is not None:
                self._note_start(batch)
            if batch.changes:
                self._changed = True
                self._publish(self._live.frames.changes(batch.changes))
            if batch.end is not None:
                # The first terminal event settles; the socket's end is not waited for.
                return batch.end
            if shows_text:
                await self._gather()
            shows_text = shows_text or bool(batch.changes)  # the first text goes out at once
        return parser.end()

    async def _gather(self) -> None:
        seconds = min(_GATHER_SECONDS_A_STREAM * len(self._deps.reading), _GATHER_SECONDS_MAX)
        if seconds > _GATHER_SECONDS_MIN:
            await asyncio.sleep(seconds)

    # --- native id first --------------------------------------------------------------------------------------------------------------

    def _note_start(self, batch: Batch) -> None:
        if batch.native_run_id is not None:
            self._held = []
            asyncio.get_running_loop().call_later(HOLD_SECONDS, self._let_go)
        if not self._started:
            self._started = True
            self._deps.own(self._record_start(), "record start")
            self._plan_checkpoint()
        self._news.set()

    async def _record_start(self) -> None:
        """Commit RUN_STARTED and the native run id; text that came with the id is let go when its commit returned."""
        parser = self._parser
        assert parser is not None
        if parser.native_run_id is None:
            self._news.clear()
            try:
                async with asyncio.timeout(NATIVE_ID_SOON_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                pass
        while not self._over:
            self._news.clear()
            native_run_id = parser.native_run_id
            first = self._deps.lookup_first_seconds
            write = partial(store.start, self._deps.database, self._run_id, self._token, native_run_id, lookup_first_seconds=first)
            moved = await self._committed(Step.START, write)
            if moved is not None and self._live.view.execution is Execution.DISPATCHED:
                self._live.moved(Execution.RUNNING, moved.updated_at)
            if native_run_id is not None:
                self._let_go()
                return
            await self._news.wait()

    def _plan_checkpoint(self) -> None:
        self._checkpoint_timer = asyncio.get_running_loop().call_later(self._deps.checkpoint_seconds, self._checkpoint_due)

    def _checkpoint_due(self) -> None:
        """While the stream lives, keep what was seen: at most every `checkpoint_seconds`, and only when something was."""
        if self._over:
            return
        if self._changed:
            self._changed = False
            self._deps.own(self._checkpoint(), "checkpoint").add_done_callback(lambda _: self._plan_checkpoint())
        else:
            self._plan_checkpoint()

    async def _checkpoint(self) -> None:
        assert self._parser is not None
        self._revision += 1
        with contextlib.suppress(DatabaseTrouble):  # the next one has all of it
            seen = self._parser.snapshot(complete=False)
            kept = store.checkpoint(self._deps.database, self._run_id, self._token, self._revision, seen)
            await through(self._deps.at, Step.CHECKPOINT, kept)

    def _publish(self, piece: bytes) -> None:
        if self._held is None:
            self._live.channel.publish(piece)
        else:
            self._held.append(piece)

    def _let_go(self) -> None:
        held, self._held = self._held, None
        if held:
            self._live.channel.publish(b"".join(held))

    # --- the end ----------------------------------------------------------------------------------------------------------------------

    async def _end(self, fact: Fact) -> None:
        self._over = True
        self._news.set()
        if self._checkpoint_timer is not None:
            self._checkpoint_timer.cancel()
        if isinstance(fact, NotSent):
            moved = await self._committed(
                Step.RELEASE, lambda: store.release(self._deps.database, self._run_id, self._token, fact.reason, fact.proof)
            )
            if moved is None:
                await self._tell_as_it_is()
            else:
                self._tell(Transition(Execution.RELEASED, fact.reason), Persistence.NONE, moved.updated_at, moved.updated_at)
        else:
            await self._settle(fact)
        _log.info(
            "run_ended",
            run_id=str(self._run_id),
            conversation_id=str(self._live.admitted.conversation_id),
            execution=self._live.view.execution.value,
            persistence=self._live.view.persistence.value,
            reason=self._live.view.reason.value if self._live.view.reason else None,
        )

    async def _settle(self, fact: Fact) -> None:
        transition = decide(Execution.DISPATCHED, fact, thread_bound=self._thread_bound)
        assert transition is not None, "each fact of the POST moves a dispatched run"
        if transition.to is Execution.UNKNOWN and (self._parser is None or self._parser.native_run_id is None):
            transition = replace(transition, attention=Attention.OPERATOR)  # nothing to look up by
        told = Reason.SAVE_FAILED if transition.to is Execution.SUCCEEDED else transition.reason or Reason.STREAM_ENDED
        not_confirmed = asyncio.get_running_loop().call_later(CONFIRM_SECONDS, self._live.not_confirmed, told)
        row = await self._settled(self._settlement(transition, fact))
        not_confirmed.cancel()
        if row is None:
            # The guard refused: our own earlier statement was committed, or somebody else brought the end first.
            await self._tell_as_it_is()
        else:
            settled = replace(transition, to=Execution(row.execution))
            self._tell(settled, Persistence(row.persistence), row.updated_at, row.finished_at)

    async def _settled(self, settlement: Settlement) -> SettledRow | None:
        """Write the end, whatever it takes: where the items cannot be written the snapshot is kept as pending, for whoever can save it."""
        pause = _REFUSED_PAUSE_SECONDS
        while True:
            for attempt in (settlement, _without_items(settlement)):
                write = partial(store.settle, self._deps.database, self._run_id, self._token, attempt)
                try:
                    return await self._committed(Step.SETTLE, write)
                except StoreError as error:
                    _log.error(
                        "settle_refused", run_id=str(self._run_id), persistence=attempt.persistence.value, error=type(error).__name__
                    )
            await asyncio.sleep(pause)
            pause = min(2 * pause, _REFUSED_LONGEST_SECONDS)

    async def _committed(self, step: Step, write: Callable[[], Coroutine[Any, Any, _Result]]) -> _Result:
        return await until_committed(lambda: through(self._deps.at, step, write()))

    def _settlement(self, transition: Transition, fact: Fact) -> Settlement:
        parser = self._parser
        succeeded = transition.to is Execution.SUCCEEDED
        snapshot = parser.snapshot(complete=succeeded) if parser else Snapshot((), complete=False)
        if transition.to is not Execution.UNKNOWN:
            persistence = Persistence.SAVED
        else:
            persistence = Persistence.PARTIAL if snapshot.items else Persistence.NONE
        return Settlement(
            conversation_id=self._live.admitted.conversation_id,
            transition=transition,
            persistence=persistence,
            snapshot=snapshot,
            started=self._started,
            native_run_id=parser.native_run_id if parser else None,
            lookup_first_seconds=self._deps.lookup_first_seconds,
            evidence_kind=_EVIDENCE_KINDS[type(fact)],
            evidence_detail={**_detail(fact), **self._seen()},
        )

    def _seen(self) -> dict[str, object]:
        """What an operator reads beside the fact: whether bytes may have left, what came back, how it ended. Numbers and words of ours."""
        response = self._response
        seen: dict[str, object] = {"bytes_may_have_left": self._gate.seal() is None}
        if response is not None:
            seen |= {"response_status": response.head.status, "body_end": response.end.value if response.end else None}
        if self._parser is not None:
            seen["counts"] = asdict(self._parser.counts)
        return seen

    def _tell(self, transition: Transition, persistence: Persistence, updated_at: datetime, finished_at: datetime | None) -> None:
        self._let_go()
        self._live.ended(transition.to, persistence, transition.reason, transition.attention, updated_at, finished_at)

    async def _tell_as_it_is(self) -> None:
        admitted = self._live.admitted
        row = await until_committed(lambda: store.view(self._deps.database, self._run_id, admitted.account_id, admitted.application_id))
        if row is None:  # the conversation was deleted meanwhile
            self._live.channel.close()
            return
        view = run_view(row)
        self._tell(Transition(view.execution, view.reason, attention=view.attention), view.persistence, view.updated_at, view.finished_at)


_EVIDENCE_KINDS: Final = {
    Rejected: "rejected",
    BadResponse: "bad_response",
    StreamBroken: "stream_broken",
    RunErrored: "run_error",
    RunFinished: "run_finished",
}


def _without_items(settlement: Settlement) -> Settlement:
    saved = settlement.persistence is Persistence.SAVED
    return replace(settlement, persistence=Persistence.PENDING if saved else Persistence.NONE)


def _before_fence(reason: Reason) -> NotSent:
    return NotSent(NotSentProof.BEFORE_FENCE, reason)


def _detail(fact: Fact) -> dict[str, object]:
    return {name: str(value) if isinstance(value, str) else value for name, value in asdict(fact).items()}
