"""Looking a run up: the only thing that is ever done about an unknown outcome, by whichever replica claims it (contract D7, D8).

Claim, then HTTP, then a guarded write. Nothing here can send a POST that executes: it gets a RunLookup and NativeReads, and an
import contract holds.
"""

from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID, uuid4

import structlog

from gateway.bindings.fingerprint import Profile
from gateway.bindings.resolve import Resolve, UsableApplication
from gateway.domain.decide import decide
from gateway.domain.evidence import LookedUp, LookupStatus, NativeOutcome, NativeRead
from gateway.domain.fault_points import At, Step, pass_by, through
from gateway.domain.ids import ApplicationId, ConversationId, CorrelationId, NativeRunId, RunId, ThreadId
from gateway.domain.native import Answered, native_verdict
from gateway.domain.reasons import Reason
from gateway.domain.states import Attention, Execution
from gateway.metrics import LOOKUPS, Metrics
from gateway.runs.read import POLL_SECONDS
from gateway.store import lookups as store
from gateway.store.database import Database
from gateway.store.lookups import ClaimedRow
from gateway.upstream.protocol import Endpoint, NativeReads, RunLookup

_TELLS_NOTHING: Final = frozenset({LookupStatus.UNCLEAR.value, NativeOutcome.UNCLEAR.value})
AT_ONCE: Final = 8
"""Look-ups that one replica has under way: as many as it has database connections to spare."""

_log: Final[structlog.stdlib.BoundLogger] = structlog.get_logger("gateway.runs.look_up")


@dataclass(frozen=True, slots=True)
class LookUp:
    """`budget`: look-ups of one run before an operator is asked; `first_seconds`: the first pause of the backoff."""

    database: Database
    resolve: Resolve
    lookup: RunLookup
    native_reads: NativeReads
    budget: int
    first_seconds: float
    at: At = pass_by
    metrics: Metrics = field(default_factory=Metrics)

    async def claim_due(self) -> "list[Claimed]":
        """Take what is due now, at most AT_ONCE."""
        return await self._claim(AT_ONCE, None)

    async def one(self, run_id: RunId) -> None:
        """Look this run up if it is due and nobody else is at it."""
        for claimed in await self._claim(1, run_id):
            await self.ask(claimed)

    async def ask(self, claimed: "Claimed") -> None:
        """Ask upstream, and write what the answer proves."""
        row, claim = claimed.row, claimed.claim
        application = await self.resolve.usable(ApplicationId(row.application_id), ConversationId(row.conversation_id))
        if application is None:
            # This replica cannot ask: no token, or a key that is not in its ring. Another may; the backoff goes on.
            note = store.note(self.database, row.run_id, claim, status=LookupStatus.UNCLEAR.value, native_status=None)
            await through(self.at, Step.LOOKUP_WRITE, note)
            _log.warning("lookup_impossible", run_id=str(row.run_id))
            return
        why = _unaskable(application, row)
        if why is not None:
            await through(self.at, Step.LOOKUP_WRITE, store.refuse(self.database, row.run_id, claim, why=why))
            _log.warning("lookup_refused", run_id=str(row.run_id), why=why)
            return
        fact, status = await self._answer(application, row, claim)
        self.metrics.count(LOOKUPS, status)
        transition = decide(Execution.UNKNOWN, fact)
        _log.info("looked_up", run_id=str(row.run_id), status=status)
        if transition is None:
            await through(self.at, Step.LOOKUP_WRITE, self._unsettled(row, claim, fact, status))
            return
        if transition.to is Execution.SUCCEEDED:
            # It ran, and its text is not all here: the owner may accept what there is and go on (contract D9).
            transition = replace(transition, attention=Attention.USER)
        question = fact.question if isinstance(fact, NativeRead) else None
        settle = store.settle(self.database, row, claim, transition, status=status, question=question)
        await through(self.at, Step.LOOKUP_WRITE, settle)

    async def _answer(self, application: UsableApplication, row: ClaimedRow, claim: UUID) -> tuple[LookedUp | NativeRead, str]:
        """What upstream says, and the word for it."""
        if application.profile is Profile.BRIDGE:
            assert row.native_run_id is not None, "without one there is nothing to look up by"
            asked = self.lookup.look_up(application.endpoint, ThreadId(row.thread_id), NativeRunId(row.native_run_id))
            answer = await through(self.at, Step.LOOKUP, asked)
            return answer, answer.status.value
        native_run_id, read = await through(self.at, Step.LOOKUP, self._native(application.endpoint, row))
        if native_run_id is not None and row.native_run_id is None:
            await store.found(self.database, row.run_id, claim, native_run_id)
        return read, read.outcome.value

    async def _native(self, endpoint: Endpoint, row: ClaimedRow) -> tuple[NativeRunId | None, NativeRead]:
        """Run, else the list of runs by our mark or as the one that is new; then state. Never another POST."""
        thread_id = ThreadId(row.thread_id)
        native_run_id = NativeRunId(row.native_run_id) if row.native_run_id is not None else None
        if native_run_id is None:
            known = frozenset(NativeRunId(one) for one in row.earlier_native_run_ids)
            native_run_id = await self.native_reads.find_run(endpoint, thread_id, CorrelationId(row.correlation_id), known)
        if native_run_id is None:
            return None, NativeRead(NativeOutcome.UNCLEAR)
        answered = None
        if row.answered_native_id is not None and row.answered_digest is not None:
            answered = Answered(row.answered_native_id, row.answered_digest, frozenset(row.earlier_native_run_ids))
        status = await self.native_reads.run_status(endpoint, thread_id, native_run_id)
        state = await self.native_reads.state(endpoint, thread_id)
        return native_run_id, native_verdict(status, state, native_run_id, answered)

    async def _unsettled(self, row: ClaimedRow, claim: UUID, fact: LookedUp | NativeRead, word: str) -> None:
        if isinstance(fact, NativeRead) and fact.outcome is NativeOutcome.NOT_APPLIED:
            reason = Reason.DECISION_NOT_APPLIED
            await store.refuse(self.database, row.run_id, claim, why=reason.value, reason=reason)
        else:
            native_status = None if word in _TELLS_NOTHING else word
            await store.note(self.database, row.run_id, claim, status=word, native_status=native_status)

    async def exhaust(self) -> None:
        """Ask an operator about all that look-ups could not settle."""
        await through(self.at, Step.EXHAUST, store.exhaust(self.database, budget=self.budget))

    async def grant(self, run_id: RunId) -> bool:
        """One look-up more, because a person asked; False when there was one a moment ago."""
        return await store.grant(self.database, run_id, budget=self.budget, pause_seconds=POLL_SECONDS)

    async def _claim(self, limit: int, run_id: RunId | None) -> "list[Claimed]":
        claim = uuid4()
        due = store.claim(self.database, claim, budget=self.budget, first_seconds=self.first_seconds, limit=limit, run_id=run_id)
        return [Claimed(row, claim) for row in await through(self.at, Step.LOOKUP_CLAIM, due)]


def _unaskable(application: UsableApplication, row: ClaimedRow) -> str | None:
    """Why no look-up can say what became of the run, whoever asked for one; None when one can."""
    if application.fingerprint != row.fingerprint:
        return "fingerprint_changed"
    return "two_native_runs" if row.two_native_runs else None


@dataclass(frozen=True, slots=True)
class Claimed:
    """A run that this process, and no other, looks up now."""

    row: ClaimedRow
    claim: UUID
