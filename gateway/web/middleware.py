"""What every answer has: a request id, security headers, one access line. Pure ASGI, outermost, and the last net for exceptions.

The access line has method, route template, status and duration; never a query, a text or a token. HTTP only: other kinds of connection
are closed, lifespan passes through.
"""

import re
import time
from collections.abc import Awaitable, Callable
from typing import Final
from uuid import uuid4

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.domain.trace_context import Record, Span, TraceContext, current_trace, new_trace, parse
from gateway.metrics import HTTP_REQUESTS, HTTP_SECONDS, Metrics
from gateway.web.problems import problem, refusal_of

_SANE_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,100}")
ROUTE_TEMPLATE: Final = "gateway.route_template"
REQUEST_ID: Final = "gateway.request_id"
TRANSPORT: Final = "gateway.transport"
"""Keys of the ASGI scope."""
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""Labels are bounded: any other word is `other`."""

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

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: Metrics | None = None,
        record: Record | None = None,
        draining: Callable[[], bool] = lambda: False,
    ) -> None:
        self._app = app
        self._draining = draining
        self._metrics = metrics or Metrics()
        self._record = record
        self.open_streams = 0
        """Event streams that are written now."""

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
        # uvicorn's own; only the check of the edge uses it, to cut a connection.
        scope[TRANSPORT] = getattr(getattr(send, "__self__", None), "transport", None)
        started_at, started_at_ns = time.monotonic(), time.time_ns()
        status = 0
        streams = False
        caller, trace = self._trace_of(scope)
        tracing = current_trace.set(trace)

        # No coroutine of its own: it is called for every piece of a stream.
        def send_with_headers(message: Message) -> Awaitable[None]:
            nonlocal status, streams
            if message["type"] == "http.response.start":
                status = message["status"]
                self._metrics.observe(HTTP_SECONDS, time.monotonic() - started_at, _route(scope))
                headers = [*message.get("headers", ()), (b"x-request-id", request_id.encode()), *_SECURITY_HEADERS]
                if self._draining():
                    # A proxy that keeps connections would send a request into one that closes a moment later (O-22).
                    headers.append((b"connection", b"close"))
                if not any(name == _POLICY[0] for name, _ in headers):
                    headers.append(_POLICY)
                message["headers"] = headers
                if _is_stream(headers):
                    streams = True
                    self.open_streams += 1
            return send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id, trace_id=trace.trace_id):
            try:
                await self._app(scope, receive, send_with_headers)
            except Exception as error:  # noqa: BLE001 - the last net: logged by type, because a text could hold a secret
                refused = refusal_of(error)
                if not status:
                    await problem(refused, request_id)(scope, receive, send_with_headers)
            finally:
                current_trace.reset(tracing)
                self.open_streams -= streams
                method = scope["method"] if scope["method"] in _METHODS else "other"
                self._metrics.count(HTTP_REQUESTS, method, _route(scope), str(status or "none"))
                if self._record is not None:
                    self._record(_span(scope, method, status, started_at_ns, trace, caller))
                _access.info(
                    "request",
                    method=scope["method"],
                    route=_route(scope),
                    status=status or None,
                    duration_seconds=round(time.monotonic() - started_at, 6),
                )

    def _trace_of(self, scope: Scope) -> tuple[TraceContext | None, TraceContext]:
        """The caller's context, where it sent a valid one, and ours."""
        found = [value for name, value in scope["headers"] if name == b"traceparent"]
        caller = parse(found[0].decode("latin-1")) if len(found) == 1 else None
        return caller, caller.child() if caller else new_trace(sampled=self._record is not None)


def _route(scope: Scope) -> str:
    route: str = scope.get(ROUTE_TEMPLATE, "unknown")
    return route


def _is_stream(headers: list[tuple[bytes, bytes]]) -> bool:
    return any(name == b"content-type" and value.startswith(b"text/event-stream") for name, value in headers)


def _span(scope: Scope, method: str, status: int, started_at_ns: int, trace: TraceContext, caller: TraceContext | None) -> Span:
    attributes: dict[str, str | int] = {"http.request.method": method, "http.route": _route(scope)}
    if status:
        attributes["http.response.status_code"] = status
    return Span(
        name=f"{method} {_route(scope)}",
        context=trace,
        parent_span_id=caller.span_id if caller else None,
        started_at_ns=started_at_ns,
        ended_at_ns=time.time_ns(),
        failed=status == 0 or status >= 500,
        server=True,
        attributes=attributes,
    )


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            text: str = value.decode("latin-1")
            if _SANE_ID.fullmatch(text):
                return text
    return uuid4().hex
