"""Runs as operators read them. Reading changes nothing; reading a run's text is an act, and audited.

What operators do is `resolve`; the Run itself is `read`, the audit trail `audit_trail`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from typing_extensions import TypedDict

from gateway.domain.audit import Act, Actor, Entry, TargetKind
from gateway.domain.ids import RunId
from gateway.domain.problems import Code, Refused
from gateway.domain.reasons import Reason
from gateway.domain.resolution import Obstacle, ResolutionFacts, ResolutionOutcome, resolution
from gateway.domain.states import SLOT_HOLDING, Execution, Persistence
from gateway.domain.times import rfc3339
from gateway.json_shapes import Time
from gateway.runs.cursors import opened_moment, sealed_moment
from gateway.runs.read import RunJson, RunView, run_json, run_view
from gateway.store import audit as trail
from gateway.store import operators as store
from gateway.store.database import Database
from gateway.store.operators import EvidenceRow, OperatorRow, Selection


class StoredJson(TypedDict):
    """What is stored of the answer, without its text."""

    complete: bool | None
    sha256: str
    bytes: int | None


class BlocksJson(TypedDict):
    """What the run is in the way of. `conversation`: why its conversation takes no message, where this run is the cause."""

    conversation: Reason | None
    slots: bool
    app_changes: bool


class PossibleResolutionJson(TypedDict):
    """Whether an outcome may be recorded now, or why not; `allowed_from` where time alone is in the way."""

    outcome: ResolutionOutcome
    allowed: bool
    why: Obstacle | None
    allowed_from: Time | None


class ActsJson(TypedDict):
    """What an operator can do about the run now."""

    lookup: bool
    retry_save: bool
    resolve: list[PossibleResolutionJson]


class FactJson(TypedDict):
    """One recorded fact about a run; `detail` depends on `kind`."""

    at: Time
    kind: str
    detail: dict[str, object]


class OperatorRunJson(RunJson):
    """A Run with what only operators see of it; of native ids only whether one is known."""

    app_id: UUID
    app_name: str
    subject: str
    unresolved: bool
    since_at: Time
    conversation_deleted: bool
    fence_at: Time | None
    started_at: Time | None
    native_run_id_known: bool
    unknown_at: Time | None
    lookups: int
    next_lookup_at: Time | None
    lease_live: bool
    acknowledged_at: Time | None
    resolved_at: Time | None
    resolved_by: str | None
    stored: StoredJson | None
    blocks: BlocksJson
    acts: ActsJson


class OperatorRunDetailJson(OperatorRunJson):
    """The same with its evidence, oldest first. `message` and `snapshot` are null unless the run's text was asked for."""

    evidence: list[FactJson]
    message: str | None


class OperatorRunsJson(TypedDict):
    """A page of runs."""

    runs: list[OperatorRunJson]
    next: str | None


@dataclass(frozen=True, slots=True)
class PossibleResolution:
    """One outcome: allowed now, or why not; `allowed_from` where time alone is in the way."""

    outcome: ResolutionOutcome
    obstacle: Obstacle | None
    allowed_from: datetime | None


@dataclass(frozen=True, slots=True)
class OperatorRun:
    """A run with what only operators see. `view.snapshot` and `message` are None unless the text was asked for and recorded."""

    view: RunView
    row: OperatorRow
    possible: Sequence[PossibleResolution]
    evidence: Sequence[EvidenceRow] | None = None
    message: str | None = None

    @property
    def can_look_up(self) -> bool:
        """There is something to ask by, and no living owner: those are never looked up."""
        return self.view.execution is Execution.UNKNOWN and self.row.can_be_looked_up and not self.row.lease_live

    @property
    def can_retry_save(self) -> bool:
        return self.view.persistence is Persistence.PENDING


@dataclass(frozen=True, slots=True)
class OperatorRunPage:
    """Some runs, in the order that was asked for; `next` is the cursor of the page that follows, if there is one."""

    runs: Sequence[OperatorRun]
    next: str | None


@dataclass(frozen=True, slots=True)
class OperatorReads:
    """`gate_seconds`: send window + total stream deadline, as of the replicas."""

    database: Database
    gate_seconds: float

    async def runs(self, selection: Selection, *, limit: int, cursor: str | None) -> OperatorRunPage:
        """One page. Raises Refused(malformed_request) for a cursor of another list."""
        kept = (selection.application_id, selection.order, selection.older_than_seconds, selection.created_within_seconds)
        scope = f"operator/runs/{selection.run_filter.value}/{'/'.join(str(part) for part in kept)}"
        rows = await store.page(
            self.database,
            selection,
            after=None if cursor is None else opened_moment(cursor, scope),
            limit=limit + 1,
            gate_seconds=self.gate_seconds,
        )
        shown = rows[:limit]
        following = sealed_moment(shown[-1].since_at, shown[-1].run_id, scope) if len(rows) > limit else None
        return OperatorRunPage([_operator_run(row) for row in shown], following)

    async def run(self, run_id: RunId, *, text_for: Actor | None = None) -> OperatorRun:
        """One run with its evidence. `text_for`: also its text, and that this operator read it is recorded first.

        Raises Refused(not_found). The text of a conversation that its owner deleted is shown to nobody (contract D10).
        """
        row = await store.find(self.database, run_id, gate_seconds=self.gate_seconds)
        if row is None:
            raise Refused(Code.NOT_FOUND, extra={"field": "run"})
        message = None
        if text_for is not None and not row.conversation_deleted:
            row, message = await self._with_text(row, text_for)
        found = _operator_run(row)
        return replace(found, evidence=await store.evidence(self.database, run_id), message=message)

    async def _with_text(self, row: OperatorRow, reader: Actor) -> tuple[OperatorRow, str | None]:
        run_id = RunId(row.run_id)
        async with self.database.transaction() as tx:
            text = await store.text(tx, run_id)
            if text is None:
                return row, None
            await trail.record(tx, Entry(reader, Act.RUN_TEXT_READ, TargetKind.RUN, str(run_id)))
            # Nothing is shown whose reading may not be recorded.
            await tx.commit()
        return replace(row, snapshot_body=text.snapshot_body), text.message


def _operator_run(row: OperatorRow) -> OperatorRun:
    view = run_view(row)
    facts = ResolutionFacts(
        execution=view.execution,
        persistence=view.persistence,
        seen_executing=row.started_at is not None or row.native_run_id_known,
        gate_over=row.gate_over,
        resolved=ResolutionOutcome(view.resolution[0]) if view.resolution else None,
    )
    possible = []
    for outcome in ResolutionOutcome:
        decided = resolution(facts, outcome)
        obstacle = decided if isinstance(decided, Obstacle) else None
        possible.append(PossibleResolution(outcome, obstacle, row.gate_over_at if obstacle is Obstacle.TOO_EARLY else None))
    return OperatorRun(view, row, possible)


def operator_run_json(run: OperatorRun) -> OperatorRunJson:
    """The Run of interface.md, and what only operators see of it. Of native ids only whether one is known."""
    view, row = run.view, run.row
    return {
        **run_json(view),
        "app_id": row.application_id,
        "app_name": row.application_name,
        "subject": row.subject,
        "unresolved": row.unresolved,
        "since_at": rfc3339(row.since_at),
        "conversation_deleted": row.conversation_deleted,
        "fence_at": _time(row.fence_at),
        "started_at": _time(row.started_at),
        "native_run_id_known": row.native_run_id_known,
        "unknown_at": _time(row.unknown_at),
        "lookups": row.lookups,
        "next_lookup_at": _time(row.next_lookup_at),
        "lease_live": row.lease_live,
        "acknowledged_at": _time(row.acknowledged_at),
        "resolved_at": _time(row.resolved_at),
        "resolved_by": row.resolved_by,
        "stored": _stored(row),
        "blocks": {
            "conversation": Reason(row.blocks_conversation) if row.blocks_conversation else None,
            "slots": view.execution in SLOT_HOLDING,
            "app_changes": view.under_way,
        },
        "acts": {
            "lookup": run.can_look_up,
            "retry_save": run.can_retry_save,
            "resolve": [
                {
                    "outcome": one.outcome,
                    "allowed": one.obstacle is None,
                    "why": one.obstacle,
                    "allowed_from": _time(one.allowed_from),
                }
                for one in run.possible
            ],
        },
    }


def operator_run_detail_json(run: OperatorRun) -> OperatorRunDetailJson:
    """The same of a run that was read with its evidence."""
    evidence: list[FactJson] = [{"at": rfc3339(fact.at), "kind": fact.kind, "detail": fact.detail} for fact in run.evidence or ()]
    return {**operator_run_json(run), "evidence": evidence, "message": run.message}


def operator_runs_json(page: OperatorRunPage) -> OperatorRunsJson:
    """A page of runs."""
    return {"runs": [operator_run_json(run) for run in page.runs], "next": page.next}


def _stored(row: OperatorRow) -> StoredJson | None:
    if row.stored_sha256 is None:
        return None
    return {"complete": row.stored_complete, "sha256": row.stored_sha256.hex(), "bytes": row.stored_bytes}


def _time(moment: datetime | None) -> str | None:
    return rfc3339(moment) if moment is not None else None
