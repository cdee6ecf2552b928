"""The Item of interface.md: the one rendering that Run.snapshot, the history and the stream of a stored run share.

Pure: no reading here (that is `history` and `read`), no frames (that is `frames`).
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, assert_never
from uuid import UUID

from typing_extensions import TypedDict

from gateway.domain.ids import ItemId, RunId
from gateway.domain.reasons import Reason
from gateway.domain.snapshot import USER_POSITION, Item, MessageItem, ToolItem, ToolStatus, item_id
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


class UserMessageJson(TypedDict):
    """What the user wrote. `position` is its place in its run."""

    type: Literal["message"]
    item_id: UUID
    run_id: UUID
    role: Literal["user"]
    text: str
    complete: bool
    state: UserMessageState
    position: int


class AssistantMessageJson(TypedDict):
    """What the agent said. `complete` false: the message broke off, or is still being written."""

    type: Literal["message"]
    item_id: UUID
    run_id: UUID
    role: Literal["assistant"]
    text: str
    complete: bool
    position: int


class ToolStepJson(TypedDict):
    """A tool that the agent used, and how far that got; never what went in or came out. `parent_item_id`: the message it belongs to."""

    type: Literal["tool"]
    item_id: UUID
    run_id: UUID
    name: str
    status: ToolStatus
    parent_item_id: UUID | None
    position: int | None


ItemJson = UserMessageJson | AssistantMessageJson | ToolStepJson


def user_message_state(execution: str, reason: str | None, resolution_outcome: str | None) -> UserMessageState:
    """not_sent: proven or resolved as never executed. failed: upstream refused to take it. All else was accepted, whatever came of it."""
    if execution == Execution.RELEASED or (execution == Execution.CLOSED and resolution_outcome == _NOT_EXECUTED):
        return UserMessageState.NOT_SENT
    if execution == Execution.FAILED and reason in _REFUSED_UPSTREAM:
        return UserMessageState.FAILED
    return UserMessageState.ACCEPTED


def item_json(run_id: RunId, item: VisibleItem) -> ItemJson:
    """The JSON of interface.md "Item". Ids are functions of run and position, so saved and unsaved items have the same ones."""
    shown_id, position = item_id(run_id, item.position), item.position
    match item:
        case UserMessage():
            return {
                "type": "message",
                "item_id": shown_id,
                "run_id": run_id,
                "role": "user",
                "text": item.text,
                "complete": True,
                "state": item.state,
                "position": position,
            }
        case MessageItem():
            return {
                "type": "message",
                "item_id": shown_id,
                "run_id": run_id,
                "role": "assistant",
                "text": item.text,
                "complete": item.complete,
                "position": position,
            }
        case ToolItem():
            return {
                "type": "tool",
                "item_id": shown_id,
                "run_id": run_id,
                "name": item.name,
                "status": item.status,
                "parent_item_id": _parent(run_id, item),
                "position": position,
            }
        case _:
            assert_never(item)


def _parent(run_id: RunId, item: ToolItem) -> ItemId | None:
    return None if item.parent is None else item_id(run_id, item.parent)
