"""The composition root: the only module that names concrete classes. Opens, serves, drains and closes one replica."""

import asyncio
import contextlib
import secrets
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

import structlog
import uvicorn
from starlette.types import ASGIApp

from gateway import __version__
from gateway.admission.chains import NONE, Chains, NamedModerator, parse_moderators
from gateway.admission.gate import Gate
from gateway.admission.local_rules import LocalRules, RuleInvalid, RulesTooLarge
from gateway.admission.moderation import Moderation, Moderator
from gateway.admission.operator_chains import OperatorChains
from gateway.admission.quota import Usage
from gateway.bindings.administration import Administration
from gateway.bindings.capabilities_check import CapabilitiesCheck
from gateway.bindings.keys import report_unreadable
from gateway.bindings.resolve import Resolve
from gateway.bindings.vault import KeyRing, Vault
from gateway.bindings.visible import VisibleApplications
from gateway.domain.fault_points import At, pass_by
from gateway.domain.problems import Refused
from gateway.health import ReplicaHealth
from gateway.http_client import HttpClient
from gateway.identity.accounts import AccessCheck
from gateway.identity.key_sets import FetchedKeys, KeySetIdentity
from gateway.identity.tokens import ClaimNames, HmacIdentity, Identity, TokenChecks
from gateway.metrics import Metrics
from gateway.reconciler.loop import Reconciler
from gateway.reconciler.retention import Retention
from gateway.runs.execute import Execute
from gateway.runs.heartbeat import Heartbeat
from gateway.runs.history import History
from gateway.runs.live import LiveRuns
from gateway.runs.look_up import LookUp
from gateway.runs.means import Means
from gateway.runs.operator_reads import OperatorReads
from gateway.runs.overview import Overview
from gateway.runs.read import Reads
from gateway.runs.refresh import Refresh
from gateway.runs.resolve import OperatorActs
from gateway.runs.save import Save
from gateway.runs.streams import Streams
from gateway.runs.submit import Submissions
from gateway.runs.supervisor import Supervisor
from gateway.runs.tasks import Tasks
from gateway.scraping import Scrape, measured, watch_loop
from gateway.settings import Fault, Settings, SettingsInvalid
from gateway.store import edge
from gateway.store.database import Database
from gateway.telemetry import configure_logging
from gateway.tracing import TracedExecution, Traces, TracingMissing, open_traces, traced
from gateway.upstream.bridge import Bridge
from gateway.upstream.lookup import BridgeLookup
from gateway.upstream.native import Native
from gateway.upstream.native_reads import NativeThreads
from gateway.upstream.protocol import Upstream
from gateway.web.routes import build_web
from gateway.web.services import Demo, Services, WebSettings

_log: Final[structlog.stdlib.BoundLogger] = structlog.get_logger("gateway.app")

_CLOSE_SECONDS: Final = 5.0
"""How long the server waits for requests that are being answered once it stops listening. Streams have ended before."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """One replica, wired: `asgi` serves it, `supervisor` owns its runs, `reconciler` sweeps. Closed in order by `running`."""

    settings: Settings
    asgi: ASGIApp
    services: Services
    supervisor: Supervisor
    heartbeat: Heartbeat
    reconciler: Reconciler
    retention: Retention
    database: Database
    vault: Vault
    http_client: HttpClient
    metrics: Metrics
    traces: Traces | None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Look at stored tokens, beat, sweep; then finish runs within the drain's budget, then close, the heartbeat after the runs."""
        sweeping = asyncio.create_task(self.reconciler.run(), name="reconciler")
        beating = asyncio.create_task(self.heartbeat.run(), name="heartbeat")
        looking = asyncio.create_task(
            report_unreadable(self.database, self.vault, pause_seconds=self.settings.heartbeat_seconds), name="look_at_tokens"
        )
        keeping = asyncio.create_task(self.retention.run(), name="retention")
        watching = asyncio.create_task(watch_loop(self.metrics), name="watch_loop")
        try:
            yield
        finally:
            await _cancelled(looking)
            await _cancelled(sweeping)
            await _cancelled(keeping)
            await self.supervisor.finish(self.settings.drain_seconds)
            await _cancelled(beating)
            await self.heartbeat.leave()
            await _cancelled(watching)
            await self.http_client.aclose()
            if self.traces is not None:
                await self.traces.aclose()
            await self.database.close()


async def _cancelled(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait({task})


async def build_app(
    settings: Settings,
    *,
    identity: Identity | None = None,
    moderators: Sequence[Moderator] | None = None,
    upstream: Upstream | None = None,
    demo: Demo | None = None,
    clock: Callable[[], float] = time.monotonic,
    at: At = pass_by,
) -> Gateway:
    """Wire one replica. What is given replaces what the settings would make. Raises SettingsInvalid for what only wiring can find."""
    if settings.database_url is None:
        raise SettingsInvalid([Fault("DATABASE_URL", "it is needed to serve.")])
    if identity is None and settings.jwt_key is None and settings.jwks_url is None:
        raise SettingsInvalid([Fault("GATEWAY_JWT_KEY", "it, or GATEWAY_JWKS_URL, is needed to serve.")])
    local, named_moderators = _local_rules(settings), _named_moderators(settings)
    http_client = HttpClient(connect_seconds=settings.connect_seconds, trusted_hosts=settings.trusted_upstream_hosts)
    database = await Database.open(settings.database_url.get_secret_value(), pool_max=settings.database_pool_max)
    vault = Vault(KeyRing(settings.encryption_keys or (secrets.token_bytes(32),)))
    tasks, live_runs, metrics = Tasks(), LiveRuns(), Metrics()
    chosen_identity = identity or _identity(settings, http_client, tasks, clock)
    traces = _traces(settings)
    at = measured(traced(at, traces.record) if traces else at, metrics, clock)
    resolve = Resolve(database, vault)
    means = Means(
        database=database,
        resolve=resolve,
        upstream=upstream or Bridge(http_client, bounds=settings.bounds, clock=clock),
        native=Native(http_client, bounds=settings.bounds, clock=clock),
        native_reads=NativeThreads(http_client),
        bounds=settings.bounds,
        lease_seconds=settings.lease_seconds,
        send_window_seconds=settings.send_window_seconds,
        lookup_first_seconds=settings.lookup_first_seconds,
        checkpoint_seconds=settings.checkpoint_seconds,
        own=tasks.own,
        clock=clock,
        at=at,
        metrics=metrics,
    )
    execute = Execute(means)
    supervisor = Supervisor(TracedExecution(execute, traces.record) if traces else execute, tasks, live_runs)
    heartbeat = Heartbeat(
        database=database,
        replica_id=uuid4(),
        held=live_runs.held,
        key_ids=vault.key_ids,
        period_seconds=settings.heartbeat_seconds,
        lease_seconds=settings.lease_seconds,
        clock=clock,
        at=at,
    )
    asks = BridgeLookup(http_client), means.native_reads
    look_up = LookUp(database, resolve, *asks, settings.lookup_max, settings.lookup_first_seconds, at, metrics)
    save = Save(database, at, metrics)
    reconciler = Reconciler(
        database=database,
        look_up=look_up,
        save=save,
        may_expire=heartbeat.may_expire,
        period_seconds=settings.reconcile_seconds,
        lookup_first_seconds=settings.lookup_first_seconds,
        at=at,
        metrics=metrics,
    )
    days = (settings.retention_deleted_days, settings.retention_evidence_days, settings.retention_audit_days)
    retention = Retention(database, *days, metrics)
    access = AccessCheck(database, create_unknown=settings.accounts == "auto")
    reads = Reads(database)
    operator_reads = OperatorReads(database, settings.resolution_gate_seconds)
    chains = Chains(
        database=database,
        vault=vault,
        client=http_client,
        local=local,
        named_in_settings=named_moderators,
        trusted_hosts=settings.trusted_upstream_hosts,
        seconds=settings.moderation_seconds,
        instead_of_settings=moderators,
    )
    gate = Gate(
        database=database,
        access_check=access,
        vault=vault,
        moderation=Moderation(database, chains.chain_of, settings.moderation_seconds, clock, metrics),
        limits=settings.active_limits,
        lease_seconds=settings.lease_seconds,
        quota_zone=settings.quota_zone,
        draining=lambda: supervisor.draining,
        at=at,
    )
    services = Services(
        identity=chosen_identity,
        access=access,
        submissions=Submissions(gate, reads, supervisor.begin, tasks.own, metrics),
        streams=Streams(live_runs, reads, lambda: supervisor.draining),
        reads=reads,
        refresh=Refresh(reads, look_up, save, tasks.own),
        history=History(database),
        applications=VisibleApplications(database, vault, settings.max_active_per_app),
        operator_reads=operator_reads,
        operator_acts=OperatorActs(database, operator_reads, look_up, save, tasks.own),
        overview=Overview(database, vault.key_ids, settings.lease_seconds, settings.max_active_per_app),
        administration=Administration(
            database, vault, settings.trusted_upstream_hosts, CapabilitiesCheck(http_client), settings.max_active_per_app
        ),
        chains=OperatorChains(database, vault, settings.trusted_upstream_hosts, [str(one) for one in named_moderators]),
        usage=Usage(database, settings.active_limits, settings.quota_zone),
        health=ReplicaHealth(
            database=database,
            identity=chosen_identity,
            keys_usable=bool(settings.encryption_keys),
            key_ids=vault.key_ids,
            lease_seconds=settings.lease_seconds,
            draining=lambda: supervisor.draining,
        ),
        metrics=metrics,
        record=traces.record if traces else None,
        arrived=lambda check_id: edge.arrived(database, check_id),
        scrape=Scrape(
            metrics,
            database,
            settings.lease_seconds,
            live_runs=lambda: len(live_runs),
            browser_streams=lambda: asgi.open_streams,
            draining=lambda: supervisor.draining,
            heartbeat_age=lambda: heartbeat.age_seconds,
            clock=clock,
        ),
        settings=WebSettings(
            session_cookie=settings.session_cookie,
            allowed_origins=frozenset(settings.allowed_origins),
            heartbeat_seconds=settings.browser_heartbeat_seconds,
            pages=settings.pages,
        ),
        demo=demo,
    )
    asgi = build_web(services)
    return Gateway(settings, asgi, services, supervisor, heartbeat, reconciler, retention, database, vault, http_client, metrics, traces)


def _traces(settings: Settings) -> Traces | None:
    if settings.otlp_endpoint is None:
        return None
    try:
        return open_traces(settings.otlp_endpoint, service_version=__version__)
    except TracingMissing:
        raise SettingsInvalid([Fault("GATEWAY_OTLP_ENDPOINT", "traces need the extra otel, which is not installed.")]) from None


def _identity(settings: Settings, http_client: HttpClient, tasks: Tasks, clock: Callable[[], float]) -> Identity:
    checks = TokenChecks(
        claim_names=ClaimNames(settings.jwt_subject_claim, settings.jwt_groups_claim, settings.jwt_roles_claim),
        leeway_seconds=settings.jwt_leeway_seconds,
        issuer=settings.jwt_issuer,
        audience=settings.jwt_audience,
    )
    if settings.jwks_url is not None:
        return KeySetIdentity(FetchedKeys(http_client, settings.jwks_url, own=tasks.own, clock=clock), checks)
    assert settings.jwt_key is not None, "looked at before anything was opened"
    return HmacIdentity(settings.jwt_key.get_secret_value().encode(), checks)


def _local_rules(settings: Settings) -> LocalRules:
    rules: Sequence[str] = ()
    try:
        if settings.moderation_deny_file is not None:
            rules = settings.moderation_deny_file.read_text(encoding="utf-8").splitlines()
        return LocalRules(rules, secrets=settings.moderation_secrets == "refuse")
    except (OSError, UnicodeDecodeError):
        raise SettingsInvalid([Fault("GATEWAY_MODERATION_DENY_FILE", "it cannot be read as UTF-8 text.")]) from None
    except (RuleInvalid, RulesTooLarge) as invalid:
        raise SettingsInvalid([Fault("GATEWAY_MODERATION_DENY_FILE", f"{invalid}.")]) from None


def _named_moderators(settings: Settings) -> Sequence[NamedModerator]:
    try:
        return parse_moderators(settings.moderation or (NONE,), settings.trusted_upstream_hosts)
    except Refused as refused:
        raise SettingsInvalid([Fault("GATEWAY_MODERATION", str(refused.extra["rule"]))]) from None


class _Server(uvicorn.Server):
    """uvicorn, with signals left to the drain: its own handler would stop listening at once."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


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
        timeout_keep_alive=30,
        backlog=2048,
    )
    server = _Server(config)
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


async def _drain(settings: Settings, gateway: Gateway, server: uvicorn.Server) -> None:
    gateway.supervisor.draining = True
    _log.info("draining", active_runs=len(gateway.supervisor.live_runs))
    await asyncio.sleep(settings.drain_delay_seconds)
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
