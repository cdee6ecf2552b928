"""uvicorn as a replica needs it: signals are left to the drain, and the door is closed without tearing up what was on its way in."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Final

import uvicorn

LAST_REQUESTS_SECONDS: Final = 0.5
"""How long connections are kept once the door is closed: the requests that are under way in them are read in that time."""


class Server(uvicorn.Server):
    """uvicorn, whose own handling of signals would stop listening at once, and whose shutdown resets connections with unread requests.

    A proxy cannot tell a POST that was reset from one that was begun, and must not send it again: people would see its 502 (O-22).
    """

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def close_door(self) -> None:
        """Refuse connections from now on; serve those that are there, and those that wait in the system's queue, for a moment longer."""
        for queued in self._stop_listening():
            await asyncio.get_running_loop().connect_accepted_socket(self._protocol, queued)
        await asyncio.sleep(LAST_REQUESTS_SECONDS)

    def _stop_listening(self) -> list[socket.socket]:
        """Close the listening sockets; gives the connections that nobody had accepted yet, which closing alone would reset."""
        listening = []
        for found in [one for server in self.servers for one in server.sockets]:
            # Out of descriptors: it is closed without them. A drain goes on whatever happens here.
            with contextlib.suppress(OSError):
                listening.append(socket.socket(fileno=os.dup(found.fileno())))
        for server in self.servers:
            server.close()
        queued = []
        for door in listening:
            door.setblocking(False)
            with door, contextlib.suppress(OSError):
                while True:
                    queued.append(door.accept()[0])
        return queued

    def _protocol(self) -> asyncio.Protocol:
        protocol: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]  # as uvicorn itself makes them
            config=self.config, server_state=self.server_state, app_state={}
        )
        return protocol
