"""`gateway demo`, which `make demo` runs: PostgreSQL, an agent and the gateway on loopback, from nothing, and none of them left at the end.

What lives here: the order of starting and stopping, the settings of the demo, what it tells people. What does not: its folder
(`demo_folder`), its agent (`demo_agent`), what its database holds (`demo_seed`), the one message of `--once` (`demo_once`).
"""

import argparse
import asyncio
import importlib
import json
import os
import shlex
import signal
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final
from uuid import uuid4

from gateway.cli import demo_agent
from gateway.cli.demo_agent import HOST, free_port, is_free, port_of, require_extra, running_agent
from gateway.cli.demo_folder import DemoFolder
from gateway.cli.demo_once import QUESTION, Once
from gateway.cli.demo_seed import APPLICATIONS, ASKING, PEOPLE, TASK, Seeded, seed
from gateway.cli.output import CommandFailed, Output, WrongUsage
from gateway.identity.tokens import ClaimNames, sign_token
from gateway.settings import Settings, load_settings
from gateway.store.embedded import EmbeddedPostgres, EmbeddedPostgresError
from gateway.store.migrate import MigrationError, migrate
from gateway.telemetry import configure_logging
from gateway.web.services import Demo, DemoUser

DEFAULT_FOLDER: Final = ".demo"
TOKEN_SECONDS: Final = 12 * 3600
GATEWAY_LOG: Final = "gateway.log"
ENVIRONMENT: Final = "env"
_DATABASE: Final = "gateway"
_LAST_PORT: Final = 65535
# What the demo does not take over from the environment, besides what it sets itself: they would contradict that.
_LEFT_OUT: Final = frozenset({"GATEWAY_JWKS_URL", "API_ENCRYPTION_KEYS_PREVIOUS"})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `gateway demo`."""
    port_help = "port of the gateway, 0 for a free one (8080, or a free one where that is taken)"
    parser.add_argument("--port", type=int, metavar="N", help=port_help)
    parser.add_argument("--once", action="store_true", help="send one message, print the answer and the saved history, and end")
    folder_help = f"the folder in which everything is kept between runs ({DEFAULT_FOLDER})"
    parser.add_argument("--data", dest="folder", type=Path, default=Path(DEFAULT_FOLDER), metavar="DIR", help=folder_help)


def run(args: Namespace, output: Output) -> int:
    """Start everything, then serve until told to stop, or ask one question. Raises CommandFailed; whatever was started is stopped."""
    require_extra()
    folder = DemoFolder(args.folder)
    try:
        with _sigterm_as_interrupt(), folder.held(), _started(folder, args.port, output) as demo:
            if args.once:
                record = asyncio.run(_asked(demo))
                if output.as_json:
                    output.result(record, "")
            else:
                asyncio.run(_served(demo))
            output.progress("Stopping.")
    except EmbeddedPostgresError as error:
        raise CommandFailed(error.message, error.next_step, code="database_failed") from None
    except MigrationError as error:
        raise CommandFailed(str(error), "Use another database, or another folder: --data DIR", code="migration_failed") from None
    except SystemExit:  # uvicorn's way to say that it could not listen
        raise CommandFailed("Another program took the gateway's port just now.", "Try again, or give another one: --port N") from None
    output.progress(f"Stopped. What was said is kept in {folder.path}; the next run goes on with it.")
    return 0


@dataclass(frozen=True, slots=True)
class _Running:
    """Everything but the gateway itself is up. `processes`: ids by what they are, this one's too."""

    folder: DemoFolder
    settings: Settings
    seeded: Seeded
    processes: Mapping[str, int]
    logs: Mapping[str, str]
    output: Output

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.settings.port}"

    def token_for(self, subject: str) -> str:
        """A token of the demo's own key. Groups and roles are not in it: our accounts have them."""
        settings = self.settings
        assert settings.jwt_key is not None
        return sign_token(
            settings.jwt_key.get_secret_value().encode(),
            subject=subject,
            lifetime_seconds=TOKEN_SECONDS,
            claim_names=ClaimNames(settings.jwt_subject_claim, settings.jwt_groups_claim, settings.jwt_roles_claim),
            issuer=settings.jwt_issuer,
            audience=settings.jwt_audience,
        )

    def sign_in(self) -> Demo:
        """The page's sign-in as one of the users."""
        users = tuple(DemoUser(person.subject, person.about) for person in PEOPLE)
        return Demo(users=users, token_for=self.token_for, session_seconds=TOKEN_SECONDS)

    def welcome(self, _port: int) -> None:
        """Tell people what they have. Called once the gateway listens."""
        self.folder.tell_address(self.url)
        environment = self._write_environment()
        curl = self._curl()
        record = {
            "url": self.url,
            "users": [{"subject": person.subject, "about": person.about, "token": self.token_for(person.subject)} for person in PEOPLE],
            "apps": [{"app_id": app_id, "name": name} for name, app_id in self.seeded.application_ids.items()],
            "curl": curl,
            "denied": self.folder.denied_term(),
            **self.facts(),
        }
        self.output.result(record, self._welcome_text(curl, environment))

    def facts(self) -> dict[str, object]:
        """Where things are, for programs."""
        return {"folder": str(self.folder.path.absolute()), "logs": self.logs, "processes": self.processes}

    def _welcome_text(self, curl: str, environment: Path) -> str:
        term = self.folder.denied_term()
        lines = [
            "",
            f"The chat page:  {self.url}/",
            f"For operators:  {self.url}/operator",
            "",
            "Sign in there as one of",
            *(f"  {person.subject.ljust(5)} {person.about}" for person in PEOPLE),
            f'and ask "{APPLICATIONS[0].name}", for example:  {QUESTION}',
            f'or "{ASKING.name}", which wants your approval first:  {TASK}',
            *([f"Moderation refuses whatever has the word {term} in it ({self.folder.deny_file()})."] if term else []),
            "",
            f"The same from a terminal, as {PEOPLE[0].subject} (the token is this demo's, for {TOKEN_SECONDS // 3600} hours):",
            "",
            curl,
            "",
            f"Operators' commands on this demo:  ( . {shlex.quote(str(environment))}; {_command()} apps list )",
            f"Logs:  {'  '.join(self.logs.values())}",
            "",
            "Ctrl-C stops everything.",
        ]
        return "\n".join(lines)

    def _curl(self) -> str:
        """One message, as a command to copy. With the id of its own, so that running it twice asks once."""
        application_id = self.seeded.application_ids[APPLICATIONS[0].name]
        body = json.dumps({"submission_id": f"curl-{uuid4().hex[:12]}", "text": QUESTION})
        return " \\\n  ".join(
            (
                f"curl -sN --noproxy '*' {self.url}/api/internal/apps/{application_id}/agent/runs",
                f"-H 'Authorization: Bearer {self.token_for(PEOPLE[0].subject)}'",
                "-H 'Content-Type: application/json' -H 'Accept: text/event-stream'",
                f"-d {shlex.quote(body)}",
            )
        )

    def _write_environment(self) -> Path:
        """A file for `.`: the settings with which the other commands reach this demo."""
        assert self.settings.database_url is not None
        values = {
            "DATABASE_URL": self.settings.database_url.get_secret_value(),
            **_own_settings(DemoFolder(self.folder.path.absolute()), self.settings.port),
            "GATEWAY_URL": self.url,
            "GATEWAY_TOKEN": self.token_for(PEOPLE[0].subject),
        }
        return self.folder.write_secret(ENVIRONMENT, "\n".join(f"export {name}={shlex.quote(value)}" for name, value in values.items()))


@contextmanager
def _started(folder: DemoFolder, asked_port: int | None, output: Output) -> Iterator[_Running]:
    """Bring up agent and database, and put into the database what the demo needs."""
    taken_over = _taken_over(folder, output.environ)
    given = load_settings(taken_over)
    port = _gateway_port(asked_port, given, output)
    logs = {"gateway": folder.path / GATEWAY_LOG, "agent": folder.path / demo_agent.LOG}
    processes = {"gateway": os.getpid()}
    with ExitStack() as stack:
        configure_logging(stack.enter_context(folder.log(GATEWAY_LOG)))
        # First, because it takes longest: it gets ready while the rest starts.
        output.progress("Starting the agent (agent-service) …")
        agent = stack.enter_context(running_agent(folder, output.environ, output))
        processes["agent"] = agent.process.pid
        if given.database_url is None:
            output.progress(f"Starting PostgreSQL in {folder.path / 'postgres'} …")
            server = stack.enter_context(EmbeddedPostgres(folder.path / "postgres"))
            assert server.server_pid is not None
            processes["postgres"] = server.server_pid
            own_home = server.home == (folder.path / "postgres").resolve()
            logs["postgres"] = (folder.path / "postgres" if own_home else server.home) / "log"
            taken_over["DATABASE_URL"] = direct_url = server.create_database(_DATABASE)
        else:
            output.progress("Using the database of DATABASE_URL.")
            direct_url = (given.database_direct_url or given.database_url).get_secret_value()
        settings = load_settings(taken_over | _own_settings(folder, port), serving=True)
        report = migrate(direct_url)
        output.progress(f"The schema is at version {report.current}.")
        importlib.import_module("gateway.app")  # the heaviest of ours: now, while the agent is still importing as well
        base_url = agent.base_url()
        seeded = asyncio.run(seed(settings, base_url=base_url, token=agent.token_file.read_text(encoding="utf-8").strip()))
        folder.keep_agent_port(port_of(base_url))
        output.progress(f"The agent listens on {base_url}.")
        if seeded.moved:
            output.progress("It has moved: earlier conversations stay readable and take no new message, as behind any service that moved.")
        output.progress("Starting the gateway …")
        yield _Running(folder, settings, seeded, processes, {name: str(path) for name, path in logs.items()}, output)


async def _served(demo: _Running) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    from gateway.app import running_app, serve_app

    async with running_app(demo.settings, demo=demo.sign_in()) as gateway:
        await serve_app(demo.settings, gateway, started=demo.welcome)


async def _asked(demo: _Running) -> dict[str, object]:
    """Serve for as long as one question takes; the record of it."""
    from gateway.app import running_app, serve_app

    person, app_name = PEOPLE[0], APPLICATIONS[0].name
    once = Once(demo.url, demo.token_for(person.subject), person.subject, app_name, demo.output)
    async with running_app(demo.settings, demo=demo.sign_in()) as gateway:
        listening = asyncio.Event()
        serving = asyncio.create_task(serve_app(demo.settings, gateway, started=lambda _: listening.set()))

        async def ask() -> dict[str, object]:
            await listening.wait()
            return await once.ask()

        asking = asyncio.create_task(ask())
        await asyncio.wait({serving, asking}, return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            asking.cancel()
            await serving
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGTERM)  # as for any replica: there is no other way to stop one
        await serving
        return {"url": demo.url, **asking.result(), **demo.facts()}


def _own_settings(folder: DemoFolder, port: int) -> dict[str, str]:
    """What the demo sets, whatever the environment says. Keys by their files."""
    return {
        "API_ENCRYPTION_KEY_FILE": str(folder.key("encryption.key")),
        "GATEWAY_JWT_KEY_FILE": str(folder.key("jwt.key")),
        "GATEWAY_HOST": HOST,
        "GATEWAY_PORT": str(port),
        "GATEWAY_PAGES": "on",
        # Browsers share cookies between ports: two demos must not sign each other out.
        "GATEWAY_SESSION_COOKIE": f"gateway_demo_{port}",
        "GATEWAY_ALLOWED_ORIGINS": f"http://{HOST}:{port},http://localhost:{port}",
        "GATEWAY_TRUSTED_UPSTREAM_HOSTS": f"{HOST},localhost",
        "GATEWAY_DRAIN_DELAY_SECONDS": "0",
        "GATEWAY_MODERATION": "local",
        "GATEWAY_MODERATION_DENY_FILE": str(folder.deny_file()),
    }


def _taken_over(folder: DemoFolder, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment, without keys that would stand beside the demo's own."""
    own = {name.removesuffix("_FILE") for name in _own_settings(folder, 0) if name.endswith("KEY_FILE")}
    return {name: value for name, value in environ.items() if name.removesuffix("_FILE") not in own | _LEFT_OUT}


def _gateway_port(asked: int | None, given: Settings, output: Output) -> int:
    """The port to listen on. Raises CommandFailed when one was asked for that is taken."""
    if asked is not None and not 0 <= asked <= _LAST_PORT:
        raise WrongUsage("That is not a port.", f"Give --port a number from 0 to {_LAST_PORT}.")
    wanted = given.port if asked is None else asked
    if wanted == 0:
        return free_port()
    if is_free(wanted):
        return wanted
    if asked is not None:
        raise CommandFailed(f"Port {wanted} is taken by another program.", "Give another one, or none: --port N", code="port_taken")
    port = free_port()
    output.progress(f"Port {wanted} is taken by another program; the gateway gets {port}.")
    return port


def _command() -> str:
    """How people reach `gateway` here: the script beside this Python where there is one, as short as can be."""
    script = Path(sys.executable).with_name("gateway")
    if not script.exists():
        return shlex.join([sys.executable, "-m", "gateway"])
    return shlex.quote(str(script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script))


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """SIGTERM ends a start in order, as Ctrl-C does. While the gateway serves, its own handlers stand in front."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
