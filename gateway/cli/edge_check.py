"""`gateway check --through URL`: the way in through the real edge, asked as a browser would, and judged by what arrives.

The questions are the operator route `edge-checks`; nothing is executed. Each finding names the fault and the setting that usually has it.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final
from uuid import uuid4

import httpx

from gateway.cli.findings import Finding
from gateway.domain.trace_context import new_trace
from gateway.web.edge_routes import FRAME_SECONDS, FRAMES, PROOF_HEADERS, EdgeMode
from gateway.web.stream import HEADERS

_PATH: Final = "/api/operator/edge-checks"
_PATIENCE_SECONDS: Final = 30.0
_GATEWAY_TIMEOUTS: Final = (502, 504)


class EdgeCheck:
    """Asks through one base URL. `idle_seconds`: how long a silence the edge must stand."""

    def __init__(self, client: httpx.AsyncClient, *, idle_seconds: float) -> None:
        self._client = client
        self._idle_seconds = idle_seconds

    async def findings(self) -> list[Finding]:
        """Everything that was looked at, in order. When the way in does not work at all, only that."""
        reached = await self._reached()
        if not reached.ok:
            return [reached]
        quick: tuple[Callable[[], Awaitable[Finding]], ...] = (self._headers, self._stream, self._refused, self._cut, self._metrics)
        slow = [asyncio.create_task(self._late()), asyncio.create_task(self._quiet())]
        return [reached, *[await one() for one in quick], *await asyncio.gather(*slow)]

    async def _reached(self) -> Finding:
        try:
            answer = await self._post(EdgeMode.ECHO)
        except httpx.HTTPError as error:
            return Finding("edge", False, f"cannot be reached ({type(error).__name__}): check the URL, the name and the certificate")
        if answer.status_code == 401:
            return Finding("edge", False, "401: the token is not taken, or the edge drops the Authorization header")
        if answer.status_code == 403:
            return Finding("edge", False, "403: the token is of no operator")
        if answer.status_code != 200:
            return Finding("edge", False, f"answers {answer.status_code} to an operator's POST")
        return Finding("edge", True, "reached, and the token is taken")

    async def _headers(self) -> Finding:
        trace = new_trace(sampled=False).header()
        sent = {"x-request-id": f"edge-{uuid4()}", "traceparent": trace, "last-event-id": "7"}
        answer = await self._post(EdgeMode.ECHO, headers=sent)
        arrived: dict[str, str] = answer.json()["headers"]
        lost = [name for name, text in sent.items() if arrived.get(name) != text and name != "traceparent"]
        if arrived.get("traceparent", "")[:35] != trace[:35]:  # the edge may put its own span between
            lost.append("traceparent")
        lost += [name for name, text in PROOF_HEADERS.items() if answer.headers.get(name) != text]
        if answer.headers.get("x-request-id") != sent["x-request-id"]:
            lost.append("x-request-id of the answer")
        if lost:
            return Finding("edge headers", False, f"changed or dropped on the way: {', '.join(lost)}")
        return Finding("edge headers", True, "arrive as they were sent")

    async def _stream(self) -> Finding:
        about = "edge stream"
        async with self._open(EdgeMode.STREAM) as response:
            wrong = [name for name, text in HEADERS.items() if response.headers.get(name) != text and name != "X-Accel-Buffering"]
            encoding = response.headers.get("content-encoding")
            arrivals: list[float] = []
            async for piece in response.aiter_raw():
                arrivals += [time.monotonic()] * max(piece.count(b"data:"), 1)
        if encoding is not None:
            return Finding(about, False, f"is compressed ({encoding}): compression gathers events; switch it off for text/event-stream")
        if wrong:
            return Finding(about, False, f"has other headers than were sent: {', '.join(wrong)}")
        if len(arrivals) < FRAMES:
            return Finding(about, False, f"was cut: {len(arrivals)} of {FRAMES} events arrived")
        if arrivals[-1] - arrivals[0] < FRAME_SECONDS * (FRAMES - 1) / 2:
            return Finding(about, False, "is buffered: events arrive in one lump; switch response buffering off (proxy_buffering off)")
        return Finding(about, True, "arrives event by event")

    async def _refused(self) -> Finding:
        return self._once("a POST that is refused", await self._post(EdgeMode.REFUSE), good=(503,))

    async def _cut(self) -> Finding:
        try:
            answer = await self._post(EdgeMode.CUT)
        except httpx.HTTPError:
            return Finding("edge repeats", True, "a POST that is cut is not sent again")
        return self._once("a POST that is cut", answer, good=(*_GATEWAY_TIMEOUTS, 500, 503))

    async def _late(self) -> Finding:
        try:
            answer = await self._post(EdgeMode.LATE, seconds=self._idle_seconds)
        except httpx.HTTPError:
            return Finding(
                "edge time-out", False, f"a POST whose answer takes {self._idle_seconds:g} s is cut: raise the time-out of answers"
            )
        if answer.status_code in _GATEWAY_TIMEOUTS:
            return Finding(
                "edge time-out", False, f"a POST whose answer takes {self._idle_seconds:g} s gets {answer.status_code}: raise the time-out"
            )
        return self._once(f"a POST that is answered after {self._idle_seconds:g} s", answer, good=(200,))

    async def _quiet(self) -> Finding:
        frames = 0
        try:
            async with self._open(EdgeMode.QUIET, seconds=self._idle_seconds) as response:
                async for piece in response.aiter_raw():
                    frames += piece.count(b"data:")
        except httpx.HTTPError:
            pass
        if frames < 2:
            says = f"a stream that is silent for {self._idle_seconds:g} s is cut: raise the idle time-out above the longest stream"
            return Finding("edge idle", False, says)
        return Finding("edge idle", True, f"a stream may be silent for {self._idle_seconds:g} s")

    async def _metrics(self) -> Finding:
        answer = await self._client.get("/metrics")
        if answer.status_code == 200 and "gateway_" in answer.text:
            return Finding("edge metrics", False, "/metrics is handed out through the edge: it is for Prometheus, inside")
        return Finding("edge metrics", True, "/metrics is not handed out")

    def _once(self, what: str, answer: httpx.Response, *, good: tuple[int, ...]) -> Finding:
        seen = _seen(answer)
        if seen is not None and seen > 1:
            says = f"{what} is sent again (arrival {seen}): switch retries of requests that were sent off (non_idempotent, retry-on)"
            return Finding("edge repeats", False, says)
        if answer.status_code not in good:
            return Finding("edge repeats", False, f"{what} gets {answer.status_code}")
        return Finding("edge repeats", True, f"{what} is not sent again")

    async def _post(self, mode: EdgeMode, *, seconds: float = 0.0, headers: dict[str, str] | None = None) -> httpx.Response:
        patience = httpx.Timeout(_PATIENCE_SECONDS, read=_PATIENCE_SECONDS + 2 * seconds)
        return await self._client.post(_PATH, json=_body(mode, seconds), headers=headers, timeout=patience)

    @asynccontextmanager
    async def _open(self, mode: EdgeMode, *, seconds: float = 0.0) -> AsyncIterator[httpx.Response]:
        # As browsers do: compression is asked for, and must not be given.
        headers = {"Accept": "text/event-stream", "Accept-Encoding": "gzip, deflate"}
        patience = httpx.Timeout(_PATIENCE_SECONDS, read=_PATIENCE_SECONDS + 2 * seconds)
        async with self._client.stream("POST", _PATH, json=_body(mode, seconds), headers=headers, timeout=patience) as response:
            yield response


def _body(mode: EdgeMode, seconds: float) -> dict[str, Any]:
    return {"check_id": str(uuid4()), "mode": mode.value, "seconds": seconds}


def _seen(answer: httpx.Response) -> int | None:
    try:
        seen = answer.json().get("seen")
    except (ValueError, AttributeError):
        return None
    return seen if isinstance(seen, int) else None
