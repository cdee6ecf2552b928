"""Verdicts of moderation without a run. Those of admitted texts are written by admission."""

from dataclasses import dataclass
from typing import Final

from gateway.store.database import Database, Params
from gateway.store.statements import statement

_NOTE_WITHOUT_RUN: Final = statement("moderation.note_without_run")


@dataclass(frozen=True, slots=True)
class _NotedRow:
    noted: str | None


async def note_without_run(db: Database, params: Params) -> None:
    """Keep what was said of a text of which nothing came."""
    await db.one(_NOTE_WITHOUT_RUN, _NotedRow, params)
