"""`gateway accounts …`."""

from argparse import Namespace
from typing import Final

from gateway.bindings.faults import invalid
from gateway.cli.output import Output, WrongUsage
from gateway.cli.session import actor_of, open_database, settings_of
from gateway.domain.problems import Code, Refused
from gateway.identity import people
from gateway.identity.tokens import is_name
from gateway.store import accounts as rows
from gateway.store.database import Database

_PAGE: Final = 200


async def create(args: Namespace, output: Output) -> int:
    """Make an active account."""
    _check_names(args)
    async with open_database(settings_of(output)) as db:
        if not await people.create(db, args.subject, groups=args.group or (), roles=args.role or (), actor=actor_of(args)):
            raise Refused(Code.ALREADY_EXISTS)
        output.record(await _record(db, args.subject))
    return 0


async def list_all(args: Namespace, output: Output) -> int:
    """All accounts."""
    records: list[dict[str, object]] = []
    async with open_database(settings_of(output)) as db:
        after = ""
        while page := await rows.page(db, after=after, page_size=_PAGE):
            records += [_as_record(row) for row in page]
            after = page[-1].subject
    output.table("accounts", records, ("subject", "state", "groups", "roles"))
    return 0


async def change(args: Namespace, output: Output) -> int:
    """Replace groups or roles."""
    _check_names(args)
    if (args.group and args.no_groups) or (args.role and args.no_roles):
        raise WrongUsage("Both some and none were asked for.", "Give either the names or the --no-… option.")
    groups = [] if args.no_groups else args.group
    roles = [] if args.no_roles else args.role
    if groups is None and roles is None:
        raise WrongUsage("There is nothing to change.", "Give --group, --no-groups, --role or --no-roles.")
    async with open_database(settings_of(output)) as db:
        await people.change(db, args.subject, groups=groups, roles=roles, actor=actor_of(args))
        output.record(await _record(db, args.subject))
    return 0


async def suspend(args: Namespace, output: Output) -> int:
    """Refuse the account from its next request on."""
    async with open_database(settings_of(output)) as db:
        await people.suspend(db, args.subject, actor=actor_of(args))
        output.record(await _record(db, args.subject))
    return 0


async def activate(args: Namespace, output: Output) -> int:
    """End a suspension."""
    async with open_database(settings_of(output)) as db:
        await people.activate(db, args.subject, actor=actor_of(args))
        output.record(await _record(db, args.subject))
    return 0


def _check_names(args: Namespace) -> None:
    for field, name in (("subject", args.subject), *(("group", group) for group in args.group or ())):
        if not is_name(name):
            raise invalid(field, "It has 1 to 200 characters and no control characters.")


async def _record(db: Database, subject: str) -> dict[str, object]:
    row = await rows.find(db, subject)
    if row is None:
        raise Refused(Code.NOT_FOUND, extra={"field": "account"})
    return _as_record(row)


def _as_record(row: rows.AccountRow) -> dict[str, object]:
    return {
        "account_id": row.account_id,
        "subject": row.subject,
        "state": row.state,
        "groups": row.groups,
        "roles": row.roles,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }
