"""`gateway quotas …`: rules counted in tasks."""

from argparse import Namespace
from uuid import UUID

from gateway.bindings import applications
from gateway.cli.output import Output, WrongUsage
from gateway.cli.session import actor_of, open_database, settings_of
from gateway.domain.problems import Code, Refused
from gateway.domain.quota import Scope, Window
from gateway.store import quotas as rows


async def change(args: Namespace, output: Output) -> int:
    """Set the limit of the one rule of this scope, window, application and group; print its id."""
    scope = Scope(args.scope)
    if scope is Scope.APP and args.app is None:
        raise WrongUsage("A rule of scope app counts the tasks of one application.", "Add --app NAME.")
    if scope is Scope.GROUP and args.group is None:
        raise WrongUsage("A rule of scope group counts the tasks of one group's members.", "Add --group G.")
    if scope is Scope.APP and args.group is not None:
        raise WrongUsage("A rule of scope app counts everybody's tasks.", "Use --scope group --app NAME for those of a group's members.")
    window = Window.parse(args.window)
    if window is None:
        raise WrongUsage("That is not a window.", "Use hour, day or month; or one that slides, of 1h to 366d.")
    async with open_database(settings_of(output)) as db:
        application_id = None if args.app is None else (await applications.find(db, args.app)).application_id
        rule_id = await rows.set_rule(
            db,
            scope=scope,
            window=window,
            task_limit=args.limit,
            application_id=application_id,
            group_name=args.group,
            actor=actor_of(args),
        )
    output.result({"quota_rule_id": rule_id}, str(rule_id))
    return 0


async def list_all(args: Namespace, output: Output) -> int:
    """The rules in force; none means unlimited."""
    async with open_database(settings_of(output)) as db:
        found = await rows.list_rules(db)
    records = [
        {
            "quota_rule_id": row.quota_rule_id,
            "scope": row.scope,
            "app": row.application_name,
            "group": row.group_name,
            "limit": row.task_limit,
            "window": str(row.window),
            "created_at": row.created_at,
        }
        for row in found
    ]
    output.table("quotas", records, ("quota_rule_id", "scope", "app", "group", "limit", "window"))
    if not records:
        output.progress("No rule: the number of tasks is not limited.")
    return 0


async def remove(args: Namespace, output: Output) -> int:
    """End a rule."""
    try:
        rule_id = UUID(args.rule)
    except ValueError:
        raise WrongUsage("That is not the id of a rule.", "`gateway quotas list` shows the ids.") from None
    async with open_database(settings_of(output)) as db:
        if not await rows.remove(db, rule_id, actor=actor_of(args)):
            raise Refused(Code.NOT_FOUND, extra={"field": "rule"})
    output.result({"removed": True}, "Removed.")
    return 0
