"""The visible items of a run while they grow, and the changes that a browser is told. No ids of upstream's, no order of events.

Positions are 1, 2, … in the order in which items began and never change, because a browser has seen them. Hence a message that turns out
to have no text (a model that only calls a tool) stays an item with empty text: its position and the tools that name it as parent stay true;
a page draws nothing for it.
"""

import re
from dataclasses import dataclass
from typing import Final

from gateway.domain.limits import StreamBounds
from gateway.domain.snapshot import Item, MessageItem, ToolItem, ToolStatus
from gateway.domain.text import clean

_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
ANONYMOUS_TOOL: Final = "tool"
"""Shown in place of a tool name that is not of the accepted form."""


@dataclass(frozen=True, slots=True)
class MessageStarted:
    position: int


@dataclass(frozen=True, slots=True)
class TextAppended:
    """New text of one message since the last change of it: all that one feed() brought without another item's change between."""

    position: int
    text: str


@dataclass(frozen=True, slots=True)
class MessageEnded:
    position: int


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """`parent` is the position of the message that the tool belongs to, when that exists."""

    position: int
    name: str
    parent: int | None


@dataclass(frozen=True, slots=True)
class ToolCalled:
    position: int


@dataclass(frozen=True, slots=True)
class ToolReturned:
    position: int


Change = MessageStarted | TextAppended | MessageEnded | ToolStarted | ToolCalled | ToolReturned


class LiveMessage:
    """A message that may still grow. `pieces` joined are its text."""

    __slots__ = ("complete", "pieces", "position")

    def __init__(self, position: int) -> None:
        self.position = position
        self.pieces: list[str] = []
        self.complete = False


class LiveTool:
    """A tool step that may still advance."""

    __slots__ = ("name", "parent", "position", "status")

    def __init__(self, position: int, name: str, parent: int | None) -> None:
        self.position = position
        self.name = name
        self.parent = parent
        self.status = ToolStatus.STARTED


class Projection:
    """Append-only: text is added in pieces, cleaned one by one, and joined only when somebody asks for the items."""

    __slots__ = ("_bounds", "_changes", "_growing", "_items", "_new_text", "messages", "text_bytes", "tools")

    def __init__(self, bounds: StreamBounds) -> None:
        self._bounds = bounds
        self._items: list[LiveMessage | LiveTool] = []
        self._changes: list[Change] = []
        self._growing: LiveMessage | None = None
        self._new_text: list[str] = []
        self.messages = 0
        self.tools = 0
        self.text_bytes = 0

    def start_message(self) -> LiveMessage | None:
        """A new message at the next position; None when the run has as many as allowed."""
        if self.messages == self._bounds.messages:
            return None
        self.messages += 1
        message = LiveMessage(len(self._items) + 1)
        self._items.append(message)
        self._changed(MessageStarted(message.position))
        return message

    def append(self, message: LiveMessage, delta: str) -> bool:
        """Add text to `message`; False, and nothing is added, when the run's text would be longer than allowed (UTF-8 bytes, cleaned)."""
        if delta.isascii() and delta.isprintable():
            size = len(delta)
        else:
            delta = clean(delta)
            size = len(delta.encode())
        if self.text_bytes + size > self._bounds.text_bytes:
            return False
        self.text_bytes += size
        if message is not self._growing:
            self._flush()
            self._growing = message
        self._new_text.append(delta)
        return True

    def end_message(self, message: LiveMessage) -> None:
        message.complete = True
        self._changed(MessageEnded(message.position))

    def start_tool(self, name: str, parent: LiveMessage | None) -> LiveTool | None:
        """A new tool step at the next position; None when the run has as many as allowed."""
        if self.tools == self._bounds.tools:
            return None
        self.tools += 1
        shown = name if _TOOL_NAME.fullmatch(name) is not None else ANONYMOUS_TOOL
        tool = LiveTool(len(self._items) + 1, shown, None if parent is None else parent.position)
        self._items.append(tool)
        self._changed(ToolStarted(tool.position, tool.name, tool.parent))
        return tool

    def call_tool(self, tool: LiveTool) -> None:
        tool.status = ToolStatus.CALLED
        self._changed(ToolCalled(tool.position))

    def return_tool(self, tool: LiveTool) -> None:
        tool.status = ToolStatus.RETURNED
        self._changed(ToolReturned(tool.position))

    def take_changes(self) -> tuple[Change, ...]:
        """The changes since the last call."""
        if not self._changes and self._growing is not None:
            # Nearly every read: more text of one message, and nothing else.
            return (self._grown(self._growing),)
        self._flush()
        changes = tuple(self._changes)
        self._changes.clear()
        return changes

    def items(self) -> tuple[Item, ...]:
        """The items so far, in order of position."""
        self._flush()
        return tuple(_frozen(item) for item in self._items)

    def _changed(self, change: Change) -> None:
        self._flush()
        self._changes.append(change)

    def _flush(self) -> None:
        if self._growing is not None:
            self._changes.append(self._grown(self._growing))

    def _grown(self, message: LiveMessage) -> TextAppended:
        text = self._new_text[0] if len(self._new_text) == 1 else "".join(self._new_text)
        self._new_text.clear()
        self._growing = None
        message.pieces.append(text)
        return TextAppended(message.position, text)


def _frozen(item: LiveMessage | LiveTool) -> Item:
    if isinstance(item, LiveTool):
        return ToolItem(item.position, item.name, item.status, item.parent)
    if len(item.pieces) > 1:
        item.pieces = ["".join(item.pieces)]
    return MessageItem(item.position, item.pieces[0] if item.pieces else "", item.complete)
