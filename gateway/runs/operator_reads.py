"""Runs and the audit trail as operators read them. Reading changes nothing; reading a run's text is an act, and audited.

What operators do is `resolve`; the Run itself is `read`.
"""

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from uuid import UUID

from typing_extensions import TypedDict

from gateway.domain.audit import Act, Actor, Entry, TargetKind
from gateway.domain.ids import ApplicationId, RunId
from gateway.domain.problems import Code, Refused
from gateway.domain.reasons import Reason
from gateway.domain.resolution import Obstacle, ResolutionFacts, ResolutionOutcome, RunFilter, resolution
from gateway.domain.states import SLOT_HOLDING, Execution, Persistence
from gateway.domain.times import rfc3339
from gateway.json_shapes import Time
from gateway.runs.cursors import opened, opened_moment, sealed, sealed_moment
from gateway.runs.read import RunJson, RunView, run_json, run_view
from gateway.store import audit as trail
from gateway.store import operators as store
from gateway.store.audit import AuditRow
from gateway.store.database import Database
from gateway.store.operators import EvidenceRow, OperatorRow

_AUDIT_CURSOR: Final = struct.Struct(">q")
_AUDIT_SCOPE: Final = "audit"
_CHAIN_PAGE: Final = 500
_FIRST_PREVIOUS: Final = bytes(32)
"""What the first entry names as the hash before it."""


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
    """A page of runs, the newest to need somebody first."""

    runs: list[OperatorRunJson]
    next: str | None


class AuditTargetJson(TypedDict):
    """What an act was done to."""

    kind: TargetKind
    id: str


class AuditEntryJson(TypedDict):
    """One act of an operator. `sha256` chains it to the one before."""

    audit_id: int
    at: Time
    actor: str
    act: Act
    target: AuditTargetJson
    reason: str | None
    detail: dict[str, object]
    sha256: str


class AuditJson(TypedDict):
    """A page of the audit trail, newest first."""

    audit: list[AuditEntryJson]
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
    """Some runs, the newest to need somebody first; `next` is the cursor of the page that follows, if there is one."""

    runs: Sequence[OperatorRun]
    next: str | None


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Some entries, newest first; `next` as above."""

    entries: Sequence[AuditRow]
    next: str | None


@dataclass(frozen=True, slots=True)
class ChainVerdict:
    """What recomputing the whole chain found. `sha256`: of the last entry that is as it was written; None of an empty trail.

    `broken_audit_id`: the first entry that is not, or that does not follow the one before; `why` names which.
    """

    entries: int
    sha256: bytes | None
    broken_audit_id: int | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class OperatorReads:
    """`gate_seconds`: send window + total stream deadline, as of the replicas."""

    database: Database
    gate_seconds: float

    async def runs(
        self, run_filter: RunFilter, *, application_id: ApplicationId | None = None, limit: int, cursor: str | None
    ) -> OperatorRunPage:
        """One page. Raises Refused(malformed_request) for a cursor of another list."""
        scope = f"operator/runs/{run_filter.value}/{application_id or ''}"
        rows = await store.page(
            self.database,
            run_filter,
            application_id=application_id,
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

    async def audit(self, *, limit: int, cursor: str | None) -> AuditPage:
        """One page of the trail. Raises Refused(malformed_request) for a cursor of another list."""
        before = None if cursor is None else int(_AUDIT_CURSOR.unpack(opened(cursor, _AUDIT_SCOPE, _AUDIT_CURSOR.size))[0])
        rows = await trail.page(self.database, before=before, limit=limit + 1)
        shown = rows[:limit]
        following = sealed(_AUDIT_CURSOR.pack(shown[-1].audit_id), _AUDIT_SCOPE) if len(rows) > limit else None
        return AuditPage(shown, following)

    async def verify_audit(self) -> ChainVerdict:
        """Recompute the whole chain, here and not in the database, and stop at the first entry that is not as it was written."""
        anchor = await trail.anchor(self.database)
        if anchor is not None and not anchor.recorded:
            return ChainVerdict(0, None, anchor.audit_id + 1, "beginning_not_recorded")
        last, previous = (0, _FIRST_PREVIOUS) if anchor is None else (anchor.audit_id, anchor.sha256)
        entries = 0
        while links := await trail.texts(self.database, after=0 if entries == 0 else last, limit=_CHAIN_PAGE):
            for link in links:
                why = None
                if link.audit_id != last + 1:
                    why = "entry_missing_before"
                elif link.previous_sha256 != previous:
                    why = "previous_hash_differs"
                elif hashlib.sha256(link.text.encode("utf-8")).digest() != link.sha256:
                    why = "hash_differs"
                if why is not None:
                    return ChainVerdict(entries, previous if entries else None, link.audit_id, why)
                entries, last, previous = entries + 1, link.audit_id, link.sha256
        return ChainVerdict(entries, previous if entries else None)

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


def audit_page_json(page: AuditPage) -> AuditJson:
    """A page of the trail."""
    return {"audit": [audit_json(row) for row in page.entries], "next": page.next}


def audit_json(row: AuditRow) -> AuditEntryJson:
    """One entry of the trail."""
    return {
        "audit_id": row.audit_id,
        "at": rfc3339(row.at),
        "actor": row.actor,
        "act": Act(row.act),
        "target": {"kind": TargetKind(row.target_kind), "id": row.target_id},
        "reason": row.reason,
        "detail": row.detail,
        "sha256": row.sha256.hex(),
    }


def _stored(row: OperatorRow) -> StoredJson | None:
    if row.stored_sha256 is None:
        return None
    return {"complete": row.stored_complete, "sha256": row.stored_sha256.hex(), "bytes": row.stored_bytes}


def _time(moment: datetime | None) -> str | None:
    return rfc3339(moment) if moment is not None else None
