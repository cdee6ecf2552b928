"""Liveness and readiness, for probes and balancers."""

from starlette.types import ASGIApp

from gateway.web.call import Call, json_response


async def healthz(call: Call) -> ASGIApp:
    """GET /healthz: the process lives and answers; nothing else is asked."""
    return json_response({"alive": True})


async def readyz(call: Call) -> ASGIApp:
    """GET /readyz: 200 while this replica may take new work, else 503. The conditions are named in both."""
    readiness = await call.services.health.readiness()
    return json_response({"ready": readiness.ready, "checks": dict(readiness.checks)}, 200 if readiness.ready else 503)
