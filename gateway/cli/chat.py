"""`gateway chat`: a client of the public API, and of nothing else here. httpx-sse reads the stream.

Never sends a message twice: what breaks after the POST is looked up with GET.
"""

import asyncio
import json
import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Mapping
from typing import Final
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import httpx
from httpx_sse import SSEError, aconnect_sse

from gateway.cli.output import CommandFailed, Output, WrongUsage, printable
from gateway.cli.session import read_token

_DEFAULT_URL: Final = "http://127.0.0.1:8080"
# Longer than the comment lines that keep a quiet stream alive (GATEWAY_BROWSER_HEARTBEAT_SECONDS).
_READ_SECONDS: Final = 60.0
_POLLS: Final = 60
_THIS_MACHINE: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_OVER: Final = frozenset({"succeeded", "failed", "released", "closed", "waiting"})

Document = Mapping[str, object]


async def chat(args: Namespace, output: Output) -> int:
    """Send one message, or each line of standard input, and print what the application says."""
    url = _url(args, output)
    async with httpx.AsyncClient(
        base_url=url,
        trust_env=urlsplit(url).hostname not in _THIS_MACHINE,  # a proxy of the environment cannot lead back here
        headers={"Authorization": f"Bearer {_token(args, output)}"},
        timeout=httpx.Timeout(10.0, read=_READ_SECONDS),
    ) as client:
        try:
            talk = _Talk(client, await _app_id(client, args.app), args.conversation, output)
            async for text in _texts(args.text):
                await talk.say(text)
        except httpx.HTTPError as error:
            # Only the kind of the fault: such texts can carry what was sent.
            raise CommandFailed(
                f"The gateway cannot be reached ({type(error).__name__}).", "Check --url and that `gateway serve` runs there."
            ) from None
    return 0


class _Talk:
    """One conversation with one application."""

    def __init__(self, client: httpx.AsyncClient, app_id: str, conversation_id: str | None, output: Output) -> None:
        self._client = client
        self._path = f"/api/internal/apps/{app_id}/agent"
        self._conversation_id = conversation_id
        self._output = output
        self._in_line = False

    async def say(self, text: str) -> None:
        """One message and its answer. Raises CommandFailed for a refusal and for a run that did not succeed."""
        body: dict[str, object] = {"submission_id": str(uuid4()), "text": text}
        if self._conversation_id is not None:
            body["conversation_id"] = self._conversation_id
        run: Document = {}
        finished = False
        try:
            async with aconnect_sse(
                self._client, "POST", f"{self._path}/runs", json=body, headers={"Accept": "text/event-stream"}
            ) as source:
                await _raise_for_problem(source.response)
                async for event in source.aiter_sse():
                    frame = _object(event.data)
                    if frame.get("type") == "CUSTOM" and frame.get("name") == "gateway.run":
                        run = _mapping(frame.get("value"))
                        self._conversation_id = str(run.get("conversation_id"))
                    finished = frame.get("type") in ("RUN_FINISHED", "RUN_ERROR")
                    self._show(frame)
        except (httpx.TransportError, SSEError):
            if not run:
                raise
        finally:
            self._end_line()
        if not finished and run:
            self._output.progress("The connection ended before the answer did; asking how it goes on.")
            run = await self._until_over(str(run.get("run_id")))
        self._end(run)

    def _show(self, frame: Document) -> None:
        if self._output.as_json:
            return
        if frame.get("type") == "TEXT_MESSAGE_CONTENT":
            text = printable(str(frame.get("delta", "")))
            print(text, end="", flush=True)
            self._in_line = not text.endswith("\n") if text else self._in_line
        elif frame.get("type") == "TEXT_MESSAGE_END":
            self._end_line()
        elif frame.get("type") == "TOOL_CALL_START":
            self._output.progress(f"[{frame.get('toolCallName')}]")

    def _end_line(self) -> None:
        # Also of an answer that broke off: what is said next, to whichever stream, begins a line.
        if self._in_line:
            print(flush=True)
        self._in_line = False

    async def _until_over(self, run_id: str) -> Document:
        run: Document = {}
        for _ in range(_POLLS):
            response = await self._client.get(f"{self._path}/runs/{run_id}")
            await _raise_for_problem(response)
            run = _object(response.text)
            pause = run.get("poll_after_seconds")
            if run.get("execution") in _OVER or not isinstance(pause, int | float):
                break
            await asyncio.sleep(min(max(float(pause), 0.1), 10.0))
        for item in _items(run):
            if item.get("type") == "message" and not self._output.as_json:
                print(printable(str(item.get("text", ""))))
        return run

    def _end(self, run: Document) -> None:
        if self._output.as_json:
            print(json.dumps(run, ensure_ascii=False), flush=True)
        if run.get("execution") != "succeeded":
            shown = {key: run.get(key) for key in ("run_id", "conversation_id", "execution", "persistence", "reason")}
            raise CommandFailed(
                f"The run did not succeed: {run.get('execution', 'unknown')}.",
                "docs/reasons.md explains the reason; nothing is sent again by itself.",
                code=str(run.get("reason") or "failed"),
                details=shown,
            )
        if run.get("persistence") != "saved":
            self._output.progress(f"The answer is not in the history (yet): {run.get('persistence')}.")


def _url(args: Namespace, output: Output) -> str:
    url = str(args.url or output.environ.get("GATEWAY_URL", "").strip() or _DEFAULT_URL)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise WrongUsage("That is not the address of a gateway.", "Give --url http://HOST:PORT, without a user name or a password.")
    return url.rstrip("/")


def _token(args: Namespace, output: Output) -> str:
    raw = read_token(args.token_file) if args.token_file else output.environ.get("GATEWAY_TOKEN", "")
    token = raw.strip()
    if not token:
        raise WrongUsage("There is no bearer token.", "Set GATEWAY_TOKEN or give --token-file; `gateway token SUBJECT` makes one.")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise WrongUsage("That is not a bearer token.", "`gateway token SUBJECT` makes one.")
    return token


async def _texts(text: str | None) -> AsyncIterator[str]:
    if text is not None:
        yield text
        return
    interactive = sys.stdin.isatty()
    while True:
        if interactive:
            print("> ", end="", file=sys.stderr, flush=True)
        line = await asyncio.to_thread(sys.stdin.readline)
        if not line:
            return
        if line.strip():
            yield line.rstrip("\n")


async def _app_id(client: httpx.AsyncClient, wanted: str) -> str:
    try:
        return str(UUID(wanted))
    except ValueError:
        pass
    response = await client.get("/api/internal/apps")
    await _raise_for_problem(response)
    apps = _object(response.text).get("apps")
    found = [app for app in apps if isinstance(app, dict) and app.get("name") == wanted] if isinstance(apps, list) else []
    if not found:
        raise CommandFailed("There is no such application that you may see.", "Check its name, and who you are.", code="not_found")
    return str(found[0].get("app_id"))


async def _raise_for_problem(response: httpx.Response) -> None:
    if response.status_code < 400:
        return
    await response.aread()
    problem = _object(response.text)
    title, detail = problem.get("title", f"HTTP {response.status_code}"), problem.get("detail", "No more is known.")
    next_step = "Try again later." if response.status_code in (429, 503) else "docs/problems.md explains it."
    raise CommandFailed(f"{title}. {detail}", next_step, code=str(problem.get("code", "failed")))


def _object(text: str) -> Document:
    try:
        return _mapping(json.loads(text))
    except ValueError:
        return {}


def _mapping(value: object) -> Document:
    return value if isinstance(value, dict) else {}


def _items(run: Document) -> list[Document]:
    items = _mapping(run.get("snapshot")).get("items")
    return [_mapping(item) for item in items] if isinstance(items, list) else []
