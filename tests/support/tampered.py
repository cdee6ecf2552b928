"""A good service made bad: an ASGI layer that hands each whole answer to a test, which changes it before it is sent.

Here lives: the layer. Not here: what is changed. Streams are held until they end, so nothing can be asked while one is open.
"""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send


@dataclass
class Exchanged:
    """One answer. `kind` is the method and the last word of the path that is no id; `number` counts those of the kind, from 1."""

    kind: str
    number: int
    http_status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @json.setter
    def json(self, document: object) -> None:
        self.body = json.dumps(document).encode()


Tamper = Callable[[Exchanged], None]


class Tampered:
    """The layer around `app`."""

    def __init__(self, app: ASGIApp, tamper: Tamper) -> None:
        self._app = app
        self._tamper = tamper
        self._numbers: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        kind = _kind(scope)
        self._numbers[kind] += 1
        exchanged = Exchanged(kind, self._numbers[kind])

        async def collect(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchanged.http_status = message["status"]
                exchanged.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                exchanged.body += message.get("body", b"")

        await self._app(scope, receive, collect)
        self._tamper(exchanged)
        headers = [(name.encode(), value.encode()) for name, value in exchanged.headers.items() if name != "content-length"]
        await send({"type": "http.response.start", "status": exchanged.http_status, "headers": headers})
        await send({"type": "http.response.body", "body": exchanged.body})


def _kind(scope: Scope) -> str:
    parts = scope["path"].strip("/").split("/")
    last = "run" if len(parts) == 4 and parts[3] != "stream" else parts[-1]
    return f"{scope['method']} {last}"
