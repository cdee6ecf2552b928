"""A real upstream over raw asyncio that answers what a test scripts, byte for byte, and counts what reached it.

Here lives: the server, its records, its signals and its control routes. Not here: what can be scripted
(`upstream_script.py`, re-exported below), the native profile, any protocol check of the gateway's.
Longer than most modules because the bytes, the records and the signals of one exchange belong together.

In the test's own process:

    async with ScriptedUpstream() as upstream:                     # 127.0.0.1, a free port, upstream.base_url, upstream.token
        upstream.use(Script(ag_ui=[Answer(cut_after_frame=4, ending="reset"), Answer()]))
        ...
        await upstream.received(1)                                 # signals, never sleeps; all have timeout_seconds
        assert upstream.counts().executions == 1

From another process: `python -m tests.support.scripted_upstream --port N [--token T] [--script FILE]` prints one line of
JSON ({"base_url", "token"}) when it listens, and (no token needed):

    PUT  /_script    a Script as JSON         POST /_release {"gate": name}   (no name: all gates, for good)
    GET  /_counts    Counts as JSON           POST /_hold {"gate": name}      closes a gate again
    GET  /_posts     every POST /ag-ui        POST /_reset                    forgets records, runs, threads and script
    GET  /_wait?what=received&number=3&timeout_seconds=5   a signal (see SIGNALS); 408 when it did not come in time

Without a script it is a good upstream: bearer token checked (401), threads only those handed out (404), `good_run()` for
each message, a look-up that tells the truth. A client that leaves does not stop a run: its frames play on unseen.
An *execution* is a POST that was accepted, or whose Answer says `executes=True`; it is counted before a byte is written.
"""

import argparse
import asyncio
import base64
import binascii
import contextlib
import dataclasses
import json
import signal
import sys
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import assert_never
from urllib.parse import parse_qs, urlsplit

from tests.support.raw_http import Connection, GoneError, chunk, head, json_bytes, phrase, read_body, read_head, send
from tests.support.upstream_script import (
    Answer,
    ConnectionPlan,
    Ending,
    Frame,
    Framing,
    Script,
    event,
    failed,
    filled,
    finished,
    gate,
    good_run,
    message,
    pause,
    raw,
    script_from_json,
    script_to_json,
    started,
    status_after,
    tool,
)

__all__ = [
    "DEFAULT_TOKEN",
    "SIGNALS",
    "Answer",
    "ConnectionPlan",
    "Counts",
    "Ending",
    "Frame",
    "Framing",
    "Post",
    "Request",
    "Script",
    "ScriptedUpstream",
    "event",
    "failed",
    "finished",
    "gate",
    "good_run",
    "message",
    "pause",
    "raw",
    "script_from_json",
    "script_to_json",
    "started",
    "tool",
]

DEFAULT_TOKEN = "scripted-upstream-token"
SIGNALS = ("received", "executed", "ended", "client_gone", "looked_up", "connected")
# Long enough for a loaded machine; a signal that does not come is a bug, and its test says so after this.
SIGNAL_SECONDS = 10.0


@dataclass(frozen=True)
class Request:
    """One request that was read whole, whatever it was answered. Header names are lower case, in order of arrival."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    connection: int

    def header(self, name: str) -> str | None:
        """The first header of that name, or None."""
        return next((value for key, value in self.headers if key == name.lower()), None)


@dataclass
class Post:
    """One POST /ag-ui: what arrived, and how far its answer came. Numbers count from 1."""

    number: int
    request: Request
    thread_id: str = ""
    run_id: str = ""
    message_id: str = ""
    text: str = ""
    execution: int | None = None
    native_run_id: str | None = None
    status: int | None = None
    frames_written: int = 0
    bytes_written: int = 0
    client_gone: bool = False
    ended: bool = False

    @property
    def body(self) -> bytes:
        """The body as received."""
        return self.request.body


@dataclass
class _Run:
    native_run_id: str
    run_id: str
    thread_id: str
    status: str = "running"


@dataclass(frozen=True)
class Counts:
    """What reached the server since it started or was reset. Mappings have only keys that occurred."""

    connections: int
    capabilities: int
    threads: int
    ag_ui: int
    lookups: int
    executions: int
    overlapping_executions: int  # executions that began while another one of the same thread was going
    ag_ui_by_run_id: Mapping[str, int]
    ag_ui_by_thread_id: Mapping[str, int]
    ag_ui_by_text: Mapping[str, int]
    ag_ui_by_message_id: Mapping[str, int]
    executions_by_run_id: Mapping[str, int]
    executions_by_thread_id: Mapping[str, int]
    executions_by_text: Mapping[str, int]
    executions_by_message_id: Mapping[str, int]
    lookups_by_native_run_id: Mapping[str, int]


@dataclass
class _State:
    """Everything that POST /_reset forgets."""

    script: Script = field(default_factory=Script)
    taken: Counter[str] = field(default_factory=Counter)
    connections_of_script: int = 0
    requests: list[Request] = field(default_factory=list)
    posts: list[Post] = field(default_factory=list)
    runs: dict[str, _Run] = field(default_factory=dict)
    threads: set[str] = field(default_factory=set)
    endpoint_calls: Counter[str] = field(default_factory=Counter)
    lookups: Counter[str] = field(default_factory=Counter)
    executions: int = 0
    overlapping: int = 0


class ScriptedUpstream:
    """The server. Use it as an async context manager; `posts` and `requests` are live records, not copies."""

    def __init__(self, script: Script | None = None, *, token: str = DEFAULT_TOKEN, port: int = 0) -> None:
        self.token = token
        self._port = port
        self._state = _State(script=script or Script())
        self._connections = 0
        self._server: asyncio.Server | None = None
        self._faults: list[BaseException] = []
        self._live: dict[asyncio.Task[None], Connection] = {}
        self._gates: dict[str, asyncio.Event] = {}
        self._waiting_at: Counter[str] = Counter()
        self._all_released = False
        self._changed = asyncio.Event()

    # Life

    async def __aenter__(self) -> "ScriptedUpstream":
        await self.listen()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    async def listen(self) -> None:
        """Begin, or begin again on the same port after `refuse`."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self._opened), "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Stop listening: new connections are refused. Those that are open go on."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def aclose(self) -> None:
        """Stop listening and reset whatever is open; raises what went wrong inside the server itself."""
        await self.refuse()
        live = dict(self._live)
        for task, connection in live.items():
            task.cancel()
            connection.reset()
        await asyncio.gather(*live, return_exceptions=True)
        if self._faults:
            raise BaseExceptionGroup("the scripted upstream itself failed", self._faults)

    @property
    def base_url(self) -> str:
        """http://127.0.0.1:PORT"""
        return f"http://127.0.0.1:{self._port}"

    # Script and records

    def use(self, script: Script) -> None:
        """Put another script in place; records, runs and gates stay."""
        self._state.script = script
        self._state.taken.clear()
        self._state.connections_of_script = 0

    def reset(self) -> None:
        """Forget script, records, runs, threads and gates."""
        self._state = _State()
        self._connections = 0
        self._gates.clear()
        self._all_released = False

    def release(self, name: str | None = None) -> None:
        """Open a gate, for good, whether or not anything waits there yet; without a name all gates there will ever be."""
        if name is None:
            self._all_released = True
            for opened in self._gates.values():
                opened.set()
        else:
            self._gate(name).set()

    def hold(self, name: str) -> None:
        """Close a gate again."""
        self._gate(name).clear()

    @property
    def posts(self) -> Sequence[Post]:
        """Every POST /ag-ui that was read whole, in order of arrival."""
        return self._state.posts

    @property
    def requests(self) -> Sequence[Request]:
        """Every request that was read whole, control routes excepted."""
        return self._state.requests

    def run_status(self, run_id: str) -> str | None:
        """The true status of the latest run with this correlation or native id, or None."""
        found = [run for run in self._state.runs.values() if run_id in (run.run_id, run.native_run_id)]
        return found[-1].status if found else None

    def counts(self) -> Counts:
        """A picture of now."""
        posts = self._state.posts
        executed = [post for post in posts if post.execution is not None]
        calls = self._state.endpoint_calls
        return Counts(
            connections=self._connections,
            capabilities=calls["capabilities"],
            threads=calls["threads"],
            ag_ui=len(posts),
            lookups=calls["lookup"],
            executions=self._state.executions,
            overlapping_executions=self._state.overlapping,
            ag_ui_by_run_id=dict(Counter(post.run_id for post in posts)),
            ag_ui_by_thread_id=dict(Counter(post.thread_id for post in posts)),
            ag_ui_by_text=dict(Counter(post.text for post in posts)),
            ag_ui_by_message_id=dict(Counter(post.message_id for post in posts)),
            executions_by_run_id=dict(Counter(post.run_id for post in executed)),
            executions_by_thread_id=dict(Counter(post.thread_id for post in executed)),
            executions_by_text=dict(Counter(post.text for post in executed)),
            executions_by_message_id=dict(Counter(post.message_id for post in executed)),
            lookups_by_native_run_id=dict(self._state.lookups),
        )

    # Signals

    async def until(self, reached: Callable[["ScriptedUpstream"], bool], *, what: str, timeout_seconds: float = SIGNAL_SECONDS) -> None:
        """Wait until `reached(self)` holds, looking after each change; TimeoutError names `what` and the counts."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while not reached(self):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise TimeoutError(f"no {what} within {timeout_seconds} s; {self.counts()}") from None

    async def received(self, number: int = 1, *, timeout_seconds: float = SIGNAL_SECONDS) -> Post:
        """The n-th POST /ag-ui was read whole (its answer may not have begun)."""
        await self.until(lambda it: len(it.posts) >= number, what=f"POST {number}", timeout_seconds=timeout_seconds)
        return self.posts[number - 1]

    async def executed(self, number: int = 1, *, timeout_seconds: float = SIGNAL_SECONDS) -> Post:
        """The n-th execution began."""
        what = f"execution {number}"
        await self.until(lambda it: it._state.executions >= number, what=what, timeout_seconds=timeout_seconds)
        return next(post for post in self.posts if post.execution == number)

    async def frame_written(self, frame: int, *, post: int = 1, timeout_seconds: float = SIGNAL_SECONDS) -> None:
        """Frame k (from 1, gates and pauses not counted) of the n-th POST was handed to the kernel."""
        await self.until(
            lambda it: len(it.posts) >= post and it.posts[post - 1].frames_written >= frame,
            what=f"frame {frame} of POST {post}",
            timeout_seconds=timeout_seconds,
        )

    async def ended(self, post: int = 1, *, timeout_seconds: float = SIGNAL_SECONDS) -> None:
        """The answer to the n-th POST is over, however it ended, and its run has its last status."""
        await self.until(
            lambda it: len(it.posts) >= post and it.posts[post - 1].ended,
            what=f"end of POST {post}",
            timeout_seconds=timeout_seconds,
        )

    async def client_gone(self, post: int = 1, *, timeout_seconds: float = SIGNAL_SECONDS) -> None:
        """The other side of the n-th POST left before its answer was over."""
        await self.until(
            lambda it: len(it.posts) >= post and it.posts[post - 1].client_gone,
            what=f"client of POST {post} leaving",
            timeout_seconds=timeout_seconds,
        )

    async def looked_up(self, number: int = 1, *, timeout_seconds: float = SIGNAL_SECONDS) -> None:
        """The n-th look-up arrived."""
        what = f"look-up {number}"
        await self.until(lambda it: it._state.endpoint_calls["lookup"] >= number, what=what, timeout_seconds=timeout_seconds)

    async def connected(self, number: int = 1, *, timeout_seconds: float = SIGNAL_SECONDS) -> None:
        """The n-th connection was accepted."""
        what = f"connection {number}"
        await self.until(lambda it: it._connections >= number, what=what, timeout_seconds=timeout_seconds)

    async def waiting_at(self, name: str, *, timeout_seconds: float = SIGNAL_SECONDS) -> None:
        """Something waits at this gate now."""
        await self.until(lambda it: it._waiting_at[name] > 0, what=f"wait at {name}", timeout_seconds=timeout_seconds)

    def _gate(self, name: str) -> asyncio.Event:
        opened = self._gates.setdefault(name, asyncio.Event())
        if self._all_released:
            opened.set()
        return opened

    async def _pass(self, name: str) -> None:
        opened = self._gate(name)
        self._waiting_at[name] += 1
        self._changed.set()
        try:
            await opened.wait()
        finally:
            self._waiting_at[name] -= 1

    # One connection

    def _opened(self, connection: Connection) -> None:
        self._connections += 1
        connection.number = self._connections
        plans = self._state.script.connections
        plan = plans[min(self._state.connections_of_script, len(plans) - 1)] if plans else "serve"
        self._state.connections_of_script += 1
        self._changed.set()
        match plan:
            case "close":
                connection.close()
            case "reset":
                connection.reset()
            case "serve" | "hang":
                loop = asyncio.get_running_loop()
                task = loop.create_task(self._serve(connection) if plan == "serve" else _hang(connection))
                self._live[task] = connection
                task.add_done_callback(self._over)
            case _:
                assert_never(plan)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._live.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._faults.append(error)

    async def _serve(self, connection: Connection) -> None:
        with contextlib.suppress(GoneError):
            while await self._exchange(connection):
                pass
        connection.close()

    async def _exchange(self, connection: Connection) -> bool:
        """One request and its answer; False when the connection is to be closed."""
        method, target, headers = await read_head(connection)
        path = urlsplit(target).path
        if path.startswith("/_"):
            body = await read_body(connection, headers)
            return await self._control(connection, Request(method, target, headers, body, connection.number))
        endpoint = _endpoint(method, path)
        answer = self._take(endpoint) if endpoint in ("capabilities", "threads", "lookup") else None
        if answer is not None and await _ended_early(connection, answer, "before_body"):
            return False
        # By text the answer to a POST can be known only after its body; by order it is known now.
        scripted = self._state.script.ag_ui if endpoint == "ag_ui" else ()
        if scripted and not self._state.script.ag_ui_by_text:
            answer = self._take("ag_ui")
            if answer is not None and await _ended_early(connection, answer, "before_body"):
                return False
        request = Request(method, target, headers, await read_body(connection, headers), connection.number)
        self._state.requests.append(request)
        self._state.endpoint_calls[endpoint] += 1
        keeps = request.header("connection") != "close"
        try:
            return await self._answer(connection, endpoint, request, answer) and keeps
        finally:
            self._changed.set()

    async def _answer(self, connection: Connection, endpoint: str, request: Request, answer: Answer | None) -> bool:
        path = urlsplit(request.target).path
        match endpoint:
            case "ag_ui":
                return await self._ag_ui(connection, request, answer)
            case "lookup":
                _, _, thread_id, _, native_run_id = path.split("/")
                self._state.lookups[native_run_id] += 1
                ids = {"threadId": thread_id, "nativeRunId": native_run_id}
                return await self._whole(connection, request, answer, ids, self._truth(thread_id, native_run_id))
            case "threads":
                return await self._whole(connection, request, answer, {}, None)
            case "capabilities":
                return await self._whole(connection, request, answer, {}, (200, self._capabilities()))
            case _:
                status = 405 if path in ("/capabilities", "/threads", "/ag-ui") else 404
                return await self._whole(connection, request, None, {}, (status, _detail(status)))

    def _take(self, name: str, text: str | None = None) -> Answer | None:
        """The next scripted answer of an endpoint, or None when the script says nothing about it."""
        script = self._state.script
        by_endpoint = {
            "capabilities": script.capabilities,
            "threads": script.threads,
            "ag_ui": script.ag_ui,
            "lookup": script.lookup,
        }
        answers = by_endpoint[name]
        key = name
        if text is not None and text in script.ag_ui_by_text:
            answers, key = script.ag_ui_by_text[text], f"{name}:{text}"
        if not answers:
            return None
        taken = self._state.taken[key]
        self._state.taken[key] += 1
        return answers[min(taken, len(answers) - 1)]

    # Whole answers

    def _capabilities(self) -> object:
        return {
            "assistant_id": self._state.script.assistant_id,
            "protocol": "ag-ui",
            "protocol_version": "0.1.22",
            "native_interrupt": False,
            "native_resume": False,
            "one_task_per_thread": False,
            "actions": [],
        }

    def _truth(self, thread_id: str, native_run_id: str) -> tuple[int, object]:
        """What a look-up says when nothing is scripted for it."""
        run = self._state.runs.get(native_run_id)
        names = [native_run_id, *([run.run_id] if run else []), "*"]
        overrides = self._state.script.lookup_status
        told = next((overrides[name] for name in names if name in overrides), run.status if run else None)
        if told is None or (run is not None and run.thread_id != thread_id):
            return 404, _detail(404)
        return 200, {"thread_id": thread_id, "run_id": native_run_id, "status": told}

    def _new_thread(self) -> object:
        ids = self._state.script.thread_ids
        taken = self._state.taken["thread_ids"]
        self._state.taken["thread_ids"] += 1
        thread_id = ids[taken] if taken < len(ids) else str(uuid.uuid4())
        self._state.threads.add(thread_id)
        return {"thread_id": thread_id}

    def _authorised(self, request: Request) -> bool:
        return request.header("authorization") == f"Bearer {self.token}"

    async def _whole(
        self,
        connection: Connection,
        request: Request,
        answer: Answer | None,
        ids: Mapping[str, str],
        good: tuple[int, object] | None,
    ) -> bool:
        """Answer with one body; `good` is what a good upstream says (None: a new thread). False: close."""
        answer = answer or Answer()
        if await _ended_early(connection, answer, "after_request") or not await self._waited(connection, answer):
            return False
        if answer.needs_rights() and not self._authorised(request):
            return await send(connection, 401, {}, json_bytes(_detail(401)))
        if answer.redirect is not None:
            location = {"location": answer.redirect}
            return await send(connection, answer.status or 307, {**location, **answer.headers}, b"")
        if answer.has_body():
            body = _scripted_body(answer, ids)
            if good is None:
                self._state.threads.update(_handed_out(body))
            return await send(connection, answer.status or 200, answer.headers, body)
        if answer.status not in (None, 200, 201):
            return await send(connection, answer.status, answer.headers, json_bytes(_detail(answer.status)))
        status, told = good if good is not None else (200, self._new_thread())
        return await send(connection, answer.status or status, answer.headers, json_bytes(told))

    async def _waited(self, connection: Connection, answer: Answer) -> bool:
        """Delays, gates and hangs before an answer; False when the connection is over."""
        if answer.hang:
            await _hang(connection)
            return False
        if answer.delay_seconds:
            await asyncio.sleep(answer.delay_seconds)
        if answer.gate is not None:
            await self._pass(answer.gate)
        return True

    # POST /ag-ui

    async def _ag_ui(self, connection: Connection, request: Request, answer: Answer | None) -> bool:
        post = Post(len(self._state.posts) + 1, request, *_fields(request.body))
        self._state.posts.append(post)
        self._changed.set()
        answer = answer or self._take("ag_ui", post.text) or Answer()
        refusal = self._refusal(post) if answer.is_stream() and answer.needs_rights() else None
        if refusal is not None:
            post.status, post.ended = refusal, True
            return await send(connection, refusal, {}, json_bytes(_detail(refusal)))
        streams = answer.is_stream()
        run = self._execute(post, answer) if (answer.executes if answer.executes is not None else streams) else None
        watch = asyncio.get_running_loop().create_task(self._watch(connection, post))
        try:
            if streams:
                return await self._stream(connection, post, answer)
            post.status = answer.status
            return await self._whole(connection, request, answer, self._ids(post), (200, {}))
        finally:
            watch.cancel()
            if run is not None:
                run.status = answer.ends_as or status_after(good_run() if answer.frames is None else answer.frames)
            post.client_gone = post.client_gone or connection.gone.is_set()
            post.ended = True
            self._changed.set()

    async def _watch(self, connection: Connection, post: Post) -> None:
        await connection.gone.wait()
        post.client_gone = True
        self._changed.set()

    def _refusal(self, post: Post) -> int | None:
        """The status with which a good upstream refuses this POST, or None."""
        if not self._authorised(post.request):
            return 401
        if not (post.thread_id and post.run_id and post.message_id and post.text):
            return 422
        if post.thread_id not in self._state.threads and not self._state.script.any_thread:
            return 404
        return 409 if self._state.script.one_run_per_thread and self._busy(post.thread_id) else None

    def _busy(self, thread_id: str) -> bool:
        active = {post.native_run_id for post in self._state.posts if not post.ended}
        return any(run.thread_id == thread_id and run.native_run_id in active for run in self._state.runs.values())

    def _execute(self, post: Post, answer: Answer) -> _Run:
        self._state.overlapping += self._busy(post.thread_id)
        self._state.executions += 1
        post.execution = self._state.executions
        native = answer.native_run_id or str(uuid.uuid4())
        post.native_run_id = native.replace("{runId}", post.run_id).replace("{threadId}", post.thread_id)
        run = _Run(post.native_run_id, post.run_id, post.thread_id)
        self._state.runs[run.native_run_id] = run
        self._changed.set()
        return run

    def _ids(self, post: Post) -> dict[str, str]:
        return {
            "threadId": post.thread_id,
            "runId": post.run_id,
            "nativeRunId": post.native_run_id or "",
            "text": post.text,
        }

    async def _stream(self, connection: Connection, post: Post, answer: Answer) -> bool:
        if not await self._waited(connection, answer):
            return False
        frames = good_run() if answer.frames is None else answer.frames
        ids = self._ids(post)
        post.status = answer.status or 200
        headers = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-store"}
        headers |= _framing_headers(answer, frames, ids)
        await connection.write(head(post.status, headers, answer.headers))
        body = _Body(connection, answer, post)
        for frame in frames:
            if body.is_cut():
                break
            if "gate" in frame:
                await self._pass(str(frame["gate"]))
                continue
            if "pause_seconds" in frame:
                await asyncio.sleep(float(str(frame["pause_seconds"])))
                continue
            if answer.pace_seconds:
                await asyncio.sleep(answer.pace_seconds)
            await body.write(_frame_bytes(frame, ids, answer.newline))
            self._changed.set()
        return await body.end()

    # Control routes

    async def _control(self, connection: Connection, request: Request) -> bool:
        parts = urlsplit(request.target)
        try:
            status, told = await self._controlled(f"{request.method} {parts.path}", request.body, parse_qs(parts.query))
        except (ValueError, KeyError) as error:
            status, told = 422, {"detail": str(error)}
        return await send(connection, status, {}, json_bytes(told))

    async def _controlled(self, route: str, body: bytes, query: Mapping[str, list[str]]) -> tuple[int, object]:
        match route:
            case "PUT /_script":
                self.use(script_from_json(body))
            case "POST /_release":
                self.release(_gate_name(body))
            case "POST /_hold":
                self.hold(str(_gate_name(body)))
            case "POST /_reset":
                self.reset()
            case "GET /_counts":
                return 200, dataclasses.asdict(self.counts())
            case "GET /_posts":
                return 200, [_shown(post) for post in self.posts]
            case "GET /_wait":
                seconds = float(query.get("timeout_seconds", [str(SIGNAL_SECONDS)])[0])
                return await self._signalled(query["what"][0], int(query.get("number", ["1"])[0]), seconds)
            case _:
                return 404, _detail(404)
        return 200, {}

    async def _signalled(self, what: str, number: int, timeout_seconds: float) -> tuple[int, object]:
        waits: Mapping[str, Callable[..., Awaitable[object]]] = {
            "received": self.received,
            "executed": self.executed,
            "ended": self.ended,
            "client_gone": self.client_gone,
            "looked_up": self.looked_up,
            "connected": self.connected,
        }
        try:
            await waits[what](number, timeout_seconds=timeout_seconds)
        except TimeoutError as error:
            return 408, {"detail": str(error)}
        return 200, dataclasses.asdict(self.counts())


class _Body:
    """Writes a stream's body piece by piece in the answer's framing, up to the cut."""

    def __init__(self, connection: Connection, answer: Answer, post: Post) -> None:
        self._connection = connection
        self._answer = answer
        self._post = post
        # Played, whether or not anybody is there to read it; the post records what was really written.
        self._frames = 0
        self._bytes = 0

    def is_cut(self) -> bool:
        limits = ((self._answer.cut_after_frame, self._frames), (self._answer.cut_after_bytes, self._bytes))
        return any(limit is not None and played >= limit for limit, played in limits)

    async def write(self, frame: bytes) -> None:
        limit = self._answer.cut_after_bytes
        written = frame if limit is None else frame[: limit - self._bytes]
        size = self._answer.chunk_bytes or max(len(written), 1)
        reached = True
        for start in range(0, len(written), size):
            piece = written[start : start + size]
            reached = await self._connection.write(chunk(piece) if self._answer.framing == "chunked" else piece)
            self._post.bytes_written += len(piece) if reached else 0
            if self._answer.chunk_bytes:
                await asyncio.sleep(0)  # lets the piece leave on its own
        self._bytes += len(written)
        self._frames += 1
        self._post.frames_written += reached and len(written) == len(frame)

    async def end(self) -> bool:
        """Finish as the answer says; True when the connection may serve another request."""
        ending = self._answer.ending
        chunked = self._answer.framing == "chunked"
        match ending:
            case "clean":
                if chunked:
                    await self._connection.write(b"0\r\n\r\n")
                return self._answer.framing != "close" and (chunked or not self.is_cut())
            case "unfinished":
                return False
            case "mid_chunk":
                await self._connection.write(b"400\r\ndata: " if chunked else b"data: ")
                return False
            case "reset":
                # Without a moment in between the bytes before the reset could be dropped with it.
                await asyncio.sleep(0.01)
                self._connection.reset()
                return False
            case "stall":
                await _hang(self._connection)
                return False
            case _:
                assert_never(ending)


# Bytes


async def _hang(connection: Connection) -> None:
    await connection.gone.wait()


async def _ended_early(connection: Connection, answer: Answer, moment: str) -> bool:
    if answer.reset == moment:
        connection.reset()
    return moment in (answer.close, answer.reset)


def _endpoint(method: str, path: str) -> str:
    match method, path.split("/"):
        case "GET", ["", "capabilities"]:
            return "capabilities"
        case "POST", ["", "threads"]:
            return "threads"
        case "POST", ["", "ag-ui"]:
            return "ag_ui"
        case "GET", ["", "threads", _, "runs", _]:
            return "lookup"
        case _:
            return "unknown"


def _detail(status: int) -> object:
    return {"detail": phrase(status)}


def _scripted_body(answer: Answer, ids: Mapping[str, str]) -> bytes:
    if answer.body_base64 is not None:
        return base64.b64decode(answer.body_base64)
    if answer.body is not None:
        return answer.body if isinstance(answer.body, bytes) else answer.body.encode()
    return json_bytes(filled(answer.json, ids))


def _handed_out(body: bytes) -> set[str]:
    """The thread id in a scripted answer to POST /threads, so that a POST for it is not refused."""
    try:
        told = json.loads(body)
    except ValueError:
        return set()
    thread_id = told.get("thread_id") if isinstance(told, dict) else None
    return {thread_id} if isinstance(thread_id, str) else set()


def _frame_bytes(frame: Frame, ids: Mapping[str, str], newline: str) -> bytes:
    if "raw_base64" in frame:
        return base64.b64decode(str(frame["raw_base64"]))
    if "raw" in frame:
        return str(filled(str(frame["raw"]), ids)).encode()
    return b"data: " + json_bytes(filled(dict(frame), ids)) + (newline * 2).encode()


def _framing_headers(answer: Answer, frames: Sequence[Frame], ids: Mapping[str, str]) -> dict[str, str]:
    framing = answer.framing
    match framing:
        case "chunked":
            return {"transfer-encoding": "chunked"}
        case "close":
            return {"connection": "close"}
        case "length":
            written = [_frame_bytes(frame, ids, answer.newline) for frame in frames if _is_written(frame)]
            return {"content-length": str(sum(map(len, written)))}
        case _:
            assert_never(framing)


def _is_written(frame: Frame) -> bool:
    return "gate" not in frame and "pause_seconds" not in frame


def _fields(body: bytes) -> tuple[str, str, str, str]:
    """Thread id, run id, id and text of the last message of a RunAgentInput; empty strings for what is not there."""
    try:
        sent = json.loads(body)
    except (ValueError, RecursionError):
        sent = {}
    sent = sent if isinstance(sent, dict) else {}
    messages = sent.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages and isinstance(messages[-1], dict) else {}
    found = (sent.get("threadId"), sent.get("runId"), last.get("id"), last.get("content"))
    thread_id, run_id, message_id, text = (value if isinstance(value, str) else "" for value in found)
    return thread_id, run_id, message_id, text


def _gate_name(body: bytes) -> str | None:
    sent = json.loads(body or b"{}")
    name = sent.get("gate") if isinstance(sent, dict) else None
    return name if isinstance(name, str) else None


def _shown(post: Post) -> dict[str, object]:
    """A post as JSON; a body that is no UTF-8 comes as base64."""
    shown = {field_.name: getattr(post, field_.name) for field_ in dataclasses.fields(post) if field_.name != "request"}
    try:
        body = post.body.decode()
    except UnicodeDecodeError:
        body = binascii.b2a_base64(post.body, newline=False).decode("ascii")
    return {**shown, "headers": [list(pair) for pair in post.request.headers], "body": body}


@contextlib.contextmanager
def _stopped_by_signals(stop: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    yield


async def _run(port: int, token: str, script: Script | None) -> None:
    stop = asyncio.Event()
    with _stopped_by_signals(stop):
        async with ScriptedUpstream(script, token=token, port=port) as upstream:
            print(json.dumps({"base_url": upstream.base_url, "token": token}), flush=True)
            await stop.wait()


def main(argv: Sequence[str] | None = None) -> int:
    """The command line of this module; serves until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="scripted_upstream", description="A scripted agent service on 127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--token", default=DEFAULT_TOKEN)
    parser.add_argument("--script", type=argparse.FileType("rb"))
    given = parser.parse_args(argv)
    script = None
    if given.script is not None:
        with given.script as file:
            script = script_from_json(file.read())
    asyncio.run(_run(given.port, given.token, script))
    return 0


if __name__ == "__main__":
    sys.exit(main())
