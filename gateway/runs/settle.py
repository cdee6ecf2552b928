"""The end of an execution: the fact that ended it becomes a transition, is committed with its evidence and snapshot, and is told."""

import asyncio
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Final

import structlog

from gateway.domain.decide import Transition, decide
from gateway.domain.evidence import BadResponse, EvidenceKind, Fact, NativeRead, NotSent, Rejected, RunErrored, RunFinished, StreamBroken
from gateway.domain.fault_points import Step
from gateway.domain.ids import NativeRunId
from gateway.domain.reasons import Reason
from gateway.domain.snapshot import Snapshot
from gateway.domain.states import Attention, Execution, Persistence
from gateway.metrics import FIRST_TEXT, RUNS_ENDED, STREAM_BYTES, STREAM_EVENTS, STREAM_FAULTS, STREAM_SECONDS
from gateway.runs.live import LiveRun
from gateway.runs.means import Means
from gateway.runs.read import Interrupt, asked, run_view
from gateway.runs.reading import Reading
from gateway.runs.until_committed import until_committed
from gateway.sse_parser.faults import Detail, broken
from gateway.sse_parser.parser import StreamParser
from gateway.store import runs as store
from gateway.store.errors import StoreError
from gateway.store.runs import SettledRow, Settlement
from gateway.upstream.protocol import OpenStream

CONFIRM_SECONDS: Final = 10.0
"""How long after upstream finished the browser waits to hear that the answer is saved (interface.md "The stream")."""
_REFUSED_PAUSE_SECONDS: Final = 1.0
_REFUSED_LONGEST_SECONDS: Final = 30.0
"""A settlement that the database refuses, not for being away: something is wrong there, and the only copy of the answer is here."""

_EVIDENCE_KINDS: Final = {
    Rejected: EvidenceKind.REJECTED,
    BadResponse: EvidenceKind.BAD_RESPONSE,
    StreamBroken: EvidenceKind.STREAM_BROKEN,
    RunErrored: EvidenceKind.RUN_ERROR,
    RunFinished: EvidenceKind.RUN_FINISHED,
    NativeRead: EvidenceKind.NATIVE_VERDICT,
}

_log: Final[structlog.stdlib.BoundLogger] = structlog.get_logger("gateway.runs.settle")


@dataclass(frozen=True, slots=True)
class Ended:
    """How an execution ended and what is known of it. `bytes_may_have_left`: False is proven.

    `complete`: nothing is missing in what was shown; `marked`: the run can be looked up by the mark of its dispatch (native profile).
    `posted_at`: on the clock of the means.
    """

    fact: Fact
    reading: Reading | None
    response: OpenStream | None
    thread_bound: bool
    bytes_may_have_left: bool
    complete: bool
    marked: bool
    posted_at: float | None = None

    @property
    def native_run_id(self) -> NativeRunId | None:
        """Upstream's own id of the run, where it was seen."""
        return self.reading.parser.native_run_id if self.reading else None

    def detail(self) -> dict[str, object]:
        """What an operator reads of it: the fact, whether bytes may have left, what came back, how it ended. Numbers and words of ours."""
        if isinstance(self.fact, NativeRead):
            told: dict[str, Any] = {"outcome": self.fact.outcome.value}  # of the question nothing: evidence has no texts and no native ids
        else:
            told = asdict(self.fact)
        detail: dict[str, object] = {name: str(value) if isinstance(value, str) else value for name, value in told.items()}
        detail["bytes_may_have_left"] = self.bytes_may_have_left
        if self.response is not None:
            end = self.response.end
            detail |= {"response_status": self.response.head.status, "body_end": end.value if end else None}
        if self.reading is not None:
            parser = self.reading.parser
            detail["counts"] = asdict(parser.counts)
            if isinstance(parser, StreamParser) and parser.usage:
                detail["usage"] = dict(parser.usage)
        return detail


class Settle:
    """Writes the end of one live run, whatever it takes, and tells the watchers what was committed. Must not be cancelled."""

    def __init__(self, means: Means, live: LiveRun, ended: Ended) -> None:
        self._means = means
        self._live = live
        self._ended = ended
        self._run_id = live.admitted.run_id
        self._token = live.admitted.attempt_token

    async def __call__(self) -> None:
        """Returns when the end is committed, by us or by somebody else."""
        if self._ended.reading is not None:
            self._ended.reading.stop()
        if isinstance(self._ended.fact, NotSent):
            await self._release(self._ended.fact)
        else:
            await self._settle(self._ended.fact)
        view = self._live.view
        self._count()
        _log.info(
            "run_ended",
            run_id=str(self._run_id),
            conversation_id=str(view.conversation_id),
            execution=view.execution.value,
            persistence=view.persistence.value,
            reason=view.reason.value if view.reason else None,
        )

    def _count(self) -> None:
        metrics, view, ended = self._means.metrics, self._live.view, self._ended
        metrics.count(RUNS_ENDED, view.execution.value, view.reason.value if view.reason else "none")
        if isinstance(ended.fact, StreamBroken):
            metrics.count(STREAM_FAULTS, ended.fact.detail)
        if ended.reading is None or ended.posted_at is None:
            return
        counts = ended.reading.parser.counts
        metrics.count(STREAM_BYTES, by=counts.stream_bytes)
        metrics.count(STREAM_EVENTS, by=counts.events)
        metrics.observe(STREAM_SECONDS, self._means.clock() - ended.posted_at)
        if ended.reading.first_text_at is not None:
            metrics.observe(FIRST_TEXT, ended.reading.first_text_at - ended.posted_at)

    async def _release(self, fact: NotSent) -> None:
        write = partial(store.release, self._means.database, self._run_id, self._token, fact.reason, fact.proof)
        moved = await self._means.committed(Step.RELEASE, write)
        if moved is None:
            await self._tell_as_it_is()
        else:
            self._tell(Transition(Execution.RELEASED, fact.reason), Persistence.NONE, moved.updated_at, moved.updated_at)

    async def _settle(self, fact: Fact) -> None:
        transition = decide(Execution.DISPATCHED, fact, thread_bound=self._ended.thread_bound)
        assert transition is not None, "each fact of the POST moves a dispatched run"
        if transition.to is Execution.UNKNOWN and (_two_runs(fact) or (self._ended.native_run_id is None and not self._ended.marked)):
            transition = replace(transition, attention=Attention.OPERATOR)  # nothing to look up by
        if transition.to is Execution.SUCCEEDED and not self._ended.complete:
            transition = replace(transition, attention=Attention.USER)  # its owner may accept what there is and go on (contract D9)
        told = Reason.SAVE_FAILED if transition.to is Execution.SUCCEEDED else transition.reason or Reason.STREAM_ENDED
        not_confirmed = asyncio.get_running_loop().call_later(CONFIRM_SECONDS, self._live.not_confirmed, told)
        row = await self._settled(self._settlement(transition))
        not_confirmed.cancel()
        if row is None or row.execution != transition.to:
            # The guard refused, or took only the text: our own earlier statement was committed, or somebody else brought the end first.
            await self._tell_as_it_is()
        else:
            question = self._ended.fact.question if isinstance(self._ended.fact, NativeRead) else None
            interrupt = None if question is None else asked(self._run_id, question)
            self._tell(transition, Persistence(row.persistence), row.updated_at, row.finished_at, interrupt)

    async def _settled(self, settlement: Settlement) -> SettledRow | None:
        """Write the end: where the items cannot be written the snapshot is kept as pending, for whoever can save it."""
        pause = _REFUSED_PAUSE_SECONDS
        while True:
            for attempt in (settlement, _without_items(settlement)):
                write = partial(store.settle, self._means.database, self._run_id, self._token, attempt)
                try:
                    return await self._means.committed(Step.SETTLE, write)
                except StoreError as error:
                    _log.error(
                        "settle_refused", run_id=str(self._run_id), persistence=attempt.persistence.value, error=type(error).__name__
                    )
            await asyncio.sleep(pause)
            pause = min(2 * pause, _REFUSED_LONGEST_SECONDS)

    def _settlement(self, transition: Transition) -> Settlement:
        reading = self._ended.reading
        complete = self._ended.complete and transition.to is not Execution.FAILED
        snapshot = reading.parser.snapshot(complete=complete) if reading else Snapshot((), complete=False)
        if transition.to is Execution.SUCCEEDED and not complete:
            persistence = Persistence.INCOMPLETE
        elif transition.to is not Execution.UNKNOWN:
            persistence = Persistence.SAVED
        else:
            persistence = Persistence.PARTIAL if snapshot.items else Persistence.NONE
        return Settlement(
            conversation_id=self._live.admitted.conversation_id,
            transition=transition,
            persistence=persistence,
            snapshot=snapshot,
            started=reading is not None and reading.started,
            native_run_id=self._ended.native_run_id,
            lookup_first_seconds=self._means.lookup_first_seconds,
            evidence_kind=_EVIDENCE_KINDS[type(self._ended.fact)].value,
            evidence_detail=self._ended.detail(),
            question=self._ended.fact.question if isinstance(self._ended.fact, NativeRead) else None,
        )

    def _tell(
        self,
        transition: Transition,
        persistence: Persistence,
        updated_at: datetime,
        finished_at: datetime | None,
        interrupt: Interrupt | None = None,
    ) -> None:
        if self._ended.reading is not None:
            self._ended.reading.let_go()
        self._live.ended(transition.to, persistence, transition.reason, transition.attention, updated_at, finished_at, interrupt)

    async def _tell_as_it_is(self) -> None:
        admitted = self._live.admitted
        read = partial(store.view, self._means.database, self._run_id, admitted.account_id, admitted.application_id)
        row = await until_committed(read)
        if row is None:  # the conversation was deleted meanwhile
            self._live.channel.close()
            return
        if self._ended.reading is not None:
            self._ended.reading.let_go()
        self._live.ended_as(run_view(row))


def _two_runs(fact: Fact) -> bool:
    """The stream named another run than the response's head: there is no one run to look up."""
    return fact == broken(Detail.NATIVE_CHANGED)


def _without_items(settlement: Settlement) -> Settlement:
    saved = settlement.persistence is Persistence.SAVED
    return replace(settlement, persistence=Persistence.PENDING if saved else Persistence.NONE)
