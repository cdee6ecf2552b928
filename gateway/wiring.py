"""The composition root: the only module that names concrete classes. What it wires, `gateway.app` serves.

Package after package, from the bottom up: each function below puts one of them together from those under it.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from uuid import uuid4

from starlette.types import ASGIApp

from gateway.admission.chains import Chains, NamedModerator
from gateway.admission.gate import Gate
from gateway.admission.local_rules import LocalRules
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
from gateway.health import ReplicaHealth
from gateway.http_client import HttpClient
from gateway.identity.accounts import AccessCheck
from gateway.identity.key_sets import FetchedKeys, KeySetIdentity
from gateway.identity.tokens import ClaimNames, HmacIdentity, Identity, TokenChecks
from gateway.metrics import Metrics
from gateway.parts import local_rules_of, named_moderators_of, traces_of
from gateway.reconciler.loop import Reconciler
from gateway.reconciler.retention import Retention
from gateway.runs.audit_trail import Trail
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
from gateway.tracing import TracedExecution, Traces, traced
from gateway.upstream.bridge import Bridge
from gateway.upstream.lookup import BridgeLookup
from gateway.upstream.native import Native
from gateway.upstream.native_reads import NativeThreads
from gateway.upstream.protocol import Upstream
from gateway.web.routes import build_web
from gateway.web.services import Demo, Services, WebSettings


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ground:
    """What all the packages stand on."""

    settings: Settings
    clock: Callable[[], float]
    at: At
    database: Database
    vault: Vault
    http_client: HttpClient
    tasks: Tasks
    metrics: Metrics
    traces: Traces | None
    identity: Identity
    local_rules: LocalRules
    named_moderators: Sequence[NamedModerator]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Runs:
    """The package `runs`: those who execute, and those who look after what is under way."""

    live_runs: LiveRuns
    supervisor: Supervisor
    heartbeat: Heartbeat
    reads: Reads
    look_up: LookUp
    save: Save

    def draining(self) -> bool:
        return self.supervisor.draining


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
    ground = await _ground(settings, identity, clock, at)
    runs = _runs(ground, upstream)
    access = AccessCheck(ground.database, create_unknown=settings.accounts == "auto")
    gate = _gate(ground, runs, access, moderators)
    services = _services(ground, runs, access, gate, demo, open_streams=lambda: asgi.open_streams)
    asgi = build_web(services)
    return Gateway(
        settings=settings,
        asgi=asgi,
        services=services,
        supervisor=runs.supervisor,
        heartbeat=runs.heartbeat,
        reconciler=_reconciler(ground, runs),
        retention=_retention(ground),
        database=ground.database,
        vault=ground.vault,
        http_client=ground.http_client,
        metrics=ground.metrics,
        traces=ground.traces,
    )


async def _ground(settings: Settings, identity: Identity | None, clock: Callable[[], float], at: At) -> _Ground:
    """Opens the database; all faults of the settings that can be found without it are raised before."""
    if settings.database_url is None:
        raise SettingsInvalid([Fault("DATABASE_URL", "it is needed to serve.")])
    if identity is None and settings.jwt_key is None and settings.jwks_url is None:
        raise SettingsInvalid([Fault("GATEWAY_JWT_KEY", "it, or GATEWAY_JWKS_URL, is needed to serve.")])
    local_rules, named_moderators, traces = local_rules_of(settings), named_moderators_of(settings), traces_of(settings)
    http_client = HttpClient(connect_seconds=settings.connect_seconds, trusted_hosts=settings.trusted_upstream_hosts)
    tasks, metrics = Tasks(), Metrics()
    return _Ground(
        settings=settings,
        clock=clock,
        at=measured(traced(at, traces.record) if traces else at, metrics, clock),
        database=await Database.open(settings.database_url.get_secret_value(), pool_max=settings.database_pool_max),
        vault=Vault(KeyRing(settings.encryption_keys or (secrets.token_bytes(32),))),
        http_client=http_client,
        tasks=tasks,
        metrics=metrics,
        traces=traces,
        identity=identity or _identity(settings, http_client, tasks, clock),
        local_rules=local_rules,
        named_moderators=named_moderators,
    )


def _runs(ground: _Ground, upstream: Upstream | None) -> _Runs:
    settings, database, resolve = ground.settings, ground.database, Resolve(ground.database, ground.vault)
    native_reads, live_runs = NativeThreads(ground.http_client), LiveRuns()
    execute = Execute(_means(ground, resolve, upstream, native_reads))
    heartbeat = Heartbeat(
        database=database,
        replica_id=uuid4(),
        held=live_runs.held,
        key_ids=ground.vault.key_ids,
        period_seconds=settings.heartbeat_seconds,
        lease_seconds=settings.lease_seconds,
        clock=ground.clock,
        at=ground.at,
    )
    asks, budget = (BridgeLookup(ground.http_client), native_reads), (settings.lookup_max, settings.lookup_first_seconds)
    return _Runs(
        live_runs=live_runs,
        supervisor=Supervisor(TracedExecution(execute, ground.traces.record) if ground.traces else execute, ground.tasks, live_runs),
        heartbeat=heartbeat,
        reads=Reads(database),
        look_up=LookUp(database, resolve, *asks, *budget, ground.at, ground.metrics),
        save=Save(database, ground.at, ground.metrics),
    )


def _means(ground: _Ground, resolve: Resolve, upstream: Upstream | None, native_reads: NativeThreads) -> Means:
    settings, clock = ground.settings, ground.clock
    return Means(
        database=ground.database,
        resolve=resolve,
        upstream=upstream or Bridge(ground.http_client, bounds=settings.bounds, clock=clock),
        native=Native(ground.http_client, bounds=settings.bounds, clock=clock),
        native_reads=native_reads,
        bounds=settings.bounds,
        lease_seconds=settings.lease_seconds,
        send_window_seconds=settings.send_window_seconds,
        lookup_first_seconds=settings.lookup_first_seconds,
        checkpoint_seconds=settings.checkpoint_seconds,
        own=ground.tasks.own,
        clock=clock,
        at=ground.at,
        metrics=ground.metrics,
    )


def _reconciler(ground: _Ground, runs: _Runs) -> Reconciler:
    return Reconciler(
        database=ground.database,
        look_up=runs.look_up,
        save=runs.save,
        may_expire=runs.heartbeat.may_expire,
        period_seconds=ground.settings.reconcile_seconds,
        lookup_first_seconds=ground.settings.lookup_first_seconds,
        at=ground.at,
        metrics=ground.metrics,
    )


def _retention(ground: _Ground) -> Retention:
    settings = ground.settings
    days = (settings.retention_deleted_days, settings.retention_evidence_days, settings.retention_audit_days)
    return Retention(ground.database, *days, ground.metrics)


def _gate(ground: _Ground, runs: _Runs, access: AccessCheck, moderators: Sequence[Moderator] | None) -> Gate:
    settings, database = ground.settings, ground.database
    chains = Chains(
        database=database,
        vault=ground.vault,
        client=ground.http_client,
        local=ground.local_rules,
        named_in_settings=ground.named_moderators,
        trusted_hosts=settings.trusted_upstream_hosts,
        seconds=settings.moderation_seconds,
        instead_of_settings=moderators,
    )
    return Gate(
        database=database,
        access_check=access,
        vault=ground.vault,
        moderation=Moderation(database, chains.chain_of, settings.moderation_seconds, ground.clock, ground.metrics),
        limits=settings.active_limits,
        lease_seconds=settings.lease_seconds,
        quota_zone=settings.quota_zone,
        draining=runs.draining,
        at=ground.at,
    )


def _services(
    ground: _Ground, runs: _Runs, access: AccessCheck, gate: Gate, demo: Demo | None, *, open_streams: Callable[[], int]
) -> Services:
    settings, database, vault, own = ground.settings, ground.database, ground.vault, ground.tasks.own
    trusted, max_per_app = settings.trusted_upstream_hosts, settings.max_active_per_app
    operator_reads = OperatorReads(database, settings.resolution_gate_seconds)
    return Services(
        identity=ground.identity,
        access=access,
        submissions=Submissions(gate, runs.reads, runs.supervisor.begin, own, ground.metrics),
        streams=Streams(runs.live_runs, runs.reads, runs.draining),
        reads=runs.reads,
        refresh=Refresh(runs.reads, runs.look_up, runs.save, own),
        history=History(database),
        applications=VisibleApplications(database, vault, max_per_app),
        operator_reads=operator_reads,
        operator_acts=OperatorActs(database, operator_reads, runs.look_up, runs.save, own),
        trail=Trail(database),
        overview=Overview(database, vault.key_ids, settings.lease_seconds, max_per_app, ground.metrics),
        administration=Administration(database, vault, trusted, CapabilitiesCheck(ground.http_client), max_per_app),
        chains=OperatorChains(database, vault, trusted, [str(one) for one in ground.named_moderators]),
        usage=Usage(database, settings.active_limits, settings.quota_zone),
        health=_health(ground, runs),
        metrics=ground.metrics,
        record=ground.traces.record if ground.traces else None,
        arrived=lambda check_id: edge.arrived(database, check_id),
        scrape=_scrape(ground, runs, open_streams),
        settings=WebSettings(
            session_cookie=settings.session_cookie,
            allowed_origins=frozenset(settings.allowed_origins),
            heartbeat_seconds=settings.browser_heartbeat_seconds,
            pages=settings.pages,
        ),
        demo=demo,
    )


def _health(ground: _Ground, runs: _Runs) -> ReplicaHealth:
    return ReplicaHealth(
        database=ground.database,
        identity=ground.identity,
        keys_usable=bool(ground.settings.encryption_keys),
        key_ids=ground.vault.key_ids,
        lease_seconds=ground.settings.lease_seconds,
        draining=runs.draining,
    )


def _scrape(ground: _Ground, runs: _Runs, open_streams: Callable[[], int]) -> Scrape:
    return Scrape(
        ground.metrics,
        ground.database,
        ground.settings.lease_seconds,
        live_runs=lambda: len(runs.live_runs),
        browser_streams=open_streams,
        draining=runs.draining,
        heartbeat_age=lambda: runs.heartbeat.age_seconds,
        clock=ground.clock,
    )


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
