"""Look-ups: who may ask next, and what an answer does to the row. A claim first, then HTTP, then a guarded write."""

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from gateway.domain.confirmation import Question
from gateway.domain.decide import Transition
from gateway.domain.ids import NativeRunId, RunId
from gateway.domain.reasons import Reason
from gateway.domain.states import OVER, Persistence, persistence_sources
from gateway.store.database import Database, Transaction
from gateway.store.runs import question_params
from gateway.store.statements import statement

_CLAIM: Final = statement("lookups.claim")
_GRANT: Final = statement("lookups.grant")
_NOTE: Final = statement("lookups.note")
_FOUND: Final = statement("lookups.found")
_SETTLE: Final = statement("lookups.settle")
_REFUSE: Final = statement("lookups.refuse")
_EXHAUST: Final = statement("lookups.exhaust")

_SEEN: Final = (Persistence.NONE, Persistence.PARTIAL)

LONGEST_SECONDS: Final = 3600.0
"""The longest pause between two look-ups: with a first one of 2 s, thirty of them take about 20 hours."""
LONGEST_AGE_SECONDS: Final = 24 * 3600.0
"""After a day of not knowing, an operator is asked (design.md "Look-ups")."""


@dataclass(frozen=True, slots=True)
class ClaimedRow:
    """A run that we, and nobody else now, may look up. Native ids stay inside.

    `native_run_id` is None where only the mark of its dispatch, the correlation id, is known (native profile). `answered_*`: the question
    that a resume answers; `earlier_native_run_ids`: of the conversation's other runs. `two_native_runs`: its one dispatch was answered for
    by two.
    """

    run_id: UUID
    application_id: UUID
    conversation_id: UUID
    native_run_id: str | None
    correlation_id: UUID
    thread_id: str
    fingerprint: bytes
    answered_native_id: str | None
    answered_digest: bytes | None
    earlier_native_run_ids: list[str]
    two_native_runs: bool


@dataclass(frozen=True, slots=True)
class _SettledRow:
    run_id: UUID
    asked: str | None


async def claim(
    db: Database, claim_token: UUID, *, budget: int, first_seconds: float, limit: int, run_id: RunId | None = None
) -> list[ClaimedRow]:
    """Claim due runs, or only `run_id` when it is due."""
    params = {
        "claim": claim_token,
        "budget": budget,
        "first_seconds": first_seconds,
        "longest_seconds": LONGEST_SECONDS,
        "longest_age_seconds": LONGEST_AGE_SECONDS,
        "limit": limit,
        "run_id": run_id,
    }
    return await db.all(_CLAIM, ClaimedRow, params)


async def grant(within: Database | Transaction, run_id: RunId, *, budget: int, pause_seconds: float) -> bool:
    """One look-up more, now. False: not unknown, nothing to look it up by, or a look-up less than `pause_seconds` ago."""
    return await within.execute(_GRANT, {"run_id": run_id, "budget": budget, "pause_seconds": pause_seconds}) > 0


async def note(db: Database, run_id: UUID, claim_token: UUID, *, status: str, native_status: str | None) -> None:
    """An answer that proved nothing."""
    await db.execute(_NOTE, {"run_id": run_id, "claim": claim_token, "status": status, "native_status": native_status})


async def found(db: Database, run_id: UUID, claim_token: UUID, native_run_id: NativeRunId) -> None:
    """The run's native id, found by the mark of its dispatch."""
    await db.execute(_FOUND, {"run_id": run_id, "claim": claim_token, "native_run_id": native_run_id})


async def settle(
    db: Database, row: ClaimedRow, claim_token: UUID, transition: Transition, *, status: str, question: Question | None = None
) -> bool:
    """An answer that says how the run ended, or that it waits. False: somebody else moved it first."""
    over = transition.to in OVER
    run_id = RunId(row.run_id)
    params = {
        "run_id": run_id,
        "claim": claim_token,
        "execution": transition.to.value,
        "reason": transition.reason.value if transition.reason else None,
        "attention": transition.attention.value if transition.attention else None,
        "native_status": status,
        "status": status,
        "conversation_id": row.conversation_id,
        "blocks": transition.blocks.value if transition.blocks else None,
        "over": over,
        # A run that waits keeps what is stored of it: nothing is over.
        "persistence_sources": sorted(state.value for state in (persistence_sources(Persistence.INCOMPLETE) if over else _SEEN)),
        **question_params(run_id, question),
    }
    return await db.one(_SETTLE, _SettledRow, params) is not None


async def refuse(db: Database, run_id: UUID, claim_token: UUID, *, why: str, reason: Reason | None = None) -> None:
    """This run's look-up needs somebody to judge it, for `reason` where that is news; an operator is asked."""
    await db.execute(_REFUSE, {"run_id": run_id, "claim": claim_token, "why": why, "reason": reason.value if reason else None})


async def exhaust(db: Database, *, budget: int) -> int:
    """Ask an operator about all that look-ups could not settle."""
    return await db.execute(_EXHAUST, {"budget": budget, "longest_age_seconds": LONGEST_AGE_SECONDS})
