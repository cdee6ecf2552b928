"""The whole gateway for a test: replicas over real sockets in this process, one database, a scripted upstream, and clients of the API.

    async with Stack.over(database_url) as stack:
        application = await stack.application()
        replica = await stack.replica()
        answer = await replica.client("ada").submit(application, "s1", "hi")

Everything is the real code, wired by `gateway.wiring.build_app`. Processes of their own are in `tests/support/processes.py`.
"""

import asyncio
import base64
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
import uvicorn

from gateway.bindings import applications, providers
from gateway.bindings.applications import Audience, NewApplication
from gateway.bindings.config import langchain_config
from gateway.bindings.vault import KeyRing, Vault
from gateway.domain.ids import ApplicationId
from gateway.identity.tokens import sign_token
from gateway.server import Server
from gateway.settings import Settings, load_settings
from gateway.store.database import Database
from gateway.wiring import Gateway, build_app
from tests.support.scripted_upstream import ScriptedUpstream

JWT_KEY: Final = "tests-only-key-of-at-least-32-bytes!"
ENCRYPTION_KEY: Final = base64.b64encode(b"tests-only-key-for-encryption-32").decode()
BEFORE_ANSWER_SECONDS: Final = 30.0


def environment(database_url: str, **changes: str) -> dict[str, str]:
    """The settings of a replica of tests, as environment variables."""
    return {
        "DATABASE_URL": database_url,
        "API_ENCRYPTION_KEY": ENCRYPTION_KEY,
        "GATEWAY_JWT_KEY": JWT_KEY,
        "GATEWAY_MODERATION": "none",
        "GATEWAY_HOST": "127.0.0.1",
        "GATEWAY_PORT": "0",
        "GATEWAY_TRUSTED_UPSTREAM_HOSTS": "127.0.0.1,localhost",
        "GATEWAY_DRAIN_DELAY_SECONDS": "0",
        "GATEWAY_DRAIN_SECONDS": "5",
        "GATEWAY_PAGES": "off",
        **changes,
    }


def token(subject: str, *, groups: tuple[str, ...] = (), roles: tuple[str, ...] = ()) -> str:
    """A bearer token of the tests' key."""
    return sign_token(JWT_KEY.encode(), subject=subject, groups=groups, roles=roles)


@dataclass(frozen=True, slots=True)
class Event:
    """One frame of a browser's stream."""

    type: str
    data: Mapping[str, Any]


def parse_events(raw: bytes) -> list[Event]:
    """The frames of a stream that the gateway wrote: LF framing, one data line each; comments are left out."""
    events = []
    for block in raw.decode("utf-8").split("\n\n"):
        lines = [line for line in block.split("\n") if line.startswith("data: ")]
        if lines:
            data = json.loads("".join(line.removeprefix("data: ") for line in lines))
            events.append(Event(data["type"], data))
    return events


def text_of(events: list[Event]) -> str:
    """All visible text of a stream, in order."""
    return "".join(event.data["delta"] for event in events if event.type == "TEXT_MESSAGE_CONTENT")


@dataclass(frozen=True, slots=True)
class Client:
    """One person at one replica."""

    http: httpx.AsyncClient
    headers: Mapping[str, str]

    async def submit(self, application: ApplicationId, submission_id: str, text: str, conversation_id: str | None = None) -> httpx.Response:
        """POST /runs for JSON."""
        body: dict[str, object] = {"submission_id": submission_id, "text": text}
        if conversation_id is not None:
            body["conversation_id"] = conversation_id
        return await self.http.post(f"{_agent(application)}/runs", json=body, headers=self.headers)

    async def ask(
        self, application: ApplicationId, submission_id: str, text: str, conversation_id: str | None = None
    ) -> tuple[httpx.Response, list[Event]]:
        """POST /runs for a stream, read to its end."""
        async with self.stream(application, submission_id, text, conversation_id) as response:
            raw = await response.aread()
        return response, parse_events(raw) if response.status_code == 200 else []

    @asynccontextmanager
    async def stream(
        self, application: ApplicationId, submission_id: str, text: str, conversation_id: str | None = None
    ) -> AsyncIterator[httpx.Response]:
        """POST /runs for a stream, open."""
        body: dict[str, object] = {"submission_id": submission_id, "text": text}
        if conversation_id is not None:
            body["conversation_id"] = conversation_id
        headers = {**self.headers, "Accept": "text/event-stream"}
        async with self.http.stream("POST", f"{_agent(application)}/runs", json=body, headers=headers) as response:
            yield response

    async def decide(
        self, application: ApplicationId, run_id: str, interrupt_id: str, submission_id: str, decision: str, comment: str | None = None
    ) -> httpx.Response:
        """POST /runs/{run_id}/decision for JSON."""
        body = {"submission_id": submission_id, "interrupt_id": interrupt_id, "decision": decision}
        if comment is not None:
            body["comment"] = comment
        return await self.http.post(f"{_agent(application)}/runs/{run_id}/decision", json=body, headers=self.headers)

    async def conversation(self, application: ApplicationId, conversation_id: str) -> dict[str, Any]:
        """GET /conversations/{conversation_id}, which must be there."""
        response = await self.get(f"{_agent(application)}/conversations/{conversation_id}")
        assert response.status_code == 200, response.text
        return dict(response.json())

    @asynccontextmanager
    async def watch(self, application: ApplicationId, run_id: str) -> AsyncIterator[httpx.Response]:
        """GET /runs/{run_id}/events."""
        headers = {**self.headers, "Accept": "text/event-stream"}
        async with self.http.stream("GET", f"{_agent(application)}/runs/{run_id}/events", headers=headers) as response:
            yield response

    async def run(self, application: ApplicationId, run_id: str) -> dict[str, Any]:
        """GET /runs/{run_id}, which must be there."""
        response = await self.get(f"{_agent(application)}/runs/{run_id}")
        assert response.status_code == 200, response.text
        return dict(response.json())

    async def until_over(self, application: ApplicationId, run_id: str) -> dict[str, Any]:
        """The run once it is over or unknown: its own stream says when."""
        async with self.watch(application, run_id) as response:
            await response.aread()
        return await self.run(application, run_id)

    async def items(self, application: ApplicationId, conversation_id: str, **query: str) -> list[dict[str, Any]]:
        """One page of a conversation's items."""
        response = await self.get(f"{_agent(application)}/conversations/{conversation_id}/items", params=query)
        assert response.status_code == 200, response.text
        return list(response.json()["items"])

    async def get(self, path: str, **options: Any) -> httpx.Response:
        """GET any path as this person."""
        return await self.http.get(path, headers=self.headers, **options)


def _agent(application: ApplicationId) -> str:
    return f"/api/internal/apps/{application}/agent"


@dataclass(frozen=True, slots=True)
class Replica:
    """One running replica."""

    gateway: Gateway
    http: httpx.AsyncClient
    base_url: str

    def client(self, subject: str = "ada", *, groups: tuple[str, ...] = (), roles: tuple[str, ...] = ()) -> Client:
        """A person at this replica."""
        return Client(self.http, {"Authorization": f"Bearer {token(subject, groups=groups, roles=roles)}"})


@dataclass(slots=True)
class Stack:
    """One database, one upstream, and whatever replicas a test starts."""

    database_url: str
    database: Database
    upstream: ScriptedUpstream
    _exits: AsyncExitStack
    _names: list[str] = field(default_factory=list)

    @classmethod
    @asynccontextmanager
    async def over(cls, database_url: str) -> "AsyncIterator[Stack]":
        """A stack over a migrated database."""
        async with AsyncExitStack() as exits:
            upstream = await exits.enter_async_context(ScriptedUpstream())
            database = await exits.enter_async_context(await Database.open(database_url, pool_max=2))
            yield cls(database_url, database, upstream, exits)

    async def application(self, **audience: Any) -> ApplicationId:
        """A new application behind the scripted upstream."""
        return await self.application_of(self.upstream.base_url, self.upstream.token, human_input=False, **audience)

    async def application_of(
        self, base_url: str, token: str, *, human_input: bool = True, name: str | None = None, **audience: Any
    ) -> ApplicationId:
        """A new application behind any service."""
        name = name or f"app-{len(self._names)}"
        self._names.append(name)
        await providers.create(self.database, name=name, base_url=base_url, trusted_hosts={"127.0.0.1"})
        config = langchain_config("agent", human_input=human_input)
        new = NewApplication(name=name, provider=name, config=config, audience=Audience(**audience), token=token)
        return await applications.create(self.database, Vault(KeyRing([base64.b64decode(ENCRYPTION_KEY)])), new)

    def settings(self, **changes: str) -> Settings:
        """Settings of a replica; `changes` by their environment names."""
        return load_settings(environment(self.database_url, **changes), serving=True)

    async def replica(self, settings: Settings | None = None, listener: socket.socket | None = None, **overrides: Any) -> Replica:
        """Start a replica; it is drained and closed with the stack. `listener`: where it listens. `overrides` go to build_app."""
        chosen = settings or self.settings()
        gateway = await build_app(chosen, **overrides)
        await self._exits.enter_async_context(gateway.running())
        listener = listener or socket.create_server(("127.0.0.1", 0), backlog=1024)
        port = listener.getsockname()[1]
        config = uvicorn.Config(
            gateway.asgi, http="h11", ws="none", lifespan="off", log_config=None, access_log=False, timeout_graceful_shutdown=1
        )
        server = Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))

        async def stop() -> None:
            gateway.supervisor.draining = True
            gateway.supervisor.end_streams()
            server.should_exit = True
            await serving
            listener.close()  # uvicorn leaves it open when it was told to stop before it had started

        self._exits.push_async_callback(stop)
        base_url = f"http://127.0.0.1:{port}"
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        http = httpx.AsyncClient(base_url=base_url, timeout=BEFORE_ANSWER_SECONDS, trust_env=False, limits=limits)
        self._exits.push_async_callback(http.aclose)
        return Replica(gateway, http, base_url)
