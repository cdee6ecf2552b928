"""What operators do about one run: resolve it, look it up now, save it now (contract F1, D9). Each act and its audit entry are one commit.

Which resolution is allowed is `domain.resolution`; what operators see is `operator_reads`. Nothing here can send a POST that executes.
"""

import asyncio
import math
from dataclasses import dataclass
from typing import Final

import structlog

from gateway.domain.audit import Act, Actor, Entry, TargetKind
from gateway.domain.ids import RunId
from gateway.domain.limits import MAX_REASON_CHARACTERS
from gateway.domain.problems import Code, Refused
from gateway.domain.resolution import Obstacle, ResolutionFacts, ResolutionOutcome, resolution
from gateway.domain.states import Execution, Persistence
from gateway.domain.text import is_storable
from gateway.domain.times import rfc3339
from gateway.runs.look_up import LookUp
from gateway.runs.operator_reads import OperatorReads, OperatorRun
from gateway.runs.save import Save
from gateway.runs.submit import Own
from gateway.store import audit as trail
from gateway.store import lookups, saves
from gateway.store import operators as store
from gateway.store.database import Database
from gateway.store.errors import AnswerLost, DeadlockOrSerialization
from gateway.store.operators import LockedRow

_ATTEMPTS: Final = 3
"""As for an admission: a lost answer is read again at once; a database that is away is not waited for."""

_log: Final[structlog.stdlib.BoundLogger] = structlog.get_logger("gateway.runs.resolve")


@dataclass(frozen=True, slots=True)
class OperatorActs:
    """Acts go on in tasks of the replica: an operator's page that is closed cancels no commit. All raise Refused(not_found)."""

    database: Database
    reads: OperatorReads
    look_up: LookUp
    save: Save
    own: Own

    async def resolve(self, actor: Actor, run_id: RunId, outcome: ResolutionOutcome, reason: str) -> OperatorRun:
        """Record what became of a run, once; the same again is the same result, whoever says it. Where complete text came later and cannot
        be saved, the same again gives that up too.

        `reason` has 1 to MAX_REASON_CHARACTERS characters, trimmed, and the run's owner reads it. Raises Refused: invalid_text,
        text_too_long, already_resolved, resolution_not_allowed (`why` says which rule, `allowed_from` where time alone is in the way).
        """
        checked = checked_reason(reason)
        await asyncio.shield(self.own(self._resolve(actor, run_id, outcome, checked), "resolve"))
        return await self.reads.run(run_id)

    async def look_up_now(self, actor: Actor, run_id: RunId) -> OperatorRun:
        """One look-up more than the budget, now, and the run after it. What cannot be looked up is given as it is, and nothing recorded."""
        if (await self.reads.run(run_id)).can_look_up:
            await asyncio.shield(self.own(self._look_up(actor, run_id), "look-up"))
        return await self.reads.run(run_id)

    async def retry_save(self, actor: Actor, run_id: RunId) -> OperatorRun:
        """Save a pending run now, from its stored bytes, and the run after it. What is not pending is given as it is."""
        if (await self.reads.run(run_id)).can_retry_save:
            await asyncio.shield(self.own(self._retry_save(actor, run_id), "save"))
        return await self.reads.run(run_id)

    async def _resolve(self, actor: Actor, run_id: RunId, outcome: ResolutionOutcome, reason: str) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return await self._resolve_once(actor, run_id, outcome, reason)
            except (AnswerLost, DeadlockOrSerialization):
                # Committed or not: the row's lock waits for the lost transaction, and then says which.
                if attempt == _ATTEMPTS:
                    raise
        return None

    async def _resolve_once(self, actor: Actor, run_id: RunId, outcome: ResolutionOutcome, reason: str) -> None:
        gate_seconds = self.reads.gate_seconds
        async with self.database.transaction() as tx:
            row = await store.lock(tx, run_id, gate_seconds=gate_seconds)
            if row is None:
                raise Refused(Code.NOT_FOUND, extra={"field": "run"})
            same = (row.resolution_outcome, row.resolution_reason) == (outcome.value, reason)
            decided = Obstacle.RESOLVED if row.resolution_outcome is not None and not same else resolution(_facts(row), outcome)
            if isinstance(decided, Obstacle):
                if same:
                    return
                raise _refusal(decided, row, run_id)
            if same:
                moved = await store.give_up(tx, run_id, outcome=outcome, reason=reason)
            else:
                moved = await store.resolve(
                    tx, run_id, row, decided, outcome=outcome, reason=reason, actor=actor, gate_seconds=gate_seconds
                )
            assert moved, "the statement's guard is that of domain.resolution, and the row is locked"
            detail = {
                "outcome": outcome.value,
                "was_execution": row.execution,
                "was_persistence": row.persistence,
                "execution": decided.execution.value,
                "persistence": decided.persistence.value,
                "refunded": decided.refunds,
            }
            await trail.record(tx, Entry(actor, Act.RUN_RESOLVE, TargetKind.RUN, str(run_id), reason, detail))
            await tx.commit()
        _log.info("run_resolved", run_id=str(run_id), outcome=outcome.value, execution=decided.execution.value)

    async def _look_up(self, actor: Actor, run_id: RunId) -> None:
        async with self.database.transaction() as tx:
            # An operator's own decision: no pause since the last look-up, as there is for owners who press a button.
            if not await lookups.grant(tx, run_id, budget=self.look_up.budget, pause_seconds=0.0):
                return
            await trail.record(tx, Entry(actor, Act.RUN_LOOKUP, TargetKind.RUN, str(run_id)))
            await tx.commit()
        await self.look_up.one(run_id)

    async def _retry_save(self, actor: Actor, run_id: RunId) -> None:
        async with self.database.transaction() as tx:
            if not await saves.due_now(tx, run_id):
                return
            await trail.record(tx, Entry(actor, Act.RUN_SAVE_RETRY, TargetKind.RUN, str(run_id)))
            await tx.commit()
        await self.save.now(run_id)


def checked_reason(reason: str) -> str:
    """The reason, trimmed. Raises Refused(invalid_text, text_too_long)."""
    trimmed = reason.strip()
    if not trimmed or not is_storable(trimmed):
        raise Refused(Code.INVALID_TEXT, extra={"field": "reason"})
    if len(trimmed) > MAX_REASON_CHARACTERS:
        raise Refused(Code.TEXT_TOO_LONG, extra={"field": "reason", "max_characters": MAX_REASON_CHARACTERS})
    return trimmed


def _facts(row: LockedRow) -> ResolutionFacts:
    return ResolutionFacts(
        execution=Execution(row.execution),
        persistence=Persistence(row.persistence),
        seen_executing=row.seen_executing,
        gate_over=row.gate_over_in_seconds is not None and row.gate_over_in_seconds <= 0,
        resolved=ResolutionOutcome(row.resolution_outcome) if row.resolution_outcome is not None else None,
    )


def _refusal(obstacle: Obstacle, row: LockedRow, run_id: RunId) -> Refused:
    if obstacle is Obstacle.RESOLVED:
        return Refused(Code.ALREADY_RESOLVED, run_id=run_id)
    if obstacle is not Obstacle.TOO_EARLY:
        return Refused(Code.RESOLUTION_NOT_ALLOWED, run_id=run_id, extra={"why": obstacle.value})
    assert row.gate_over_at is not None, "what may become early no more was fenced"
    assert row.gate_over_in_seconds is not None
    return Refused(
        Code.RESOLUTION_NOT_ALLOWED,
        run_id=run_id,
        retry_after_seconds=max(1, math.ceil(row.gate_over_in_seconds)),
        extra={"why": obstacle.value, "allowed_from": rfc3339(row.gate_over_at)},
    )
