"""Faults of the layers below as what a person at a terminal is told. Fixed texts: none of them comes from a driver or an upstream."""

from gateway.cli.output import CommandFailed
from gateway.domain.problems import PROBLEMS, Code, Refused, Retry
from gateway.settings import SettingsInvalid
from gateway.store.errors import (
    AnswerLost,
    ConstraintViolated,
    DatabaseTrouble,
    DeadlockOrSerialization,
    StatementFailed,
)

_NEXT_STEPS = {
    Code.NOT_FOUND: "Check the name; `list` shows what there is.",
    Code.ALREADY_EXISTS: "Choose another name, or change the one that is there with `set`.",
    Code.CHANGE_BLOCKED: "For an application: `gateway apps disable NAME --wait`, then try again, then `gateway apps enable NAME`.",
    Code.CONFIGURATION_INVALID: "Correct the field and try again.",
    Code.UPSTREAM_CHECK_FAILED: "Check token, assistant and that the service is up (`gateway check`), then try again.",
    Code.RESOLUTION_NOT_ALLOWED: "`gateway runs show RUN` says which acts its state allows, and from when.",
    Code.ALREADY_RESOLVED: "`gateway runs show RUN` shows the resolution; it stays as it is.",
    Code.BACKEND_TYPE_FIXED: "Make a separate application with `gateway apps create`.",
}


def explained(error: Exception) -> CommandFailed:
    """The failure to show for an exception that left a command."""
    match error:
        case Refused():
            return _refused(error)
        case SettingsInvalid():
            faults = [{"name": fault.name, "sentence": fault.sentence} for fault in error.faults]
            next_step = "Correct them all; docs/settings.md lists every setting."
            return CommandFailed("The settings are not valid.", next_step, code="settings_invalid", details={"faults": faults})
        case AnswerLost():
            return CommandFailed(
                "The database's answer was lost: it may have been done or not.",
                "Look (`list`, `show`) before trying again.",
                code="answer_lost",
            )
        case DatabaseTrouble():
            return CommandFailed(
                "The database cannot be asked.",
                "Check that PostgreSQL is up and DATABASE_URL leads to it, then try again.",
                code=Code.DATABASE_UNAVAILABLE.value,
            )
        case DeadlockOrSerialization():
            return CommandFailed("Another transaction was in the way; nothing was changed.", "Try again.", code="deadlock")
        case StatementFailed():
            return CommandFailed(
                f"The database refused a statement ({error.statement}, SQLSTATE {error.sqlstate or 'none'}).",
                "Bring the schema up to date: gateway migrate",
                code="statement_failed",
            )
        case ConstraintViolated():
            return CommandFailed(
                f"The database refused this: {error.constraint or 'a value is missing'}.",
                "Correct the value and try again.",
                code="refused",
            )
    # Only the kind of the fault: its text may hold what somebody typed.
    return CommandFailed(
        f"Something went wrong here ({type(error).__name__}).",
        "Run `gateway check`; if that finds nothing, report the command and this name.",
        code=Code.INTERNAL_ERROR.value,
    )


def _refused(refused: Refused) -> CommandFailed:
    problem = PROBLEMS[refused.code]
    next_step = _NEXT_STEPS.get(refused.code, "Try again later." if problem.retry is Retry.LATER else "See docs/problems.md.")
    if refused.code is Code.NOT_FOUND:
        field = refused.extra.get("field")
        return CommandFailed(f"There is no such {field or 'thing'}.", next_step, code=refused.code.value)
    return CommandFailed(f"{problem.title}. {problem.detail}", next_step, code=refused.code.value, details=refused.extra)
