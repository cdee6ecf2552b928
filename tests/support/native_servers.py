"""Native servers for the tests, each in a process and an environment of its own, all with the graph of tests/upstreams.

    server = native_servers.of("aegra-api")      # started once per test process; skips where it is not installed
    server.base_url, server.token                # what a provider and an application need; the assistant is "agent"
    server.acts(thread_id)                       # what the agent did, as the agent itself recorded it
    await server.reached(gate); server.open(gate)   # hold the agent in mid-run: the message is "wait <gate>"

`make upstreams` installs them. They run offline: no licence, no tracing, no reports home.
"""

import asyncio
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from tests.support.postgres import Servers
from tests.support.require import missing

ROOT: Final = Path(__file__).resolve().parents[2]
FILES: Final = ROOT / "tests" / "upstreams"
ENVIRONMENTS: Final = ROOT / ".upstreams"
ASSISTANT: Final = "agent"
AEGRA_POSTGRES_MAJOR: Final = 15
"""aegra creates the extension uuid-ossp, which Debian's PostgreSQL has and the embedded one has not."""
# Their imports take 3 to 5 s of a free processor, and several times as long on a busy machine or the first time.
START_SECONDS: Final = 100.0
STOP_SECONDS: Final = 10.0
REACHED_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.02
_LISTENING: Final = re.compile(r"(?:Uvicorn running|agent-service listens) on (http://[\d.]+:\d+)")
_OFFLINE: Final = {
    "LANGSMITH_TRACING": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "LANGGRAPH_CLI_NO_ANALYTICS": "1",
    "LANGGRAPH_NO_VERSION_CHECK": "true",
    "OTEL_SDK_DISABLED": "true",
}


@dataclass(frozen=True, slots=True)
class NativeServer:
    """A running server. `log`: what it printed so far."""

    name: str
    base_url: str
    token: str
    folder: Path
    process_id: int
    _lines: Sequence[str]

    @property
    def log(self) -> str:
        return "".join(self._lines)

    def acts(self, thread_id: str | None = None) -> list[dict[str, Any]]:
        """What the agent did so far, on one thread or on all: `{"thread_id", "answer"}` in order."""
        file = self.folder / "acts.jsonl"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        acts = [json.loads(line) for line in lines]
        return [act for act in acts if thread_id in (None, act["thread_id"])]

    async def reached(self, gate: str) -> None:
        """Wait until a run waits at this gate."""
        async with asyncio.timeout(REACHED_SECONDS):
            while not (self.folder / f"{gate}.reached").exists():
                await asyncio.sleep(_PAUSE_SECONDS)

    def open(self, gate: str) -> None:
        """Let the run at this gate go on, now or when it comes there."""
        (self.folder / f"{gate}.open").touch()


@dataclass(slots=True)
class _Process:
    """A child whose output is read by a thread, which says when it listens."""

    child: "subprocess.Popen[str]"
    lines: list[str] = field(default_factory=list)
    base_url: str | None = None
    _known: threading.Event = field(default_factory=threading.Event)
    """It listens, or it ended."""

    def read(self, output: IO[str]) -> None:
        for line in output:
            self.lines.append(line)
            if self.base_url is None and (found := _LISTENING.search(line)):
                self.base_url = found[1]
                self._known.set()
        self._known.set()

    def listening(self) -> str:
        """Where it listens, once it does."""
        known = self._known.wait(START_SECONDS)
        if self.base_url is None:
            why = "ended before it listened" if known else f"did not listen after {START_SECONDS} s"
            raise RuntimeError(f"the server {why}:\n{''.join(self.lines[-60:])}")
        return self.base_url

    def stop(self) -> None:
        self.child.terminate()
        try:
            self.child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


@contextmanager
def _running(name: str, command: Sequence[str], environment: Mapping[str, str]) -> Iterator[NativeServer]:
    """Run the command in a folder of its own that holds copies of tests/upstreams; it ends with the block."""
    token = secrets.token_urlsafe(24)
    with tempfile.TemporaryDirectory(prefix=f"{name}-", ignore_cleanup_errors=True) as kept, ExitStack() as stack:
        folder = Path(kept)
        for file in ("graphs.py", "gateway_access.py", "langgraph.json"):
            shutil.copy(FILES / file, folder)
        own = {"SERVICE_TOKEN": token, "GRAPH_FOLDER": kept, "HOME": kept, "PATH": os.defpath, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}
        child = stack.enter_context(
            subprocess.Popen(
                list(command),
                cwd=folder,
                env={**_OFFLINE, **own, **environment, "AGENT_SERVICE_TOKEN": token},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                encoding="utf-8",
                errors="replace",
            )
        )
        assert child.stdout is not None
        process = _Process(child)
        stack.callback(process.stop)
        threading.Thread(target=process.read, args=(child.stdout,), name=f"output of {name}", daemon=True).start()
        yield NativeServer(name, process.listening(), token, folder, child.pid, process.lines)


def _python_of(name: str) -> str:
    """The interpreter of an installed server; skips by name where `make upstreams` was not run."""
    python = ENVIRONMENTS / name / "bin" / "python"
    if not (ENVIRONMENTS / name / ".installed").exists():
        missing(name, "`make upstreams` installs it")
    return str(python)


@contextmanager
def _langgraph_api(_postgres: Servers) -> Iterator[NativeServer]:
    """LangGraph Agent Server in its local development form: everything in memory."""
    arguments = ["--no-browser", "--no-reload", "--host", "127.0.0.1", "--port", "0", "--server-log-level", "INFO"]
    command = [_python_of("langgraph-api"), "-m", "langgraph_cli", "dev", *arguments, "--n-jobs-per-worker", "10"]
    with _running("langgraph-api", command, {}) as server:
        yield server


@contextmanager
def _aegra_api(postgres: Servers) -> Iterator[NativeServer]:
    """aegra over a database of its own."""
    command = [_python_of("aegra-api"), "-m", "uvicorn", "aegra_api.main:app", "--host", "127.0.0.1", "--port", "0"]
    with postgres.of(AEGRA_POSTGRES_MAJOR).empty_database() as url:
        # Its migrations do not take an escaped path of a socket.
        settings = {"DATABASE_URL": url.replace("%2F", "/"), "AUTH_TYPE": "custom", "AEGRA_CONFIG": "langgraph.json"}
        with _running("aegra-api", command, settings) as server:
            yield server


@contextmanager
def _agent_service(_postgres: Servers) -> Iterator[NativeServer]:
    """Our own reference service, with the same graph."""
    command = [sys.executable, "-m", "agent_service", "serve", "--agent", "graphs:graph", "--port", "0", "--database", "agent.db"]
    with _running("agent-service", command, {"PYTHONPATH": str(ROOT)}) as server:
        yield server


_STARTS: Final[Mapping[str, Callable[[Servers], Any]]] = {
    "agent-service": _agent_service,
    "langgraph-api": _langgraph_api,
    "aegra-api": _aegra_api,
}
NATIVE_SERVERS: Final = tuple(_STARTS)


class NativeServers:
    """The servers of this test process, each started when the first test asks for it."""

    def __init__(self, postgres: Servers) -> None:
        self._postgres = postgres
        self._stack = ExitStack()
        self._running: dict[str, NativeServer] = {}

    def of(self, name: str) -> NativeServer:
        """That server, running."""
        if name not in self._running:
            self._running[name] = self._stack.enter_context(_STARTS[name](self._postgres))
        return self._running[name]

    def stop(self) -> None:
        self._stack.close()
