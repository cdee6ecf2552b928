"""`gateway accounts …`."""

from argparse import Namespace

from gateway.cli.output import Output, WrongUsage
from gateway.cli.session import actor_of, open_database, settings_of
from gateway.domain.problems import Code, Refused
from gateway.identity import people
from gateway.identity.people import account_json
from gateway.store import accounts as rows


async def create(args: Namespace, output: Output) -> int:
    """Make an active account."""
    async with open_database(settings_of(output)) as db:
        if not await people.create(db, args.subject, groups=args.group or (), roles=args.role or (), actor=actor_of(args)):
            raise Refused(Code.ALREADY_EXISTS)
        output.record(account_json(await people.find(db, args.subject)))
    return 0


async def list_all(args: Namespace, output: Output) -> int:
    """All accounts."""
    async with open_database(settings_of(output)) as db:
        records = [account_json(row) for row in await rows.list_all(db)]
    output.table("accounts", records, ("subject", "state", "groups", "roles"))
    return 0


async def change(args: Namespace, output: Output) -> int:
    """Replace groups or roles."""
    if (args.group and args.no_groups) or (args.role and args.no_roles):
        raise WrongUsage("Both some and none were asked for.", "Give either the names or the --no-… option.")
    groups = [] if args.no_groups else args.group
    roles = [] if args.no_roles else args.role
    if groups is None and roles is None:
        raise WrongUsage("There is nothing to change.", "Give --group, --no-groups, --role or --no-roles.")
    async with open_database(settings_of(output)) as db:
        await people.change(db, args.subject, groups=groups, roles=roles, actor=actor_of(args))
        output.record(account_json(await people.find(db, args.subject)))
    return 0


async def suspend(args: Namespace, output: Output) -> int:
    """Refuse the account from its next request on."""
    async with open_database(settings_of(output)) as db:
        await people.suspend(db, args.subject, actor=actor_of(args))
        output.record(account_json(await people.find(db, args.subject)))
    return 0


async def activate(args: Namespace, output: Output) -> int:
    """End a suspension."""
    async with open_database(settings_of(output)) as db:
        await people.activate(db, args.subject, actor=actor_of(args))
        output.record(account_json(await people.find(db, args.subject)))
    return 0
