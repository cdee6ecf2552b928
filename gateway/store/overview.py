"""Live numbers for operators: what is under way, what waits for somebody, what came to nothing."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from gateway.store.database import Database
from gateway.store.statements import statement

_TOTALS: Final = statement("overview.totals")
_APPLICATIONS: Final = statement("overview.applications")
_REFUSALS: Final = statement("overview.refusals")
_MODERATION: Final = statement("overview.moderation")


@dataclass(frozen=True, slots=True)
class TotalsRow:
    """All applications together. `oldest_pending_seconds` is None where no save is pending."""

    at: datetime
    active_runs: int
    waiting_runs: int
    unresolved_runs: int
    attention_runs: int
    pending_saves: int
    oldest_pending_seconds: float | None


@dataclass(frozen=True, slots=True)
class ApplicationNumbersRow:
    """One application; `enabled` with its provider."""

    application_id: UUID
    name: str
    enabled: bool
    active_runs: int
    unknown_runs: int
    unresolved_runs: int
    pending_saves: int


@dataclass(frozen=True, slots=True)
class RefusalRow:
    """How many runs were released or failed for one reason."""

    execution: str
    reason: str
    runs: int


@dataclass(frozen=True, slots=True)
class ModerationRow:
    """How many texts moderation refused, or could not judge."""

    outcome: str
    texts: int


async def totals(db: Database) -> TotalsRow:
    """The numbers of now."""
    row = await db.one(_TOTALS, TotalsRow, {}, reading=True)
    assert row is not None  # an aggregate has exactly one row
    return row


async def applications(db: Database, *, limit: int) -> list[ApplicationNumbersRow]:
    """At most `limit` applications, the busiest first."""
    return await db.all(_APPLICATIONS, ApplicationNumbersRow, {"limit": limit}, reading=True)


async def refusals(db: Database, *, period_seconds: float) -> list[RefusalRow]:
    """The runs of the last `period_seconds` that came to nothing, by reason, the most frequent first."""
    return await db.all(_REFUSALS, RefusalRow, {"period_seconds": period_seconds}, reading=True)


async def moderation(db: Database, *, period_seconds: float) -> list[ModerationRow]:
    """The texts of the last `period_seconds` that moderation let nobody admit."""
    return await db.all(_MODERATION, ModerationRow, {"period_seconds": period_seconds}, reading=True)
