"""`gateway quotas …`: rules counted in tasks."""

from argparse import Namespace
from uuid import UUID

from gateway.admission import quota_rules
from gateway.admission.quota_rules import check_rule, rule_json
from gateway.cli.output import Output, WrongUsage
from gateway.cli.session import actor_of, open_database, settings_of
from gateway.domain.problems import Refused
from gateway.domain.quota import Scope
from gateway.store import quotas as rows


async def change(args: Namespace, output: Output) -> int:
    """Set the limit of the one rule of this scope, window, application and group; print its id."""
    scope = Scope(args.scope)
    try:
        check_rule(scope=scope, window=args.window, limit=args.limit, of_application=args.app is not None, group=args.group)
    except Refused as refused:
        raise WrongUsage(f"--{refused.extra['field']}: {refused.extra['rule']}", "`gateway quotas set --help` shows the options.") from None
    async with open_database(settings_of(output)) as db:
        rule = await quota_rules.set_rule(
            db, scope=scope, window=args.window, limit=args.limit, which=args.app, group=args.group, actor=actor_of(args)
        )
    output.result(rule_json(rule), str(rule.quota_rule_id))
    return 0


async def list_all(args: Namespace, output: Output) -> int:
    """The rules in force; none means unlimited."""
    async with open_database(settings_of(output)) as db:
        records = [rule_json(row) for row in await rows.list_rules(db)]
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
        await quota_rules.remove(db, rule_id, actor=actor_of(args))
    output.result({"removed": True}, "Removed.")
    return 0


async def heaviest(args: Namespace, output: Output) -> int:
    """Who sent the most tasks, and what got them."""
    async with open_database(settings_of(output)) as db:
        found = await quota_rules.heaviest(db, window=args.window, limit=args.limit)
    records = [
        *({"what": "user", "name": user["subject"], "tasks": user["tasks"], "id": user["account_id"]} for user in found["users"]),
        *({"what": "app", "name": app["name"], "tasks": app["tasks"], "id": app["app_id"]} for app in found["apps"]),
    ]
    output.table("heaviest", records, ("what", "name", "tasks", "id"))
    return 0
