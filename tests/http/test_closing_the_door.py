"""A replica that stops: what had arrived before its door was closed is answered (O-22)."""

import asyncio
import os
import resource
import socket
from collections.abc import AsyncIterator

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from gateway.server import Server

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """Both loops that a replica may run on."""
    return "asyncio", {"use_uvloop": request.param}


REQUEST = b"POST / HTTP/1.1\r\nHost: gateway\r\nContent-Length: 2\r\n\r\nhi"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    body = (await receive())["body"]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server(uvicorn.Config(echo, port=0, http="h11", ws="none", lifespan="off", log_config=None, access_log=False))
    serving = asyncio.create_task(made.serve())
    while not made.started:
        await asyncio.sleep(0)
    yield made
    made.should_exit = True
    await serving


def address(server: Server) -> tuple[str, int]:
    host, port = server.servers[0].sockets[0].getsockname()
    return host, port


async def answer(connection: socket.socket) -> bytes:
    connection.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=connection)
    try:
        return await reader.read()
    finally:
        writer.close()


async def test_o22_what_waits_at_the_door_when_it_is_closed_is_answered(server: Server) -> None:
    # Nothing is awaited between arriving and closing: the server has seen none of them.
    waiting = [socket.create_connection(address(server)) for _ in range(20)]
    for connection in waiting:
        connection.sendall(REQUEST)
    closing = asyncio.create_task(server.close_door())
    answers = await asyncio.gather(*(answer(connection) for connection in waiting))
    assert [text.partition(b"\r\n")[0] for text in answers] == [b"HTTP/1.1 200 OK"] * 20
    await closing


async def test_o22_a_request_on_a_connection_that_was_accepted_is_answered_and_no_new_one_is(server: Server) -> None:
    accepted, door = socket.create_connection(address(server)), address(server)
    while not server.server_state.connections:
        await asyncio.sleep(0)
    closing = asyncio.create_task(server.close_door())
    await asyncio.sleep(0)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(door)
    accepted.sendall(REQUEST)
    assert (await answer(accepted)).startswith(b"HTTP/1.1 200 OK")
    await closing


async def test_the_door_is_closed_also_where_descriptors_are_out() -> None:
    server = Server(uvicorn.Config(app=lambda *_: None))
    server.servers = [await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.close(lowest_free := os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        await server.close_door()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not server.servers[0].is_serving()
