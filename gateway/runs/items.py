"""The Item of interface.md: the one rendering that Run.snapshot, the history and the stream of a stored run share.

Pure: no reading here (that is `history` and `read`), no frames (that is `frames`).
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from gateway.domain.ids import ItemId, RunId
from gateway.domain.reasons import Reason
from gateway.domain.snapshot import USER_POSITION, Item, MessageItem, ToolItem, item_id
from gateway.domain.states import Execution


class UserMessageState(StrEnum):
    """What became of a user's message, as its author is told."""

    ACCEPTED = "accepted"
    NOT_SENT = "not_sent"
    FAILED = "failed"


_REFUSED_UPSTREAM = frozenset({Reason.UPSTREAM_REJECTED.value, Reason.THREAD_GONE.value})
_NOT_EXECUTED = "not_executed"


@dataclass(frozen=True, slots=True)
class UserMessage:
    """The user's message of a task: its first item, complete by nature."""

    text: str
    state: UserMessageState
    position: int = USER_POSITION


VisibleItem = UserMessage | Item


def user_message_state(execution: str, reason: str | None, resolution_outcome: str | None) -> UserMessageState:
    """not_sent: proven or resolved as never executed. failed: upstream refused to take it. All else was accepted, whatever came of it."""
    if execution == Execution.RELEASED or (execution == Execution.CLOSED and resolution_outcome == _NOT_EXECUTED):
        return UserMessageState.NOT_SENT
    if execution == Execution.FAILED and reason in _REFUSED_UPSTREAM:
        return UserMessageState.FAILED
    return UserMessageState.ACCEPTED


def item_json(run_id: RunId, item: VisibleItem) -> dict[str, object]:
    """The JSON of interface.md "Item". Ids are functions of run and position, so saved and unsaved items have the same ones."""
    rendered: dict[str, object] = {"type": "message", "item_id": str(item_id(run_id, item.position)), "run_id": str(run_id)}
    match item:
        case UserMessage():
            rendered |= {"role": "user", "text": item.text, "complete": True, "state": item.state.value}
        case MessageItem():
            rendered |= {"role": "assistant", "text": item.text, "complete": item.complete}
        case ToolItem():
            parent = _parent(run_id, item)
            rendered |= {"type": "tool", "name": item.name, "status": item.status.value, "parent_item_id": str(parent) if parent else None}
        case _:
            assert_never(item)
    rendered["position"] = item.position
    return rendered


def _parent(run_id: RunId, item: ToolItem) -> ItemId | None:
    return None if item.parent is None else item_id(run_id, item.parent)
