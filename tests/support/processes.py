"""Replicas as processes of their own: `gateway serve` as operators run it, to be killed, drained and read the log of."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from tests.support.stack import BEFORE_ANSWER_SECONDS, Client, environment, token

START_SECONDS: Final = 60.0
"""A second or two of one processor; a machine that is busy with other tests takes its time."""


class ReplicaProcess:
    """One `gateway serve`. `log` is everything that it wrote so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._lines: list[bytes] = []
        self._listening = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read())
        self.http = httpx.AsyncClient()
        self.port = 0

    @property
    def log(self) -> str:
        return b"".join(self._lines).decode("utf-8", "replace")

    @property
    def events(self) -> list[dict[str, Any]]:
        """The log's lines, which must all be JSON objects."""
        return [json.loads(line) for line in self.log.splitlines()]

    async def started(self) -> None:
        """Wait until it listens."""
        async with asyncio.timeout(START_SECONDS):
            self.port = port = await self._listening
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        await self.http.aclose()
        self.http = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=BEFORE_ANSWER_SECONDS, trust_env=False, limits=limits)

    def client(self, subject: str = "ada", *, groups: tuple[str, ...] = (), roles: tuple[str, ...] = ()) -> Client:
        """A person at this replica."""
        return Client(self.http, {"Authorization": f"Bearer {token(subject, groups=groups, roles=roles)}"})

    def kill(self) -> None:
        """SIGKILL: the process is gone at once, with everything in its memory."""
        self._process.kill()

    def terminate(self) -> None:
        """SIGTERM: drain."""
        self._process.terminate()

    def freeze(self) -> None:
        """SIGSTOP: alive, and doing nothing."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    async def ended(self) -> int:
        """Wait for the end; the exit status, negative for a signal."""
        status = await self._process.wait()
        await self._reading
        return status

    async def close(self) -> None:
        """Kill it if it still lives."""
        await self.http.aclose()
        if self._process.returncode is None:
            self._process.kill()
        await self.ended()

    async def _read(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            self._lines.append(line)
            if b'"listening"' in line and not self._listening.done():
                self._listening.set_result(json.loads(line)["port"])
        if not self._listening.done():
            self._listening.set_exception(RuntimeError(f"the replica ended before it listened:\n{self.log}"))
            self._listening.exception()


def kept_environment() -> dict[str, str]:
    """This process's environment without any setting of the gateway."""
    ours = ("GATEWAY_", "API_ENCRYPTION_", "AGENT_", "DATABASE_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


@asynccontextmanager
async def replica_process(
    database_url: str,
    *,
    changes: Mapping[str, str] | None = None,
    module: Sequence[str] = ("gateway", "serve"),
    python: Path | None = None,
) -> AsyncIterator[ReplicaProcess]:
    """A replica that listens; killed at the end unless it ended before. `module`: what is run, with its arguments. `python`: the
    interpreter of another environment, whose program it is."""
    process = await asyncio.create_subprocess_exec(
        python or sys.executable,
        "-m",
        *module,
        env={**kept_environment(), **environment(database_url, **(changes or {}))},
        cwd=python.parent if python is not None else None,  # `-m` looks here first: not into this checkout
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    replica = ReplicaProcess(process)
    try:
        await replica.started()
        yield replica
    finally:
        await replica.close()
