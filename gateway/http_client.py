"""JSON over HTTP to other services: upstream's small calls, key sets, moderators. The only place with aiohttp.

Bounded bodies, a deadline for all of it, no redirects, no environment proxies, no second try, no compression, TLS verified. What goes wrong
is a `CallFault` value; no exception text of the library passes here, because such texts carry URLs and tokens (field case O-34).
Not here: the one POST that may execute (`upstream.one_post`); why that is another transport: docs/decisions/0002-upstream-transport.md.
"""

import asyncio
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Final, Self

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from gateway.domain.in_transaction import forbid_inside_transaction

_KEEP_ALIVE_SECONDS: Final = 4.0
"""Idle connections are dropped before the peer drops them: uvicorn's default is 5 s, and a stale one costs a call (O-11)."""
_MAX_HEADER_BYTES: Final = 8190
_MAX_HEADERS: Final = 128
_SENDABLE: Final = re.compile(r"[\x20-\x7e]*")
_USER_AGENT: Final = "agent-governance-gateway"


class CallFault(StrEnum):
    """Why a call brought no reply. None of them says that the request was not received."""

    UNSENDABLE = "unsendable"
    """The URL or a header cannot be written as HTTP; no connection was tried."""
    NAME_NOT_RESOLVED = "name_not_resolved"
    NOT_CONNECTED = "not_connected"
    TLS_FAILED = "tls_failed"
    TIMED_OUT = "timed_out"
    DISCONNECTED = "disconnected"
    REPLY_MALFORMED = "reply_malformed"
    REPLY_CUT = "reply_cut"
    REPLY_TOO_LARGE = "reply_too_large"
    REPLY_ENCODED = "reply_encoded"
    """A Content-Encoding other than identity, though we asked for identity: never decompressed."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole reply. The body never shows in a repr: real servers echo user content there."""

    status: int
    content_type: str | None
    body: bytes = field(repr=False)


def is_sendable_header(text: str) -> bool:
    """True for printable ASCII: what may stand in a header value without changing the request's shape."""
    return _SENDABLE.fullmatch(text) is not None


def verified_tls() -> ssl.SSLContext:
    """The TLS settings of every outgoing connection: certificates and names verified against the system's trust store, TLS 1.2 or later.

    `SSL_CERT_FILE` and `SSL_CERT_DIR` are OpenSSL's own way to add a private authority.
    """
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


class HttpClient:
    """One pool of connections. Make it inside a running loop, close it with `aclose` or `async with`."""

    def __init__(self, *, connect_seconds: float, tls: ssl.SSLContext | None = None) -> None:
        self.tls = tls or verified_tls()
        """The TLS settings of this client, for the transport of the one POST too."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_SECONDS, ssl=self.tls),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, connect=connect_seconds),
            auto_decompress=False,
            trust_env=False,
            max_line_size=_MAX_HEADER_BYTES,
            max_field_size=_MAX_HEADER_BYTES,
            max_headers=_MAX_HEADERS,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close every connection."""
        await self._session.close()

    async def get_json(
        self, url: str, *, headers: Mapping[str, str] | None = None, deadline_seconds: float, max_bytes: int
    ) -> Reply | CallFault:
        """GET `url` (absolute, percent-encoded; sent as it is). The reply's body is bounded, and not decoded."""
        return await self._call("GET", url, headers or {}, None, deadline_seconds, max_bytes)

    async def post_json(
        self, url: str, *, headers: Mapping[str, str] | None = None, body: bytes, deadline_seconds: float, max_bytes: int
    ) -> Reply | CallFault:
        """POST `body`, which is JSON in UTF-8, to `url`; otherwise as `get_json`. For calls that execute no run."""
        return await self._call("POST", url, {"Content-Type": "application/json", **(headers or {})}, body, deadline_seconds, max_bytes)

    async def _call(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, deadline_seconds: float, max_bytes: int
    ) -> Reply | CallFault:
        forbid_inside_transaction()
        if not all(is_sendable_header(value) for value in headers.values()):
            return CallFault.UNSENDABLE
        try:
            async with asyncio.timeout(deadline_seconds):
                return await self._exchange(method, url, headers, body, max_bytes)
        except (aiohttp.ClientError, HttpProcessingError, OSError, ValueError) as error:
            return _fault_of(error)

    async def _exchange(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, max_bytes: int) -> Reply | CallFault:
        async with self._session.request(
            method,
            URL(url, encoded=True),
            data=body,
            headers={"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": _USER_AGENT, **headers},
            allow_redirects=False,
            middlewares=(_Once(),),
        ) as response:
            try:
                return await _reply(response, max_bytes)
            finally:
                # Closed, not released: a reply that was not read to its end must not be drained into the pool.
                response.close()


class _Once:
    """The library repeats a GET whose connection breaks; this lets the first try through and no other."""

    __slots__ = ("_tried",)

    def __init__(self) -> None:
        self._tried = False

    async def __call__(self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        if self._tried:
            raise aiohttp.ClientConnectionError
        self._tried = True
        return await handler(request)


async def _reply(response: aiohttp.ClientResponse, max_bytes: int) -> Reply | CallFault:
    if any(value.strip().lower() != "identity" for value in response.headers.getall("Content-Encoding", ())):
        return CallFault.REPLY_ENCODED
    if (response.content_length or 0) > max_bytes:
        return CallFault.REPLY_TOO_LARGE
    body = bytearray()
    while piece := await response.content.readany():
        body += piece
        if len(body) > max_bytes:
            return CallFault.REPLY_TOO_LARGE
    return Reply(response.status, response.headers.get("Content-Type"), bytes(body))


def _fault_of(error: Exception) -> CallFault:
    match error:
        case aiohttp.ClientConnectorDNSError():
            return CallFault.NAME_NOT_RESOLVED
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError() | ssl.SSLError():
            return CallFault.TLS_FAILED
        case TimeoutError():
            return CallFault.TIMED_OUT
        case aiohttp.ClientConnectorError():
            return CallFault.NOT_CONNECTED
        case aiohttp.ClientPayloadError():
            return CallFault.REPLY_CUT
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            return CallFault.UNSENDABLE
        case aiohttp.ClientConnectionError() | OSError():
            return CallFault.DISCONNECTED
        case aiohttp.ClientError() | HttpProcessingError():
            return CallFault.REPLY_MALFORMED
        case _:
            # A ValueError: the library refuses what it was to send.
            return CallFault.UNSENDABLE
