"""`gateway apps …`."""

import asyncio
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from gateway.bindings import applications
from gateway.bindings.administration import OperatorAppJson, application_json
from gateway.bindings.applications import ApplicationChange, Audience, NewApplication, Visibility
from gateway.bindings.config import ApplicationConfig, BackendType, langchain_config, parse_config
from gateway.cli.output import Output, WrongUsage
from gateway.cli.session import actor_of, open_database, read_document, read_token, settings_of, vault_of
from gateway.cli.upstream_check import capabilities_check
from gateway.settings import Settings
from gateway.store import applications as rows
from gateway.store.applications import ApplicationRow, RunInTheWay
from gateway.store.database import Database

_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 2.0


async def create(args: Namespace, output: Output) -> int:
    """Make an application and print its id."""
    _check_audience(args)
    config = _new_config(args)
    if config.backend_type is BackendType.LANGCHAIN and args.token_file is None:
        raise WrongUsage("A langchain application needs a token.", "Give --token-file FILE, or --token-file - for standard input.")
    settings = settings_of(output)
    new = NewApplication(
        name=args.name,
        provider=args.provider,
        config=config,
        audience=Audience(
            description=args.description or "",
            visibility=Visibility(args.visibility or Visibility.PUBLIC),
            groups=tuple(args.group or ()),
            owner_subject=args.owner,
            users=tuple(args.user or ()),
        ),
        token=None if args.token_file is None else read_token(args.token_file),
    )
    async with open_database(settings) as db:
        application_id = await applications.create(db, vault_of(settings), new, actor=actor_of(args))
    output.result({"app_id": application_id}, str(application_id))
    return 0


async def list_all(args: Namespace, output: Output) -> int:
    """All applications."""
    settings = settings_of(output)
    async with open_database(settings) as db:
        found = await rows.list_all(db)
    output.table("apps", await _records(found, settings), ("name", "app_id", "provider", "backend_type", "visibility", "enabled", "token"))
    return 0


async def show(args: Namespace, output: Output) -> int:
    """One application."""
    settings = settings_of(output)
    async with open_database(settings) as db:
        row = await applications.find(db, args.name)
    output.record((await _records([row], settings))[0])
    return 0


async def change(args: Namespace, output: Output) -> int:
    """Change an application."""
    wanted = ApplicationChange(
        name=args.rename,
        provider=args.provider,
        config=None if args.config is None else parse_config(read_document(args.config)),
        assistant_id=args.assistant,
        description=args.description,
        visibility=None if args.visibility is None else Visibility(args.visibility),
        groups=None if args.group is None else tuple(args.group),
        owner_subject=args.owner,
        users=None if args.user is None else tuple(args.user),
        drop_owner=args.no_owner,
    )
    if wanted == ApplicationChange():
        raise WrongUsage("There is nothing to change.", "Give at least one option; `gateway apps set --help` lists them.")
    async with open_database(settings_of(output)) as db:
        report = await applications.change(db, args.name, wanted, actor=actor_of(args))
    text = "Changed." if report.changed else "Nothing to change."
    if report.moved:
        text += " Conversations bound before stay readable and take no new message."
    if report.token_dropped:
        text += f" The service is another one, so its token was dropped: gateway apps set-token {args.name} --token-file FILE"
    output.result({"changed": report.changed, "moved": report.moved, "token_dropped": report.token_dropped}, text)
    return 0


async def enable(args: Namespace, output: Output) -> int:
    """Allow use again."""
    async with open_database(settings_of(output)) as db:
        changed = await applications.set_enabled(db, args.name, enabled=True, actor=actor_of(args))
    output.result({"enabled": True, "changed": changed}, "Enabled.")
    return 0


async def disable(args: Namespace, output: Output) -> int:
    """Stop new use; with --wait return when no run is active or unsaved any more."""
    async with open_database(settings_of(output)) as db:
        changed = await applications.set_enabled(db, args.name, enabled=False, actor=actor_of(args))
        if args.wait:
            row = await applications.find(db, args.name)
            await _wait_until_idle(db, row, output)
    output.result({"enabled": False, "changed": changed}, "Disabled." if not args.wait else "Disabled, and no run is active or unsaved.")
    return 0


async def set_token(args: Namespace, output: Output) -> int:
    """Replace the service token once the service takes the new one."""
    settings = settings_of(output)
    raw_token = read_token(args.token_file)
    async with open_database(settings) as db, capabilities_check(settings) as check_capabilities:
        await applications.set_token(db, vault_of(settings), args.name, raw_token, check_capabilities, actor=actor_of(args))
    output.result({"changed": True}, "The service takes the new token; it is in use from now on.")
    return 0


async def _wait_until_idle(db: Database, row: ApplicationRow, output: Output) -> None:
    """Ask, ever more slowly, until nothing is in the way; say so whenever what is in the way changes."""
    pause = _FIRST_PAUSE_SECONDS
    told: Sequence[RunInTheWay] = ()
    while runs := await rows.runs_in_the_way(db, [row.application_id]):
        if runs != told:
            told = runs
            shown = ", ".join(f"{run.run_id} ({run.persistence if run.persistence == 'pending' else run.execution})" for run in runs)
            output.progress(f"Waiting for {len(runs)} run{'s' if len(runs) > 1 else ''}: {shown}")
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE_SECONDS)


def _new_config(args: Namespace) -> ApplicationConfig:
    if args.config is None:
        return langchain_config(args.assistant, human_input=args.human_input)
    config = parse_config(read_document(args.config))
    if args.human_input and config.backend_type is BackendType.LANGCHAIN:
        return replace(config, human_input=True)
    return config


def _check_audience(args: Namespace) -> None:
    """Groups without `--visibility group` would leave an application open to everybody, unnoticed."""
    if args.group and args.visibility != Visibility.GROUP:
        raise WrongUsage("--group counts with --visibility group only.", "Add --visibility group, or leave --group out.")
    if (args.owner or args.user) and args.visibility != Visibility.PRIVATE:
        raise WrongUsage("--owner and --user count with --visibility private only.", "Add --visibility private, or leave them out.")


async def _records(found: Sequence[ApplicationRow], settings: Settings) -> list[OperatorAppJson]:
    vault = vault_of(settings) if settings.encryption_keys else None
    return [await application_json(row, vault, settings.max_active_per_app) for row in found]
