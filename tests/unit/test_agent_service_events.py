"""From LangGraph's stream to AG-UI events: openings, closings, and what never reaches the wire."""

from typing import Any

from ag_ui.core import BaseEvent
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolCallChunk, ToolMessage
from langgraph.types import Interrupt

from agent_service.events import MAX_DELTA_CHARS, EventMapper
from agent_service.records import CorrelationId, RunId, ThreadId


def mapper() -> EventMapper:
    return EventMapper(thread_id=ThreadId("t"), correlation_id=CorrelationId("c"), run_id=RunId("r"))


def fed(of: EventMapper, *messages: Any) -> list[dict[str, Any]]:
    return shown([event for message in messages for event in of.feed("messages", (message, {}))])


def shown(events: list[BaseEvent]) -> list[dict[str, Any]]:
    return [event.model_dump(by_alias=True, mode="json") for event in events]


def brief(events: list[dict[str, Any]]) -> list[str]:
    ids = ("toolCallId", "messageId")
    return [" ".join([event["type"], *(str(event[name]) for name in ids if name in event)][:2]) for event in events]


def text(content: str, *, of: str = "m", last: bool = False) -> AIMessageChunk:
    return AIMessageChunk(content=content, id=of, chunk_position="last" if last else None)


def call(index: int, arguments: str, name: str | None = None, call_id: str | None = None, *, of: str = "m") -> AIMessageChunk:
    return AIMessageChunk(content="", id=of, tool_call_chunks=[ToolCallChunk(name=name, args=arguments, id=call_id, index=index)])


def test_a_text_closes_before_its_tool_call_opens() -> None:
    events = fed(
        mapper(), text("a"), text(""), call(0, "", "look", "k"), call(0, "{}"), text("", last=True), ToolMessage("21", tool_call_id="k")
    )
    assert brief(events) == [
        "TEXT_MESSAGE_START m",
        "TEXT_MESSAGE_CONTENT m",
        "TEXT_MESSAGE_END m",
        "TOOL_CALL_START k",
        "TOOL_CALL_ARGS k",
        "TOOL_CALL_END k",
        "TOOL_CALL_RESULT k",
    ]
    assert events[3]["parentMessageId"] == "m"


def test_text_after_a_call_gets_an_id_of_its_own() -> None:
    events = fed(mapper(), text("a"), call(0, "{}", "look", "k"), text("b"), text("", last=True))
    assert brief(events)[-4:] == ["TEXT_MESSAGE_START m:2", "TEXT_MESSAGE_CONTENT m:2", "TEXT_MESSAGE_END m:2", "TOOL_CALL_END k"]


def test_calls_at_once_and_models_at_once_do_not_mix() -> None:
    of = mapper()
    events = fed(of, text("a", of="m"), text("b", of="n"), text("c", of="m", last=True), text("d", of="n", last=True))
    assert [event["delta"] for event in events if event.get("messageId") == "m" and "delta" in event] == ["a", "c"]
    events = fed(of, call(0, "", "f", "k0", of="o"), call(1, "", "g", "k1", of="o"), call(0, "x", of="o"), call(1, "y", of="o"))
    assert [(event["toolCallId"], event["delta"]) for event in events if "delta" in event] == [("k0", "x"), ("k1", "y")]
    assert brief(shown(of.finished())) == ["TOOL_CALL_END k0", "TOOL_CALL_END k1", "RUN_FINISHED"]


def test_a_model_that_does_not_stream_is_sent_in_bounded_pieces() -> None:
    whole = AIMessage("é" * (MAX_DELTA_CHARS + 1), id="m", tool_calls=[{"name": "f", "args": {"a": 1}, "id": "k"}])
    events = fed(mapper(), whole)
    assert [len(event["delta"]) for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"] == [MAX_DELTA_CHARS, 1]
    assert [event["delta"] for event in events if event["type"] == "TOOL_CALL_ARGS"] == ['{"a": 1}']


def test_what_people_said_and_results_without_a_call_are_not_sent() -> None:
    assert fed(mapper(), HumanMessage("secret"), ToolMessage("x", tool_call_id="unknown")) == []


def test_a_lone_surrogate_does_not_break_the_stream() -> None:
    assert fed(mapper(), text("a\udc80b"))[1]["delta"] == "a?b"


def test_usage_is_summed_by_model() -> None:
    of = mapper()
    for tokens in (1, 2):
        used: Any = {"input_tokens": tokens, "output_tokens": 10, "total_tokens": 10 + tokens}
        of.feed("messages", (AIMessageChunk(content="", id=f"m{tokens}", usage_metadata=used), {"ls_provider": "p", "ls_model_name": "n"}))
    wanted = {"provider": "p", "model": "n", "inputTokens": 3, "outputTokens": 20, "totalTokens": 23}
    assert shown(of.finished())[-1]["usage"] == [wanted]
    assert shown(of.failed())[0]["usage"] == [wanted]


def test_an_interrupt_is_told_in_both_ways() -> None:
    of = mapper()
    assert of.feed("updates", {"__interrupt__": (Interrupt(value={"q": "Really?"}, id="i1"),)}) == []
    custom, end = shown(of.interrupted(["work"]))
    assert (custom["name"], custom["value"]) == ("on_interrupt", '{"q": "Really?"}')
    assert end["outcome"] == {"type": "interrupt", "interrupts": [{"id": "i1", "reason": "langgraph:interrupt"}]}
    assert shown(mapper().interrupted(["work"]))[-1]["outcome"]["interrupts"][0]["id"] == "breakpoint:work"
