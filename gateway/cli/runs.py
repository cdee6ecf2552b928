"""`gateway runs …`: runs that need somebody. The same acts as under /api/operator, directly on the database.

They go by this process's settings: GATEWAY_SEND_WINDOW_SECONDS, GATEWAY_STREAM_TOTAL_SECONDS and GATEWAY_LOOKUP_MAX have to be those of the
replicas.
"""

import secrets
from argparse import Namespace
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final
from uuid import UUID

from gateway.bindings import applications
from gateway.bindings.resolve import Resolve
from gateway.bindings.vault import KeyRing, Vault
from gateway.cli.output import Output, WrongUsage
from gateway.cli.session import actor_of, open_database, quiet_logs, settings_of, vault_of
from gateway.domain.ids import ApplicationId, RunId
from gateway.domain.limits import PAGE_MAX
from gateway.domain.resolution import ResolutionOutcome, RunFilter, RunOrder
from gateway.domain.snapshot import MessageItem
from gateway.domain.states import SLOT_HOLDING
from gateway.domain.times import rfc3339
from gateway.http_client import HttpClient
from gateway.runs.look_up import LookUp
from gateway.runs.operator_reads import OperatorReads, OperatorRun, operator_run_detail_json, operator_run_json
from gateway.runs.resolve import OperatorActs
from gateway.runs.save import Save
from gateway.runs.tasks import Tasks
from gateway.settings import Settings
from gateway.store.database import Database
from gateway.store.operators import Selection
from gateway.upstream.lookup import BridgeLookup
from gateway.upstream.native_reads import NativeThreads

_COLUMNS: Final = ("run_id", "app_name", "subject", "execution", "persistence", "attention", "reason", "since_at")


async def list_all(args: Namespace, output: Output) -> int:
    """Runs of one state, at most --limit."""
    settings = settings_of(output)
    found: list[OperatorRun] = []
    cursor: str | None = None
    async with open_database(settings) as db:
        reads = OperatorReads(db, settings.resolution_gate_seconds)
        application_id = None
        if args.app is not None:
            application_id = ApplicationId((await applications.find(db, args.app)).application_id)
        selection = Selection(RunFilter(args.state), RunOrder.OLDEST if args.oldest_first else RunOrder.NEWEST, application_id)
        while len(found) < args.limit:
            limit = min(PAGE_MAX, args.limit - len(found))
            page = await reads.runs(selection, limit=limit, cursor=cursor)
            found += page.runs
            cursor = page.next
            if cursor is None:
                break
    output.table("runs", [operator_run_json(run) for run in found], _COLUMNS)
    if cursor is not None:
        output.progress(f"There are more than these {len(found)}: --limit shows more.")
    return 0


async def show(args: Namespace, output: Output) -> int:
    """One run; with --text what was said, which is recorded."""
    run_id, actor, settings = _run_id(args), actor_of(args), settings_of(output)
    async with open_database(settings) as db:
        run = await OperatorReads(db, settings.resolution_gate_seconds).run(run_id, text_for=actor if args.text else None)
    _say(output, run)
    return 0


async def look_up(args: Namespace, output: Output) -> int:
    """Ask the service once more."""
    run_id, actor, settings = _run_id(args), actor_of(args), settings_of(output)
    async with open_database(settings) as db, _acts(db, settings, vault_of(settings)) as acts:
        before = await acts.reads.run(run_id)
        run = await acts.look_up_now(actor, run_id)
    if not before.can_look_up:
        output.progress("Not looked up: only an unknown run can be, with a native id and without a living owner.")
    _say(output, run)
    return 0


async def retry_save(args: Namespace, output: Output) -> int:
    """Save what is pending."""
    run_id, actor, settings = _run_id(args), actor_of(args), settings_of(output)
    async with open_database(settings) as db, _acts(db, settings, _no_vault()) as acts:
        before = await acts.reads.run(run_id)
        run = await acts.retry_save(actor, run_id)
    if not before.can_retry_save:
        output.progress("Nothing to save: only a pending run has something.")
    _say(output, run)
    return 0


async def resolve(args: Namespace, output: Output) -> int:
    """Record what became of a run."""
    run_id, actor, settings = _run_id(args), actor_of(args), settings_of(output)
    async with open_database(settings) as db, _acts(db, settings, _no_vault()) as acts:
        run = await acts.resolve(actor, run_id, ResolutionOutcome(args.outcome), args.reason)
    _say(output, run)
    return 0


@asynccontextmanager
async def _acts(db: Database, settings: Settings, vault: Vault) -> AsyncIterator[OperatorActs]:
    tasks = Tasks()
    with quiet_logs():
        async with HttpClient(connect_seconds=settings.connect_seconds, trusted_hosts=settings.trusted_upstream_hosts) as client:
            asks = BridgeLookup(client), NativeThreads(client)
            look_up = LookUp(db, Resolve(db, vault), *asks, settings.lookup_max, settings.lookup_first_seconds)
            yield OperatorActs(db, OperatorReads(db, settings.resolution_gate_seconds), look_up, Save(db), tasks.own)


def _no_vault() -> Vault:
    """For acts that open no token: an operator needs no encryption key for them."""
    return Vault(KeyRing((secrets.token_bytes(32),)))


def _run_id(args: Namespace) -> RunId:
    try:
        return RunId(UUID(args.run))
    except ValueError:
        raise WrongUsage("That is not the id of a run.", "`gateway runs list` shows the ids.") from None


def _say(output: Output, run: OperatorRun) -> None:
    document = operator_run_detail_json(run)
    output.result(document, "\n".join(_lines(run)))


def _lines(run: OperatorRun) -> Sequence[str]:
    view, row = run.view, run.row
    resolution = "-"
    if view.resolution is not None and row.resolved_at is not None:
        resolution = f"{view.resolution[0]} by {row.resolved_by or '-'} at {rfc3339(row.resolved_at)}: {view.resolution[1]}"
    facts = {
        "run": str(view.run_id),
        "state": f"{view.execution.value}, {view.persistence.value}",
        "reason": view.reason.value if view.reason else "-",
        "attention": view.attention.value if view.attention else "-",
        "application": f"{row.application_name} ({row.application_id})",
        "owner": row.subject,
        "conversation": f"{view.conversation_id}{' (deleted)' if row.conversation_deleted else ''}",
        "since": rfc3339(row.since_at),
        "native id": "known" if row.native_run_id_known else "not known",
        "look-ups": str(row.lookups),
        "blocks": ", ".join(_blocks(run)) or "nothing",
        "resolution": resolution,
        "acts": ", ".join(_possible(run)) or "none",
    }
    lines = [f"{name.ljust(13)} {value}" for name, value in facts.items()]
    lines += [f"{'not now'.ljust(13)} {line}" for line in _impossible(run)]
    lines += ["evidence"]
    lines += [f"  {rfc3339(fact.at)}  {fact.kind}  {_words(fact.detail)}".rstrip() for fact in run.evidence or ()]
    if run.message is not None:
        lines += ["message", *_indented(run.message)]
    if view.snapshot is not None:
        lines += ["answer (complete)" if view.snapshot.complete else "answer (incomplete)"]
        for item in view.snapshot.items:
            lines += _indented(item.text) if isinstance(item, MessageItem) else [f"  [{item.name}]"]
    return lines


def _blocks(run: OperatorRun) -> Sequence[str]:
    blocks = []
    if run.row.blocks_conversation is not None:
        blocks.append(f"new tasks in its conversation ({run.row.blocks_conversation})")
    if run.view.execution in SLOT_HOLDING:
        blocks.append("a slot of its owner and one of the application")
    if run.view.under_way:
        blocks.append("changes of the application")
    return blocks


def _possible(run: OperatorRun) -> Sequence[str]:
    acts = ["lookup"] if run.can_look_up else []
    acts += ["retry-save"] if run.can_retry_save else []
    return [*acts, *(f"resolve --outcome {one.outcome.value}" for one in run.possible if one.obstacle is None)]


def _impossible(run: OperatorRun) -> Sequence[str]:
    """Only what time alone is in the way of: everything else will not become possible by waiting."""
    return [f"resolve --outcome {one.outcome.value}: from {rfc3339(one.allowed_from)} on" for one in run.possible if one.allowed_from]


def _words(detail: dict[str, object]) -> str:
    return " ".join(f"{name}={value}" for name, value in detail.items())


def _indented(text: str) -> Sequence[str]:
    return [f"  {line}" for line in text.splitlines()]
