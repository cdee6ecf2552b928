"""The agent service on a real socket, in the test's own process or in one of its own. Not here: its settings' meaning."""

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import uvicorn
from starlette.types import ASGIApp

from agent_service.service import open_app
from agent_service.settings import Settings, read_settings

TOKEN = "agent-service-test-token"
ROOT = Path(__file__).parents[2]


def service_settings(database: Path, **given: object) -> Settings:
    """Settings for a test: no pace, no grace at the end."""
    return read_settings({"token": TOKEN, "database": database, "pace_seconds": 0.0, "shutdown_seconds": 0, **given})


@contextlib.asynccontextmanager
async def running_agent_service(
    settings: Settings, *, graph: object = None, wrap: Callable[[ASGIApp], ASGIApp] = lambda app: app
) -> AsyncIterator[httpx.AsyncClient]:
    """A client that may use the service; both end with the block. `wrap` puts a layer around the service."""
    async with open_app(settings, graph=graph) as app:
        listening = socket.create_server(("127.0.0.1", 0))
        base_url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        server = uvicorn.Server(
            uvicorn.Config(wrap(app), http="h11", ws="none", lifespan="off", log_config=None, timeout_graceful_shutdown=1)
        )
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        headers = {"Authorization": f"Bearer {settings.token.get_secret_value() if settings.token else ''}"}
        try:
            async with httpx.AsyncClient(base_url=base_url, headers=headers, trust_env=False, timeout=20) as client:
                yield client
        finally:
            server.should_exit = True
            await serving


@contextlib.asynccontextmanager
async def agent_service_process(
    tmp_path: Path, *arguments: str, **environment: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, httpx.AsyncClient]]:
    """The command line in a process of its own, and a client that may use it. The database is `agent.db` in `tmp_path`."""
    given = ["-m", "agent_service", "serve", "--database", str(tmp_path / "agent.db"), "--port", "0", "--token-file", "-", *arguments]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *given),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "AGENT_SERVICE_PACE_SECONDS": "0", **environment},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{TOKEN}\n".encode())
    try:
        async with asyncio.timeout(60):
            announced = (await process.stdout.readline()).decode()
        base_url = announced.split()[-1]
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(base_url=base_url, headers=headers, trust_env=False, timeout=20) as client:
            yield process, client
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def free_port() -> int:
    """A loopback port that nobody listens on now, for a service that has to come back on it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


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
