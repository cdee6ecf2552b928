"""A run as its owner reads it: the Run of interface.md. Reading never executes and never decides."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from typing_extensions import TypedDict

from gateway.domain import snapshot as snapshots
from gateway.domain.confirmation import Action, Prompt, Question, interrupt_id
from gateway.domain.ids import ApplicationId, ConversationId, InterruptId, RunId
from gateway.domain.problems import Code, Refused
from gateway.domain.reasons import Reason
from gateway.domain.resolution import ResolutionOutcome
from gateway.domain.snapshot import Snapshot
from gateway.domain.states import SLOT_HOLDING, Attention, Execution, Persistence, RunKind
from gateway.domain.times import rfc3339
from gateway.identity.accounts import Access
from gateway.json_shapes import Time
from gateway.runs.items import ItemJson, item_json
from gateway.store import runs as store
from gateway.store.database import Database
from gateway.store.runs import RunRow

POLL_SECONDS: Final = 2.0
"""How long a client waits between two looks at a run that is under way."""
POLL_OPERATOR_SECONDS: Final = 30.0
"""The same once only an operator can settle it."""


class ResolutionJson(TypedDict):
    """What an operator said became of the run, and why."""

    outcome: ResolutionOutcome
    reason: str


class SnapshotJson(TypedDict):
    """What is known of the answer. `sha256`: of the canonical bytes that are stored."""

    complete: bool
    sha256: str
    items: list[ItemJson]


class InterruptJson(TypedDict):
    """A question that waits for a decision; its id is local."""

    interrupt_id: UUID
    run_id: UUID
    title: str
    description: str
    actions: list[str]
    comment_max_chars: int
    expires_at: Time | None


class RunJson(TypedDict):
    """One attempt at a submission. `poll_after_seconds`: when to look again; null once nothing changes by itself any more."""

    run_id: UUID
    conversation_id: UUID
    submission_id: str
    kind: RunKind
    execution: Execution
    persistence: Persistence
    reason: Reason | None
    resolution: ResolutionJson | None
    answered_by: UUID | None
    native_status: str | None
    attention: Attention | None
    poll_after_seconds: float | None
    created_at: Time
    updated_at: Time
    finished_at: Time | None
    snapshot: SnapshotJson | None
    interrupt: InterruptJson | None


@dataclass(frozen=True, slots=True)
class Interrupt:
    """The question of a waiting run, under its local id."""

    interrupt_id: InterruptId
    prompt: Prompt


@dataclass(frozen=True, slots=True)
class RunView:
    """One run, without native ids. `snapshot`: what is known of the answer, when anything is stored and was asked for.

    `snapshot_revision` counts up with each stored snapshot. `lookup_due`: asking upstream again is due, for whoever comes first.
    """

    run_id: RunId
    conversation_id: ConversationId
    submission_id: str
    kind: RunKind
    execution: Execution
    persistence: Persistence
    reason: Reason | None
    resolution: tuple[str, str] | None
    answered_by: RunId | None
    native_status: str | None
    attention: Attention | None
    poll_after_seconds: float | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    snapshot: Snapshot | None
    snapshot_revision: int = 0
    lookup_due: bool = False
    interrupt: Interrupt | None = None

    @property
    def under_way(self) -> bool:
        """Whether the run may still change by itself or by an operator."""
        return self.execution in SLOT_HOLDING or self.persistence is Persistence.PENDING


@dataclass(frozen=True, slots=True)
class Reads:
    """Reads of runs by their owner."""

    database: Database

    async def run(self, access: Access, application_id: ApplicationId, run_id: RunId, *, known_revision: int = 0) -> RunView:
        """The run, with its snapshot when that is newer than `known_revision`.

        Raises Refused(not_found) for what is missing, foreign or deleted, by one statement.
        """
        row = await store.view(self.database, run_id, access.account_id, application_id, known_revision=known_revision)
        if row is None:
            raise Refused(Code.NOT_FOUND)
        return run_view(row)


def run_view(row: RunRow) -> RunView:
    """The view of a stored run."""
    execution, persistence = Execution(row.execution), Persistence(row.persistence)
    attention = Attention(row.attention) if row.attention else None
    resolution = None
    if row.resolution_outcome is not None and row.resolution_reason is not None:
        resolution = (row.resolution_outcome, row.resolution_reason)
    return RunView(
        run_id=RunId(row.run_id),
        conversation_id=ConversationId(row.conversation_id),
        submission_id=row.submission_id,
        kind=RunKind(row.kind),
        execution=execution,
        persistence=persistence,
        reason=Reason(row.reason) if row.reason else None,
        resolution=resolution,
        answered_by=RunId(row.answered_by) if row.answered_by else None,
        native_status=row.native_status,
        attention=attention,
        poll_after_seconds=poll_after(execution, persistence, attention, row.lookup_in_seconds),
        created_at=row.created_at,
        updated_at=row.updated_at,
        finished_at=row.finished_at,
        snapshot=snapshots.parse(row.snapshot_body) if row.snapshot_body is not None else None,
        snapshot_revision=row.snapshot_revision,
        lookup_due=execution is Execution.UNKNOWN and row.lookup_in_seconds is not None and row.lookup_in_seconds <= 0,
        interrupt=_interrupt(row),
    )


def asked(run_id: RunId, question: Question) -> Interrupt:
    """A question under its local id."""
    return Interrupt(interrupt_id(run_id, question.native_id, question.prompt.digest()), question.prompt)


def _interrupt(row: RunRow) -> Interrupt | None:
    if row.interrupt_id is None:
        return None
    assert row.prompt_title is not None
    assert row.prompt_description is not None
    assert row.comment_max_chars is not None
    expires_at = row.expires_at.replace(tzinfo=UTC) if row.expires_at else None
    return Interrupt(InterruptId(row.interrupt_id), Prompt(row.prompt_title, row.prompt_description, row.comment_max_chars, expires_at))


def interrupt_json(run_id: RunId, interrupt: Interrupt) -> InterruptJson:
    """The JSON of interface.md "Interrupt"."""
    prompt = interrupt.prompt
    return {
        "interrupt_id": interrupt.interrupt_id,
        "run_id": run_id,
        "title": prompt.title,
        "description": prompt.description,
        "actions": [action.value for action in Action],
        "comment_max_chars": prompt.comment_max_chars,
        "expires_at": rfc3339(prompt.expires_at) if prompt.expires_at else None,
    }


def poll_after(
    execution: Execution, persistence: Persistence, attention: Attention | None, lookup_in_seconds: float | None = None
) -> float | None:
    """When a client looks again; None when nothing changes by itself any more."""
    if execution not in SLOT_HOLDING and persistence is not Persistence.PENDING:
        return None
    if attention is Attention.OPERATOR:
        return POLL_OPERATOR_SECONDS
    return max(POLL_SECONDS, round(lookup_in_seconds or 0.0, 1))


def run_json(view: RunView, *, snapshot: bool = True) -> RunJson:
    """The JSON of interface.md "Run". `snapshot` False leaves it null, as in lists and in the stream's gateway.run."""
    shown = view.snapshot if snapshot else None
    return {
        "run_id": view.run_id,
        "conversation_id": view.conversation_id,
        "submission_id": view.submission_id,
        "kind": view.kind,
        "execution": view.execution,
        "persistence": view.persistence,
        "reason": view.reason,
        "resolution": {"outcome": ResolutionOutcome(view.resolution[0]), "reason": view.resolution[1]} if view.resolution else None,
        "answered_by": view.answered_by,
        "native_status": view.native_status,
        "attention": view.attention,
        "poll_after_seconds": view.poll_after_seconds,
        "created_at": rfc3339(view.created_at),
        "updated_at": rfc3339(view.updated_at),
        "finished_at": rfc3339(view.finished_at) if view.finished_at else None,
        "snapshot": {
            "complete": shown.complete,
            "sha256": snapshots.sha256(shown.canonical()).hex(),
            "items": [item_json(view.run_id, item) for item in shown.items],
        }
        if shown
        else None,
        "interrupt": interrupt_json(view.run_id, view.interrupt) if view.interrupt else None,
    }
