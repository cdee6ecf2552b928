"""The peer of G3: what a team writes first. starlette's StreamingResponse over httpx, bytes untouched, nothing parsed.

The client's pool is as large as the load, and the server's settings are those of our own server: only the relaying differs.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

_HEADERS = {"content-type": "application/json", "accept": "text/event-stream", "accept-encoding": "identity"}


def passthrough(upstream_port: int) -> Starlette:
    """The application."""
    url = f"http://127.0.0.1:{upstream_port}/ag-ui"
    limits = httpx.Limits(max_connections=1000, max_keepalive_connections=1000)
    client = httpx.AsyncClient(limits=limits, timeout=120, trust_env=False)

    async def pieces(body: bytes) -> AsyncIterator[bytes]:
        async with client.stream("POST", url, content=body, headers=_HEADERS) as response:
            async for piece in response.aiter_raw():
                yield piece

    async def run(request: Request) -> Response:
        return StreamingResponse(pieces(await request.body()), media_type="text/event-stream")

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with client:
            yield

    return Starlette(routes=[Route("/ag-ui", run, methods=["POST"])], lifespan=lifespan)
