"""`gateway check`: what would keep a replica from working. Settings first, all faults at once; then what only trying can tell."""

import asyncio
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final
from urllib.parse import urlsplit

import httpx

from gateway.bindings.capabilities_check import CapabilitiesCheck
from gateway.bindings.config import BackendType
from gateway.bindings.keys import other_rings
from gateway.bindings.vault import TokenUnreadable
from gateway.cli.edge_check import EdgeCheck
from gateway.cli.findings import Finding
from gateway.cli.output import CommandFailed, Output, WrongUsage
from gateway.cli.session import actor_of, database_url_of, open_database, read_token, vault_of
from gateway.cli.upstream_check import capabilities_check
from gateway.http_client import HttpClient
from gateway.identity.key_sets import fetch_key_set
from gateway.identity.tokens import ClaimNames, sign_token
from gateway.parts import faults_of_parts
from gateway.settings import Settings, load_settings
from gateway.store import applications as rows
from gateway.store import migrate as runner
from gateway.store import numbers
from gateway.store.applications import ApplicationRow
from gateway.store.database import Database
from gateway.store.errors import DatabaseTrouble
from gateway.store.migrate import MigrationError, MigrationReport

_AT_ONCE: Final = 8
"""Services asked at the same time."""


async def check(args: Namespace, output: Output) -> int:
    """Print a line for each thing; exit status 1 when one is not well. Raises SettingsInvalid with every fault of the settings."""
    settings = load_settings(output.environ, serving=True, also=faults_of_parts)
    database = await _database(settings)
    findings = [Finding("settings", True, "valid"), *await _identity(settings), *database]
    if all(finding.ok for finding in database):
        async with open_database(settings) as db:
            findings += [await _keys(db, settings), await durable(db), *await _applications(db, settings)]
    if args.through is not None:
        findings += await _edge(args, settings)
    output.table("checks", [asdict(finding) for finding in findings], ("about", "ok", "says"))
    bad = [finding.about for finding in findings if not finding.ok]
    if bad:
        raise CommandFailed(f"{len(bad)} of {len(findings)} checks failed.", "See the lines above that say no.", code="check_failed")
    return 0


async def _identity(settings: Settings) -> Sequence[Finding]:
    if settings.jwks_url is None:
        return []
    async with HttpClient(connect_seconds=settings.connect_seconds, trusted_hosts=settings.trusted_upstream_hosts) as client:
        found = await fetch_key_set(client, settings.jwks_url)
    if isinstance(found, tuple):
        return [Finding("identity provider", True, f"answers with {len(found)} usable keys")]
    return [Finding("identity provider", False, f"GATEWAY_JWKS_URL gives no keys: {found.value}")]


async def _database(settings: Settings) -> Sequence[Finding]:
    try:
        report: MigrationReport = await asyncio.to_thread(runner.check, database_url_of(settings))
    except DatabaseTrouble:
        return [Finding("database", False, "not reachable: check that PostgreSQL is up and DATABASE_URL leads to it")]
    except MigrationError as error:
        return [Finding("database", True, "reachable"), Finding("schema", False, str(error))]
    says = f"version {report.current}, needed {report.needed}"
    if not report.is_ready:
        says += ": run gateway migrate"
    return [Finding("database", True, "reachable"), Finding("schema", report.is_ready, says)]


async def _keys(db: Database, settings: Settings) -> Finding:
    """Whether every replica that lives has the keys of these settings."""
    others = await other_rings(db, vault_of(settings).key_ids, lease_seconds=settings.lease_seconds)
    if not others:
        return Finding("keys", True, "every replica that lives has these")
    says = "; ".join(
        f"replica {replica.replica_id} has {', '.join(replica.key_ids or ('keys that it does not tell',))}" for replica in others
    )
    return Finding("keys", False, f"{says}; here are {', '.join(vault_of(settings).key_ids)}")


async def durable(db: Database) -> Finding:
    """Whether what was committed stays committed, also when a standby takes over (contract F3)."""
    found = await numbers.durability(db)
    off = [name for name in ("synchronous_commit", "fsync", "full_page_writes") if getattr(found, name) == "off"]
    if found.in_recovery:
        return Finding("durability", False, "this is a standby: DATABASE_URL must lead to the primary")
    if off:
        return Finding("durability", False, f"{', '.join(off)} off: what was confirmed can be lost; set it to on")
    if found.hidden:
        return Finding("durability", True, "commits are durable here; whether standbys are synchronous only a member of pg_monitor may see")
    if found.standbys and not found.synchronous:
        return Finding(
            "durability", False, "the standby is asynchronous: failing over to it loses confirmed commits; set synchronous_standby_names"
        )
    if found.synchronous and found.synchronous_commit == "local":
        return Finding("durability", False, "synchronous_commit is local: no standby is waited for; set it to on")
    if found.synchronous_asked and not found.synchronous:
        return Finding("durability", False, "a synchronous standby is asked for and none is connected: commits wait for it")
    if found.synchronous:
        return Finding("durability", True, "commits wait for a synchronous standby")
    return Finding("durability", True, "commits are durable on this server; it has no standby")


async def _edge(args: Namespace, settings: Settings) -> Sequence[Finding]:
    token = read_token(args.token_file).strip() if args.token_file else _own_token(args, settings)
    parts = urlsplit(args.through)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or "@" in parts.netloc:
        raise WrongUsage("--through takes the base URL of the gateway.", "Write https://HOST[:PORT].")
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=args.through, headers=headers, trust_env=False) as client:
        return await EdgeCheck(client, idle_seconds=args.idle_seconds).findings()


def _own_token(args: Namespace, settings: Settings) -> str:
    if settings.jwt_key is None:
        raise WrongUsage("There is no local key to sign a token with.", "Give an operator's token by --token-file.")
    names = ClaimNames(settings.jwt_subject_claim, settings.jwt_groups_claim, settings.jwt_roles_claim)
    return sign_token(
        settings.jwt_key.get_secret_value().encode("utf-8"),
        subject=actor_of(args).partition(":")[2],
        groups=(),
        roles=("operator",),
        lifetime_seconds=600.0,
        claim_names=names,
        issuer=settings.jwt_issuer,
        audience=settings.jwt_audience,
    )


async def _applications(db: Database, settings: Settings) -> Sequence[Finding]:
    served = [row for row in await rows.list_all(db) if row.backend_type == BackendType.LANGCHAIN]
    turn = asyncio.Semaphore(_AT_ONCE)
    async with capabilities_check(settings) as capabilities:

        async def in_turn(row: ApplicationRow) -> Finding:
            async with turn:
                return await _application(row, settings, capabilities)

        return await asyncio.gather(*(in_turn(row) for row in served))


async def _application(row: ApplicationRow, settings: Settings, capabilities: CapabilitiesCheck) -> Finding:
    about = f"app {row.name} at {row.provider_name}"
    disabled = not (row.enabled and row.provider_enabled)
    if row.token_ciphertext is None or row.token_key_id is None:
        return Finding(about, disabled, "disabled, and has no token" if disabled else "has no token: gateway apps set-token")
    try:
        token = await vault_of(settings).open(row.application_id, row.token_ciphertext, row.token_key_id)
    except TokenUnreadable as unreadable:
        return Finding(about, False, f"its token does not open: {unreadable.fault.value}, key {unreadable.key_id}")
    if disabled:
        return Finding(about, True, "disabled, not asked")
    assert row.assistant_id is not None, "application_langchain_has_assistant"
    asked = {"base_url": row.base_url, "assistant_id": row.assistant_id, "token": token}
    fault = await capabilities.fault(**asked, human_input=row.human_input)
    return Finding(about, fault is None, "answers and names the assistant" if fault is None else f"GET /capabilities failed: {fault}")
