"""`gateway admission …`: new work on all replicas, stopped and started again: after a restore, in an emergency."""

from argparse import Namespace

from gateway.cli.output import Output
from gateway.cli.session import actor_of, open_database, settings_of
from gateway.store import admission_gate


async def close(args: Namespace, output: Output) -> int:
    """No replica admits anything from now on. Running streams, reads and look-ups go on."""
    async with open_database(settings_of(output)) as db:
        changed = await admission_gate.close(db, actor=actor_of(args), reason=args.reason)
    output.result({"closed": True, "changed": changed}, "Admission is closed." if changed else "Admission was closed already.")
    return 0


async def reopen(args: Namespace, output: Output) -> int:
    """All replicas admit again."""
    async with open_database(settings_of(output)) as db:
        changed = await admission_gate.reopen(db, actor=actor_of(args), reason=args.reason)
    output.result({"closed": False, "changed": changed}, "Admission is open." if changed else "Admission was open.")
    return 0


async def show(args: Namespace, output: Output) -> int:
    """Whether it is closed, by whom and why."""
    async with open_database(settings_of(output)) as db:
        found = await admission_gate.closed(db)
    if found is None:
        output.result({"closed": False}, "Admission is open.")
    else:
        record = {"closed": True, "closed_at": found.closed_at, "actor": found.actor, "reason": found.reason}
        output.result(record, f"Admission is closed since {found.closed_at.isoformat()} by {found.actor}: {found.reason}")
    return 0
