"""Raw HTTP/1.1 on one TCP connection of a test server: reading requests, writing bytes, the three ways to end it.

Here lives: a buffered connection with back-pressure and RST, heads, bodies, chunks. Not here: routes, scripts, records.
"""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus


class GoneError(Exception):
    """The other side left while a request was being read."""


class Connection(asyncio.Protocol):
    """Bytes of one TCP connection: buffered reading, writing with back-pressure, the three ways to end it."""

    def __init__(self, opened: Callable[["Connection"], None]) -> None:
        self._opened = opened
        self._buffer = bytearray()
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._transport: asyncio.Transport | None = None
        self.gone = asyncio.Event()
        self.number = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._opened(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._arrived.set()

    def eof_received(self) -> None:
        self.gone.set()
        self._arrived.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()
        self._arrived.set()
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    async def _more(self) -> None:
        if self.gone.is_set():
            raise GoneError
        self._arrived.clear()
        await self._arrived.wait()

    async def read_until(self, mark: bytes) -> bytes:
        while (at := self._buffer.find(mark)) < 0:
            await self._more()
        return await self.read_exactly(at + len(mark))

    async def read_exactly(self, length: int) -> bytes:
        while len(self._buffer) < length:
            await self._more()
        part = bytes(self._buffer[:length])
        del self._buffer[:length]
        return part

    async def write(self, written: bytes) -> bool:
        """Hand bytes to the kernel, waiting for room; False when the other side is gone."""
        if self._transport is None or self.gone.is_set() or self._transport.is_closing():
            return False
        self._transport.write(written)
        await self._writable.wait()
        return not self.gone.is_set()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def reset(self) -> None:
        """Close with RST: no lingering, what is unsent is dropped."""
        if self._transport is None:
            return
        sock = self._transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()


async def read_head(connection: Connection) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    """Method, target and headers (names in lower case) of the next request; GoneError when none comes."""
    text = (await connection.read_until(b"\r\n\r\n")).decode("latin-1")
    request_line, *lines = text[:-4].split("\r\n")
    method, target, _version = request_line.split(" ", 2)
    pairs = [line.partition(":") for line in lines]
    return method, target, tuple((name.strip().lower(), value.strip()) for name, _, value in pairs)


async def read_body(connection: Connection, headers: Sequence[tuple[str, str]]) -> bytes:
    """The body by Content-Length or chunks."""
    names = dict(headers)
    if names.get("transfer-encoding", "").lower() != "chunked":
        return await connection.read_exactly(int(names.get("content-length", "0")))
    body = b""
    while size := int((await connection.read_until(b"\r\n")).split(b";")[0], 16):
        body += await connection.read_exactly(size)
        await connection.read_exactly(2)
    await connection.read_until(b"\r\n")
    return body


def json_bytes(value: object) -> bytes:
    """Compact JSON in UTF-8, nothing escaped without need."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def phrase(http_status: int) -> str:
    """The reason phrase; any number is allowed."""
    return HTTPStatus(http_status).phrase if http_status in HTTPStatus._value2member_map_ else "Scripted"


def head(http_status: int, headers: Mapping[str, str], scripted: Mapping[str, str]) -> bytes:
    """Status line and headers; a scripted header replaces the default of its name, an empty one removes it."""
    merged = dict(headers)
    for name, value in scripted.items():
        merged[name.lower()] = value
    lines = [f"HTTP/1.1 {http_status} {phrase(http_status)}", *(f"{name}: {value}" for name, value in merged.items() if value)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


async def send(connection: Connection, http_status: int, headers: Mapping[str, str], body: bytes) -> bool:
    """A whole JSON answer (unless the headers say otherwise); False when the other side is gone."""
    defaults = {"content-type": "application/json", "content-length": str(len(body))}
    return await connection.write(head(http_status, defaults, headers) + body)


def chunk(piece: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%s\r\n" % (len(piece), piece)
