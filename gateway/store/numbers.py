"""The numbers of the database that Prometheus shows."""

from dataclasses import dataclass
from typing import Final

from gateway.domain.states import LIVE, SLOT_HOLDING
from gateway.store.database import Database
from gateway.store.statements import statement

_GAUGES: Final = statement("numbers.gauges")


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
