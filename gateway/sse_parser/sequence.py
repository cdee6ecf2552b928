"""The protocol machine: which event may come when, whose ids they carry, and what the first terminal event says. No bytes, no JSON.

Rules (contract B7 to B13, wire-contract.md 2 and 3, design.md "Which failure means what"):
- Only what contradicts the run is a fault. An event that is about nothing we know and carries no visible text is dropped and counted;
  text for a message that is not open is a fault, because dropping it would lose visible text under a success.
- An id is used once. A start for a known id is a fault; an end or a result that repeats itself is counted.
- A chunk opens its item as a start would. The end that the protocol puts after it comes when the next item starts (other events between
  two chunks do not split a message). A chunk for a message that ended so goes on as a new item, after what came between; a chunk for a
  tool that ended so is more of its arguments. After an explicit end both are reopened ids, hence faults. A chunk without an id belongs
  to the item of the chunk before it.
- Messages of another role and of subagents are remembered as dropped: none of their text is kept.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, assert_never

from gateway.domain.evidence import Outcome, RunErrored, RunFinished, StreamBroken, StreamFact
from gateway.domain.ids import NativeRunId
from gateway.domain.limits import StreamBounds
from gateway.domain.snapshot import ToolStatus
from gateway.sse_parser.events import (
    Event,
    Ignored,
    IgnoredClass,
    InterruptAsked,
    NativeRun,
    RunErrorSeen,
    RunFinishedSeen,
    RunStarted,
    TextChunk,
    TextContent,
    TextEnd,
    TextStart,
    ToolArgs,
    ToolChunk,
    ToolEnd,
    ToolResult,
    ToolStart,
)
from gateway.sse_parser.faults import Detail, broken
from gateway.sse_parser.projection import LiveMessage, LiveTool, Projection

_IGNORED_PER_MESSAGE: Final = 16
"""How many dropped messages are remembered for each visible one that is allowed: subagents talk more than they say."""


class _Life(Enum):
    OPEN = auto()
    OPEN_BY_CHUNK = auto()
    ENDED_BY_CHUNK = auto()
    ENDED = auto()


_ENDED: Final = (_Life.ENDED, _Life.ENDED_BY_CHUNK)


class _Message:
    """What is known of one message id. `live` is None when its text is dropped."""

    __slots__ = ("life", "live")

    def __init__(self, live: LiveMessage | None, life: _Life) -> None:
        self.live = live
        self.life = life


class _Tool:
    __slots__ = ("life", "live")

    def __init__(self, live: LiveTool, life: _Life) -> None:
        self.live = live
        self.life = life


class Sequence:
    """Takes events one by one and moves the projection. The first fact it returns is final; it must not be asked again after that.

    `news` is set when `started` or `native_run_id` changed; whoever has told it clears it. `usage`: that of the terminal event, if any.
    """

    __slots__ = (
        "_bounds",
        "_by_chunk",
        "_correlation_id",
        "_dropped_ids",
        "_interrupt_asked",
        "_last_chunk",
        "_messages",
        "_projection",
        "_thread_id",
        "_tools",
        "closed_open",
        "dropped_text",
        "ignored",
        "missing_native",
        "native_run_id",
        "news",
        "started",
        "stray",
        "usage",
    )

    def __init__(self, *, thread_id: str, correlation_id: str, bounds: StreamBounds, projection: Projection) -> None:
        self._thread_id = thread_id
        self._correlation_id = correlation_id
        self._bounds = bounds
        self._projection = projection
        self._messages: dict[str, _Message] = {}
        self._tools: dict[str, _Tool] = {}
        self._by_chunk: _Message | _Tool | None = None
        self._last_chunk: _Message | _Tool | None = None
        self._dropped_ids = 0
        self._interrupt_asked = False
        self.started = False
        self.news = False
        self.native_run_id: NativeRunId | None = None
        self.ignored: dict[IgnoredClass, int] = dict.fromkeys(IgnoredClass, 0)
        self.dropped_text = 0
        self.stray = 0
        self.closed_open = 0
        self.missing_native = 0
        self.usage: Mapping[str, int] = {}

    def apply(self, event: Event) -> StreamFact | None:
        """What `event` means: None to go on, else the fact that ends the run's stream."""
        if not self.started:
            return self._first(event)
        match event:
            case TextContent(message_id=message_id, delta=delta, subagent=subagent):
                return self.content(message_id, delta, subagent=subagent)
            case Ignored(ignored_class=ignored_class):
                self.ignored[ignored_class] += 1
            case TextStart():
                return self._text_start(event)
            case TextEnd():
                self._text_end(event)
            case TextChunk():
                return self._text_chunk(event)
            case ToolStart() | ToolArgs() | ToolEnd() | ToolResult() | ToolChunk():
                return self._tool_event(event)
            case NativeRun(native_run_id=native_run_id):
                return self._native_run(NativeRunId(native_run_id))
            case InterruptAsked():
                self._interrupt_asked = True
            case RunStarted():
                return broken(Detail.SECOND_RUN_STARTED)
            case RunErrorSeen(usage=usage):
                self.usage = usage
                return RunErrored()
            case RunFinishedSeen():
                return self._finished(event)
            case _:
                assert_never(event)
        return None

    def _first(self, event: Event) -> StreamFact | None:
        match event:
            case RunErrorSeen(usage=usage):
                self.usage = usage
                return RunErrored()
            case RunStarted(thread_id=thread_id, run_id=run_id):
                if not self._is_this_run(thread_id, run_id):
                    return broken(Detail.RUN_STARTED_IDS)
                self.started = self.news = True
                return None
            case _:
                return broken(Detail.FIRST_EVENT)

    def _is_this_run(self, thread_id: str | None, run_id: str | None) -> bool:
        return thread_id == self._thread_id and run_id == self._correlation_id

    def _native_run(self, native_run_id: NativeRunId) -> StreamBroken | None:
        # The same UUID in capitals is the same id (contract B8).
        if native_run_id.casefold() == self._correlation_id.casefold():
            return broken(Detail.NATIVE_IS_CORRELATION)
        if self.native_run_id is not None and self.native_run_id != native_run_id:
            return broken(Detail.NATIVE_CHANGED)
        if self.native_run_id is None:
            self.native_run_id = native_run_id
            self.news = True
        return None

    def _finished(self, event: RunFinishedSeen) -> StreamFact:
        if not self._is_this_run(event.thread_id, event.run_id):
            return broken(Detail.RUN_FINISHED_IDS)
        self._end_chunk()
        for message in self._messages.values():
            if message.life is _Life.OPEN and message.live is not None:
                self.closed_open += 1
                self._projection.end_message(message.live)
        for tool in self._tools.values():
            if tool.live.status is ToolStatus.STARTED:
                self.closed_open += 1
                self._projection.call_tool(tool.live)
        if self.native_run_id is None:
            self.missing_native = 1
        self.usage = event.usage
        return RunFinished(Outcome.INTERRUPT if self._interrupt_asked else event.outcome)

    # Messages

    def _text_start(self, event: TextStart) -> StreamBroken | None:
        if event.message_id in self._messages:
            if event.subagent:
                self.dropped_text += 1
                return None
            return broken(Detail.MESSAGE_REOPENED)
        if event.subagent or not event.kept:
            self.dropped_text += 1
            return self._drop(event.message_id)
        return self._open_message(event.message_id, _Life.OPEN)

    def _open_message(self, message_id: str, life: _Life) -> StreamBroken | None:
        self._end_chunk()
        self._last_chunk = None
        live = self._projection.start_message()
        if live is None:
            return broken(Detail.MESSAGES)
        message = _Message(live, life)
        self._messages[message_id] = message
        if life is _Life.OPEN_BY_CHUNK:
            self._by_chunk = message
        return None

    def _drop(self, message_id: str) -> StreamBroken | None:
        if self._dropped_ids == self._bounds.messages * _IGNORED_PER_MESSAGE:
            return broken(Detail.IGNORED_MESSAGES)
        self._dropped_ids += 1
        self._messages[message_id] = _Message(None, _Life.OPEN)
        return None

    def content(self, message_id: str, delta: str, *, subagent: bool = False) -> StreamBroken | None:
        """The same as `apply` of a TextContent."""
        message = self._messages.get(message_id)
        if message is None or message.live is None or message.life in _ENDED or subagent:
            return self._unusual_content(message, subagent=subagent)
        if delta and not self._projection.append(message.live, delta):
            return broken(Detail.TEXT_BYTES)
        return None

    def _unusual_content(self, message: _Message | None, *, subagent: bool) -> StreamBroken | None:
        if not self.started:
            return broken(Detail.FIRST_EVENT)
        if subagent or (message is not None and message.live is None):
            self.dropped_text += 1
            return None
        return broken(Detail.MESSAGE_NOT_OPEN)

    def _text_end(self, event: TextEnd) -> None:
        message = self._messages.get(event.message_id)
        if event.subagent and message is not None and message.live is not None:
            self.dropped_text += 1
            return
        if message is None or message.life is _Life.ENDED:
            self.stray += 1
            return
        was_open = message.life is not _Life.ENDED_BY_CHUNK
        message.life = _Life.ENDED
        if message is self._by_chunk:
            self._by_chunk = None
        if message.live is not None and was_open:
            self._projection.end_message(message.live)

    def _text_chunk(self, event: TextChunk) -> StreamBroken | None:
        if event.message_id is None:
            message = self._last_chunk
            if not isinstance(message, _Message):
                return broken(Detail.CHUNK_WITHOUT_ID)
        else:
            known = self._messages.get(event.message_id)
            if known is None or (known.life is _Life.ENDED_BY_CHUNK and not event.subagent):
                kept = event.kept and not event.subagent
                fault = self._open_message(event.message_id, _Life.OPEN_BY_CHUNK) if kept else self._drop(event.message_id)
                if fault is not None:
                    return fault
            message = self._messages[event.message_id]
            # What a subagent says under the id of a message of the run's own leaves open whose the next chunk without an id is.
            self._last_chunk = None if event.subagent and message.live is not None else message
        if event.subagent or message.live is None:
            self.dropped_text += 1
            return None
        if message.life is _Life.ENDED:
            return broken(Detail.MESSAGE_REOPENED)
        if event.delta and not self._projection.append(message.live, event.delta):
            return broken(Detail.TEXT_BYTES)
        return None

    def _end_chunk(self) -> None:
        """The end that the protocol puts after the last chunk of an item."""
        item, self._by_chunk = self._by_chunk, None
        if item is None:
            return
        item.life = _Life.ENDED_BY_CHUNK
        if isinstance(item, _Tool):
            self._called(item)
        else:
            assert item.live is not None  # dropped messages are never set here
            self._projection.end_message(item.live)

    # Tools

    def _tool_event(self, event: ToolStart | ToolArgs | ToolEnd | ToolResult | ToolChunk) -> StreamBroken | None:
        match event:
            case ToolStart(tool_id=tool_id, name=name, parent_message_id=parent):
                if tool_id in self._tools:
                    return broken(Detail.TOOL_REOPENED)
                return self._open_tool(tool_id, name, parent, _Life.OPEN)
            case ToolChunk():
                return self._tool_chunk(event)
            case ToolArgs(tool_id=tool_id):
                tool = self._tools.get(tool_id)
                if tool is None or tool.life is _Life.ENDED:
                    self.stray += 1
            case ToolEnd(tool_id=tool_id):
                self._tool_end(self._tools.get(tool_id))
            case ToolResult(tool_id=tool_id):
                tool = self._tools.get(tool_id)
                if tool is None or tool.live.status is ToolStatus.RETURNED:
                    self.stray += 1
                else:
                    self._projection.return_tool(tool.live)
            case _:
                assert_never(event)
        return None

    def _open_tool(self, tool_id: str, name: str, parent_message_id: str | None, life: _Life) -> StreamBroken | None:
        self._end_chunk()
        self._last_chunk = None
        parent = None if parent_message_id is None else self._messages.get(parent_message_id)
        live = self._projection.start_tool(name, None if parent is None else parent.live)
        if live is None:
            return broken(Detail.TOOLS)
        tool = _Tool(live, life)
        self._tools[tool_id] = tool
        if life is _Life.OPEN_BY_CHUNK:
            self._by_chunk = tool
        return None

    def _tool_chunk(self, event: ToolChunk) -> StreamBroken | None:
        if event.tool_id is None:
            return None if isinstance(self._last_chunk, _Tool) else broken(Detail.CHUNK_WITHOUT_ID)
        tool = self._tools.get(event.tool_id)
        if tool is None:
            if event.name is None:
                return broken(Detail.CHUNK_WITHOUT_NAME)
            fault = self._open_tool(event.tool_id, event.name, event.parent_message_id, _Life.OPEN_BY_CHUNK)
            if fault is not None:
                return fault
            tool = self._tools[event.tool_id]
        elif tool.life is _Life.ENDED:
            return broken(Detail.TOOL_REOPENED)
        self._last_chunk = tool
        return None

    def _tool_end(self, tool: _Tool | None) -> None:
        if tool is None or tool.life is _Life.ENDED:
            self.stray += 1
            return
        tool.life = _Life.ENDED
        if tool is self._by_chunk:
            self._by_chunk = None
        self._called(tool)

    def _called(self, tool: _Tool) -> None:
        # A result may come before the end; the status never goes back.
        if tool.live.status is ToolStatus.STARTED:
            self._projection.call_tool(tool.live)
