"""The scripted chat model and the demo's script: deterministic, and strict about the tools it was given."""

from typing import Any

import pytest
from langchain_core.language_models.base import LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import Runnable

from agent_service.demo_agent import DEMO_MESSAGE, answered, demo_script, get_time, get_weather
from agent_service.scripted_model import ScriptedChatModel, ScriptedFailure, ScriptError, ToolUse, Turn, turns

WEATHER = Turn("Let me see.", (ToolUse("get_weather", {"city": "Köln"}),))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def model(*listed: Turn) -> Runnable[LanguageModelInput, AIMessage]:
    return ScriptedChatModel(script=turns(*listed)).bind_tools([get_weather, get_time])


@pytest.mark.anyio
async def test_it_streams_words_and_fragments_of_arguments() -> None:
    chunks = [chunk async for chunk in model(WEATHER).astream([HumanMessage("hi")])]
    assert [str(chunk.text) for chunk in chunks if chunk.text] == ["Let", " me", " see."]
    fragments = [piece["args"] for chunk in chunks if isinstance(chunk, AIMessageChunk) for piece in chunk.tool_call_chunks]
    assert "".join(fragment or "" for fragment in fragments) == '{"city": "Köln"}'
    assert len(fragments) == 3


def test_asked_at_once_it_says_the_same_as_in_pieces() -> None:
    bound = model(WEATHER)
    said = bound.invoke([HumanMessage("hi")])
    assert (said.text, said.tool_calls[0]["name"]) == ("Let me see.", "get_weather")
    assert "".join(str(chunk.text) for chunk in bound.stream([HumanMessage("hi")])) == "Let me see."


def test_the_turn_depends_on_the_conversation_only() -> None:
    bound = model(Turn("one"), Turn("two"))
    conversation: list[BaseMessage] = [HumanMessage("a")]
    for _ in range(2):
        assert bound.invoke(conversation).text == "one"
    assert bound.invoke([*conversation, AIMessage("one"), HumanMessage("b")]).text == "two"


@pytest.mark.parametrize(
    ("turn", "says"),
    [
        (Turn(calls=(ToolUse("delete_everything"),)), "delete_everything"),
        (Turn(calls=(ToolUse("get_weather", {"place": "x"}),)), "'city'"),
        (Turn(calls=(ToolUse("get_weather"),)), "'city'"),
    ],
)
def test_it_calls_no_tool_that_is_not_bound_and_only_with_its_arguments(turn: Turn, says: str) -> None:
    with pytest.raises(ScriptError, match=says):
        model(turn).invoke([HumanMessage("hi")])


def test_a_script_ends_and_a_turn_can_fail() -> None:
    with pytest.raises(ScriptError, match="1 turns and turn 2"):
        model(Turn("one")).invoke([HumanMessage("a"), AIMessage("one"), HumanMessage("b")])
    with pytest.raises(ScriptedFailure, match="overloaded"):
        model(Turn("Well", fails="overloaded")).invoke([HumanMessage("a")])


def test_the_demo_message_brings_text_tool_text() -> None:
    first = demo_script([HumanMessage(DEMO_MESSAGE)])
    assert first == Turn("Let me look that up.", (ToolUse("get_weather", {"city": "Paris"}),))
    result = get_weather.invoke({"city": "Paris"})
    last = demo_script([HumanMessage(DEMO_MESSAGE), ToolMessage(result, tool_call_id="x", name="get_weather")])
    assert last == Turn(f"The weather in Paris is {result}.")
    assert result == "13 °C and windy", "the tools make things up, always the same"


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("weather in New York?", ToolUse("get_weather", {"city": "New York"})),
        ("What TIME is it in São Paulo", ToolUse("get_time", {"city": "São Paulo"})),
        ("How is the weather", ToolUse("get_weather", {"city": "Paris"})),
        ("Sometimes I wonder", None),
    ],
)
def test_the_demo_finds_the_city(text: str, call: ToolUse | None) -> None:
    assert demo_script([HumanMessage(text)]).calls == ((call,) if call else ())


def test_a_call_that_a_failed_run_left_open_gets_an_answer_in_its_place() -> None:
    call: Any = {"name": "get_weather", "args": {}, "id": "c1"}
    conversation: list[AnyMessage] = [HumanMessage("a"), AIMessage("", tool_calls=[call]), HumanMessage("b")]
    patched = answered(conversation)
    assert [message.type for message in patched] == ["human", "ai", "tool", "human"]
    assert answered(patched) == patched
