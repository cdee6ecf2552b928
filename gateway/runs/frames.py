"""The browser's stream: visible changes as AG-UI frames over local ids (interface.md "The stream"). Bytes once for all who watch.

Nothing of upstream passes but text that the projection kept and tool names that it validated. JSON goes out with U+2028, U+2029 and U+0085
escaped: some browsers' libraries take them for line ends (field case O-15).
"""

from collections.abc import Iterable
from typing import Final, assert_never

import orjson

from gateway.domain.confirmation import PROMPT_TYPE
from gateway.domain.ids import ConversationId, RunId
from gateway.domain.reasons import REASON_MESSAGES, Reason
from gateway.domain.snapshot import Item, MessageItem, ToolItem, ToolStatus, item_id
from gateway.domain.states import Execution, Persistence
from gateway.runs.read import Interrupt, RunView, interrupt_json, run_json
from gateway.sse_parser.projection import (
    Change,
    MessageEnded,
    MessageStarted,
    TextAppended,
    ToolCalled,
    ToolReturned,
    ToolStarted,
)

_LINE_ENDS: Final = ((b"\xe2\x80\xa8", rb"\u2028"), (b"\xe2\x80\xa9", rb"\u2029"), (b"\xc2\x85", rb"\u0085"))


class Frames:
    """Encodes for one run. Holds the encoded beginnings of its content frames, so that a delta costs one small encoding, and its ids."""

    __slots__ = ("_content_heads", "_ids", "_run_id", "_thread_id")

    def __init__(self, run_id: RunId, conversation_id: ConversationId) -> None:
        self._run_id = run_id
        self._thread_id = str(conversation_id)
        self._content_heads: dict[int, bytes] = {}
        self._ids: dict[int, str] = {}

    def started(self) -> bytes:
        """RUN_STARTED: the first frame of every stream."""
        return _frame({"type": "RUN_STARTED", "threadId": self._thread_id, "runId": str(self._run_id)})

    def status(self, view: RunView) -> bytes:
        """CUSTOM gateway.run: the run, without its snapshot, whenever its status changed."""
        return _frame({"type": "CUSTOM", "name": "gateway.run", "value": run_json(view, snapshot=False)})

    def finished(self, interrupt: Interrupt | None = None) -> bytes:
        """RUN_FINISHED: execution and saving are both confirmed. With `interrupt` the run waits for a person, as the protocol says it."""
        frame: dict[str, object] = {"type": "RUN_FINISHED", "threadId": self._thread_id, "runId": str(self._run_id)}
        if interrupt is not None:
            asked = interrupt_json(self._run_id, interrupt)
            item = {"id": asked["interrupt_id"], "reason": PROMPT_TYPE, "message": asked["title"], "metadata": {"interrupt": asked}}
            if asked["expires_at"] is not None:
                item["expiresAt"] = asked["expires_at"]
            frame["outcome"] = {"type": "interrupt", "interrupts": [item]}
        return _frame(frame)

    def failed(self, reason: Reason) -> bytes:
        """RUN_ERROR with the fixed public message of its reason."""
        return _frame({"type": "RUN_ERROR", "message": REASON_MESSAGES[reason], "code": reason.value})

    def ending(self, view: RunView) -> bytes:
        """The terminal frame of a run as it stands: RUN_FINISHED only for what is succeeded and saved, or waits."""
        if view.execution is Execution.SUCCEEDED and view.persistence is Persistence.SAVED:
            return self.finished()
        if view.persistence is Persistence.PENDING:
            return self.failed(Reason.SAVE_FAILED)
        if view.execution is Execution.WAITING:
            return self.finished(view.interrupt)
        if view.execution is Execution.SUCCEEDED:
            return self.failed(Reason.INCOMPLETE_ANSWER)
        return self.failed(view.reason or Reason.STREAM_ENDED)

    def changes(self, changes: Iterable[Change]) -> bytes:
        """The frames of one batch of changes, in order, as one piece."""
        return b"".join([self._change(change) for change in changes])

    def difference(self, before: tuple[Item, ...], after: tuple[Item, ...]) -> bytes:
        """The frames that lead from the items `before` to the items `after`, where `after` only goes on from `before`."""
        return self.changes(changes_between(before, after))

    def _change(self, change: Change) -> bytes:
        match change:
            case TextAppended(position=position, text=text):
                head = self._content_heads.get(position)
                if head is None:
                    head = f'data: {{"type":"TEXT_MESSAGE_CONTENT","messageId":"{self._id(position)}","delta":'.encode()
                    self._content_heads[position] = head
                return b"%b%b}\n\n" % (head, _escaped(orjson.dumps(text)))
            case MessageStarted(position=position):
                return _frame({"type": "TEXT_MESSAGE_START", "messageId": self._id(position), "role": "assistant"})
            case MessageEnded(position=position):
                return _frame({"type": "TEXT_MESSAGE_END", "messageId": self._id(position)})
            case ToolStarted(position=position, name=name, parent=parent):
                frame: dict[str, object] = {"type": "TOOL_CALL_START", "toolCallId": self._id(position), "toolCallName": name}
                return _frame(frame if parent is None else {**frame, "parentMessageId": self._id(parent)})
            case ToolCalled(position=position):
                return _frame({"type": "TOOL_CALL_END", "toolCallId": self._id(position)})
            case ToolReturned(position=position):
                return tool_result(self._id(position))
            case _:
                assert_never(change)

    def _id(self, position: int) -> str:
        known = self._ids.get(position)
        if known is None:
            known = self._ids[position] = str(item_id(self._run_id, position))
        return known


def tool_result(tool_id: str) -> bytes:
    """TOOL_CALL_RESULT: that a step is over. What came out of it is not for browsers (contract B11)."""
    return _frame({"type": "TOOL_CALL_RESULT", "messageId": tool_id, "toolCallId": tool_id, "content": "", "role": "tool"})


def changes_between(before: tuple[Item, ...], after: tuple[Item, ...]) -> list[Change]:
    """What happened between two looks at the same growing items."""
    changes: list[Change] = []
    known = {item.position: item for item in before}
    for item in after:
        earlier = known.get(item.position)
        if isinstance(item, MessageItem):
            assert earlier is None or isinstance(earlier, MessageItem)
            changes += _message_changes(earlier, item)
        else:
            assert earlier is None or isinstance(earlier, ToolItem)
            changes += _tool_changes(earlier, item)
    return changes


def _message_changes(earlier: MessageItem | None, item: MessageItem) -> Iterable[Change]:
    if earlier is None:
        yield MessageStarted(item.position)
    if appended := item.text[len(earlier.text) if earlier else 0 :]:
        yield TextAppended(item.position, appended)
    if item.complete and not (earlier and earlier.complete):
        yield MessageEnded(item.position)


def _tool_changes(earlier: ToolItem | None, item: ToolItem) -> Iterable[Change]:
    if earlier is None:
        yield ToolStarted(item.position, item.name, item.parent)
    if item.status is not ToolStatus.STARTED and (earlier is None or earlier.status is ToolStatus.STARTED):
        yield ToolCalled(item.position)
    if item.status is ToolStatus.RETURNED and (earlier is None or earlier.status is not ToolStatus.RETURNED):
        yield ToolReturned(item.position)


def _frame(document: dict[str, object]) -> bytes:
    return b"data: %b\n\n" % _escaped(orjson.dumps(document))


def _escaped(encoded: bytes) -> bytes:
    if encoded.isascii():
        return encoded
    for raw, escape in _LINE_ENDS:
        if raw in encoded:
            encoded = encoded.replace(raw, escape)
    return encoded
