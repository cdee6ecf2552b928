"""Looking a run up: the only thing that is ever done about an unknown outcome, by whichever replica claims it (contract D7, D8).

Claim, then HTTP, then a guarded write. Nothing here can send a POST that executes: it gets a RunLookup, and an import contract holds.
"""

from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID, uuid4

import structlog

from gateway.bindings.resolve import Resolve
from gateway.domain.decide import decide
from gateway.domain.evidence import LookedUp, LookupStatus
from gateway.domain.fault_points import At, Step, pass_by, through
from gateway.domain.ids import ApplicationId, ConversationId, NativeRunId, RunId, ThreadId
from gateway.domain.states import Attention, Execution
from gateway.metrics import LOOKUPS, Metrics
from gateway.runs.read import POLL_SECONDS
from gateway.store import lookups as store
from gateway.store.database import Database
from gateway.store.lookups import ClaimedRow
from gateway.upstream.protocol import RunLookup

AT_ONCE: Final = 8
"""Look-ups that one replica has under way: as many as it has database connections to spare."""

_log: Final[structlog.stdlib.BoundLogger] = structlog.get_logger("gateway.runs.look_up")


@dataclass(frozen=True, slots=True)
class LookUp:
    """`budget`: look-ups of one run before an operator is asked; `first_seconds`: the first pause of the backoff."""

    database: Database
    resolve: Resolve
    lookup: RunLookup
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
        if application.fingerprint != row.fingerprint:
            why = "fingerprint_changed"
            await through(self.at, Step.LOOKUP_WRITE, store.refuse(self.database, row.run_id, claim, why=why))
            _log.warning("lookup_refused", run_id=str(row.run_id), why=why)
            return
        asked = self.lookup.look_up(application.endpoint, ThreadId(row.thread_id), NativeRunId(row.native_run_id))
        answer = await through(self.at, Step.LOOKUP, asked)
        self.metrics.count(LOOKUPS, answer.status.value)
        transition = decide(Execution.UNKNOWN, answer)
        _log.info("looked_up", run_id=str(row.run_id), status=answer.status.value)
        if transition is None:
            note = store.note(self.database, row.run_id, claim, status=answer.status.value, native_status=_known(answer))
            await through(self.at, Step.LOOKUP_WRITE, note)
            return
        if transition.to is Execution.SUCCEEDED:
            # It ran, and its text is not all here: the owner may accept what there is and go on (contract D9).
            transition = replace(transition, attention=Attention.USER)
        settle = store.settle(self.database, row.run_id, claim, transition, status=answer.status.value)
        await through(self.at, Step.LOOKUP_WRITE, settle)

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


@dataclass(frozen=True, slots=True)
class Claimed:
    """A run that this process, and no other, looks up now."""

    row: ClaimedRow
    claim: UUID


def _known(answer: LookedUp) -> str | None:
    return None if answer.status is LookupStatus.UNCLEAR else answer.status.value
