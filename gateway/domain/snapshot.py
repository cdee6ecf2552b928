"""Items, and the snapshot of a run as canonical bytes with a SHA-256 (design.md "Words").

Pure data: the projection makes items, the store keeps them, the web renders them. Canonical bytes are JSON with sorted keys, no spaces,
UTF-8 (text was cleaned of what UTF-8 or Postgres cannot hold), so that the same items give the same bytes on every replica and version of
Python.
"""

import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal
from uuid import UUID, uuid5

from gateway.domain import strict_json
from gateway.domain.ids import ItemId, RunId

_ITEM_NAMESPACE: Final = UUID("6a0d6c52-2d5c-5b0e-9b0c-7f6f1f0f5a11")
USER_POSITION: Final = 0
"""A task's user message is the run's first item; what the agent says follows from position 1."""


class ToolStatus(StrEnum):
    """How far a tool step was seen to get. Arguments and results are never kept (contract B11)."""

    STARTED = "started"
    CALLED = "called"
    RETURNED = "returned"


@dataclass(frozen=True, slots=True)
class MessageItem:
    """One assistant message. `position` is its place in the run, from 1."""

    position: int
    text: str
    complete: bool
    type: Literal["message"] = "message"


@dataclass(frozen=True, slots=True)
class ToolItem:
    """One tool step. `parent` is the position of the message it belongs to, when upstream named one that exists."""

    position: int
    name: str
    status: ToolStatus
    parent: int | None = None
    type: Literal["tool"] = "tool"


Item = MessageItem | ToolItem


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The visible items of a run; `complete` only when a terminal event said that nothing is missing."""

    items: tuple[Item, ...]
    complete: bool

    def canonical(self) -> bytes:
        """The canonical bytes: what is stored, hashed, and written again by a save retry, byte for byte."""
        document = {"complete": self.complete, "items": [_as_json(item) for item in self.items], "version": 1}
        return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def sha256(canonical: bytes) -> bytes:
    """The 32 bytes that identify a snapshot."""
    return hashlib.sha256(canonical).digest()


def parse(canonical: bytes) -> Snapshot:
    """The inverse of `Snapshot.canonical`. Raises ValueError for bytes that this program did not write."""
    document = strict_json.loads(canonical)
    match document:
        case {"version": 1, "complete": bool(complete), "items": list(items)}:
            return Snapshot(tuple(_from_json(item) for item in items), complete)
    raise ValueError("not a snapshot")


def item_id(run_id: RunId, position: int) -> ItemId:
    """The local id of an item, a function of its run and place: whoever saves it, and however often, it is the same item."""
    return ItemId(uuid5(_ITEM_NAMESPACE, f"{run_id}/{position}"))


def _as_json(item: Item) -> dict[str, object]:
    if isinstance(item, MessageItem):
        return {"type": "message", "position": item.position, "text": item.text, "complete": item.complete}
    return {
        "type": "tool",
        "position": item.position,
        "name": item.name,
        "status": item.status.value,
        "parent": item.parent,
    }


def _from_json(item: strict_json.Json) -> Item:
    match item:
        case {"type": "message", "position": int(position), "text": str(text), "complete": bool(complete)}:
            return MessageItem(position, text, complete)
        case {
            "type": "tool",
            "position": int(position),
            "name": str(name),
            "status": str(status),
            "parent": (int() | None) as parent,
        }:
            return ToolItem(position, name, ToolStatus(status), parent)
    raise ValueError("not a snapshot")
