"""The built-in agent: two small tools, LangChain's `create_agent`, and a chat model by settings.

Here lives: the tools, what the scripted model says with them, and the choice of model. Not here: how it is served.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, assert_never

import httpx
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.pregel import Pregel

from agent_service.scripted_model import ScriptedChatModel, ToolUse, Turn
from agent_service.settings import ModelKind, Settings

# Text, tool, text: the default message of a demo.
DEMO_MESSAGE = "What is the weather in Paris?"

_PROMPT = "You are a friendly assistant. Say in one short sentence what you are about to do before you use a tool. Answer briefly."
_SKIES = ("clear", "cloudy", "foggy", "rainy", "stormy", "windy")
_PLACE = re.compile(r"\b(?:in|at|for)\s+(?P<place>[^\W\d_][\w' -]{0,60})", re.IGNORECASE)


def _number(text: str, below: int) -> int:
    """A number that depends on the text only, the same in every process (hash() is not)."""
    return sum((place + 1) * byte for place, byte in enumerate(text.casefold().encode())) % below


@tool
def get_weather(city: str) -> str:
    """Tell the weather in a city. (Made up, and always the same for the same city.)"""
    return f"{10 + _number(city, 20)} °C and {_SKIES[_number(city, len(_SKIES))]}"


@tool
def get_time(city: str) -> str:
    """Tell the time in a city. (Made up, and always the same for the same city.)"""
    return f"{_number(city, 24):02}:{_number(city, 60):02}"


def demo_script(conversation: Sequence[BaseMessage]) -> Turn:
    """What the scripted model says: weather and time by tool, all else by an echo that shows its memory."""
    asked = [message for message in conversation if isinstance(message, HumanMessage)]
    text = " ".join(str(asked[-1].text).split()) if asked else ""
    place = match["place"].strip() if (match := _PLACE.search(text)) else "Paris"
    last = conversation[-1] if conversation else None
    if isinstance(last, ToolMessage):
        if last.name == "get_time":
            return Turn(f"In {place} it is {last.text}.")
        return Turn(f"The weather in {place} is {last.text}.")
    if re.search(r"\bweather\b", text, re.IGNORECASE):
        return Turn("Let me look that up.", (ToolUse("get_weather", {"city": place}),))
    if re.search(r"\btime\b", text, re.IGNORECASE):
        return Turn("One look at the clock.", (ToolUse("get_time", {"city": place}),))
    return Turn(f"You said: {text} (This is message {len(asked)} of our conversation. Ask me about the weather or the time in a city.)")


class AnswerLeftoverCalls(AgentMiddleware[Any, Any, Any]):
    """Shows the model an answer to every tool call that an earlier run left open when it failed.

    Without it a provider refuses the whole conversation from then on. Only what the model sees changes, not the memory.
    """

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """Ask the model with the patched conversation."""
        return await handler(request.override(messages=answered(request.messages)))


def answered(conversation: Sequence[AnyMessage]) -> list[AnyMessage]:
    """The conversation with a ToolMessage right after each tool call that has none."""
    have = {message.tool_call_id for message in conversation if isinstance(message, ToolMessage)}
    patched: list[AnyMessage] = []
    for message in conversation:
        patched.append(message)
        for call in message.tool_calls if isinstance(message, AIMessage) else ():
            if call["id"] not in have:
                text = "This call failed or was not made; nothing is known of its result."
                patched.append(ToolMessage(text, tool_call_id=call["id"] or "", name=call["name"], status="error"))
    return patched


@asynccontextmanager
async def chat_model(settings: Settings) -> AsyncIterator[BaseChatModel]:
    """The model that the settings name, for as long as the block lasts."""
    match settings.model:
        case ModelKind.SCRIPTED:
            yield ScriptedChatModel(script=demo_script, pace_seconds=settings.pace_seconds)
        case ModelKind.OPENAI:
            # Imported here: it is the slowest import of all, and the scripted model does without.
            from langchain_openai import ChatOpenAI

            key = settings.openai_api_key.get_secret_value() if settings.openai_api_key is not None else "none"
            # A client of our own, because the library's is shared by the whole process and never closed.
            async with httpx.AsyncClient() as client:
                # No retries: an execution that failed is reported, never repeated behind the caller's back.
                yield ChatOpenAI(
                    model=settings.openai_model or "",
                    base_url=settings.openai_base_url,
                    api_key=lambda: key,
                    max_retries=0,
                    streaming=True,
                    http_async_client=client,
                )
        case _:
            assert_never(settings.model)


def demo_agent(*, model: BaseChatModel, checkpointer: BaseCheckpointSaver[Any]) -> Pregel[Any, Any, Any, Any]:
    """The built-in agent over a model."""
    return create_agent(
        model, [get_weather, get_time], system_prompt=_PROMPT, middleware=[AnswerLeftoverCalls()], checkpointer=checkpointer
    )
