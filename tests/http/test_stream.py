"""The stream writer on a real server: heartbeats, ends, leaving and slow browsers, rights (field cases O-02, O-18, O-25)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import anyio.lowlevel
import pytest
from structlog.testing import capture_logs

from gateway.domain.problems import Code, Refused
from gateway.store.errors import DatabaseUnavailable
from gateway.web.middleware import RequestContext
from gateway.web.stream import HEARTBEAT, EventStream
from tests.http.raw import Wire, chunk, head, request, wire
from tests.http.world import serving

pytestmark = pytest.mark.anyio

LONG = 60.0
"""Seconds of a heartbeat that does not come during a test."""


class ScriptedStream:
    """A Stream that a test feeds: bytes are pieces, None is the end, an exception is raised."""

    def __init__(self, *script: bytes | Exception | None, endless: bytes | None = None) -> None:
        self.queue: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        for step in script:
            self.queue.put_nowait(step)
        self.closed = asyncio.Event()
        self._endless = endless

    async def read(self, timeout_seconds: float) -> bytes | None:
        if self._endless is not None:
            await anyio.lowlevel.checkpoint()
            return self._endless
        try:
            step = await asyncio.wait_for(self.queue.get(), timeout_seconds)
        except TimeoutError:
            return b""
        if isinstance(step, Exception):
            raise step
        return step

    def close(self) -> None:
        self.closed.set()


async def allowed() -> None:
    """Rights that never change."""


def answering(*answers: Exception | None) -> Callable[[], Awaitable[None]]:
    """Rights that answer so in turn, then as the last time."""
    left: Sequence[Exception | None] = answers

    async def check() -> None:
        nonlocal left
        answer, left = left[0], left[1:] or left
        if answer is not None:
            raise answer

    return check


@asynccontextmanager
async def opened(
    stream: ScriptedStream, *, heartbeat_seconds: float = LONG, check_rights: Callable[[], Awaitable[None]] = allowed
) -> AsyncIterator[Wire]:
    response = EventStream(stream, heartbeat_seconds=heartbeat_seconds, check_rights=check_rights, headers={"Idempotent-Replayed": "true"})
    async with serving(RequestContext(response)) as base_url, wire(base_url) as connection:
        connection[1].write(request("GET", "/", {}))
        yield connection


async def rest(reader: asyncio.StreamReader) -> list[bytes]:
    """The chunks up to the last one, which must come."""
    chunks = []
    while piece := await chunk(reader):
        chunks.append(piece)
    return chunks


async def test_headers_pieces_and_the_end() -> None:
    stream = ScriptedStream(b"data: 1\n\n", b"data: 2\n\ndata: 3\n\n", None)
    async with opened(stream) as (reader, _):
        status, headers = await head(reader)
        assert await rest(reader) == [b"data: 1\n\n", b"data: 2\n\ndata: 3\n\n"]
    assert status == 200
    assert headers["content-type"] == "text/event-stream; charset=utf-8"
    assert headers["cache-control"] == "no-store, no-transform"
    assert headers["x-accel-buffering"] == "no"
    assert headers["idempotent-replayed"] == "true"
    assert "content-encoding" not in headers
    assert stream.closed.is_set()


async def test_the_head_does_not_wait_for_the_first_piece() -> None:
    stream = ScriptedStream()
    async with opened(stream) as (reader, _):
        assert (await head(reader))[0] == 200
        stream.queue.put_nowait(b"data: 1\n\n")
        assert await chunk(reader) == b"data: 1\n\n"
        stream.queue.put_nowait(None)
        assert await rest(reader) == []


async def test_a_quiet_stream_beats() -> None:
    stream = ScriptedStream()
    async with opened(stream, heartbeat_seconds=0.02) as (reader, _):
        await head(reader)
        assert [await chunk(reader) for _ in range(5)] == [HEARTBEAT] * 5
        stream.queue.put_nowait(b"data: 1\n\n")
        while (piece := await chunk(reader)) == HEARTBEAT:
            pass
        assert piece == b"data: 1\n\n"


async def test_a_busy_stream_beats_too_so_that_rights_are_asked_for() -> None:
    asked = asyncio.Event()

    async def check() -> None:
        asked.set()

    stream = ScriptedStream(endless=b"data: 1\n\n")
    async with opened(stream, heartbeat_seconds=0.02, check_rights=check) as (reader, _):
        await head(reader)
        while await chunk(reader) != HEARTBEAT:
            pass
        await asyncio.wait_for(asked.wait(), 10)


async def test_lost_rights_end_the_stream_cleanly() -> None:
    stream = ScriptedStream()
    async with opened(stream, heartbeat_seconds=0.02, check_rights=answering(None, Refused(Code.NOT_FOUND))) as (reader, _):
        await head(reader)
        assert set(await rest(reader)) == {HEARTBEAT}
        await asyncio.wait_for(stream.closed.wait(), 10)


async def test_nothing_is_written_once_the_rights_are_known_to_be_lost() -> None:
    stream = ScriptedStream()
    asked = asyncio.Event()

    async def check() -> None:
        asked.set()
        raise Refused(Code.UNAUTHENTICATED)

    async with opened(stream, heartbeat_seconds=0.3, check_rights=check) as (reader, _):
        await head(reader)
        await asyncio.wait_for(asked.wait(), 10)
        stream.queue.put_nowait(b"data: secret\n\n")
        assert set(await rest(reader)) == {HEARTBEAT}


async def test_a_database_that_is_away_for_a_while_ends_no_stream() -> None:
    away = DatabaseUnavailable("access")
    stream = ScriptedStream()
    async with opened(stream, heartbeat_seconds=0.02, check_rights=answering(away, away, away, None)) as (reader, _):
        await head(reader)
        assert [await chunk(reader) for _ in range(8)] == [HEARTBEAT] * 8


async def test_a_database_that_stays_away_ends_it() -> None:
    stream = ScriptedStream()
    async with opened(stream, heartbeat_seconds=0.02, check_rights=answering(DatabaseUnavailable("access"))) as (reader, _):
        await head(reader)
        assert len(await rest(reader)) >= 4


async def test_a_check_that_fails_is_no_yes_and_is_logged_by_type() -> None:
    with capture_logs() as lines:
        async with opened(ScriptedStream(), heartbeat_seconds=0.02, check_rights=answering(ValueError("secret"))) as (reader, _):
            await head(reader)
            await rest(reader)
    assert "ValueError" in str(lines)
    assert "secret" not in str(lines)


@pytest.mark.parametrize("error", [DatabaseUnavailable("view"), Refused(Code.NOT_FOUND)])
async def test_a_run_that_can_no_longer_be_read_ends_without_a_terminal_frame(error: Exception) -> None:
    async with opened(ScriptedStream(b"data: 1\n\n", error)) as (reader, _):
        await head(reader)
        assert await rest(reader) == [b"data: 1\n\n"]


async def test_a_fault_cuts_the_stream_and_is_logged_by_type() -> None:
    with capture_logs() as lines:
        async with opened(ScriptedStream(b"data: 1\n\n", ValueError("secret"))) as (reader, _):
            await head(reader)
            assert await chunk(reader) == b"data: 1\n\n"
            assert await asyncio.wait_for(reader.read(), 10) == b""  # closed without a last chunk
    assert "ValueError" in str(lines)
    assert "secret" not in str(lines)


async def test_a_browser_that_leaves_is_noticed_at_once() -> None:
    stream = ScriptedStream(b"data: 1\n\n")
    async with opened(stream) as (reader, writer):
        await head(reader)
        assert await chunk(reader) == b"data: 1\n\n"
        writer.close()
        await asyncio.wait_for(stream.closed.wait(), 10)


async def test_a_browser_that_does_not_read_is_cut_off() -> None:
    stream = ScriptedStream(endless=b"data: " + b"x" * 1_000_000 + b"\n\n")
    async with opened(stream, heartbeat_seconds=0.1) as (_, writer):
        assert isinstance(writer.transport, asyncio.Transport)
        writer.transport.pause_reading()
        await asyncio.wait_for(stream.closed.wait(), 10)
