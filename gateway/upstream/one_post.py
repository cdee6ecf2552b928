"""The transport of the one POST: a connection of its own, one write at most, no pool, no proxy, no redirect, no second try.

Only this module writes a request that may execute. It is our own code over asyncio because what it must prove, "no request byte left",
is a fact about two neighbouring lines (`gate.open()`, `transport.write`), and no client library shows them
(docs/decisions/0002-upstream-transport.md).
It knows HTTP/1.1 and TLS; what a response means for a run is `generate`'s.
"""

import asyncio
import socket
import ssl
from typing import Final, cast

import aiohappyeyeballs
import h11

from gateway.domain.addresses import is_allowed
from gateway.domain.evidence import NotSentProof, ResponseFault
from gateway.domain.in_transaction import forbid_inside_transaction
from gateway.upstream.endpoint import Origin
from gateway.upstream.open_stream import OpenStream
from gateway.upstream.response_decoder import MAX_HEAD_BYTES, BodyEnd, ResponseDecoder, ResponseHead
from gateway.upstream.send_gate import SendGate

_PAUSE_AT_BYTES: Final = 256 * 1024
"""Payload held for a slow reader before the socket is read no further; one read of a socket is at most as much."""
_HAPPY_EYEBALLS_SECONDS: Final = 0.25
"""RFC 8305: the head start of an address family, so that a dead IPv6 route does not use up the time to connect."""


async def send_one_post(
    origin: Origin,
    path: str,
    *,
    headers: list[tuple[bytes, bytes]],
    body: bytes,
    gate: SendGate,
    tls: ssl.SSLContext,
    trusted_hosts: frozenset[str],
    connect_seconds: float,
    response_seconds: float,
) -> OpenStream | NotSentProof | ResponseFault:
    """Send the one POST: the response's head and open body, or the proof that nothing was sent, or what went wrong after it may have been.

    `trusted_hosts`: who may have a private address (`domain.addresses.is_allowed`); no other address is tried than what a host may have.
    `connect_seconds` bounds name, connection and TLS together, `response_seconds` the wait for the head from then on. A cancelled task
    learns from `gate.seal()` whether bytes may have left. Raises NetworkCallInsideTransaction; ValueError for what cannot be HTTP.
    """
    forbid_inside_transaction()
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
    request = _request_bytes(connection, origin, path, headers, body)
    try:
        async with asyncio.timeout(connect_seconds):
            exchange = await _connect(origin, tls, trusted_hosts, ResponseDecoder(connection))
    except (OSError, UnicodeError):
        # TimeoutError and every TLS error are OSErrors; UnicodeError is a host name that IDNA refuses.
        return gate.seal() or ResponseFault.NO_RESPONSE
    try:
        if not exchange.send(request, gate):
            await exchange.aclose()
            return gate.seal() or ResponseFault.NO_RESPONSE
        try:
            async with asyncio.timeout(response_seconds):
                head = await exchange.read_head()
        except TimeoutError:
            head = None
        if head is None:
            await exchange.aclose()
            return ResponseFault.WRITE_ERROR if exchange.write_failed else ResponseFault.NO_RESPONSE
    except BaseException:
        exchange.abort()
        raise
    return OpenStream(head, read=exchange.read, end=exchange.end, close=exchange.aclose)


def _request_bytes(connection: h11.Connection, origin: Origin, path: str, headers: list[tuple[bytes, bytes]], body: bytes) -> bytes:
    # h11 refuses what would change the request's shape, but its messages quote the header (O-34).
    head = [(b"Host", origin.host_header.encode("ascii")), *headers, (b"Content-Length", b"%d" % len(body)), (b"Connection", b"close")]
    try:
        parts = (
            connection.send(h11.Request(method="POST", target=path, headers=head)),
            connection.send(h11.Data(data=body)),
            connection.send(h11.EndOfMessage()),
        )
    except h11.LocalProtocolError:
        raise ValueError("the request cannot be written as HTTP/1.1") from None
    return b"".join(part for part in parts if part is not None)


async def _connect(origin: Origin, tls: ssl.SSLContext, trusted_hosts: frozenset[str], decoder: ResponseDecoder) -> "_Exchange":
    loop = asyncio.get_running_loop()
    exchange = _Exchange(decoder)
    context, server_hostname = (tls, origin.host) if origin.tls else (None, None)
    resolved = await loop.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
    addresses = [found for found in resolved if is_allowed(str(found[4][0]), origin.host, trusted_hosts)]
    if not addresses:
        raise OSError("no address that this host may have")
    if len(addresses) == 1:
        # The common case, at half the cost of a race between addresses.
        address = str(addresses[0][4][0])
        await loop.create_connection(lambda: exchange, address, origin.port, ssl=context, server_hostname=server_hostname)
        return exchange
    sock = await aiohappyeyeballs.start_connection(addresses, happy_eyeballs_delay=_HAPPY_EYEBALLS_SECONDS, loop=loop)
    try:
        await loop.create_connection(lambda: exchange, sock=sock, ssl=context, server_hostname=server_hostname)
    except BaseException:
        sock.close()
        raise
    return exchange


class _Exchange(asyncio.Protocol):
    """One connection: the request out, the response in. It knows no time; `_lost` is done when the connection is gone."""

    def __init__(self, decoder: ResponseDecoder) -> None:
        self.decoder = decoder
        self._transport: asyncio.Transport | None = None
        self._lost = asyncio.Event()
        self._waiter: asyncio.Future[None] | None = None
        self._reading_paused = False
        self._unsent = False
        self.write_failed = False

    # The one line that sends

    def send(self, request: bytes, gate: SendGate) -> bool:
        """Write the request if the gate opens; nothing may come between its yes and the write. False: not a byte was written."""
        transport = self._transport
        if transport is None or transport.is_closing() or not gate.open():
            return False
        transport.write(request)
        return True

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # With no low-water mark `resume_writing` means that every byte is with the kernel.
        self._transport.set_write_buffer_limits(high=0)

    def pause_writing(self) -> None:
        self._unsent = True

    def resume_writing(self) -> None:
        self._unsent = False

    def data_received(self, data: bytes) -> None:
        self.decoder.feed(data)
        if self.decoder.payload_bytes > _PAUSE_AT_BYTES and self._transport is not None and not self._reading_paused:
            self._reading_paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self.write_failed = self._unsent or isinstance(exc, BrokenPipeError)
        self.decoder.eof(orderly=exc is None)
        self._transport = None
        self._lost.set()
        self._wake()

    # What the caller's task awaits

    async def read_head(self) -> ResponseHead | None:
        """The final response's head; None when the connection or the framing ended before it."""
        while self.decoder.head is None and self.decoder.end is None:
            await self._more()
        return self.decoder.head

    async def read(self) -> bytes:
        decoder = self.decoder
        while not decoder.payload_bytes:
            if decoder.end is not None:
                return b""
            await self._more()
        piece = decoder.take()
        if self._reading_paused and self._transport is not None:
            self._reading_paused = False
            self._transport.resume_reading()
        return piece

    def end(self) -> BodyEnd | None:
        """How the body ended; None while it has not, or while payload is still to be read."""
        return None if self.decoder.payload_bytes else self.decoder.end

    async def aclose(self) -> None:
        self.abort()
        await self._lost.wait()

    def abort(self) -> None:
        """Close at once: nothing is flushed, and TLS waits for no answer to its goodbye."""
        self.decoder.eof(orderly=False)
        if self._transport is None:
            return
        self._transport.abort()

    async def _more(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
