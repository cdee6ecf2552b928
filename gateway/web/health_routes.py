"""Liveness, readiness and numbers, for probes, balancers and Prometheus."""

from starlette.responses import Response
from starlette.types import ASGIApp
from typing_extensions import TypedDict

from gateway.metrics import CONTENT_TYPE
from gateway.web.call import Call, json_response


class AliveJson(TypedDict):
    """The process answers."""

    alive: bool


class ReadyJson(TypedDict):
    """Whether this replica may take new work, and each condition by its name. `warnings` stop nothing: somebody should look."""

    ready: bool
    checks: dict[str, bool]
    warnings: list[str]


async def healthz(call: Call) -> ASGIApp:
    """GET /healthz: the process lives and answers; nothing else is asked."""
    shown: AliveJson = {"alive": True}
    return json_response(shown)


async def readyz(call: Call) -> ASGIApp:
    """GET /readyz: 200 while this replica may take new work, else 503. Both name the conditions, and warnings, which stop nothing."""
    readiness = await call.services.health.readiness()
    shown: ReadyJson = {"ready": readiness.ready, "checks": dict(readiness.checks), "warnings": list(readiness.warnings)}
    return json_response(shown, 200 if readiness.ready else 503)


async def metrics(call: Call) -> ASGIApp:
    """GET /metrics: for Prometheus. Not for browsers: a proxy in front does not pass it on (docs/metrics.md)."""
    return Response(await call.services.scrape(), headers={"Cache-Control": "no-store", "Content-Type": CONTENT_TYPE})
