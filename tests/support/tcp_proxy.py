"""A TCP proxy on loopback that breaks connections on command, between the gateway and PostgreSQL or an upstream.

`proxy.fault` is read for every piece that passes, so a test switches it while connections live; `proxy.struck` is set when a fault
has done its work. PostgreSQL faults watch the wire for a text inside a query message and for the server's ReadyForQuery.
"""

import asyncio
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Final, Self, assert_never

# ReadyForQuery: the server has finished, and where it said so, committed.
READY_FOR_QUERY: Final = b"Z\x00\x00\x00\x05"


class Toward(StrEnum):
    SERVER = "server"
    CLIENT = "client"


@dataclass(frozen=True)
class Pass:
    """Everything passes."""


@dataclass(frozen=True)
class Delay:
    """Every piece, in both directions, waits so long."""

    seconds: float


@dataclass(frozen=True)
class CutAfter:
    """Exactly so many more bytes pass in that direction, counted from when the fault is set, then both sides are reset."""

    size_bytes: int
    toward: Toward


@dataclass(frozen=True)
class BlackHole:
    """What arrives is read and forgotten; connections stay open."""


@dataclass(frozen=True)
class Reset:
    """The next piece in any direction, and every new connection, is answered with a reset."""


@dataclass(frozen=True)
class Split:
    """Every byte in a write of its own."""


@dataclass(frozen=True)
class CutBeforeQuery:
    """A query message that holds `text` does not reach the server: reset instead."""

    text: bytes


@dataclass(frozen=True)
class CutAfterAnswer:
    """A query message that holds `text` reaches the server, its whole answer arrives here and no further: reset."""

    text: bytes


@dataclass(frozen=True)
class WithholdAnswer:
    """As CutAfterAnswer, but the connection stays open and silent."""

    text: bytes


@dataclass(frozen=True)
class CloseOnce:
    """The next piece, in either direction, that holds `text` is lost and its connection closed in order; everything else passes."""

    text: bytes


@dataclass(frozen=True)
class HangOnce:
    """The next piece, in either direction, that holds `text` is lost, and so is whatever its connection carries from then on."""

    text: bytes


Fault = Pass | Delay | CutAfter | BlackHole | Reset | Split | CutBeforeQuery | CutAfterAnswer | WithholdAnswer | CloseOnce | HangOnce


@dataclass(eq=False)
class _Link:
    """One proxied connection. `awaiting`: the watched query has gone to the server, its answer has not come yet."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    awaiting: bool = False
    answer: bytes = b""
    client_ended: bool = False
    silent: bool = False

    def reset(self) -> None:
        for writer in (self.client, self.server):
            connected = writer.get_extra_info("socket")
            if connected is not None and connected.family != socket.AF_UNIX:
                with suppress(OSError):  # it was closed a moment ago, and its task has not run since
                    connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


class TcpProxy:
    """`async with TcpProxy(host, port) as proxy` or `TcpProxy(unix_path)`; then connect to 127.0.0.1 and `proxy.port`."""

    def __init__(self, target: str, target_port: int | None = None) -> None:
        self._target = target
        self._target_port = target_port
        self._fault: Fault = Pass()
        self._left_bytes = 0
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.struck = asyncio.Event()
        self.connected = asyncio.Event()
        self.connections = 0
        self.answers = 0  # of PostgreSQL: round trips seen by clients, the first of each connection included
        self.port = 0

    @property
    def fault(self) -> Fault:
        return self._fault

    @fault.setter
    def fault(self, fault: Fault) -> None:
        self._fault = fault
        self._left_bytes = fault.size_bytes if isinstance(fault, CutAfter) else 0
        self.struck.clear()

    @property
    def open_connections(self) -> int:
        return len(self._links)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.refuse()
        await self.reset()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def lead_to(self, target_port: int) -> None:
        """New connections go to another port of the same host; live ones go on."""
        self._target_port = target_port

    async def refuse(self) -> None:
        """Stop listening: new connections are refused, live ones go on."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def listen_again(self) -> None:
        """Listen on the same port as before."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    async def reset(self) -> None:
        """Reset every live connection, and return once the resets are sent."""
        links = tuple(self._links)
        for link in links:
            link.reset()
        for link in links:
            with suppress(OSError):
                await link.client.wait_closed()
        self.struck.set()

    def half_close(self) -> None:
        """Send the end of the stream to every client; what clients send still passes."""
        for link in tuple(self._links):
            link.client.write_eof()
            link.client_ended = True
        self.struck.set()

    async def _accept(self, client_reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        self.connected.set()
        try:
            if self._target_port is None:
                server_reader, server = await asyncio.open_unix_connection(self._target)
            else:
                server_reader, server = await asyncio.open_connection(self._target, self._target_port)
        except OSError:
            client.transport.abort()
            return
        link = _Link(client, server)
        self._links.add(link)
        try:
            if isinstance(self._fault, Reset):
                self._strike(link)
                return
            await asyncio.gather(
                self._pump(link, Toward.SERVER, client_reader, server), self._pump(link, Toward.CLIENT, server_reader, client)
            )
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._links.discard(link)
            client.transport.abort()
            server.transport.abort()

    async def _pump(self, link: _Link, toward: Toward, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(65536):
            passed = self._through(link, toward, piece)
            if toward is Toward.CLIENT:
                self.answers += passed.count(READY_FOR_QUERY)
                if link.client_ended:
                    continue
            if isinstance(self._fault, Delay):
                await asyncio.sleep(self._fault.seconds)
            if isinstance(self._fault, Split):
                for index in range(len(passed)):
                    writer.write(passed[index : index + 1])
                    await writer.drain()
                    await asyncio.sleep(0)
            elif passed:
                writer.write(passed)
                await writer.drain()
            if isinstance(self._fault, CutAfter) and self._fault.toward is toward and self._left_bytes == 0:
                self._strike(link)
        if not writer.is_closing():
            writer.write_eof()

    def _through(self, link: _Link, toward: Toward, piece: bytes) -> bytes:
        """What of the piece passes."""
        if link.silent:
            return b""
        match self._fault:
            case Pass() | Delay() | Split():
                return piece
            case CutAfter() as fault:
                if fault.toward is not toward:
                    return piece
                passed = piece[: self._left_bytes]
                self._left_bytes -= len(passed)
                return passed
            case BlackHole():
                self.struck.set()
                return b""
            case Reset():
                self._strike(link)
                return b""
            case CutBeforeQuery() as fault:
                if toward is Toward.SERVER and fault.text in piece:
                    self._strike(link)
                    return b""
                return piece
            case CutAfterAnswer() | WithholdAnswer() as fault:
                return self._watched(fault, link, toward, piece)
            case CloseOnce() | HangOnce() as fault:
                return self._once(fault, link, piece)
            case _:
                assert_never(self._fault)

    def _watched(self, fault: CutAfterAnswer | WithholdAnswer, link: _Link, toward: Toward, piece: bytes) -> bytes:
        if toward is Toward.SERVER:
            link.awaiting = link.awaiting or fault.text in piece
            return piece
        if not link.awaiting:
            return piece
        link.answer += piece
        if READY_FOR_QUERY in link.answer:
            if isinstance(fault, CutAfterAnswer):
                self._strike(link)
            else:
                self.struck.set()
        return b""

    def _once(self, fault: CloseOnce | HangOnce, link: _Link, piece: bytes) -> bytes:
        if fault.text not in piece:
            return piece
        self._fault = Pass()
        link.silent = True
        if isinstance(fault, CloseOnce):
            link.client.close()
            link.server.close()
        self.struck.set()
        return b""

    def _strike(self, link: _Link) -> None:
        link.reset()
        self.struck.set()
