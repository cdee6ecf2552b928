"""The run's statements: fence, start, release, settle, and the reads of it. Every change of a state names the states it may come from."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

from gateway.domain.confirmation import Question, interrupt_id
from gateway.domain.decide import Transition
from gateway.domain.evidence import NotSentProof
from gateway.domain.ids import AttemptToken, ConversationId, NativeRunId, RunId
from gateway.domain.reasons import Reason
from gateway.domain.snapshot import Item, MessageItem, Snapshot, ToolItem, item_id, sha256
from gateway.domain.states import LIVE, OVER, SLOT_HOLDING, Execution, Persistence, persistence_sources, sources
from gateway.store.database import Database
from gateway.store.statements import statement

_VIEW: Final = statement("runs.view")
_FENCE: Final = statement("runs.fence")
_REREAD: Final = statement("runs.reread")
_START: Final = statement("runs.start")
_RELEASE: Final = statement("runs.release")
_SETTLE: Final = statement("runs.settle")
_CHECKPOINT: Final = statement("runs.checkpoint")
_ACKNOWLEDGE: Final = statement("runs.acknowledge")

_OVER_WITH_TEXT: Final = OVER - {Execution.RELEASED}


class FenceVerdict(StrEnum):
    """What fence_v2 says; all but DISPATCHED changed nothing."""

    DISPATCHED = "dispatched"
    NOT_OURS = "not_ours"
    LEASE_LOST = "lease_lost"
    CONFIGURATION_CHANGED = "configuration_changed"
    APP_DISABLED = "app_disabled"
    RIGHTS_CHANGED = "rights_changed"
    CONVERSATION_DELETED = "conversation_deleted"
    BINDING_INVALIDATED = "binding_invalidated"
    THREAD_NOT_FRESH = "thread_not_fresh"
    INTERRUPT_CHANGED = "interrupt_changed"
    INTERRUPT_EXPIRED = "interrupt_expired"


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run as its owner sees it. `snapshot_body`: the canonical bytes; None in lists and where nothing is stored.

    The last five are its question, while it waits for a person. `expires_at` is in UTC and has no zone: that of a session may put the
    end of the year 9999 into a year that Python does not have.
    """

    run_id: UUID
    conversation_id: UUID
    submission_id: str
    kind: str
    execution: str
    persistence: str
    reason: str | None
    resolution_outcome: str | None
    resolution_reason: str | None
    answered_by: UUID | None
    native_status: str | None
    attention: str | None
    lookup_in_seconds: float | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    snapshot_revision: int
    snapshot_body: bytes | None
    interrupt_id: UUID | None
    prompt_title: str | None
    prompt_description: str | None
    comment_max_chars: int | None
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class StateRow:
    """A run's states, and whether its row carries our attempt token."""

    execution: str
    persistence: str
    updated_at: datetime
    ours: bool


@dataclass(frozen=True, slots=True)
class FenceRow:
    """fence_v2's answer. `fenced_at`: the database's clock in the fence statement, when it moved the row."""

    verdict: str
    fenced_at: datetime | None


@dataclass(frozen=True, slots=True)
class MovedRow:
    """A row that was moved, and when."""

    updated_at: datetime


@dataclass(frozen=True, slots=True)
class _AcknowledgedRow:
    first_time: bool


@dataclass(frozen=True, slots=True)
class _ReleasedRow:
    updated_at: datetime
    refunded: str | None


@dataclass(frozen=True, slots=True)
class SettledRow:
    """The run after a settlement."""

    execution: str
    persistence: str
    updated_at: datetime
    finished_at: datetime | None
    asked: str | None
    written: str | None


@dataclass(frozen=True, slots=True)
class Settlement:
    """What the end of a stream writes: the transition, and the visible items under the persistence that they get."""

    conversation_id: ConversationId
    transition: Transition
    persistence: Persistence
    snapshot: Snapshot
    started: bool
    native_run_id: NativeRunId | None
    lookup_first_seconds: float
    evidence_kind: str
    evidence_detail: Mapping[str, object]
    question: Question | None = None


async def view(db: Database, run_id: UUID, account_id: UUID, application_id: UUID, *, known_revision: int = 0) -> RunRow | None:
    """One run of this user and application in a conversation that is not deleted; its snapshot only when newer than `known_revision`."""
    params = {"run_id": run_id, "account_id": account_id, "application_id": application_id, "known_revision": known_revision}
    return await db.one(_VIEW, RunRow, params, reading=True)


async def fence(
    db: Database,
    *,
    run_id: RunId,
    attempt_token: AttemptToken,
    thread_id: str,
    endpoint_fingerprint: bytes,
    fingerprint: bytes,
    lease_seconds: float,
    deadline_seconds: float,
) -> FenceRow:
    """One statement, one transaction. AnswerLost: it may have happened; `reread` before deciding."""
    params = {
        "run_id": run_id,
        "attempt_token": attempt_token,
        "thread_id": thread_id,
        "endpoint_fingerprint": endpoint_fingerprint,
        "fingerprint": fingerprint,
        "lease_seconds": lease_seconds,
    }
    row = await db.one(_FENCE, FenceRow, params, deadline_seconds=deadline_seconds)
    assert row is not None, "fence_v2 gives one row"
    return row


async def reread(db: Database, run_id: RunId, attempt_token: AttemptToken, *, deadline_seconds: float | None = None) -> StateRow | None:
    """The run's states, after whoever holds the row has ended."""
    return await db.one(
        _REREAD, StateRow, {"run_id": run_id, "attempt_token": attempt_token}, reading=True, deadline_seconds=deadline_seconds
    )


async def start(
    db: Database, run_id: RunId, attempt_token: AttemptToken, native_run_id: NativeRunId | None, *, lookup_first_seconds: float
) -> MovedRow | None:
    """Record RUN_STARTED, and the native run id when it is known. May be repeated; None: nothing new, or the run has ended."""
    params = {
        "run_id": run_id,
        "attempt_token": attempt_token,
        "native_run_id": native_run_id,
        "lookup_first_seconds": lookup_first_seconds,
        "sources": _names({Execution.DISPATCHED, Execution.RUNNING, Execution.UNKNOWN}),
    }
    return await db.one(_START, MovedRow, params)


async def release(db: Database, run_id: RunId, attempt_token: AttemptToken, reason: Reason, proof: NotSentProof) -> MovedRow | None:
    """Free the slots and return the charge of a run that was proven never sent. None: no such state any more, read again."""
    params = {
        "run_id": run_id,
        "attempt_token": attempt_token,
        "reason": reason.value,
        "proof": proof.value,
        "sources": _names(sources(Execution.RELEASED)),
    }
    row = await db.one(_RELEASE, _ReleasedRow, params)
    return None if row is None else MovedRow(row.updated_at)


async def settle(db: Database, run_id: RunId, attempt_token: AttemptToken, settlement: Settlement) -> SettledRow | None:
    """Write the end of a run in one transaction; None when the guard refused: read again."""
    transition, items = settlement.transition, settlement.snapshot.items
    body = settlement.snapshot.canonical()
    params = {
        "run_id": run_id,
        "attempt_token": attempt_token,
        "conversation_id": settlement.conversation_id,
        # What the holder saw of a run that expired to unknown is taken too: the state stays, its reason and text are news.
        "sources": _names(sources(transition.to) | ({Execution.UNKNOWN} if transition.to is Execution.UNKNOWN else set())),
        "execution": transition.to.value,
        "reason": transition.reason.value if transition.reason else None,
        "attention": transition.attention.value if transition.attention else None,
        "blocks": transition.blocks.value if transition.blocks else None,
        "persistence_sources": _names(persistence_sources(settlement.persistence)),
        "persistence": settlement.persistence.value,
        "holds_slot": transition.to in SLOT_HOLDING,
        "over": transition.to in OVER,
        "late_text": transition.to not in SLOT_HOLDING,
        # What waits is not over: words of before its question are taken late as well, the end of another story is not.
        "over_states": _names(_OVER_WITH_TEXT | ({Execution.WAITING} if transition.to is Execution.WAITING else set())),
        "complete": settlement.snapshot.complete,
        "body": body,
        "sha256": sha256(body),
        **item_params(run_id, items),
        "started": settlement.started,
        "native_run_id": settlement.native_run_id,
        "lookup_first_seconds": settlement.lookup_first_seconds,
        "evidence_kind": settlement.evidence_kind,
        "evidence_detail": json.dumps(settlement.evidence_detail),
        **question_params(run_id, settlement.question),
    }
    return await db.one(_SETTLE, SettledRow, params)


async def checkpoint(db: Database, run_id: RunId, attempt_token: AttemptToken, revision: int, snapshot: Snapshot) -> bool:
    """Keep what was seen so far of a live stream. False: the run is no longer live, or a later checkpoint is there."""
    body = snapshot.canonical()
    params = {
        "run_id": run_id,
        "attempt_token": attempt_token,
        "live": _names(LIVE | {Execution.UNKNOWN}),
        "persistence_sources": _names(persistence_sources(Persistence.PARTIAL) | {Persistence.PARTIAL}),
        "revision": revision,
        "body": body,
        "sha256": sha256(body),
    }
    return await db.execute(_CHECKPOINT, params) > 0


async def acknowledge(db: Database, run_id: UUID, account_id: UUID, application_id: UUID) -> bool:
    """Accept an incomplete answer of a run that succeeded. False: it is no such run."""
    params = {"run_id": run_id, "account_id": account_id, "application_id": application_id}
    return await db.one(_ACKNOWLEDGE, _AcknowledgedRow, params) is not None


def item_params(run_id: RunId, items: tuple[Item, ...]) -> dict[str, object]:
    """The parallel arrays of write_items_v1."""
    return {
        "positions": [item.position for item in items],
        "item_ids": [item_id(run_id, item.position) for item in items],
        "types": [item.type for item in items],
        "texts": [item.text if isinstance(item, MessageItem) else None for item in items],
        "completes": [item.complete if isinstance(item, MessageItem) else None for item in items],
        "names": [item.name if isinstance(item, ToolItem) else None for item in items],
        "statuses": [item.status.value if isinstance(item, ToolItem) else None for item in items],
        "parents": [item.parent if isinstance(item, ToolItem) else None for item in items],
    }


def question_params(run_id: RunId, question: Question | None) -> dict[str, object]:
    """The parameters of ask_v1; all None where nothing was asked."""
    prompt = None if question is None else question.prompt
    digest = None if prompt is None else prompt.digest()
    return {
        "interrupt_id": interrupt_id(run_id, question.native_id, digest) if question and digest else None,
        "native_interrupt_id": question.native_id if question else None,
        "prompt_title": prompt.title if prompt else None,
        "prompt_description": prompt.description if prompt else None,
        "comment_max_chars": prompt.comment_max_chars if prompt else None,
        "expires_at": prompt.expires_at if prompt else None,
        "digest": digest,
    }


def _names(states: "frozenset[Execution] | frozenset[Persistence] | set[Execution]") -> list[str]:
    return sorted(state.value for state in states)
