"""The command `agent-service`. Imports of weight happen only once there is something to serve.

Exit status: 0 done, 1 failed, 2 wrong usage.
"""

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence
from pathlib import Path


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="agent-service", description="Puts a LangGraph agent behind the gateway's upstream contract.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serve = commands.add_parser(
        "serve",
        help="serve an agent until SIGTERM",
        description="Serves an agent. What is not given here comes from AGENT_SERVICE_… in the environment; see docs/agent-service.md.",
    )
    serve.add_argument(
        "--agent", metavar="MODULE:GRAPH", help="a graph of yours, or a function that returns one (default: the built-in agent)"
    )
    serve.add_argument("--host", help="address to listen on")
    serve.add_argument("--port", type=int, help="port to listen on; 0 takes a free one")
    serve.add_argument("--database", type=Path, metavar="FILE", help="SQLite file, made when missing")
    serve.add_argument("--token-file", metavar="FILE", help="file with the bearer token; - reads it from standard input")
    return parser


def _given(arguments: argparse.Namespace) -> dict[str, object]:
    """What the command line says, by name of the setting. Raises OSError when the token cannot be read."""
    names = ("agent", "host", "port", "database")
    given: dict[str, object] = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    if arguments.token_file == "-":
        given |= {"token": sys.stdin.readline().strip(), "token_file": None}
    elif arguments.token_file is not None:
        given |= {"token": Path(arguments.token_file).read_text(encoding="utf-8").strip(), "token_file": None}
    return given


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    try:
        arguments = _parser().parse_args(argv)
    except SystemExit as left:  # argparse leaves by itself: 2 for wrong usage, 0 for --help
        return left.code if isinstance(left.code, int) else 1
    try:
        given = _given(arguments)
    except (OSError, UnicodeDecodeError) as error:
        return _say(f"the token cannot be read: {error}", 1)
    try:
        from agent_service import agent_loading, service, settings, store
    except ModuleNotFoundError as error:
        return _say(f"{error.name} is not installed; the service needs the extra [agent]: pip install 'agent-governance-gateway[agent]'", 1)
    try:
        read = settings.read_settings(given)
    except settings.SettingsError as error:
        return _say(str(error), 2)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    try:
        asyncio.run(service.serve(read, announce=_announce))
    except (agent_loading.AgentDoesNotFitError, store.DatabaseInUseError, store.DatabaseUnusableError, OSError) as error:
        return _say(str(error), 1)
    return 0


def _announce(base_url: str) -> None:
    print(f"agent-service listens on {base_url}", flush=True)


def _say(text: str, code: int) -> int:
    for line in text.splitlines():
        print(f"agent-service: {line}", file=sys.stderr)
    return code
