"""An identity provider for tests: a real HTTP server with a key set, keys of every type, and tokens signed with them."""

import asyncio
import json
import warnings
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Final

from joserfc import jws
from joserfc.errors import SecurityWarning
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

from tests.support.raw_server import RawConnection, RawServer, response

ISSUER: Final = "https://idp.example"
AUDIENCE: Final = "gateway"
Entry = dict[str, Any]


@cache
def rsa(name: str = "r", bits: int = 2048) -> RSAKey:
    """One key a name: making them takes its time."""
    with warnings.catch_warnings(action="ignore", category=SecurityWarning):  # a short one is made on purpose
        return RSAKey.generate_key(bits, {"kid": name})


@cache
def ec(name: str = "e", curve: str = "P-256") -> ECKey:
    return ECKey.generate_key(curve, {"kid": name})


@cache
def okp(name: str = "o", curve: str = "Ed25519") -> OKPKey:
    return OKPKey.generate_key(curve, {"kid": name})  # type: ignore[arg-type]


def public(key: Key, **changes: Any) -> Entry:
    """The key as a set shows it."""
    return {**key.as_dict(private=False), **changes}


class _Anything(jws.JWSRegistry):
    """Signs whatever a test wants."""

    def check_header(self, header: object) -> None:
        pass


def signed(claims: Mapping[str, Any] | bytes, key: Key, algorithm: str, **header: Any) -> str:
    """A token; `header` adds to alg and the key's kid, and None leaves a member away."""
    raw = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    wanted = {"alg": algorithm, "kid": key.kid, **header}
    registry = _Anything(algorithms=[algorithm])
    return jws.serialize_compact({name: part for name, part in wanted.items() if part is not None}, raw, key, registry=registry)


def reply(status_line: str, body: bytes = b"", headers: str = "") -> bytes:
    """A whole response, after which the connection is closed."""
    return response(status_line, f"Content-Type: application/json\r\nConnection: close\r\n{headers}", body)


class Issuer:
    """Serves `entries` as its key set, unless `answer` (a whole response) or `away` (the connection is reset) says otherwise.

    `held`: set means that requests wait until it is cleared by `release`.
    """

    def __init__(self, *entries: Entry) -> None:
        self.entries: Sequence[Entry] = entries
        self.answer: bytes | None = None
        self.away = False
        self.paths: list[str] = []
        self.url = ""
        self.server = RawServer(self._answer)
        self._go = asyncio.Event()
        self._go.set()

    @property
    def fetches(self) -> int:
        """How often the set was asked for."""
        return len(self.paths)

    def hold(self) -> None:
        self._go.clear()

    def release(self) -> None:
        self._go.set()

    async def _answer(self, connection: RawConnection) -> None:
        request = await connection.read_request()
        self.paths.append(request.split(b" ", 2)[1].decode())
        self.server._changed.set()
        await self._go.wait()
        if self.away:
            connection.reset()
            return
        await connection.send(self.answer or reply("200 OK", json.dumps({"keys": self.entries}).encode()))


@asynccontextmanager
async def issuing(*entries: Entry) -> AsyncIterator[Issuer]:
    """An issuer that listens."""
    issuer = Issuer(*entries)
    async with issuer.server as server:
        issuer.url = f"{server.base_url}/keys"
        yield issuer
