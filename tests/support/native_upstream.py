"""A native upstream of the tests' own: threads with questions in memory, every effect counted, and places to hold it.

Real servers are in `native_servers`; this one is for crashes and races, where what reached the service is counted and held in mid-run. It
answers as LangGraph Agent Server does: a run that waits is a `success`, a wrong id does nothing, metadata comes back.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

TOKEN: Final = "tok-native-tests"
PROMPT: Final = {
    "type": "agentifui.acceptance.confirmation",
    "version": 1,
    "title": "Send the report?",
    "description": "The report goes to finance.",
    "actions": ["approve", "reject"],
    "expires_at": None,
}


@dataclass
class Thread:
    """One thread: what was said, and what it waits for."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    pending: dict[str, Any] | None = None
    last_run: str | None = None
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    active: bool = False


class NativeUpstream:
    """`acts`: (thread id, answer) for each decision that took effect; `posts`: the mark of each POST that was received whole."""

    def __init__(self) -> None:
        self.threads: dict[str, Thread] = {}
        self.acts: list[tuple[str, Any]] = []
        self.posts: list[str] = []
        self.calls: Counter[str] = Counter()
        self.base_url = ""
        self.prompt: dict[str, Any] = dict(PROMPT)
        self.loses_responses = False
        """Executes, and answers 500."""
        self.fails_posts = False
        """Answers 500, and nothing was done."""
        self.ignores_answers = False
        """Takes a decision with 200, and nothing happens."""
        self.asks_as: str | None = None
        """A decision is followed by a question in a state that this run wrote."""
        self.tells_metadata = True
        self.names_another_run = False
        self.writes_more = False
        """The state has a message that was never streamed."""
        self.changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()
        self._open.set()

    def hold(self) -> None:
        """Runs stop in the middle of their stream from now on."""
        self._open.clear()

    def let_go(self) -> None:
        """They go on."""
        self._open.set()

    async def received(self, posts: int) -> None:
        """Wait until so many POSTs came."""
        async with asyncio.timeout(30):
            while len(self.posts) < posts:
                self.changed.clear()
                await self.changed.wait()

    def app(self) -> Starlette:
        """Its routes."""
        thread = "/threads/{thread_id}"
        return Starlette(
            routes=[
                Route("/capabilities", self._capabilities),
                Route("/threads", self._create, methods=["POST"]),
                Route(f"{thread}/runs/stream", self._run, methods=["POST"]),
                Route(f"{thread}/runs/{{run_id}}", self._look_up),
                Route(f"{thread}/runs", self._list),
                Route(f"{thread}/state", self._state),
            ]
        )

    async def _capabilities(self, _: Request) -> Response:
        self.calls["capabilities"] += 1
        able = {"native_interrupt": True, "native_resume": True, "one_task_per_thread": True, "actions": ["approve", "reject"]}
        return JSONResponse({"assistant_id": "agent", **able})

    async def _create(self, _: Request) -> Response:
        thread_id = str(uuid4())
        self.threads[thread_id] = Thread()
        return JSONResponse({"thread_id": thread_id})

    async def _run(self, request: Request) -> Response:
        body = json.loads(await request.body())
        thread_id, run_id = request.path_params["thread_id"], str(uuid4())
        thread = self.threads[thread_id]
        self.posts.append(body["metadata"]["gateway_mark"])
        self.changed.set()
        if self.fails_posts:
            return JSONResponse({"detail": "secret=abc123"}, 500)
        if thread.active:
            return JSONResponse({"detail": "Thread is already running a task"}, 409)
        thread.active = True
        thread.runs[run_id] = {"run_id": run_id, "thread_id": thread_id, "status": "running", "metadata": body["metadata"]}
        said: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        # As with on_disconnect: continue, the run is nobody's but the server's.
        task = asyncio.create_task(self._execute(thread_id, run_id, body, said))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self.loses_responses:
            return JSONResponse({"detail": "secret=abc123"}, 500)
        headers = {"Content-Location": f"/threads/{thread_id}/runs/{run_id}"}
        named = str(uuid4()) if self.names_another_run else run_id
        return StreamingResponse(_frames(named, said), media_type="text/event-stream", headers=headers)

    async def _execute(self, thread_id: str, run_id: str, body: dict[str, Any], said: "asyncio.Queue[dict[str, Any] | None]") -> None:
        thread = self.threads[thread_id]
        answers = body.get("command", {}).get("resume", {})
        if "input" in body:
            texts = ["I need ", "your confirmation."]
        elif thread.pending is not None and thread.pending["id"] in answers and not self.ignores_answers:
            self.acts.append((thread_id, answers[thread.pending["id"]]))
            texts = ["Done: ", answers[thread.pending["id"]]["action"]]
            thread.pending = None
        else:
            texts = []
        message_id = f"ai-{run_id}"
        for number, text in enumerate(texts):
            if number:
                await self._open.wait()
            said.put_nowait({"type": "AIMessageChunk", "id": message_id, "content": text})
        if texts:
            thread.messages.append({"type": "ai", "id": message_id, "content": "".join(texts)})
            thread.last_run = run_id
        if self.writes_more:
            thread.messages.append({"type": "ai", "id": f"more-{run_id}", "content": "never streamed"})
        if "input" in body:
            thread.pending = {"id": uuid4().hex, "value": self.prompt}
        elif self.asks_as is not None:
            thread.pending, thread.last_run = {"id": uuid4().hex, "value": {**self.prompt, "title": "Again?"}}, self.asks_as
        thread.runs[run_id]["status"] = "success"
        thread.active = False
        said.put_nowait(None)

    async def _look_up(self, request: Request) -> Response:
        self.calls["look_up"] += 1
        run = self.threads[request.path_params["thread_id"]].runs.get(request.path_params["run_id"])
        return JSONResponse(run) if run else JSONResponse({"detail": "Not Found"}, 404)

    async def _list(self, request: Request) -> Response:
        self.calls["list"] += 1
        runs = list(self.threads[request.path_params["thread_id"]].runs.values())[::-1]
        return JSONResponse(runs if self.tells_metadata else [{**run, "metadata": None} for run in runs])

    async def _state(self, request: Request) -> Response:
        self.calls["state"] += 1
        thread = self.threads[request.path_params["thread_id"]]
        pending = [thread.pending] if thread.pending else []
        return JSONResponse(
            {
                "values": {"messages": thread.messages},
                "next": ["ask"] if pending else [],
                "tasks": [{"name": "ask", "error": None, "interrupts": pending}] if pending else [],
                "interrupts": pending,
                "metadata": {"run_id": thread.last_run},
            }
        )


async def _frames(run_id: str, said: "asyncio.Queue[dict[str, Any] | None]") -> AsyncIterator[str]:
    yield f'event: metadata\r\ndata: {{"run_id":"{run_id}","attempt":1}}\r\n\r\n'
    while (message := await said.get()) is not None:
        yield f"event: messages\r\ndata: {json.dumps([message, {}])}\r\n\r\n"


class _Server(uvicorn.Server):
    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.config.app.state.listening.set()  # type: ignore[union-attr]


@asynccontextmanager
async def native_upstream() -> AsyncIterator[NativeUpstream]:
    """A native upstream that listens."""
    upstream = NativeUpstream()
    app = upstream.app()
    app.state.listening = asyncio.Event()
    server = _Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, lifespan="off", ws="none", timeout_graceful_shutdown=1))
    serving = asyncio.create_task(server.serve())
    try:
        await app.state.listening.wait()
        upstream.base_url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        yield upstream
    finally:
        upstream.let_go()
        server.should_exit = True
        server.force_exit = True
        await serving
