"""`gateway migrate`: the schema's way to this build's version."""

from argparse import Namespace

from gateway.cli.output import CommandFailed, Output
from gateway.cli.session import database_url_of, settings_of
from gateway.store import migrate as runner
from gateway.store.migrate import MigrationError


def migrate(args: Namespace, output: Output) -> int:
    """Apply what is missing, over GATEWAY_DATABASE_DIRECT_URL where it is set; with --check only say whether something is."""
    settings = settings_of(output)
    direct = settings.database_direct_url
    url = direct.get_secret_value() if direct is not None else database_url_of(settings)
    try:
        report = runner.check(url) if args.check else runner.migrate(url)
    except MigrationError as error:
        raise CommandFailed(str(error), "Nothing of the failing migration stays. Correct the cause and run it again.") from None
    record = {"applied": report.applied, "pending": report.pending, "current": report.current, "needed": report.needed}
    if report.pending:
        next_step = "Apply them: gateway migrate"
        raise CommandFailed(f"{len(report.pending)} migrations are to be applied.", next_step, code="migrations_pending", details=record)
    lines = [f"Applied {name}." for name in report.applied]
    output.result(record, "\n".join([*lines, f"The schema is at version {report.current}; this build needs {report.needed}."]))
    return 0
