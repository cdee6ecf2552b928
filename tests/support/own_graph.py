"""Graphs such as a user of `agent-service serve --agent MODULE:GRAPH` writes, good and bad ones. Not here: any of our own code."""

import asyncio
from typing import Any, TypedDict

from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

CANARY = "canary-6f1d-secret-of-the-agent"


def _count(state: MessagesState) -> dict[str, Any]:
    said = [message for message in state["messages"] if message.type == "human"]
    return {"messages": [AIMessage(f"{len(said)}: {said[-1].text}")]}


async def _hang(state: MessagesState) -> dict[str, Any]:
    if state["messages"][-1].text == "hang":
        await asyncio.Event().wait()
    return _count(state)


def _ask(state: MessagesState) -> dict[str, Any]:
    decision = interrupt({"question": "Really?"})
    return {"messages": [AIMessage(f"You decided {decision}")]}


async def _ask_then_hang(state: MessagesState) -> dict[str, Any]:
    if (decision := interrupt({"question": "Really?"})) == "hang":
        await asyncio.Event().wait()
    return {"messages": [AIMessage(f"You decided {decision}")]}


def _break(state: MessagesState) -> dict[str, Any]:
    raise RuntimeError(CANARY)


class _Elsewhere(TypedDict):
    question: str


def _one_node(node: Any, state: Any = MessagesState) -> StateGraph[Any, Any, Any, Any]:
    made: StateGraph[Any, Any, Any, Any] = StateGraph(state)
    made.add_node("work", node)
    made.add_edge(START, "work")
    made.add_edge("work", END)
    return made


builder = _one_node(_count)
graph = builder.compile()
remembering = builder.compile(checkpointer=InMemorySaver())
hanging = _one_node(_hang)
asking = _one_node(_ask)
asking_then_hanging = _one_node(_ask_then_hang)
stopping = builder.compile(interrupt_before=["work"])
breaking = _one_node(_break)
elsewhere = _one_node(lambda state: {}, _Elsewhere)
unfinished = StateGraph(MessagesState)
number = 42


def make() -> Any:
    """A factory."""
    return builder


async def make_later() -> Any:
    """An async factory."""
    return graph


def make_with(model: str) -> Any:
    """A factory that cannot be called without arguments."""
    return graph


def make_and_fail() -> Any:
    """A factory that fails."""
    raise RuntimeError("no such model")
