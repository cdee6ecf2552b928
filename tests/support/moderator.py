"""A moderator's service for tests: a raw server that answers each request as it is told, and keeps what it was asked."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.raw_server import Answering, RawConnection, RawServer, response

JSON = "Content-Type: application/json\r\nConnection: close\r\n"
ALLOWED: Mapping[str, Mapping[str, Any]] = {
    "openai": {"id": "m-1", "model": "model-7", "results": [{"flagged": False, "categories": {"violence": False, "other": None}}]},
    "webhook": {"allowed": True, "categories": [], "version": "hook-3"},
}
REFUSED: Mapping[str, Mapping[str, Any]] = {
    "openai": {
        "model": "model-7",
        "results": [{"flagged": True, "categories": {"violence": True, "hate/threatening": True, "self-harm": False}}],
    },
    "webhook": {"allowed": False, "categories": ["violence", "hate/threatening"]},
}


def saying(document: object, status_line: str = "200 OK") -> bytes:
    """A whole response with this JSON."""
    return response(status_line, JSON, json.dumps(document).encode())


@dataclass
class ModeratorServer:
    """`answering` serves the next requests; `asked` are all requests, whole."""

    server: RawServer
    kind: str
    answering: Answering
    asked: list[bytes] = field(default_factory=list)

    @property
    def named(self) -> str:
        """How the settings and operators name it."""
        return f"{self.kind}:{self.server.base_url}"

    def bodies(self) -> list[Any]:
        """The JSON of all requests."""
        return [json.loads(request.partition(b"\r\n\r\n")[2]) for request in self.asked]

    def says(self, *pieces: bytes) -> None:
        """Answer with these bytes from now on."""
        self.answering = _pieces(pieces)


def _pieces(pieces: tuple[bytes, ...]) -> Callable[[RawConnection], Any]:
    async def answering(connection: RawConnection) -> None:
        for piece in pieces:
            await connection.send(piece)

    return answering


@asynccontextmanager
async def moderator_server(kind: str) -> AsyncIterator[ModeratorServer]:
    """One that allows everything, until it is told otherwise."""
    asked: list[bytes] = []

    async def answering(connection: RawConnection) -> None:
        asked.append(await connection.read_request())
        await moderator.answering(connection)

    async with RawServer(answering) as server:
        moderator = ModeratorServer(server, kind, _pieces((saying(ALLOWED[kind]),)), asked)
        yield moderator
