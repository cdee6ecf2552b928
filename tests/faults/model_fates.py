"""Who and what there is in the model test, and how a run may go that is left alone."""

from dataclasses import dataclass
from typing import Final

from gateway.identity.tokens import Claims
from tests.faults.model_database import Fault
from tests.faults.model_upstream import Way, Word

PEOPLE: Final = ("ada", "bob")
ASKING: Final = "ask"
"""The application with human approval."""
APPS: Final = ("notes", "mail", ASKING)
REFUSED: Final = {
    "run_active": "conversation_busy",
    "binding_invalidated": "binding_invalidated",
    "task_already_done": "task_already_done",
}


@dataclass(frozen=True)
class Fate:
    """How a run goes that is left alone: the way of its POST, its last word, and whether its items can be written."""

    way: Way = Way.TAKEN
    end: Word = Word.FINISHED
    settle: Fault | None = None


GOOD: Final = Fate()
FATES: Final = (
    Fate(end=Word.ERROR),
    Fate(end=Word.CUT),
    Fate(end=Word.ASKS),
    *[Fate(settle=Fault.REFUSED)] * 2,
    *(Fate(way) for way in Way),
)


def refused_for(blocked: str) -> str:
    """The code with which a conversation that is blocked so refuses."""
    return REFUSED.get(blocked, "conversation_blocked")


def claims(who: str) -> Claims:
    return Claims(who, frozenset(), operator=False)
