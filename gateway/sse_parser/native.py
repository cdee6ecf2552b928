"""The second decoder: the native profile's stream of named events, over the same guard and into the same projection (wire-contract.md 5.1).

`metadata` names the run; `messages` are pairs of one message, a piece of a streamed one (AIMessageChunk) or a whole one (ai), and what is
about it; of tools' messages only that they came is kept. All other events are counted and skipped unread: `updates` and `values` repeat
state, `error` carries the raw text of an exception, and `end` says success also of runs that failed. Nothing here ends a run: what
became of it is asked afterwards (`domain.native`), so `end()` only tells how the body ended.
"""

from dataclasses import dataclass
from typing import Final

from gateway.domain import strict_json
from gateway.domain.evidence import StreamBroken
from gateway.domain.ids import NativeRunId
from gateway.domain.limits import StreamBounds
from gateway.domain.native import AssistantMessage
from gateway.domain.snapshot import Item, MessageItem, Snapshot, ToolStatus
from gateway.domain.strict_json import Json
from gateway.domain.thread_state import ASSISTANT_TYPES, text_of
from gateway.sse_parser.decode import MAX_ID_CHARACTERS
from gateway.sse_parser.faults import Detail, broken
from gateway.sse_parser.guard import NamedGuard, Payload
from gateway.sse_parser.parser import Batch
from gateway.sse_parser.projection import LiveMessage, LiveTool, Projection

_METADATA: Final = b"metadata"
_MESSAGES: Final = b"messages"
_ERROR: Final = b"error"
_PIECE: Final = "AIMessageChunk"
_TOOL: Final = "tool"


@dataclass(frozen=True, slots=True)
class NativeCounts:
    """Numbers for the evidence row, and nothing that upstream wrote.

    `dropped`: messages and pieces that are not the assistant's, or have no id; `errors`: events named error.
    """

    stream_bytes: int
    events: int
    comments: int
    empty: int
    ignored: int
    dropped: int
    errors: int
    messages: int
    tools: int
    text_bytes: int


class NativeParser:
    """Reads the stream of one native run, whose id the response's head told. Remote faults are values, never exceptions."""

    def __init__(self, *, native_run_id: NativeRunId, bounds: StreamBounds) -> None:
        self.native_run_id = native_run_id
        self._guard = NamedGuard(bounds)
        self._bounds = bounds
        self._projection = Projection(bounds)
        self._messages: dict[str, LiveMessage] = {}
        self._tools: dict[str, LiveTool] = {}
        self._fact: StreamBroken | None = None
        self._ended = False
        self._ignored = self._dropped = self._errors = 0

    def feed(self, data: bytes) -> Batch:
        """Take the next bytes, cut anywhere. `end` is only ever a fault; who the run is was known before."""
        if self._fact is not None or self._ended:
            return Batch()
        frames = self._guard.feed(data)
        for frame in frames:
            self._fact = self._apply(frame)
            if self._fact is not None:
                break
        else:
            self._fact = self._guard.fault
        return Batch(self._projection.take_changes(), end=self._fact, activity=bool(frames))

    def end(self) -> StreamBroken:
        """The body is over: its fault, or that it ended, which proves nothing. May be called again."""
        self._ended = True
        if self._fact is None:
            self._fact = broken(Detail.OPEN_FRAME if self._guard.in_frame else Detail.NO_TERMINAL_EVENT)
        return self._fact

    @property
    def whole(self) -> bool:
        """Whether the body was read to an end between two frames, without a fault."""
        return self._fact is not None and self._fact.detail == Detail.NO_TERMINAL_EVENT

    def close_open(self) -> None:
        """The run is known to be over: end what is open. Nothing ends by itself in this protocol."""
        for message in self._messages.values():
            if not message.complete:
                self._projection.end_message(message)
        for tool in self._tools.values():
            if tool.status is ToolStatus.STARTED:
                self._projection.call_tool(tool)

    def take_changes(self) -> Batch:
        """What `close_open` changed."""
        return Batch(self._projection.take_changes())

    def shown(self) -> tuple[AssistantMessage, ...]:
        """The streamed messages under upstream's ids: what the thread's state has to agree with."""
        texts = {item.position: item.text for item in self._projection.items() if isinstance(item, MessageItem)}
        return tuple(AssistantMessage(native_id, texts[message.position]) for native_id, message in self._messages.items())

    def items(self) -> tuple[Item, ...]:
        """The visible items so far."""
        return self._projection.items()

    def snapshot(self, complete: bool) -> Snapshot:
        """The items as a snapshot; only a state that verified them lets the caller say `complete`."""
        return Snapshot(self._projection.items(), complete)

    @property
    def counts(self) -> NativeCounts:
        """The numbers so far."""
        guard, projection = self._guard, self._projection
        return NativeCounts(
            stream_bytes=guard.fed_bytes,
            events=guard.events,
            comments=guard.comments,
            empty=guard.empty,
            ignored=self._ignored,
            dropped=self._dropped,
            errors=self._errors,
            messages=projection.messages,
            tools=projection.tools,
            text_bytes=projection.text_bytes,
        )

    def _apply(self, frame: Payload) -> StreamBroken | None:
        name, _, payload = frame.partition(b"\n")
        if name not in (_METADATA, _MESSAGES):
            self._ignored += 1
            self._errors += name == _ERROR
            return None
        if len(payload) > self._bounds.kept_frame_bytes:
            return broken(Detail.KEPT_FRAME_BYTES)
        try:
            document = strict_json.loads(bytes(payload))
        except strict_json.NotStrictJson as refused:
            return broken(Detail(refused.fault))
        return self._metadata(document) if name == _METADATA else self._tuple(document)

    def _metadata(self, document: Json) -> StreamBroken | None:
        if not isinstance(document, dict) or not isinstance(document.get("run_id"), str):
            return broken(Detail.REQUIRED_FIELD)
        # Another id than the head's: two runs for one dispatch.
        return None if document["run_id"] == self.native_run_id else broken(Detail.NATIVE_CHANGED)

    def _tuple(self, document: Json) -> StreamBroken | None:
        message = document[0] if isinstance(document, list) and document else None
        if not isinstance(message, dict):
            return broken(Detail.MESSAGE_TUPLE)
        kind, native_id = message.get("type"), message.get("id")
        if kind == _TOOL:
            self._returned(message.get("tool_call_id"))
            return None
        if kind not in ASSISTANT_TYPES or not isinstance(native_id, str):
            self._dropped += 1
            return None
        if len(native_id) > MAX_ID_CHARACTERS:
            return broken(Detail.ID_LENGTH)
        return self._assistant(native_id, message, is_piece=kind == _PIECE)

    def _assistant(self, native_id: str, message: dict[str, Json], *, is_piece: bool) -> StreamBroken | None:
        live = self._messages.get(native_id)
        if live is not None and (live.complete or not is_piece):
            # Whole, and told again: state says whether that was all.
            self._dropped += 1
            return None
        if live is None:
            live = self._projection.start_message()
            if live is None:
                return broken(Detail.MESSAGES)
            self._messages[native_id] = live
        text = text_of(message.get("content"))
        if text and not self._projection.append(live, text):
            return broken(Detail.TEXT_BYTES)
        last = not is_piece or message.get("chunk_position") == "last"
        fault = self._called(message.get("tool_call_chunks" if is_piece else "tool_calls"), live)
        if last and fault is None:
            self._projection.end_message(live)
            for tool in self._tools.values():
                if tool.parent == live.position and tool.status is ToolStatus.STARTED:
                    self._projection.call_tool(tool)
        return fault

    def _called(self, calls: Json, parent: LiveMessage) -> StreamBroken | None:
        """Tool calls of a message, by name; what they are called with is never read (contract B11)."""
        for call in calls if isinstance(calls, list) else ():
            tool_id, name = (call.get("id"), call.get("name")) if isinstance(call, dict) else (None, None)
            if not isinstance(tool_id, str) or not isinstance(name, str) or tool_id in self._tools:
                continue
            if len(tool_id) > MAX_ID_CHARACTERS:
                return broken(Detail.ID_LENGTH)
            tool = self._projection.start_tool(name, parent)
            if tool is None:
                return broken(Detail.TOOLS)
            self._tools[tool_id] = tool
        return None

    def _returned(self, tool_id: Json) -> None:
        tool = self._tools.get(tool_id) if isinstance(tool_id, str) else None
        if tool is None or tool.status is ToolStatus.RETURNED:
            self._dropped += 1
        else:
            self._projection.return_tool(tool)
