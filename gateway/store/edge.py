"""How often a request of `gateway check --through` arrived, at whichever replica."""

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from gateway.store.database import Database
from gateway.store.statements import statement

_ARRIVED: Final = statement("edge.arrived")


@dataclass(frozen=True, slots=True)
class _SeenRow:
    seen: int


async def arrived(db: Database, check_id: UUID) -> int:
    """Count an arrival; which one it is, from 1."""
    row = await db.one(_ARRIVED, _SeenRow, {"check_id": check_id})
    assert row is not None
    return row.seen
