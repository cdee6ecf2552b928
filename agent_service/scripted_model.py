"""A deterministic chat model: what it says next is a function of the conversation, so that runs at once never mix.

Here lives: the model, its turns, and the script made from a list of turns. Not here: what the demo says (`demo_agent.py`).
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.base import LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolCallChunk
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool


class ScriptError(Exception):
    """The script asks for what cannot be: a turn too many, a tool that is not bound, wrong arguments."""


class ScriptedFailure(Exception):
    """A turn that fails as a model provider would."""


@dataclass(frozen=True)
class ToolUse:
    """One call of a bound tool."""

    name: str
    arguments: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Turn:
    """What one call of the model brings: text, then tool calls; with `fails`, an error with that text after them."""

    text: str = ""
    calls: tuple[ToolUse, ...] = ()
    fails: str | None = None


Script: TypeAlias = Callable[[Sequence[BaseMessage]], Turn]
"""The next turn, from the conversation so far."""


def turns(*listed: Turn) -> Script:
    """The n-th answer of a conversation is the n-th turn; ScriptError when there are no more."""

    def next_turn(conversation: Sequence[BaseMessage]) -> Turn:
        said = sum(isinstance(message, AIMessage) for message in conversation)
        if said >= len(listed):
            raise ScriptError(f"the script has {len(listed)} turns and turn {said + 1} was asked for")
        return listed[said]

    return next_turn


class ScriptedChatModel(BaseChatModel):
    """Says what its script says, in pieces of a word, with `pace_seconds` before each piece."""

    script: Script
    pace_seconds: float = 0.0

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """The model with these tools known to it; a script may call no others."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        whole: AIMessageChunk | None = None
        for chunk in self._chunks(messages, kwargs):
            whole = chunk if whole is None else whole + chunk
        assert whole is not None
        message = AIMessage(content=whole.text, tool_calls=whole.tool_calls, usage_metadata=whole.usage_metadata)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for message in self._chunks(messages, kwargs):
            time.sleep(self.pace_seconds)
            yield ChatGenerationChunk(message=message)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for message in self._chunks(messages, kwargs):
            await asyncio.sleep(self.pace_seconds)
            yield ChatGenerationChunk(message=message)

    def _chunks(self, conversation: Sequence[BaseMessage], bound: Mapping[str, Any]) -> Iterator[AIMessageChunk]:
        turn = self.script(conversation)
        _check_calls(turn, bound.get("tools", ()))
        pieces = re.findall(r"\s*\S+\s*?(?=\s|$)|\s+$", turn.text)
        yield from (AIMessageChunk(content=piece) for piece in pieces)
        said = sum(isinstance(message, AIMessage) for message in conversation)
        for index, call in enumerate(turn.calls):
            # As providers do it: the name first, the arguments in fragments that are no JSON of their own.
            arguments = json.dumps(call.arguments, ensure_ascii=False)
            middle = len(arguments) // 2
            yield _call_chunk(index, "", name=call.name, call_id=f"call_{said + 1}_{index + 1}")
            yield _call_chunk(index, arguments[:middle])
            yield _call_chunk(index, arguments[middle:])
        if turn.fails is not None:
            raise ScriptedFailure(turn.fails)
        read = sum(len(message.text.split()) for message in conversation)
        usage = UsageMetadata(input_tokens=read, output_tokens=len(pieces), total_tokens=read + len(pieces))
        yield AIMessageChunk(content="", usage_metadata=usage, chunk_position="last")


def _call_chunk(index: int, arguments: str, *, name: str | None = None, call_id: str | None = None) -> AIMessageChunk:
    return AIMessageChunk(content="", tool_call_chunks=[ToolCallChunk(name=name, args=arguments, id=call_id, index=index)])


def _check_calls(turn: Turn, tools: Sequence[Mapping[str, Any]]) -> None:
    bound = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    for call in turn.calls:
        if call.name not in bound:
            raise ScriptError(f"the script calls {call.name!r}, and the bound tools are {sorted(bound)}")
        known, required = set(bound[call.name].get("properties", {})), set(bound[call.name].get("required", ()))
        if not required <= set(call.arguments) <= known:
            raise ScriptError(f"{call.name!r} takes {sorted(known)} and the script gives {sorted(call.arguments)}")
