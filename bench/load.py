"""The load generator: raw sockets, so that it costs less than what it measures.

Keep-alive, chunked event streams, bounded in count and time.
First event: the first TEXT_MESSAGE_CONTENT at the client. A run counts when it answered 200 and ended in RUN_FINISHED.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from bench.machine import usage

_RUN_SECONDS: Final = 60.0
_FIRST: Final = b"TEXT_MESSAGE_CONTENT"
_END: Final = b"RUN_FINISHED"
_CLOSING_CHUNK: Final = b"\r\n0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Load:
    """What to ask for. `request`: the bytes of one request, given the number of the worker and of the run."""

    port: int
    at_once: int
    runs: int
    request: Callable[[int, int], bytes]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Seconds unless named otherwise. `failed`: runs that did not end well; a figure with any is void."""

    runs: int
    failed: int
    first_fault: str
    wall_seconds: float
    runs_per_second: float
    first_p50: float
    first_p99: float
    full_p50: float
    full_p99: float
    cpu_seconds_per_1000: float
    rss_mb: float


@dataclass(frozen=True, slots=True)
class _Run:
    good: bool
    first_seconds: float | None
    full_seconds: float
    fault: str


class _Client(asyncio.Protocol):
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[_Run] | None = None
        self.closed = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.closed = False

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._finish()

    def close(self) -> None:
        self._transport.close()

    def run(self, request: bytes) -> "asyncio.Future[_Run]":
        self._done = self._loop.create_future()
        self._status = b""
        self._tail = self._last = b""
        self._first_at: float | None = None
        self._ended = False
        self._begun_at = time.perf_counter()
        self._transport.write(request)
        return self._done

    def data_received(self, received: bytes) -> None:
        if not self._status:
            self._status = received[9:12]
        piece = self._tail + received
        if self._first_at is None and _FIRST in piece:
            self._first_at = time.perf_counter()
        if not self._ended and _END in piece:
            self._ended = True
        self._tail = piece[-64:]
        self._last = received
        # A proxy may cut the last event in two by its own chunks, so the closing chunk decides. A refusal has no chunks.
        if piece.endswith(_CLOSING_CHUNK) or self._status != b"200":
            self._finish()

    def _finish(self) -> None:
        if self._done is not None and not self._done.done():
            first = None if self._first_at is None else self._first_at - self._begun_at
            good = self._status == b"200" and self._ended and first is not None
            fault = "" if good else f"{self._status!r} … {self._last[-300:]!r}"
            self._done.set_result(_Run(good, first, time.perf_counter() - self._begun_at, fault))


async def generate(load: Load, pid: int) -> Outcome:
    """Drive `load` and say what it cost process `pid` with its children."""
    clients: list[_Client | None] = [None] * load.at_once

    async def worker(worker_number: int, runs: list[_Run], left: list[int]) -> None:
        while left[0] > 0:
            left[0] -= 1
            client = clients[worker_number]
            if client is None or client.closed:
                _, client = await asyncio.get_running_loop().create_connection(_Client, "127.0.0.1", load.port)
                clients[worker_number] = client
            run = await asyncio.wait_for(client.run(load.request(worker_number, left[0])), _RUN_SECONDS)
            runs.append(run)
            if not run.good:
                client.close()
                clients[worker_number] = None

    before, began_at = usage(pid), time.perf_counter()
    runs: list[_Run] = []
    left = [load.runs]
    try:
        await asyncio.gather(*(worker(number, runs, left) for number in range(load.at_once)))
        wall_seconds = time.perf_counter() - began_at
        after = usage(pid)
    finally:
        for client in clients:
            if client is not None and not client.closed:
                client.close()
    good = [run for run in runs if run.good]
    first = sorted(run.first_seconds for run in good if run.first_seconds is not None)
    full = sorted(run.full_seconds for run in good)
    return Outcome(
        runs=len(good),
        failed=len(runs) - len(good),
        first_fault=next((run.fault for run in runs if not run.good), ""),
        wall_seconds=wall_seconds,
        runs_per_second=len(good) / wall_seconds,
        first_p50=quantile(first, 0.5),
        first_p99=quantile(first, 0.99),
        full_p50=quantile(full, 0.5),
        full_p99=quantile(full, 0.99),
        cpu_seconds_per_1000=(after.cpu_seconds - before.cpu_seconds) * 1000 / max(len(good), 1),
        rss_mb=after.rss_mb,
    )


def quantile(ordered: list[float], share: float) -> float:
    """Of values in order; NaN when there are none."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def post(path: str, body: bytes, *, port: int, headers: tuple[str, ...] = ()) -> bytes:
    """A request for an event stream."""
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Content-Type: application/json",
        "Accept: text/event-stream",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
