"""What every answer has: a request id, security headers, one access line. Pure ASGI, outermost, and the last net for exceptions.

The access line has method, route template, status and duration; never a query, a text or a token. HTTP only: other kinds of connection
are closed, lifespan passes through.
"""

import re
import time
from collections.abc import Awaitable
from typing import Final
from uuid import uuid4

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.web.problems import problem, refusal_of

_SANE_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,100}")
ROUTE_TEMPLATE: Final = "gateway.route_template"
REQUEST_ID: Final = "gateway.request_id"
"""Keys of the ASGI scope."""

API_POLICY: Final = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
_SECURITY_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
)
_POLICY: Final = (b"content-security-policy", API_POLICY.encode())

_access: Final[structlog.stdlib.BoundLogger] = structlog.get_logger("gateway.access")


class RequestContext:
    """Wraps the whole application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = scope[REQUEST_ID] = _request_id(scope)
        started_at = time.monotonic()
        status = 0

        # No coroutine of its own: it is called for every piece of a stream.
        def send_with_headers(message: Message) -> Awaitable[None]:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", ()), (b"x-request-id", request_id.encode()), *_SECURITY_HEADERS]
                if not any(name == _POLICY[0] for name, _ in headers):
                    headers.append(_POLICY)
                message["headers"] = headers
            return send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                await self._app(scope, receive, send_with_headers)
            except Exception as error:  # noqa: BLE001 - the last net: logged by type, because a text could hold a secret
                refused = refusal_of(error)
                if not status:
                    await problem(refused, request_id)(scope, receive, send_with_headers)
            finally:
                _access.info(
                    "request",
                    method=scope["method"],
                    route=scope.get(ROUTE_TEMPLATE, "unknown"),
                    status=status or None,
                    duration_seconds=round(time.monotonic() - started_at, 6),
                )


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            text: str = value.decode("latin-1")
            if _SANE_ID.fullmatch(text):
                return text
    return uuid4().hex
