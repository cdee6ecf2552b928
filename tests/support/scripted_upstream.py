"""A real upstream over raw asyncio that answers what a test scripts, byte for byte, and counts what reached it.

Here lives: the server, its signals and its control routes. Not here: what can be scripted (`upstream_script.py`) and what is
remembered (`upstream_records.py`), both re-exported below; bytes (`upstream_stream.py`, `raw_http.py`); the native profile.
Longer than most modules: its public face is many small signals.

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
                     (frame_written takes &post=N too, waiting_at takes &gate=name instead of a number)

Without a script it is a good upstream: bearer token checked (401), threads only those handed out (404), `good_run()` for
each message, a look-up that tells the truth. A client that leaves does not stop a run: its frames play on unseen.
An *execution* is a POST that was accepted, or whose Answer says `executes=True`; it is counted before a byte is written.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import json
import signal
import sys
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import assert_never
from urllib.parse import parse_qs, urlsplit

from tests.support.raw_http import Connection, GoneError, head, json_bytes, phrase, read_body, read_head, send
from tests.support.upstream_records import Counts, Post, Records, Request, Run, read_input
from tests.support.upstream_script import (
    Answer,
    ConnectionPlan,
    Ending,
    Frame,
    Framing,
    Script,
    event,
    failed,
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
from tests.support.upstream_stream import StreamBody, frame_bytes, framing_headers, hang, scripted_body

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
SIGNALS = ("received", "executed", "ended", "client_gone", "looked_up", "connected", "frame_written", "waiting_at")
# Long enough for a loaded machine; a signal that does not come is a bug, and its test says so after this.
SIGNAL_SECONDS = 10.0


class ScriptedUpstream:
    """The server. Use it as an async context manager; `posts` and `requests` are live records, not copies."""

    def __init__(self, script: Script | None = None, *, token: str = DEFAULT_TOKEN, port: int = 0) -> None:
        self.token = token
        self._port = port
        self._state = Records(script=script or Script())
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
        self._state = Records()
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
        return found[-1].run_status if found else None

    def counts(self) -> Counts:
        """A picture of now."""
        return self._state.counts()

    # Signals

    async def until(self, reached: Callable[["ScriptedUpstream"], bool], *, what: str, timeout_seconds: float = SIGNAL_SECONDS) -> None:
        """Wait until `reached(self)` holds, looking after each change; TimeoutError names `what` and the counts."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while not reached(self):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise TimeoutError(f"no {what} within {timeout_seconds} s; {self._state.counts()}") from None

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
        await self.until(lambda it: it._state.connections >= number, what=what, timeout_seconds=timeout_seconds)

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
        self._state.connections += 1
        connection.number = self._state.connections
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
                task = loop.create_task(self._serve(connection) if plan == "serve" else hang(connection))
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
        if answer is not None and _ended_early(connection, answer, "before_body"):
            return False
        # By text the answer to a POST can be known only after its body; by order it is known now.
        scripted = self._state.script.ag_ui if endpoint == "ag_ui" else ()
        if scripted and not self._state.script.ag_ui_by_text:
            answer = self._take("ag_ui")
            if answer is not None and _ended_early(connection, answer, "before_body"):
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
                http_status = 405 if path in ("/capabilities", "/threads", "/ag-ui") else 404
                return await self._whole(connection, request, None, {}, (http_status, _detail(http_status)))

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
        told = next((overrides[name] for name in names if name in overrides), run.run_status if run else None)
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
        # An answer found by its text comes too late for "before_body"; it closes now.
        if _ended_early(connection, answer, "before_body") or _ended_early(connection, answer, "after_request"):
            return False
        if not await self._waited(connection, answer):
            return False
        if answer.needs_rights() and not self._authorised(request):
            return await send(connection, 401, {}, json_bytes(_detail(401)))
        if answer.redirect is not None:
            location = {"location": answer.redirect}
            return await send(connection, answer.http_status or 307, {**location, **answer.headers}, b"")
        if answer.has_body():
            body = scripted_body(answer, ids)
            if good is None:
                self._state.threads.update(_handed_out(body))
            return await send(connection, answer.http_status or 200, answer.headers, body)
        if answer.http_status not in (None, 200, 201):
            return await send(connection, answer.http_status, answer.headers, json_bytes(_detail(answer.http_status)))
        http_status, told = good if good is not None else (200, self._new_thread())
        return await send(connection, answer.http_status or http_status, answer.headers, json_bytes(told))

    async def _waited(self, connection: Connection, answer: Answer) -> bool:
        """Delays, gates and hangs before an answer; False when the connection is over."""
        if answer.hang:
            await hang(connection)
            return False
        if answer.delay_seconds:
            await asyncio.sleep(answer.delay_seconds)
        if answer.gate is not None:
            await self._pass(answer.gate)
        return True

    # POST /ag-ui

    async def _ag_ui(self, connection: Connection, request: Request, answer: Answer | None) -> bool:
        post = Post(len(self._state.posts) + 1, request, *read_input(request.body))
        self._state.posts.append(post)
        self._changed.set()
        answer = answer or self._take("ag_ui", post.text) or Answer()
        refusal = self._refusal(post) if answer.is_stream() and answer.needs_rights() else None
        if refusal is not None:
            post.http_status, post.ended = refusal, True
            return await send(connection, refusal, {}, json_bytes(_detail(refusal)))
        streams = answer.is_stream()
        run = self._execute(post, answer) if (answer.executes if answer.executes is not None else streams) else None
        watch = asyncio.get_running_loop().create_task(self._watch(connection, post))
        try:
            if streams:
                return await self._stream(connection, post, answer)
            post.http_status = _whole_status(answer)
            return await self._whole(connection, request, answer, self._ids(post), (200, {}))
        finally:
            watch.cancel()
            if run is not None:
                run.run_status = answer.ends_as or status_after(good_run() if answer.frames is None else answer.frames)
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
        return 409 if self._state.script.one_run_per_thread and self._state.busy(post.thread_id) else None

    def _execute(self, post: Post, answer: Answer) -> Run:
        self._state.overlapping += self._state.busy(post.thread_id)
        self._state.executions += 1
        post.execution = self._state.executions
        native = answer.native_run_id or str(uuid.uuid4())
        post.native_run_id = native.replace("{runId}", post.run_id).replace("{threadId}", post.thread_id)
        run = Run(post.native_run_id, post.run_id, post.thread_id)
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
        post.http_status = answer.http_status or 200
        headers = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-store"}
        headers |= framing_headers(answer, frames, ids)
        await connection.write(head(post.http_status, headers, answer.headers))
        body = StreamBody(connection, answer, post)
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
            await body.write(frame_bytes(frame, ids, answer.newline))
            self._changed.set()
        return await body.end()

    # Control routes

    async def _control(self, connection: Connection, request: Request) -> bool:
        parts = urlsplit(request.target)
        try:
            http_status, told = await self._controlled(f"{request.method} {parts.path}", request.body, parse_qs(parts.query))
        except (ValueError, KeyError) as error:
            http_status, told = 422, {"detail": str(error)}
        return await send(connection, http_status, {}, json_bytes(told))

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
                return 200, dataclasses.asdict(self._state.counts())
            case "GET /_posts":
                return 200, [post.shown() for post in self.posts]
            case "GET /_wait":
                return await self._signalled({name: values[0] for name, values in query.items()})
            case _:
                return 404, _detail(404)
        return 200, {}

    async def _signalled(self, query: Mapping[str, str]) -> tuple[int, object]:
        what, number = query["what"], int(query.get("number", "1"))
        seconds = float(query.get("timeout_seconds", str(SIGNAL_SECONDS)))
        if what not in SIGNALS:
            raise ValueError(f"there is no signal {what!r}; there are {', '.join(SIGNALS)}")
        wait: Callable[..., Awaitable[object]] = getattr(self, what)
        try:
            match what:
                case "frame_written":
                    await wait(number, post=int(query.get("post", "1")), timeout_seconds=seconds)
                case "waiting_at":
                    await wait(query["gate"], timeout_seconds=seconds)
                case _:
                    await wait(number, timeout_seconds=seconds)
        except TimeoutError as error:
            return 408, {"detail": str(error)}
        return 200, dataclasses.asdict(self.counts())


def _ended_early(connection: Connection, answer: Answer, moment: str) -> bool:
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


def _whole_status(answer: Answer) -> int | None:
    if answer.hang or answer.close or answer.reset:
        return None
    return answer.http_status or (200 if answer.redirect is None else 307)


def _detail(http_status: int) -> object:
    return {"detail": phrase(http_status)}


def _handed_out(body: bytes) -> set[str]:
    """The thread id in a scripted answer to POST /threads, so that a POST for it is not refused."""
    try:
        told = json.loads(body)
    except ValueError:
        return set()
    thread_id = told.get("thread_id") if isinstance(told, dict) else None
    return {thread_id} if isinstance(thread_id, str) else set()


def _gate_name(body: bytes) -> str | None:
    sent = json.loads(body or b"{}")
    name = sent.get("gate") if isinstance(sent, dict) else None
    return name if isinstance(name, str) else None


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
    parser.add_argument("--script", type=Path)
    given = parser.parse_args(argv)
    script = None
    if given.script is not None:
        script = script_from_json(given.script.read_bytes())
    asyncio.run(_run(given.port, given.token, script))
    return 0


if __name__ == "__main__":
    sys.exit(main())
