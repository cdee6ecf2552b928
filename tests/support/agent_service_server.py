"""The agent service on a real socket in the test's own process. Not here: its settings' meaning, its command line."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import uvicorn

from agent_service.service import open_app
from agent_service.settings import Settings, read_settings

TOKEN = "agent-service-test-token"


def service_settings(database: Path, **given: object) -> Settings:
    """Settings for a test: no pace, no grace at the end."""
    return read_settings({"token": TOKEN, "database": database, "pace_seconds": 0.0, "shutdown_seconds": 0, **given})


@contextlib.asynccontextmanager
async def running_agent_service(settings: Settings, *, graph: object = None) -> AsyncIterator[httpx.AsyncClient]:
    """A client that may use the service; both end with the block."""
    async with open_app(settings, graph=graph) as app:
        listening = socket.create_server(("127.0.0.1", 0))
        base_url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        server = uvicorn.Server(uvicorn.Config(app, http="h11", ws="none", lifespan="off", log_config=None, timeout_graceful_shutdown=1))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        headers = {"Authorization": f"Bearer {settings.token.get_secret_value() if settings.token else ''}"}
        try:
            async with httpx.AsyncClient(base_url=base_url, headers=headers, trust_env=False, timeout=20) as client:
                yield client
        finally:
            server.should_exit = True
            await serving


async def new_thread(client: httpx.AsyncClient) -> str:
    """POST /threads."""
    return str((await client.post("/threads", json={})).json()["thread_id"])


def run_input(thread_id: str, text: str, *, run_id: str = "correlation-1") -> dict[str, object]:
    """A RunAgentInput as the gateway sends it."""
    return {
        "threadId": thread_id,
        "runId": run_id,
        "messages": [{"id": f"message-of-{run_id}", "role": "user", "content": text}],
        "state": {},
        "tools": [],
        "context": [],
        "forwardedProps": {},
    }
