"""The composition root: settings in, a served application out. The only module that names every part."""

import contextlib
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Final

import uvicorn
from starlette.applications import Starlette

from agent_service.agent_loading import AgentGraph, fit, load_agent
from agent_service.app import build_app
from agent_service.approval_agent import approval_agent
from agent_service.demo_agent import chat_model, demo_agent
from agent_service.http_parts import Service
from agent_service.runs import Runner
from agent_service.settings import Settings
from agent_service.store import Database, open_database

_logger = logging.getLogger("agent_service")
APPROVALS: Final = "approvals"
"""The assistant id of the built-in agent that asks for approval."""


@contextlib.asynccontextmanager
async def open_app(settings: Settings, *, graph: object = None) -> AsyncIterator[Starlette]:
    """The application over an open database; runs that still go on get `shutdown_seconds` at the end.

    `graph` (a graph, compiled or not) stands in for the agent that the settings name. Raises AgentDoesNotFitError,
    DatabaseInUseError, DatabaseUnusableError.
    """
    async with open_database(settings.database) as database, _graphs(settings, graph, database) as graphs:
        if abandoned := await database.store.fail_abandoned_runs():
            _logger.warning("%s runs of an earlier process were never finished; they are now in error", abandoned)
        runner = Runner(graphs=graphs, store=database.store)
        assert settings.token is not None
        service = Service(assistant=settings.assistant, token=settings.token.get_secret_value(), store=database.store, runner=runner)
        try:
            yield build_app(service)
        finally:
            await runner.aclose(grace_seconds=settings.shutdown_seconds)


@contextlib.asynccontextmanager
async def _graphs(settings: Settings, graph: object, database: Database) -> AsyncIterator[Mapping[str, AgentGraph]]:
    """What is served, by assistant id: one agent of somebody's own, or the built-in two."""
    if graph is not None:
        yield {settings.assistant: fit(graph, name="graph", checkpointer=database.checkpointer)}
    elif settings.agent is not None:
        agent = await load_agent(settings.agent, checkpointer=database.checkpointer, directory=Path.cwd())
        yield {settings.assistant: agent}
    else:
        asking = fit(approval_agent(pace_seconds=settings.pace_seconds), name=APPROVALS, checkpointer=database.checkpointer)
        async with chat_model(settings) as model:
            graphs: dict[str, AgentGraph] = {settings.assistant: demo_agent(model=model, checkpointer=database.checkpointer)}
            graphs.setdefault(APPROVALS, asking)
            yield graphs


async def serve(settings: Settings, *, announce: Callable[[str], None], graph: object = None) -> None:
    """Serve until SIGTERM or SIGINT. `announce` gets the base URL once connections are accepted; OSError when the port is taken."""
    async with open_app(settings, graph=graph) as app:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        with socket.create_server((settings.host, settings.port), family=family, backlog=128) as listening:
            port = listening.getsockname()[1]
            config = uvicorn.Config(
                app,
                http="h11",  # bounded request heads
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=settings.shutdown_seconds,
            )
            announce(f"http://{f'[{settings.host}]' if family == socket.AF_INET6 else settings.host}:{port}")
            with _surviving_signals():
                await uvicorn.Server(config).serve(sockets=[listening])


@contextlib.contextmanager
def _surviving_signals() -> Iterator[None]:
    """uvicorn raises the signal that stopped it once more when it is done; by default that would kill us before runs are waited for."""

    def noted(number: int, _frame: FrameType | None) -> None:
        _logger.info("%s: stopping", signal.Signals(number).name)

    before = {number: signal.signal(number, noted) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
