"""Numbers and settings of the database: what Prometheus shows, and what `gateway check` judges."""

from dataclasses import dataclass
from typing import Final

from gateway.domain.states import LIVE, SLOT_HOLDING
from gateway.store.database import Database
from gateway.store.statements import statement

_GAUGES: Final = statement("numbers.gauges")
_DURABILITY: Final = statement("numbers.durability")


@dataclass(frozen=True, slots=True)
class GaugeRow:
    """One number: the metric's name, its label's value where it has one."""

    family: str
    label: str | None
    value: float


async def gauges(db: Database, *, lease_seconds: float, deadline_seconds: float) -> list[GaugeRow]:
    """All of them, in one statement."""
    params = {
        "slot_holding": sorted(state.value for state in SLOT_HOLDING),
        "live": sorted(state.value for state in LIVE),
        "lease_seconds": lease_seconds,
    }
    return await db.all(_GAUGES, GaugeRow, params, reading=True, deadline_seconds=deadline_seconds)


@dataclass(frozen=True, slots=True)
class DurabilityRow:
    """What commits are worth. `standbys` stream from here, `synchronous` of them are waited for; `hidden` ones this role may not see."""

    synchronous_commit: str
    fsync: str
    full_page_writes: str
    in_recovery: bool
    synchronous_asked: bool
    standbys: int
    synchronous: int
    hidden: int


async def durability(db: Database) -> DurabilityRow:
    """As the server says, for this database and role."""
    row = await db.one(_DURABILITY, DurabilityRow, reading=True)
    assert row is not None
    return row
