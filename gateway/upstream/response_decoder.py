"""Sans-IO: the bytes of one HTTP/1.1 response → its head, the payload of its body, and how the body ended.

h11 reads the head (and 1xx before it): strict, and bounded. The body is decoded here and not by h11, because a stream is thousands of
small chunks and h11 wants several calls for each (docs/decisions/0002-upstream-transport.md). One response, then the connection is
closed, so nothing after its end is ever interpreted. No socket, no clock; what status or payload mean is not known here.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, assert_never

import h11

MAX_HEAD_BYTES: Final = 32 * 1024
"""Status line and headers, 1xx responses before them included. Common servers stop at 8 to 16 KiB."""
MAX_INFORMATIONAL: Final = 16
"""1xx responses before the final one; real servers send none or one."""
MAX_CHUNK_LINE_BYTES: Final = 256
"""A chunk's size with its extensions. Nobody sends extensions; 16 hex digits are the most that we take."""
MAX_TRAILER_BYTES: Final = 8 * 1024

_CHUNK_LINE: Final = re.compile(rb"([0-9a-fA-F]{1,16})[ \t]*(?:;[^\r\n]*)?")
_NO_BODY: Final = frozenset({204, 304})


class BodyEnd(StrEnum):
    """How a response body ended; evidence only, no verdict rests on it but the native profile's "complete"."""

    COMPLETE = "complete"
    """By its own framing."""
    CONNECTION_CLOSED = "connection_closed"
    """Without framing, by an orderly close: a cut cannot be told from an end."""
    CUT = "cut"
    """Before its framing said so, or by a reset."""
    MALFORMED = "malformed"
    """The framing itself was broken."""


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """Status and headers (names in lower case) of the final response."""

    status: int
    headers: tuple[tuple[str, str], ...]

    def values(self, name: str) -> tuple[str, ...]:
        """All values of the header `name` (lower case), in order."""
        return tuple(value for key, value in self.headers if key == name)


class _Framing(StrEnum):
    LENGTH = "length"
    CHUNKED = "chunked"
    UNTIL_CLOSE = "until_close"


class _Expect(StrEnum):
    SIZE = "size"
    PAYLOAD = "payload"
    PAYLOAD_END = "payload_end"
    TRAILER = "trailer"


class ResponseDecoder:
    """Feed bytes with `feed`, the connection's end with `eof`; read `head`, `take()` and `end`.

    `request` is the h11 connection that the request was written with. Never raises for what the peer sent: a head that cannot be read
    sets `end` while `head` stays None.
    """

    def __init__(self, connection: h11.Connection) -> None:
        self._connection = connection
        self._informational = 0
        self._head_bytes = 0
        self._framing = _Framing.UNTIL_CLOSE
        self._expect = _Expect.SIZE
        self._left = 0
        self._trailer_bytes = 0
        self._buffer = b""
        self._payload: list[bytes] = []
        self.payload_bytes = 0
        """Payload bytes decoded and not yet taken."""
        self.head: ResponseHead | None = None
        self.end: BodyEnd | None = None

    def take(self) -> bytes:
        """All payload decoded since the last call, as one piece."""
        payload = self._payload
        piece = payload[0] if len(payload) == 1 else b"".join(payload)
        payload.clear()
        self.payload_bytes = 0
        return piece

    def feed(self, received: bytes) -> None:
        """Take the next bytes of the connection."""
        if self.end is not None:
            return
        if self.head is None:
            self._feed_head(received)
        else:
            self._feed_body(received)

    def eof(self, *, orderly: bool) -> None:
        """The connection is over: `orderly` by the peer's close, else by a reset or by us."""
        if self.end is not None:
            return
        if orderly and self.head is not None and self._framing is _Framing.UNTIL_CLOSE:
            self.end = BodyEnd.CONNECTION_CLOSED
        else:
            self.end = BodyEnd.CUT

    def _feed_head(self, received: bytes) -> None:
        # h11 bounds what is incomplete; a head that came whole in one large read is bounded here.
        room = MAX_HEAD_BYTES - self._head_bytes
        self._head_bytes += len(received)
        try:
            self._connection.receive_data(received[:room])
            while (event := self._connection.next_event()) is not h11.NEED_DATA:
                if isinstance(event, h11.Response):
                    self._begin_body(event, received[room:])
                    return
                self._informational += 1
                if not isinstance(event, h11.InformationalResponse) or self._informational > MAX_INFORMATIONAL:
                    self.end = BodyEnd.MALFORMED
                    return
        except h11.RemoteProtocolError:
            self.end = BodyEnd.MALFORMED
        if len(received) >= room:
            self.end = BodyEnd.MALFORMED

    def _begin_body(self, response: h11.Response, beyond: bytes) -> None:
        # Latin-1 cannot fail; values are compared with what we know, and shown to nobody.
        headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers)
        self.head = head = ResponseHead(response.status_code, headers)
        # h11 let no other transfer encoding than chunked pass, and no two lengths that differ.
        lengths = head.values("content-length")
        if response.status_code in _NO_BODY:
            self._framing = _Framing.LENGTH
        elif head.values("transfer-encoding"):
            self._framing = _Framing.CHUNKED
        elif lengths:
            self._framing = _Framing.LENGTH
            self._left = int(lengths[0])
        rest = self._connection.trailing_data[0] + beyond
        if self._framing is _Framing.LENGTH and self._left == 0:
            self.end = BodyEnd.COMPLETE
        elif rest:
            self._feed_body(rest)

    def _feed_body(self, received: bytes) -> None:
        match self._framing:
            case _Framing.UNTIL_CLOSE:
                self._keep(received)
            case _Framing.LENGTH:
                payload = received[: self._left]
                self._left -= len(payload)
                self._keep(payload)
                if self._left == 0:
                    self.end = BodyEnd.COMPLETE
            case _Framing.CHUNKED:
                self._feed_chunks(received)
            case _:
                assert_never(self._framing)

    def _keep(self, payload: bytes) -> None:
        if payload:
            self._payload.append(payload)
            self.payload_bytes += len(payload)

    def _feed_chunks(self, received: bytes) -> None:
        buffer = self._buffer + received if self._buffer else received
        at, size = 0, len(buffer)
        while self.end is None and at < size:
            if self._expect is _Expect.PAYLOAD:
                payload = buffer[at : at + self._left]
                at += len(payload)
                self._left -= len(payload)
                self._keep(payload)
                if self._left == 0:
                    self._expect = _Expect.PAYLOAD_END
                continue
            line_end = buffer.find(b"\r\n", at)
            if line_end < 0:
                if size - at > (MAX_TRAILER_BYTES if self._expect is _Expect.TRAILER else MAX_CHUNK_LINE_BYTES):
                    self.end = BodyEnd.MALFORMED
                break
            self._take_line(buffer[at:line_end])
            at = line_end + 2
        self._buffer = buffer[at:]

    def _take_line(self, line: bytes) -> None:
        match self._expect:
            case _Expect.PAYLOAD_END:
                if line:
                    self.end = BodyEnd.MALFORMED
                self._expect = _Expect.SIZE
            case _Expect.SIZE:
                match_ = _CHUNK_LINE.fullmatch(line) if len(line) <= MAX_CHUNK_LINE_BYTES else None
                if match_ is None:
                    self.end = BodyEnd.MALFORMED
                    return
                self._left = int(match_[1], 16)
                self._expect = _Expect.PAYLOAD if self._left else _Expect.TRAILER
            case _Expect.TRAILER:
                self._trailer_bytes += len(line) + 2
                if not line:
                    self.end = BodyEnd.COMPLETE
                elif self._trailer_bytes > MAX_TRAILER_BYTES:
                    self.end = BodyEnd.MALFORMED
            case _Expect.PAYLOAD:
                raise AssertionError("payload has no lines")
            case _:
                assert_never(self._expect)
