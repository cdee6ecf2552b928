"""A replica of the real app whose hook injects a fault at a fault point: a process of its own for crash tests, never product code.

The process holds at every fault point until the test says what is to happen, so that the test can lay everything out first; then it does
it at the first hit. Lines of JSON, in: {"arm": {"point", "act", "since"}}, then {"go": true}. Out: {"passed": "before fence"} for
each point that was passed, {"reached": …} for the one that was armed. `act` kill: the process ends by SIGKILL there. `act` wait: it holds
there, and everything else of the process goes on, until "go". `since`: hits count only after this point was passed.

In the test's process: `faulty_replica(...)` gives a FaultyReplica.
"""

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Any, Final

import uvloop

from gateway.app import serve_app
from gateway.domain.fault_points import FaultPoint, Moment, Step
from gateway.settings import load_settings
from gateway.telemetry import configure_logging
from gateway.wiring import build_app
from tests.support.processes import ReplicaProcess, kept_environment
from tests.support.stack import environment

QUICK: Final[Mapping[str, str]] = {
    "GATEWAY_LEASE_SECONDS": "2",
    "GATEWAY_HEARTBEAT_SECONDS": "0.3",
    "GATEWAY_SEND_WINDOW_SECONDS": "0.3",
    "GATEWAY_RECONCILE_SECONDS": "0.3",
    "GATEWAY_LOOKUP_FIRST_SECONDS": "0.2",
    "GATEWAY_LOOKUP_MAX": "4",
    "GATEWAY_CHECKPOINT_SECONDS": "0.2",
}
"""A lease of 2 s and a send window of 0.3 s (the crash matrix's settings), and everything else in proportion."""


class Act(StrEnum):
    """What the process does at the armed point."""

    KILL = "kill"
    WAIT = "wait"


def point_of(text: str) -> FaultPoint:
    """The inverse of str(FaultPoint)."""
    moment, _, step = text.partition(" ")
    return FaultPoint(Moment(moment), Step(step))


class FaultyReplica(ReplicaProcess):
    """The test's end of one faulty replica. `passed` counts the points that it passed; `changed` is set at each of its lines."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        super().__init__(process)
        self.passed: Counter[FaultPoint] = Counter()
        self.order: list[FaultPoint] = []
        self.reached: FaultPoint | None = None
        self.changed = asyncio.Event()
        self._hearing = asyncio.create_task(self._hear())

    def arm(self, point: FaultPoint, act: Act, *, since: FaultPoint | None = None) -> None:
        """Say what happens at the first hit of `point`, and let the process go."""
        self._say({"arm": {"point": str(point), "act": act.value, "since": None if since is None else str(since)}})

    def go(self) -> None:
        """Let it pass the point that it reached."""
        self._say({"go": True})

    async def ended(self) -> int:
        exit_status = await super().ended()
        await self._hearing
        return exit_status

    def _say(self, line: Mapping[str, object]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(line).encode() + b"\n")

    async def _hear(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            told = json.loads(line)
            if "reached" in told:
                self.reached = point_of(told["reached"])
            else:
                point = point_of(told["passed"])
                self.passed[point] += 1
                self.order.append(point)
            self.changed.set()
        self.changed.set()


@asynccontextmanager
async def faulty_replica(database_url: str, *, changes: Mapping[str, str]) -> AsyncIterator[FaultyReplica]:
    """A faulty replica that listens, held at its first fault points; killed at the end unless it ended before."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.support.faulty_replica",
        env={**kept_environment(), **environment(database_url, **changes)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    replica = FaultyReplica(process)
    try:
        await replica.started()
        yield replica
    finally:
        await replica.close()


class _Hook:
    """The hook inside the process."""

    def __init__(self) -> None:
        self._armed: FaultPoint | None = None
        self._act = Act.WAIT
        self._since: FaultPoint | None = None
        self._open = asyncio.Event()
        self._go = asyncio.Event()

    async def at(self, point: FaultPoint) -> None:
        await self._open.wait()
        if point == self._armed and self._since is None:
            self._armed = None
            _tell({"reached": str(point)})
            if self._act is Act.KILL:
                os.kill(os.getpid(), signal.SIGKILL)
            await self._go.wait()
        if point == self._since:
            self._since = None
        _tell({"passed": str(point)})

    def hear(self, line: Mapping[str, Any]) -> None:
        if "go" in line:
            self._go.set()
            return
        armed = line["arm"]
        self._armed, self._act = point_of(armed["point"]), Act(armed["act"])
        self._since = None if armed["since"] is None else point_of(armed["since"])
        self._open.set()


def _tell(line: Mapping[str, object]) -> None:
    print(json.dumps(line), flush=True)


async def _hear_commands(hook: _Hook) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async for line in reader:
        hook.hear(json.loads(line))


async def _serve() -> None:
    settings = load_settings(os.environ, serving=True)
    hook = _Hook()
    hearing = asyncio.create_task(_hear_commands(hook))
    gateway = await build_app(settings, at=hook.at)
    async with gateway.running():
        await serve_app(settings, gateway)
    hearing.cancel()


def main() -> int:
    """Serve until killed or told to stop."""
    configure_logging()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as `gateway serve`
        runner.run(_serve())
    return 0


if __name__ == "__main__":
    sys.exit(main())
