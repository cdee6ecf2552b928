"""`python -m bench.serve relay|passthrough UPSTREAM_PORT`: an application of G3 under uvicorn with the settings of gateway.app.serve_app.

Prints `listening PORT`.
"""

import asyncio
import socket
import sys

import uvicorn
import uvloop
from starlette.types import ASGIApp


def _app(kind: str, upstream_port: int) -> ASGIApp:
    # Imported here: neither side pays for the other's libraries.
    if kind == "relay":
        from bench.relay import relay

        return relay(upstream_port)
    from bench.passthrough import passthrough

    return passthrough(upstream_port)


async def _serve(kind: str, upstream_port: int) -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    config = uvicorn.Config(
        _app(kind, upstream_port),
        http="h11",
        ws="none",
        lifespan="on" if kind == "passthrough" else "off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=1,
    )
    print(f"listening {listener.getsockname()[1]}", flush=True)
    await uvicorn.Server(config).serve(sockets=[listener])


def main() -> None:
    """Serve until SIGTERM."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(sys.argv[1], int(sys.argv[2])))


if __name__ == "__main__":
    main()
