"""A TCP server for one test: a coroutine answers each connection byte by byte, and every byte that arrived is kept.

Here lives: the server, reading a request, ending a connection in its ways, ports that refuse or never accept, a throw-away TLS identity.
Not here: anything that knows an upstream's routes (`scripted_upstream.py`). Works on asyncio's own loop and on uvloop.
"""

import asyncio
import contextlib
import datetime
import ipaddress
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import TracebackType

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

SIGNAL_SECONDS = 10.0


class RawConnection:
    """One accepted connection. `received` has every byte that came in, in order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.received = b""

    async def read_request(self) -> bytes:
        """Read one request whole (by Content-Length); its bytes."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        self.received += head
        lines = [line.partition(b":") for line in head.lower().split(b"\r\n")]
        length = next((int(value) for name, _, value in lines if name == b"content-length"), 0)
        body = await self._reader.readexactly(length)
        self.received += body
        return head + body

    async def read_some(self) -> bytes:
        """Whatever comes next; b"" when the other side is gone."""
        try:
            some = await self._reader.read(65536)
        except (ConnectionError, ssl.SSLError):
            some = b""
        self.received += some
        return some

    async def until_gone(self) -> None:
        """Read on until the other side leaves."""
        while await self.read_some():
            pass

    async def send(self, written: bytes) -> None:
        """Write, and wait for room."""
        self._writer.write(written)
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    def write(self, written: bytes) -> None:
        """Write without waiting."""
        self._writer.write(written)

    def close(self) -> None:
        """FIN."""
        self._writer.close()

    def reset(self) -> None:
        """RST: no lingering, what is unsent is dropped."""
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


Answering = Callable[[RawConnection], Awaitable[None]]


class RawServer:
    """Listens on 127.0.0.1 while open; `answering` runs once for each connection, which is closed when it returns."""

    def __init__(self, answering: Answering, *, tls: ssl.SSLContext | None = None) -> None:
        self._answering = answering
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._faults: list[Exception] = []
        self.connections: list[RawConnection] = []
        self.served = 0
        self.port = 0

    @property
    def base_url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def received(self) -> bytes:
        """Everything that arrived on any connection."""
        return b"".join(connection.received for connection in self.connections)

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait until `happened()`; it is asked whenever a connection came or was served."""
        async with asyncio.timeout(SIGNAL_SECONDS):
            while not happened():
                self._changed.clear()
                await self._changed.wait()

    async def __aenter__(self) -> "RawServer":
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._server is not None
        # asyncio loses the socket of a connection that it is just accepting when the server closes; a few turns let it finish.
        for _ in range(5):
            await asyncio.sleep(0)
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._faults:
            raise ExceptionGroup("the raw server itself failed", self._faults)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        connection = RawConnection(reader, writer)
        self.connections.append(connection)
        self._changed.set()
        try:
            await self._answering(connection)
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError, asyncio.CancelledError):
            pass
        except Exception as fault:  # noqa: BLE001 - told when the server closes, not lost in its task
            self._faults.append(fault)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError, ssl.SSLError, asyncio.CancelledError, TimeoutError):
                await writer.wait_closed()
            self._tasks.discard(task)
            self.served += 1
            self._changed.set()


def answer_with(*pieces: bytes, reset: bool = False) -> Answering:
    """Read the request, write the pieces, then FIN or RST."""

    async def answering(connection: RawConnection) -> None:
        await connection.read_request()
        for piece in pieces:
            await connection.send(piece)
        if reset:
            connection.reset()

    return answering


def response(status_line: str, headers: str = "", body: bytes = b"") -> bytes:
    """A whole response with its length; `headers` are lines ended by CRLF."""
    return f"HTTP/1.1 {status_line}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode("latin-1") + body


@contextlib.contextmanager
def refusing_port() -> Iterator[int]:
    """A port that nobody listens on, kept so until the end."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@contextlib.contextmanager
def full_backlog_port() -> Iterator[int]:
    """A listening port whose queue is full: SYNs are dropped, a connection is never made. Linux."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        yield listening.getsockname()[1]


def tls_identity(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A fresh self-signed identity for 127.0.0.1: the server's context, and a client's that trusts it and nothing else."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "raw server")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    chain, private = folder / "certificate.pem", folder / "key.pem"
    chain.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(chain, private)
    client = ssl.create_default_context(cafile=str(chain))
    return server, client
