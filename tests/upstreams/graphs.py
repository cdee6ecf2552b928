"""The agent that the tests put on every native upstream: what it does is chosen by the first word of the message.

Loaded by servers in environments of their own (from a file, not from a package), and by the tests in this one for `agent_service`:
LangGraph, langchain-core and the standard library only.

| first word | what happens |
| --- | --- |
| any other | a streamed answer |
| `tool` | text, a tool call, its result, a streamed answer |
| `ask` | asks for approval, then acts; a second word that is a time is the prompt's `expires_at` |
| `ask-two` | two prompts at once |
| `ask-other` | an interrupt that is no version 1 confirmation |
| `ask-wait` | asks for approval, then waits at the gate named by the second word before it acts |
| `ask-twice` | asks for approval, and after an approval once more |
| `wait` | waits until the gate named by the second word is opened |
| `fail`, `fail-late` | raises with a canary in its text, before or after some text |

The folder GRAPH_FOLDER is how tests and graph meet: `acts.jsonl` gets a line for each act, and gates are files in it.
"""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

CANARY = "secret=abc123 in /srv/app/x.py"
PROMPT: dict[str, Any] = {
    "type": "agentifui.acceptance.confirmation",
    "version": 1,
    "title": "Send the report?",
    "description": "The report goes to finance.",
    "actions": ["approve", "reject"],
    "expires_at": None,
}
GATE_PAUSE_SECONDS = 0.02


def folder() -> Path:
    """Where tests and graph meet."""
    return Path(os.environ["GRAPH_FOLDER"])


def words(state: MessagesState) -> list[str]:
    """The words of the last thing a person said."""
    said = [message for message in state["messages"] if message.type == "human"]
    return str(said[-1].text).split() if said else []


async def say(text: str) -> AIMessage:
    """A fake model's answer, streamed in words."""
    answer = await GenericFakeChatModel(messages=iter([AIMessage(text)])).ainvoke("")
    assert isinstance(answer, AIMessage)
    return answer


def record(thread_id: object, answer: object) -> None:
    """A line for an act that took place. Appended in one write, so that lines of two processes do not mix."""
    line = json.dumps({"thread_id": thread_id, "answer": answer}, ensure_ascii=False) + "\n"
    file = os.open(folder() / "acts.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


async def pass_gate(gate: str) -> None:
    """Say that a run is at the gate, and wait until it is open."""
    await asyncio.to_thread((folder() / f"{gate}.reached").touch)
    while not await asyncio.to_thread((folder() / f"{gate}.open").exists):
        await asyncio.sleep(GATE_PAUSE_SECONDS)


async def chat(state: MessagesState) -> dict[str, Any]:
    return {"messages": [await say("Hello from the fake model.")]}


async def call(state: MessagesState) -> dict[str, Any]:
    calls = [{"name": "get_weather", "args": {"city": "Paris", "canary": CANARY}, "id": "call-1", "type": "tool_call"}]
    return {"messages": [AIMessage("Let me look that up.", tool_calls=calls)]}


async def use(state: MessagesState) -> dict[str, Any]:
    return {"messages": [ToolMessage(f"sunny {CANARY}", tool_call_id="call-1", name="get_weather")]}


async def propose(state: MessagesState) -> dict[str, Any]:
    return {"messages": [await say("I need your confirmation.")]}


def ask(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
    said = words(state)
    answers = [interrupt({**PROMPT, "expires_at": said[1] if said[0] == "ask" and said[1:] else None})]
    if said[0] == "ask-twice" and answers[0]["action"] == "approve":
        answers.append(interrupt({**PROMPT, "title": "Really?"}))
    return {"messages": [AIMessage(f"answers={json.dumps(answers, ensure_ascii=False)}")]}


async def act(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
    if words(state)[0] == "ask-wait":
        await pass_gate(words(state)[1])
    answers = json.loads(str(state["messages"][-1].text).removeprefix("answers="))
    await asyncio.to_thread(record, config["configurable"]["thread_id"], answers[-1])
    return {"messages": [await say(f"You chose to {answers[-1]['action']}.")]}


def ask_left(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage(f"left {interrupt({**PROMPT, 'title': 'Left?'})['action']}")]}


def ask_right(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage(f"right {interrupt({**PROMPT, 'title': 'Right?'})['action']}")]}


def ask_other(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage(f"other {interrupt({'question': 'Which one?', 'options': ['a', 'b'], 'canary': CANARY})}")]}


async def wait(state: MessagesState) -> dict[str, Any]:
    await pass_gate(words(state)[1])
    return {"messages": [await say("The gate was opened.")]}


async def fail(state: MessagesState) -> dict[str, Any]:
    if words(state)[0] == "fail-late":
        await say("So far so good.")
    raise RuntimeError(f"fake provider failure: {CANARY}")


def chosen(state: MessagesState) -> str | list[str]:
    """The node, or nodes, at which to begin."""
    begin: dict[str, str | list[str]] = {
        "tool": "call",
        "ask": "propose",
        "ask-twice": "propose",
        "ask-wait": "propose",
        "ask-two": ["ask_left", "ask_right"],
        "ask-other": "ask_other",
        "wait": "wait",
        "fail": "fail",
        "fail-late": "fail",
    }
    return begin.get(next(iter(words(state)), ""), "chat")


def build() -> StateGraph[Any, Any, Any, Any]:
    """The graph, to be compiled by whoever serves it."""
    made: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    for node in (chat, call, use, propose, ask, act, ask_left, ask_right, ask_other, wait, fail):
        made.add_node(node.__name__, node)
    made.add_conditional_edges(START, chosen, ["chat", "call", "propose", "ask_left", "ask_right", "ask_other", "wait", "fail"])
    for earlier, later in (("call", "use"), ("use", "chat"), ("propose", "ask"), ("ask", "act")):
        made.add_edge(earlier, later)
    for last in ("chat", "act", "ask_left", "ask_right", "ask_other", "wait", "fail"):
        made.add_edge(last, END)
    return made


graph = build().compile()
