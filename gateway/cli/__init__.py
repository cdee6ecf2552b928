"""The command line: `gateway …`. Operators' acts, the server's start, a chat client.

What lives here: the way from arguments to one use case and to text or JSON. What does not: rules. The parser (`parser`) is light, each
command's module is imported when it runs. Exit status: 0 done, 1 failed, 2 wrong usage. Errors go to stderr and say what to do next; no
traceback, no secret.
"""

import importlib
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Coroutine, Sequence
from typing import Final, cast

from gateway.cli.output import CommandFailed, Output
from gateway.cli.parser import build_parser

INTERRUPTED: Final = 130
"""128 + SIGINT, as shells have it."""

Command = Callable[[Namespace, Output], int | Coroutine[None, None, int]]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; `argv` without the program's name, default the process's own. Returns the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        args = build_parser(demo="demo" in arguments).parse_args(arguments)
    except SystemExit as leaving:  # argparse has said what is wrong, or has shown the help
        return int(leaving.code or 0)
    output = Output(as_json=args.json, environ=os.environ)
    try:
        return _run(_command(args.command), args, output)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has left (`gateway apps list | head`); the interpreter must not try to flush it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except CommandFailed as failed:
        return output.failure(failed)
    except Exception as error:  # noqa: BLE001 - the border: a traceback would tell operators nothing, and could show a value
        from gateway.cli.failures import explained

        return output.failure(explained(error))


def _command(target: str) -> Command:
    module, _, function = target.partition(":")
    return cast(Command, getattr(importlib.import_module(f"gateway.cli.{module}"), function))


def _run(command: Command, args: Namespace, output: Output) -> int:
    outcome = command(args, output)
    if isinstance(outcome, int):
        return outcome
    import asyncio  # here, because `gateway --help` needs none

    return asyncio.run(outcome)
