"""From what a LangGraph graph streams (`messages`, `updates`) to AG-UI 0.1.22 events, without any IO.

Here lives: which message and tool call is open, what an id on the wire is, usage, interrupts. Not here: running the graph
(`runs.py`), framing. A message's id on the wire is LangChain's; a second stretch of text of the same message gets an id
of its own, because an id that comes back after its END contradicts the protocol.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ag_ui.core import (
    BaseEvent,
    CustomEvent,
    Interrupt,
    RunErrorEvent,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    TokenUsage,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from langchain_core.messages import AIMessage, AIMessageChunk, ToolMessage

from agent_service.plain import encodable
from agent_service.records import CorrelationId, RunId, ThreadId

# A model that does not stream says all at once. Four bytes a character at most, so that a frame stays far below the
# 256 KiB that the gateway keeps of one.
MAX_DELTA_CHARS = 8_192
# Nobody downstream keeps a tool's result; a larger one would only run into somebody's frame limit.
MAX_RESULT_CHARS = 16_384
# Never the exception's own text: it may hold prompts, keys, paths. The log has it.
ERROR_TEXT = "The agent failed while it worked on this message."
ERROR_CODE = "agent_error"


@dataclass
class _OpenMessage:
    wire_id: str
    text_open: bool = False
    stretches: int = 0
    call_ids: dict[int, str] = field(default_factory=dict)


@dataclass(kw_only=True)
class EventMapper:
    """The events of one run, in order. Feed it every `(mode, payload)` of the graph's stream, then ask for one ending."""

    thread_id: ThreadId
    correlation_id: CorrelationId
    run_id: RunId
    interrupts: dict[str, object] = field(default_factory=dict)
    _messages: dict[str, _OpenMessage] = field(default_factory=dict)
    _called: set[str] = field(default_factory=set)
    _open_calls: list[str] = field(default_factory=list)
    _usage: dict[tuple[str | None, str | None], list[int]] = field(default_factory=dict)

    def started(self) -> list[BaseEvent]:
        """RUN_STARTED and, right after it, the native run id: without it nobody could look this run up."""
        return [
            RunStartedEvent(thread_id=self.thread_id, run_id=self.correlation_id),
            CustomEvent(name="native_run", value={"run_id": self.run_id}),
        ]

    def feed(self, mode: str, payload: Any) -> list[BaseEvent]:
        """Events for one item of `graph.astream(stream_mode=["messages", "updates"])`."""
        if mode == "updates":
            self._note_interrupts(payload)
            return []
        message, metadata = payload
        if isinstance(message, ToolMessage):
            return list(self._result(message))
        if isinstance(message, AIMessageChunk):
            self._count(message, metadata)
            return list(self._chunk(message))
        if isinstance(message, AIMessage):
            self._count(message, metadata)
            return list(self._whole(message))
        return []  # what people and systems said is not the agent's answer

    def finished(self) -> list[BaseEvent]:
        """What is still open is closed, then RUN_FINISHED."""
        end = RunFinishedEvent(thread_id=self.thread_id, run_id=self.correlation_id, usage=self._usages())
        return [*self._close_all(), end]

    def interrupted(self, waiting_nodes: Sequence[str]) -> list[BaseEvent]:
        """CUSTOM on_interrupt for each interrupt, then RUN_FINISHED with the structured outcome. Both, as clients of either age expect.

        `waiting_nodes` are told when the graph stopped at a breakpoint, which has no interrupt value.
        """
        values = self.interrupts or {f"breakpoint:{node}": None for node in waiting_nodes}
        reason = "langgraph:interrupt" if self.interrupts else "langgraph:breakpoint"
        customs = [CustomEvent(name="on_interrupt", value=json.dumps(value, default=str)) for value in values.values()]
        outcome = RunFinishedInterruptOutcome(interrupts=[Interrupt(id=name, reason=reason) for name in values])
        end = RunFinishedEvent(thread_id=self.thread_id, run_id=self.correlation_id, outcome=outcome, usage=self._usages())
        return [*self._close_all(), *customs, end]

    def failed(self) -> list[BaseEvent]:
        """RUN_ERROR with a fixed text. Open messages stay open: they are not whole."""
        return [RunErrorEvent(message=ERROR_TEXT, code=ERROR_CODE, usage=self._usages())]

    # Pieces

    def _open(self, message_id: str | None) -> _OpenMessage:
        key = message_id or f"{self.run_id}:unnamed"
        return self._messages.setdefault(key, _OpenMessage(wire_id=key))

    def _chunk(self, chunk: AIMessageChunk) -> Iterator[BaseEvent]:
        message = self._open(chunk.id)
        yield from self._text(message, str(chunk.text))
        for call in chunk.tool_call_chunks:
            yield from self._call_chunk(message, call.get("index") or 0, call.get("id"), call.get("name"), call.get("args"))
        if chunk.chunk_position == "last":
            yield from self._close(message)

    def _whole(self, whole: AIMessage) -> Iterator[BaseEvent]:
        message = self._open(whole.id)
        yield from self._text(message, str(whole.text))
        for index, call in enumerate(whole.tool_calls):
            arguments = json.dumps(call["args"], ensure_ascii=False, default=str)
            yield from self._call_chunk(message, index, call["id"], call["name"], arguments)
        yield from self._close(message)

    def _text(self, message: _OpenMessage, text: str) -> Iterator[BaseEvent]:
        if not text:
            return
        if not message.text_open:
            message.text_open = True
            message.stretches += 1
            yield TextMessageStartEvent(message_id=self._wire_id(message))
        for delta in _pieces(encodable(text)):
            yield TextMessageContentEvent(message_id=self._wire_id(message), delta=delta)

    def _wire_id(self, message: _OpenMessage) -> str:
        return message.wire_id if message.stretches <= 1 else f"{message.wire_id}:{message.stretches}"

    def _close_text(self, message: _OpenMessage) -> Iterator[BaseEvent]:
        if message.text_open:
            message.text_open = False
            yield TextMessageEndEvent(message_id=self._wire_id(message))

    def _call_chunk(
        self, message: _OpenMessage, index: int, call_id: str | None, name: str | None, arguments: str | None
    ) -> Iterator[BaseEvent]:
        known = message.call_ids.get(index)
        if known is None or (call_id and name and call_id != known):
            if not name:
                return  # fragments of a call that was never named; providers do not send such
            known = call_id or f"{message.wire_id}:call:{index}"
            message.call_ids[index] = known
            if known in self._called:
                return
            yield from self._close_text(message)
            self._called.add(known)
            self._open_calls.append(known)
            parent = self._wire_id(message) if message.stretches else None
            yield ToolCallStartEvent(tool_call_id=known, tool_call_name=name, parent_message_id=parent)
        if arguments and known in self._open_calls:
            for delta in _pieces(encodable(arguments)):
                yield ToolCallArgsEvent(tool_call_id=known, delta=delta)

    def _close(self, message: _OpenMessage) -> Iterator[BaseEvent]:
        yield from self._close_text(message)
        yield from self._end_calls(message.call_ids.values())
        message.call_ids.clear()

    def _end_calls(self, call_ids: Iterable[str]) -> Iterator[BaseEvent]:
        for call_id in list(call_ids):
            if call_id in self._open_calls:
                self._open_calls.remove(call_id)
                yield ToolCallEndEvent(tool_call_id=call_id)

    def _close_all(self) -> list[BaseEvent]:
        texts = [event for message in self._messages.values() for event in self._close_text(message)]
        return [*texts, *self._end_calls(self._open_calls)]

    def _result(self, message: ToolMessage) -> Iterator[BaseEvent]:
        if message.tool_call_id not in self._called:
            return  # a result without a call in this run: nothing on the wire could refer to it
        yield from self._end_calls([message.tool_call_id])
        yield ToolCallResultEvent(
            message_id=message.id or f"{message.tool_call_id}:result",
            tool_call_id=message.tool_call_id,
            content=encodable(str(message.text))[:MAX_RESULT_CHARS],
            role="tool",
        )

    def _note_interrupts(self, update: Any) -> None:
        if isinstance(update, Mapping):
            for interrupt in update.get("__interrupt__", ()):
                self.interrupts[str(interrupt.id)] = interrupt.value

    def _count(self, message: AIMessage, metadata: Mapping[str, Any]) -> None:
        if (used := message.usage_metadata) is None:
            return
        totals = self._usage.setdefault((metadata.get("ls_provider"), metadata.get("ls_model_name")), [0, 0, 0])
        for place, tokens in enumerate((used["input_tokens"], used["output_tokens"], used["total_tokens"])):
            totals[place] += max(tokens, 0)

    def _usages(self) -> list[TokenUsage] | None:
        return [
            TokenUsage(provider=provider, model=model, input_tokens=read, output_tokens=written, total_tokens=total)
            for (provider, model), (read, written, total) in self._usage.items()
        ] or None


def _pieces(text: str) -> Iterator[str]:
    return (text[start : start + MAX_DELTA_CHARS] for start in range(0, len(text), MAX_DELTA_CHARS))
