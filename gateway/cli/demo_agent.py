"""The demo's agent: `agent-service` as a child process that ends with us, however we end.

What lives here: its start, its announcement, its end. What does not: what it serves; the gateway knows no code of it.
"""

import importlib.util
import os
import random
import re
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from gateway.cli.demo_folder import DemoFolder
from gateway.cli.output import CommandFailed, Output

ASSISTANT: Final = "agent"
APPROVALS: Final = "approvals"
"""The agent's second assistant, which asks for approval."""
LOG: Final = "agent.log"
HOST: Final = "127.0.0.1"
INSTALL: Final = "pip install 'agent-governance-gateway[agent,embedded]'"
# Importing LangChain took 2 s, on two busy cores 15 s; the first time, uncompiled, it takes several times as long.
START_SECONDS: Final = 120.0
STOP_SECONDS: Final = 10.0
KEPT_PORTS: Final = range(20000, 30000)
"""Below the ports that systems lend to outgoing connections (from 32768 on Linux): this one has to be free at the next run, too."""
PACE_SECONDS: Final = 0.08
"""Pause before each piece that the scripted model says: slow enough to be seen streaming."""

_ANNOUNCED: Final = re.compile(r"listens on (http://\S+)")
_OURS: Final = ("GATEWAY_", "API_ENCRYPTION_", "DATABASE_URL")
# Killed, not asked: who is killed cannot wait for a grace period, and the next run wants port and SQLite file at once. SQLite is safe
# against it, and a run that was going on is in error from the next start on. The signal comes when the starting THREAD ends: our main one.
_LAUNCHER: Final = """
import ctypes, os, signal, sys
os.umask(0o077)
if sys.platform == "linux":
    if ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0) != 0:
        sys.exit("prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the parent is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""


@dataclass(frozen=True, slots=True)
class AgentProcess:
    """A started agent. `token_file`: the token that it asks of its callers."""

    process: "subprocess.Popen[bytes]"
    token_file: Path
    log: Path

    def base_url(self) -> str:
        """Where it listens, once it does. Raises CommandFailed with its last words."""
        said = b""
        deadline = time.monotonic() + START_SECONDS
        assert self.process.stdout is not None
        while (patience := deadline - time.monotonic()) > 0:
            if not select.select([self.process.stdout], [], [], patience)[0]:
                break
            piece = os.read(self.process.stdout.fileno(), 4096)
            said += piece
            if found := _ANNOUNCED.search(said.decode("utf-8", "replace")):
                return found[1]
            if not piece:
                break
        words = _last_words(self.log)
        raise CommandFailed(f"The agent did not start. Its last words: {words}", f"The whole log is {self.log}.", code="agent_failed")

    def stop(self) -> None:
        """Ask it to end, then insist."""
        assert self.process.stdout is not None
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def require_extra() -> None:
    """Raise CommandFailed when the extra [agent] is not installed. LangGraph stands for all of it: nothing else brings it."""
    if importlib.util.find_spec("langgraph") is None:
        raise CommandFailed("The demo's agent needs the extra [agent], which is not installed.", INSTALL, code="extra_missing")


@contextmanager
def running_agent(folder: DemoFolder, environ: Mapping[str, str], output: Output) -> Iterator[AgentProcess]:
    """Start the agent, on the port that it had before where that is free. Returns at once: `base_url` waits."""
    port = folder.agent_port
    if port and not is_free(port):
        output.progress(f"The agent's port {port} is taken by another program; it gets another one.")
        port = 0
    port = port or next((port for port in random.sample(KEPT_PORTS, 100) if is_free(port)), 0)
    token_file = folder.token("agent.token")
    command = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid())]
    command += [sys.executable, "-m", "agent_service", "serve", "--host", HOST, "--port", str(port)]
    command += ["--database", str(folder.path / "agent.sqlite"), "--token-file", str(token_file)]
    with folder.log(LOG) as log:
        process = subprocess.Popen(  # noqa: S603 - our own launcher
            command,
            env=_environment(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,  # Ctrl-C reaches only us: the gateway drains before the agent goes
        )
    agent = AgentProcess(process, token_file, folder.path / LOG)
    try:
        yield agent
    finally:
        agent.stop()


def port_of(base_url: str) -> int:
    """The port of an announced URL."""
    return urlsplit(base_url).port or 0


def is_free(port: int) -> bool:
    """Whether a server could listen on the loopback port now."""
    try:
        socket.create_server((HOST, port)).close()
    except OSError:
        return False
    return True


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.create_server((HOST, 0)) as listening:
        return int(listening.getsockname()[1])


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The caller's, so that AGENT_SERVICE_MODEL and the like count, without the gateway's secrets."""
    kept = {name: value for name, value in environ.items() if not name.startswith(_OURS)}
    chosen = {"AGENT_SERVICE_PACE_SECONDS": str(PACE_SECONDS), "AGENT_SERVICE_SHUTDOWN_SECONDS": "3"}
    return chosen | kept | {"AGENT_SERVICE_ASSISTANT": ASSISTANT}


def _last_words(log: Path) -> str:
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    return " / ".join(lines[-3:]) or "none"
