"""A replica as a process: opened, served until it is told to stop, drained, closed in order. What it is made of is `gateway.wiring`'s."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

import structlog
import uvicorn

from gateway.server import Server
from gateway.settings import Settings
from gateway.telemetry import configure_logging
from gateway.web.services import Demo
from gateway.wiring import Gateway, build_app

_log: Final[structlog.stdlib.BoundLogger] = structlog.get_logger("gateway.app")

_CLOSE_SECONDS: Final = 5.0
"""How long the server waits for requests that are being answered once it stops listening. Streams have ended before."""

_KEEP_ALIVE_SECONDS: Final = 75
"""Longer than proxies keep an idle connection (60 s is usual): who closes first must not be us, or a POST may meet the closing."""


async def serve_app(settings: Settings, gateway: Gateway, *, started: Callable[[int], None] | None = None) -> None:
    """Listen until SIGTERM or SIGINT, then drain (design.md "Leases, draining, rights"). `started` gets the port once it listens."""
    config = uvicorn.Config(
        gateway.asgi,
        host=settings.host,
        port=settings.port,
        http="h11",  # bounds the headers; httptools does not
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        timeout_graceful_shutdown=int(_CLOSE_SECONDS),
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        backlog=2048,
    )
    server = Server(config)
    stop = asyncio.Event()
    with _signals(stop):
        serving = asyncio.create_task(server.serve())
        stopping = asyncio.create_task(stop.wait())
        while not server.started and not serving.done():  # noqa: ASYNC110 - uvicorn has no event to wait for
            await asyncio.sleep(0.01)
        if server.started:
            port = server.servers[0].sockets[0].getsockname()[1]
            _log.info("listening", host=settings.host, port=port)
            if started is not None:
                started(port)
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not serving.done():
            await _drain(settings, gateway, server)
        stopping.cancel()
        await serving


async def _drain(settings: Settings, gateway: Gateway, server: Server) -> None:
    gateway.supervisor.draining = True
    _log.info("draining", active_runs=len(gateway.supervisor.live_runs))
    await asyncio.sleep(settings.drain_delay_seconds)
    await server.close_door()
    gateway.supervisor.end_streams()
    server.should_exit = True


@contextlib.contextmanager
def _signals(stop: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


@contextlib.asynccontextmanager
async def running_app(settings: Settings, *, demo: Demo | None = None) -> AsyncIterator[Gateway]:
    """A wired replica that is closed in order."""
    gateway = await build_app(settings, demo=demo)
    async with gateway.running():
        yield gateway


def serve(settings: Settings, *, demo: Demo | None = None, started: Callable[[int], None] | None = None) -> int:
    """`gateway serve`: one replica until it is told to stop. Exit status 0 after a drain, 1 when it could not listen."""
    configure_logging()

    async def main() -> int:
        async with running_app(settings, demo=demo) as gateway:
            gateway.metrics.watch_process()
            try:
                await serve_app(settings, gateway, started=started)
            except SystemExit:  # uvicorn's way to say that it could not listen; its message is in the log
                return 1
        return 0

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(main())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # not on Windows
        return None
    return uvloop.new_event_loop
