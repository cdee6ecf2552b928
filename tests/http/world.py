"""A web application over a real database and real sockets: real identity, admission, reads and streams.

Execution is the one part a test plays itself: an admitted run becomes a LiveRun that the test publishes to and ends.
"""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar
from uuid import UUID, uuid4

import httpx
import psycopg
import uvicorn
from starlette.types import ASGIApp

from gateway.admission.admitting import Admitted
from gateway.admission.chains import SettingsChain
from gateway.admission.gate import Gate
from gateway.admission.moderation import Moderation
from gateway.admission.operator_chains import OperatorChains
from gateway.admission.quota import Usage
from gateway.bindings.administration import Administration
from gateway.bindings.capabilities_check import CapabilitiesCheck
from gateway.bindings.resolve import Resolve
from gateway.bindings.vault import KeyRing, Vault
from gateway.bindings.visible import VisibleApplications
from gateway.domain.ids import ApplicationId, RunId
from gateway.domain.limits import ActiveLimits
from gateway.http_client import HttpClient
from gateway.identity.accounts import AccessCheck
from gateway.identity.tokens import HmacIdentity, Identity, sign_token
from gateway.metrics import Metrics
from gateway.runs.audit_trail import Trail
from gateway.runs.history import History
from gateway.runs.live import LiveRun, LiveRuns
from gateway.runs.look_up import LookUp
from gateway.runs.operator_reads import OperatorReads
from gateway.runs.overview import Overview
from gateway.runs.read import Reads
from gateway.runs.refresh import Refresh
from gateway.runs.resolve import OperatorActs
from gateway.runs.save import Save
from gateway.runs.streams import Streams
from gateway.runs.submit import Submissions
from gateway.store.database import Database
from gateway.upstream.lookup import BridgeLookup
from gateway.web.routes import build_web, route_table
from gateway.web.services import Demo, DemoUser, Readiness, Services, WebSettings
from tests.support.at_once import at_once
from tests.support.described import Described
from tests.support.no_native import NoNative

VAULT: Final = Vault(KeyRing((bytes(32),)))
KEY: Final = b"a key of the tests, 32 bytes long"
COOKIE: Final = "session"
ORIGIN: Final = "http://page.example"
_Result = TypeVar("_Result")


class _Server(uvicorn.Server):
    """A server that says when it listens."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(uvicorn.Config(app, http="h11", ws="none", lifespan="off", log_config=None, access_log=False))
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()


def listener() -> socket.socket:
    """A free loopback port."""
    # With the protocol named, else asyncio leaves Nagle's algorithm on and each answer waits 40 ms for a delayed ACK.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.bind(("127.0.0.1", 0))
    return bound


def base_url_of(bound: socket.socket) -> str:
    return f"http://127.0.0.1:{bound.getsockname()[1]}"


@asynccontextmanager
async def serving(app: ASGIApp, bound: socket.socket | None = None) -> AsyncIterator[str]:
    """Serve `app` on a loopback port; gives the base URL."""
    bound = bound or listener()
    server = _Server(app)
    task = asyncio.create_task(server.serve([bound]))
    try:
        await server.listening.wait()
        yield base_url_of(bound)
    finally:
        server.should_exit = True
        server.force_exit = True
        await task
        bound.close()


@dataclass
class ScriptedHealth:
    """Readiness as a test sets it."""

    answer: Readiness = field(default_factory=lambda: Readiness(True, {"database": True}))

    async def readiness(self) -> Readiness:
        return self.answer


class Begun:
    """The runs that were admitted, each as a LiveRun that the test moves."""

    def __init__(self) -> None:
        self.live_runs = LiveRuns()
        self.latest: LiveRun | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    def begin(self, admitted: Admitted) -> LiveRun:
        live = self.latest = LiveRun(admitted)
        self.live_runs.add(live)
        return live

    def own(self, coroutine: Coroutine[Any, Any, _Result], name: str) -> asyncio.Task[_Result]:
        task = asyncio.create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def of(self, run_id: str) -> LiveRun:
        live = self.live_runs.get(RunId(UUID(run_id)))
        assert live is not None
        return live


@dataclass(frozen=True)
class World:
    """A served gateway web with what a test needs to fill it and look at it."""

    base_url: str
    connection: psycopg.Connection[tuple[Any, ...]]
    services: Services
    begun: Begun
    health: ScriptedHealth
    client: httpx.AsyncClient
    """Each answer that it gets is compared with the description of the API."""
    described: Described

    def token(self, subject: str, *, groups: Sequence[str] = (), lifetime_seconds: float = 3600.0) -> str:
        return sign_token(KEY, subject=subject, groups=groups, lifetime_seconds=lifetime_seconds)

    def bearer(self, subject: str, *, groups: Sequence[str] = ()) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token(subject, groups=groups)}"}

    def agent(self, application_id: UUID) -> str:
        return f"/api/internal/apps/{application_id}/agent"

    def sql(self, text: str, *params: object) -> list[tuple[Any, ...]]:
        """Rows of any statement, committed at once. Tests may write SQL in place."""
        cursor = self.connection.execute(text.encode(), params)
        return cursor.fetchall() if cursor.description else []

    def account(self, subject: str) -> UUID:
        """The account of `subject`, made when it is not there."""
        rows = self.sql(
            "insert into account (account_id, subject) values (%s, %s) on conflict (subject) do update set subject = excluded.subject"
            " returning account_id",
            uuid4(),
            subject,
        )
        account_id: UUID = rows[0][0]
        return account_id

    def application(
        self, name: str | None = None, *, visibility: str = "public", groups: Sequence[str] = (), enabled: bool = True
    ) -> ApplicationId:
        """A langchain application with its provider and token, that may generate as far as admission can tell."""
        application_id = ApplicationId(uuid4())
        ciphertext, key_id = at_once(VAULT.seal(application_id, "a-service-token"))
        provider_id = uuid4()
        self.sql(
            "insert into provider (provider_id, name, base_url) values (%s, %s, 'https://agents.example')", provider_id, str(provider_id)
        )
        self.sql(
            "insert into application (application_id, provider_id, name, visibility, groups, backend_type, assistant_id, enabled,"
            " token_ciphertext, token_key_id) values (%s, %s, %s, %s, %s, 'langchain', 'agent', %s, %s, %s)",
            application_id,
            provider_id,
            name or str(application_id),
            visibility,
            list(groups),
            enabled,
            ciphertext,
            key_id,
        )
        return application_id


def web_settings(**changes: Any) -> WebSettings:
    return replace(WebSettings(session_cookie=COOKIE, allowed_origins=frozenset({ORIGIN})), **changes)


def demo() -> Demo:
    users = (DemoUser("ada", "Uses both applications"), DemoUser("grace", "Member of the group research"))
    return Demo(users=users, token_for=lambda subject: sign_token(KEY, subject=subject))


@asynccontextmanager
async def open_world(
    database_url: str,
    *,
    settings: WebSettings | None = None,
    demo: Demo | None = None,
    identity: Identity | None = None,
    pool_url: str | None = None,
    call_seconds: float = 5.0,
) -> AsyncIterator[World]:
    """A world over a migrated database. Its own origin may use the cookie, besides those of `settings`.

    `pool_url`: another way to the same database for the application's pool, through something that can break. `call_seconds`: its
    deadline.
    """
    bound, begun, health = listener(), Begun(), ScriptedHealth()
    chosen = settings or web_settings()
    # Beside the application's pool: what a test writes is committed at once.
    with psycopg.connect(database_url, autocommit=True) as connection:
        async with (
            await Database.open(pool_url or database_url, call_seconds=call_seconds) as database,
            HttpClient(connect_seconds=1, trusted_hosts={"127.0.0.1"}) as http_client,
        ):
            access = AccessCheck(database, create_unknown=True)
            reads, operator_reads = Reads(database), OperatorReads(database, 905.0)
            look_up = LookUp(database, Resolve(database, VAULT), BridgeLookup(http_client), NoNative(), 1, 1.0)
            gate = Gate(
                database=database,
                access_check=access,
                vault=VAULT,
                moderation=Moderation(database, SettingsChain(()).chain_of, 1.0, time.monotonic),
                limits=ActiveLimits(per_user=50, per_application=50),
                lease_seconds=30.0,
                quota_zone="UTC",
                draining=lambda: False,
            )
            services = Services(
                identity=identity or HmacIdentity(KEY),
                access=access,
                submissions=Submissions(gate=gate, reads=reads, begin=begun.begin, own=begun.own),
                streams=Streams(live_runs=begun.live_runs, reads=reads, draining=lambda: False),
                reads=reads,
                refresh=Refresh(reads, look_up, Save(database), begun.own),
                history=History(database),
                applications=VisibleApplications(database, VAULT, 50),
                operator_reads=operator_reads,
                operator_acts=OperatorActs(database, operator_reads, look_up, Save(database), begun.own),
                trail=Trail(database),
                overview=Overview(database, VAULT.key_ids, 30.0, 50, Metrics()),
                chains=OperatorChains(database, VAULT, {"127.0.0.1"}, []),
                usage=Usage(database, ActiveLimits(per_user=50, per_application=50), "UTC"),
                administration=Administration(database, VAULT, {"127.0.0.1"}, CapabilitiesCheck(http_client), 50),
                health=health,
                settings=replace(chosen, allowed_origins=chosen.allowed_origins | {base_url_of(bound)}),
                demo=demo,
            )
            described = Described(route_table(services))
            hooks = {"response": [described.check]}
            async with (
                serving(build_web(services), bound) as base_url,
                httpx.AsyncClient(base_url=base_url, timeout=10, event_hooks=hooks) as client,
            ):
                yield World(base_url, connection, services, begun, health, client, described)
