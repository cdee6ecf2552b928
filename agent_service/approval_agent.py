"""The second built-in agent: it asks a person before it acts. The act is pretended; the prompt is version 1 of the confirmation.

Here lives: the graph, its prompt, what it says. Not here: how it is served, how answers come.
"""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, HumanMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict

from agent_service.scripted_model import ScriptedChatModel, Turn

PROMPT_TYPE: Final = "agentifui.acceptance.confirmation"
MAX_TASK_CHARS: Final = 300
"""Of what was asked, as the prompt quotes it."""
_WITHIN: Final = re.compile(r"\bwithin\s+(?P<number>[1-9]\d{0,3})\s*(?P<unit>second|minute|hour)s?\b", re.IGNORECASE)
_UNSEEN: Final = re.compile(r"[^\S ]|[\x00-\x1f\x7f]")


class Answer(TypedDict, total=False):
    """What a person decided. `action`: approve or reject."""

    action: str
    comment: str


class ApprovalState(MessagesState):
    """The conversation, until when the prompt may be answered (ISO 8601, or for ever), and the answer."""

    expires_at: str | None
    answer: Answer


def asked_for(conversation: Sequence[BaseMessage]) -> str:
    """What the person wants done, on one line."""
    said = [message for message in conversation if isinstance(message, HumanMessage)]
    text = " ".join(_UNSEEN.sub(" ", str(said[-1].text)).split()) if said else ""
    return text if len(text) <= MAX_TASK_CHARS else f"{text[: MAX_TASK_CHARS - 1]}…"


def expiry(text: str, now: datetime) -> str | None:
    """When the prompt expires, where the text says `within N seconds|minutes|hours`."""
    found = _WITHIN.search(text)
    if found is None:
        return None
    until = now + timedelta(**{f"{found['unit'].lower()}s": int(found["number"])})
    return until.isoformat(timespec="seconds").replace("+00:00", "Z")


def prompt(task: str, expires_at: str | None) -> dict[str, Any]:
    """The confirmation as the gateway takes it."""
    return {
        "type": PROMPT_TYPE,
        "version": 1,
        "title": "Go ahead?",
        "description": f"You asked for this: {task}",
        "actions": ["approve", "reject"],
        "expires_at": expires_at,
    }


def proposal(conversation: Sequence[BaseMessage]) -> Turn:
    """What is said before the prompt."""
    return Turn("I can do that. It needs your approval first.")


def outcome(answer: Answer) -> str:
    """What is said after the answer."""
    comment = f" You wrote: {answer['comment']}" if answer.get("comment") else ""
    if answer.get("action") == "approve":
        return f"Done. (This is a demo: nothing really happened.){comment}"
    return f"All right, I left it.{comment}"


def approval_agent(*, pace_seconds: float, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> StateGraph[Any, Any, Any, Any]:
    """The graph, not compiled. Its model is always the scripted one."""

    def model(script: Callable[[Sequence[BaseMessage]], Turn]) -> BaseChatModel:
        return ScriptedChatModel(script=script, pace_seconds=pace_seconds)

    async def propose(state: ApprovalState) -> dict[str, Any]:
        said = await model(proposal).ainvoke(state["messages"])
        return {"messages": [said], "expires_at": expiry(asked_for(state["messages"]), now())}

    async def ask(state: ApprovalState) -> dict[str, Any]:
        return {"answer": interrupt(prompt(asked_for(state["messages"]), state["expires_at"]))}

    async def act(state: ApprovalState) -> dict[str, Any]:
        return {"messages": [await model(lambda _: Turn(outcome(state["answer"]))).ainvoke(state["messages"])]}

    made: StateGraph[Any, Any, Any, Any] = StateGraph(ApprovalState)
    made.add_node("propose", propose)
    made.add_node("ask", ask)
    made.add_node("act", act)
    for earlier, later in ((START, "propose"), ("propose", "ask"), ("ask", "act"), ("act", END)):
        made.add_edge(earlier, later)
    return made
