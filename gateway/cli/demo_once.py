"""`gateway demo --once`: one message through the public HTTP API, then what was saved of it. A client, and of nothing else here."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

import httpx
from httpx_sse import SSEError, aconnect_sse

from gateway.cli.output import CommandFailed, Output, printable

QUESTION: Final = "What is the weather in Paris?"
"""The agent answers with text, a tool step, and text."""
# Longer than the comment lines that keep a quiet stream alive (GATEWAY_BROWSER_HEARTBEAT_SECONDS).
_READ_SECONDS: Final = 60.0

Document = Mapping[str, object]


@dataclass(slots=True)
class _Streamed:
    """What the stream showed: items by their ids in order of appearance, as (kind, text or tool name)."""

    items: dict[str, tuple[str, str]] = field(default_factory=dict)
    run: Document = field(default_factory=dict)
    end: Document = field(default_factory=dict)

    def take(self, frame: Document) -> None:
        """Note one frame."""
        match frame.get("type"):
            case "TEXT_MESSAGE_START":
                self.items[str(frame.get("messageId"))] = ("assistant", "")
            case "TEXT_MESSAGE_CONTENT":
                message_id = str(frame.get("messageId"))
                self.items[message_id] = ("assistant", self.items.get(message_id, ("", ""))[1] + str(frame.get("delta", "")))
            case "TOOL_CALL_START":
                self.items[str(frame.get("toolCallId"))] = ("tool", str(frame.get("toolCallName")))
            case "CUSTOM" if frame.get("name") == "gateway.run":
                self.run = _mapping(frame.get("value"))
            case "RUN_FINISHED" | "RUN_ERROR":
                self.end = frame


@dataclass(frozen=True, slots=True)
class Once:
    """One person who asks one application one question."""

    base_url: str
    token: str
    subject: str
    app_name: str
    output: Output

    async def ask(self) -> dict[str, object]:
        """Ask, print, read the history, compare. Returns the record of it. Raises CommandFailed where something does not fit."""
        try:
            async with httpx.AsyncClient(
                base_url=self.base_url,
                headers={"Authorization": f"Bearer {self.token}"},
                timeout=httpx.Timeout(10.0, read=_READ_SECONDS),
                trust_env=False,  # loopback: no proxy has a part in it
            ) as client:
                return await self._ask(client)
        except (httpx.HTTPError, SSEError) as error:
            raise CommandFailed(f"The gateway's answer broke off ({type(error).__name__}).", "Its log says why.") from None

    async def _ask(self, client: httpx.AsyncClient) -> dict[str, object]:
        path = f"/api/internal/apps/{await self._app_id(client)}/agent"
        self._say(f'\nAs {self.subject}, to "{self.app_name}":\n\n> {QUESTION}\n')
        streamed = await self._stream(client, path)
        if streamed.end.get("type") != "RUN_FINISHED":
            reason = str(streamed.end.get("code") or "the stream just ended")
            next_step = "docs/reasons.md explains the reason; agent.log and gateway.log say more."
            raise CommandFailed(
                f"The run did not succeed: {reason}.", next_step, code=reason, details={"run_id": streamed.run.get("run_id")}
            )
        conversation_id = str(streamed.run.get("conversation_id"))
        history = await _pages(client, f"{path}/conversations/{conversation_id}/items", "items")
        self._say("\nThe saved history of this conversation:\n")
        for item in history:
            self._say(f"  {_row(item)}")
        _check_agreement(streamed, history)
        self._say("\nIt is what was streamed.")
        conversations = await _pages(client, f"{path}/conversations", "conversations")
        self._say(f"\nConversations of {self.subject} with this application:\n")
        for conversation in conversations:
            self._say(f"  {conversation.get('created_at')}  {conversation.get('conversation_id')}  {conversation.get('title')}")
        return {
            "subject": self.subject,
            "app": self.app_name,
            "text": QUESTION,
            "run": streamed.run,
            "streamed": [{"item_id": item_id, "kind": kind, "text": text} for item_id, (kind, text) in streamed.items.items()],
            "history": history,
            "agree": True,
            "conversations": conversations,
        }

    async def _app_id(self, client: httpx.AsyncClient) -> str:
        apps = _documents((await _get(client, "/api/internal/apps")).get("apps"))
        for app in apps:
            if app.get("name") == self.app_name and app.get("available") is True:
                return str(app.get("app_id"))
        raise CommandFailed(
            f'"{self.app_name}" is not available to {self.subject}.',
            "Enable it, its provider and the account again, or use a fresh folder.",
        )

    async def _stream(self, client: httpx.AsyncClient, path: str) -> _Streamed:
        streamed = _Streamed()
        body = {"submission_id": str(uuid4()), "text": QUESTION}
        headers = {"Accept": "text/event-stream"}
        async with aconnect_sse(client, "POST", f"{path}/runs", json=body, headers=headers) as source:
            await _raise_for_problem(source.response)
            async for event in source.aiter_sse():
                frame = _object(event.data)
                streamed.take(frame)
                self._show(frame)
        return streamed

    def _show(self, frame: Document) -> None:
        match frame.get("type"):
            case "TEXT_MESSAGE_CONTENT":
                self._say(str(frame.get("delta", "")), end="")
            case "TEXT_MESSAGE_END":
                self._say("")
            case "TOOL_CALL_START":
                self._say(f"[tool {frame.get('toolCallName')}: started", end="")
            case "TOOL_CALL_RESULT":
                self._say(", returned]")

    def _say(self, text: str, *, end: str = "\n") -> None:
        if not self.output.as_json:
            print(printable(text), end=end, flush=True)


def _row(item: Document) -> str:
    if item.get("type") == "tool":
        return f"tool       {item.get('name')} ({item.get('status')})"
    return f"{str(item.get('role')).ljust(9)}  {item.get('text')}"


def _check_agreement(streamed: _Streamed, history: list[Document]) -> None:
    """Raise CommandFailed unless the history is the question and then exactly what was streamed, item by item."""
    saved = [(str(item.get("item_id")), _kind_and_text(item)) for item in history]
    asked = saved[:1] and saved[0][1] == ("user", QUESTION)
    whole = all(item.get("complete", True) for item in history)
    if not (asked and whole and saved[1:] == list(streamed.items.items())):
        raise CommandFailed("The saved history is not what was streamed.", "Please report this, with gateway.log.", code="history_differs")


def _kind_and_text(item: Document) -> tuple[str, str]:
    if item.get("type") == "tool":
        return "tool", str(item.get("name"))
    return str(item.get("role")), str(item.get("text"))


async def _pages(client: httpx.AsyncClient, path: str, member: str) -> list[Document]:
    """All entries of a list that comes in pages."""
    entries: list[Document] = []
    query: dict[str, str] = {}
    while True:
        page = await _get(client, path, query)
        entries += _documents(page.get(member))
        cursor = page.get("next")
        if not isinstance(cursor, str):
            return entries
        query = {"cursor": cursor}


async def _get(client: httpx.AsyncClient, path: str, query: Mapping[str, str] | None = None) -> Document:
    response = await client.get(path, params=query or {})
    await _raise_for_problem(response)
    return _object(response.text)


async def _raise_for_problem(response: httpx.Response) -> None:
    if response.status_code < 400:
        return
    await response.aread()
    problem = _object(response.text)
    title = problem.get("title", f"HTTP {response.status_code}")
    raise CommandFailed(
        f"{title}. {problem.get('detail', 'No more is known.')}", "docs/problems.md explains it.", code=str(problem.get("code", "failed"))
    )


def _object(text: str) -> Document:
    try:
        return _mapping(json.loads(text))
    except ValueError:
        return {}


def _mapping(value: object) -> Document:
    return value if isinstance(value, dict) else {}


def _documents(value: object) -> list[Document]:
    return [_mapping(entry) for entry in value] if isinstance(value, list) else []
