"""JSON over HTTP to other services: upstream's small calls, key sets, moderators. The only place with httpx, and aiohttp below it.

Bounded bodies, a deadline for all of it, no redirects, no environment proxies, no second try, no compression, TLS verified, and connections
only to addresses that the host may have (`domain.addresses`). What goes wrong is a `CallFault` value; no exception text of a library passes
here, because such texts carry URLs and tokens (field case O-34).
Not here: the one POST that may execute (`upstream.one_post`); why that is another transport: docs/decisions/0002-upstream-transport.md.
"""

import asyncio
import logging
import re
import socket
import ssl
from collections.abc import Collection, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from http.client import HTTPResponse
from http.cookiejar import CookieJar
from types import TracebackType
from typing import Final, Self
from urllib.request import Request

import aiohttp
import httpx
import httpx_aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from gateway.domain.addresses import canonical_hosts, is_allowed
from gateway.domain.in_transaction import forbid_inside_transaction
from gateway.domain.trace_context import TRACEPARENT, outgoing

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
    ADDRESS_NOT_ALLOWED = "address_not_allowed"
    """The host is, or resolves to, nothing but addresses that it may not have (`domain.addresses`); no connection was tried."""
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

    def __init__(self, *, connect_seconds: float, tls: ssl.SSLContext | None = None, trusted_hosts: Collection[str] = ()) -> None:
        self.tls = tls or verified_tls()
        """The TLS settings of this client, for the transport of the one POST too."""
        self.trusted_hosts = canonical_hosts(trusted_hosts)
        """Who may have a private or loopback address (GATEWAY_TRUSTED_UPSTREAM_HOSTS), for the transport of the one POST too."""
        # It logs the URL of every call, and URLs name upstream's threads.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        self._client = httpx.AsyncClient(
            transport=httpx_aiohttp.AiohttpTransport(verify=self.tls, trust_env=False, client=self._session),
            timeout=httpx.Timeout(None, pool=connect_seconds),  # the transport's bound of pool, name, connection and TLS together
            follow_redirects=False,
            trust_env=False,
            cookies=_NoCookies(),
            event_hooks={"response": [_forget_location]},
        )

    def _session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, keepalive_timeout=_KEEP_ALIVE_SECONDS, ssl=self.tls, resolver=_AllowedAddresses(self.trusted_hosts)
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            max_line_size=_MAX_HEADER_BYTES,
            max_field_size=_MAX_HEADER_BYTES,
            max_headers=_MAX_HEADERS,
            middlewares=(_as_asked_and_once,),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close every connection."""
        await self._client.aclose()

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
        except httpx.HTTPError as error:
            # Its class says nothing: a refused connection and a request that was read both end as ConnectTimeout.
            return _fault_of(error.__cause__ or error)
        except (httpx.InvalidURL, aiohttp.ClientError, HttpProcessingError, OSError, ValueError) as error:
            return _fault_of(error)

    async def _exchange(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, max_bytes: int) -> Reply | CallFault:
        own = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": _USER_AGENT, TRACEPARENT: outgoing()}
        asked = {**own, **headers}
        call = _Call(URL(url, encoded=True), asked)
        if _is_literal(call.host) and not is_allowed(call.host, call.host, self.trusted_hosts):
            return CallFault.ADDRESS_NOT_ALLOWED
        token = _current_call.set(call)
        try:
            # Made by hand: the client's own defaults would add headers and encodings.
            request = httpx.Request(method, url, headers=asked, content=body)
            return await _reply(await self._client.send(request, stream=True), max_bytes)
        finally:
            _current_call.reset(token)
            call.close()


class _Call:
    """What is asked for, as it is to be sent: httpx and the transport between would rewrite the URL and the names of headers."""

    __slots__ = ("_headers", "_response", "_tried", "_url")

    def __init__(self, url: URL, headers: Mapping[str, str]) -> None:
        self._url = url
        self._headers = {"Host": url.host_port_subcomponent or "", **headers}
        self._tried = False
        self._response: aiohttp.ClientResponse | None = None

    @property
    def host(self) -> str:
        """What is connected to, without brackets; empty where the URL is none."""
        return self._url.raw_host or ""

    async def send(self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        """The first try; the library repeats a GET whose connection breaks, and that one is refused."""
        if self._tried:
            raise aiohttp.ClientConnectionError
        self._tried = True
        request.url = self._url
        request.headers.update(self._headers)
        self._response = await handler(request)
        # The transport cannot pass on a phrase that is not UTF-8, and nobody reads it.
        self._response.reason = None
        return self._response

    def close(self) -> None:
        """Closed, not released: a reply that was not read to its end must not be drained into the pool."""
        if self._response is not None:
            self._response.close()


_current_call: Final[ContextVar[_Call]] = ContextVar("current_call")
"""The transport passes nothing of ours on to the session, but it calls it in the same task."""


async def _as_asked_and_once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    return await _current_call.get().send(request, handler)


def _is_literal(host: str) -> bool:
    # What aiohttp takes for an address and shows to no resolver; it connects to nothing else that was not resolved.
    return ":" in host or host.replace(".", "").isdigit()


class _AddressNotAllowed(OSError):
    """Of a name: none of its addresses is one that it may have."""


class _AllowedAddresses(AbstractResolver):
    """The system's resolver, without the addresses that a host may not have. aiohttp connects to what this returns, and asks once."""

    def __init__(self, trusted_hosts: frozenset[str]) -> None:
        self._trusted_hosts = trusted_hosts
        self._system = aiohttp.ThreadedResolver()

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET) -> list[ResolveResult]:
        """The allowed addresses, one at least. Raises _AddressNotAllowed; OSError for a name that is none."""
        resolved = await self._system.resolve(host, port, family)
        allowed = [result for result in resolved if is_allowed(result["host"], host, self._trusted_hosts)]
        if not allowed:
            raise _AddressNotAllowed
        return allowed

    async def close(self) -> None:
        """Nothing to close."""


class _NoCookies(CookieJar):
    """Keeps nothing: httpx reads every reply's cookies into its jar."""

    def extract_cookies(self, response: HTTPResponse, request: Request) -> None:
        """Nothing."""


async def _forget_location(response: httpx.Response) -> None:
    # Without following it httpx still parses where a redirect leads, and raises for a Location that is none.
    response.headers.pop("Location", None)


async def _reply(response: httpx.Response, max_bytes: int) -> Reply | CallFault:
    if any(value.strip().lower() != "identity" for value in response.headers.get_list("Content-Encoding")):
        return CallFault.REPLY_ENCODED
    told_length = response.headers.get("Content-Length", "")
    if told_length.isdecimal() and int(told_length) > max_bytes:
        return CallFault.REPLY_TOO_LARGE
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) > max_bytes:
            return CallFault.REPLY_TOO_LARGE
    return Reply(response.status_code, next(iter(response.headers.get_list("Content-Type")), None), bytes(body))


def _fault_of(error: BaseException) -> CallFault:
    match error:
        case aiohttp.ClientConnectorDNSError(os_error=_AddressNotAllowed()):
            return CallFault.ADDRESS_NOT_ALLOWED
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
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError() | httpx.InvalidURL() | httpx.UnsupportedProtocol():
            return CallFault.UNSENDABLE
        case aiohttp.ClientConnectionError() | OSError():
            return CallFault.DISCONNECTED
        case aiohttp.ClientError() | HttpProcessingError() | httpx.HTTPError():
            return CallFault.REPLY_MALFORMED
        case _:
            # A ValueError: the library refuses what it was to send.
            return CallFault.UNSENDABLE
