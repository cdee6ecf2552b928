"""What operators' commands need: settings, an open database, the vault, files with secrets. Only here are they put together."""

import getpass
import logging
import os
import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import structlog

from gateway.bindings.vault import KeyRing, Vault
from gateway.cli.output import CommandFailed, Output, WrongUsage
from gateway.domain import strict_json
from gateway.domain.audit import Actor, cli_actor
from gateway.identity.tokens import is_name
from gateway.settings import Settings, load_settings
from gateway.store.database import Database
from gateway.upstream.endpoint import MAX_TOKEN_CHARACTERS

_MAX_FILE_BYTES: Final = 64 * 1024
_MAX_TOKEN_FILE_BYTES: Final = 4 * MAX_TOKEN_CHARACTERS


def settings_of(output: Output) -> Settings:
    """The settings, without what only a server needs. Raises SettingsInvalid."""
    return load_settings(output.environ)


def database_url_of(settings: Settings) -> str:
    """DATABASE_URL. Raises CommandFailed when it is not set."""
    if settings.database_url is None:
        raise CommandFailed("DATABASE_URL is not set.", "Set it to a PostgreSQL server; `gateway demo` brings one of its own.")
    return settings.database_url.get_secret_value()


def vault_of(settings: Settings) -> Vault:
    """The vault with the keys of the settings. Raises CommandFailed when there are none."""
    if not settings.encryption_keys:
        raise CommandFailed("API_ENCRYPTION_KEY is not set.", "Set it; `openssl rand -base64 32` makes one.")
    return Vault(KeyRing(settings.encryption_keys))


def actor_of(args: Namespace) -> Actor:
    """Who acts, for the audit trail: --as, or what the system calls whoever started the command. Raises WrongUsage."""
    if args.acting_as is not None:
        if not is_name(args.acting_as):
            raise WrongUsage("That is no subject.", "Give --as a name of 1 to 200 characters without control characters.")
        return cli_actor(args.acting_as)
    try:
        return cli_actor(getpass.getuser())
    except (OSError, KeyError):  # a container's user often has a number only
        return cli_actor(f"uid-{os.getuid()}")


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Without the log lines of use cases that servers share: standard output is the command's answer."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)


@asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator[Database]:
    """A small pool for one command. The driver's own warnings are left out: the command says what is wrong."""
    with _quiet("psycopg"):
        async with await Database.open(database_url_of(settings), pool_min=1, pool_max=2) as database:
            yield database


def read_token(path: str) -> str:
    """The raw content of a file with a token, "-" for standard input. Raises CommandFailed, without the content."""
    return _read(path, _MAX_TOKEN_FILE_BYTES)


def read_document(path: str) -> strict_json.Json:
    """A JSON document from a file, "-" for standard input. Raises CommandFailed."""
    try:
        return strict_json.loads(_read(path, _MAX_FILE_BYTES))
    except strict_json.NotStrictJson as fault:
        raise CommandFailed(f"The configuration is not strict JSON ({fault.fault}).", "Correct the file and try again.") from None


def _read(path: str, max_bytes: int) -> str:
    try:
        if path == "-":
            raw = sys.stdin.buffer.read(max_bytes + 1)
        else:
            with Path(path).open("rb") as file:
                raw = file.read(max_bytes + 1)
    except OSError as error:
        # Not the path: a token may have been given where its file was asked for.
        raise WrongUsage(
            f"The file cannot be read ({error.strerror}).", "Give the path of a readable file, or - for standard input."
        ) from None
    if len(raw) > max_bytes:
        raise CommandFailed(f"The file is larger than {max_bytes} bytes.", "Check that it is the right file.")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise CommandFailed("The file is not UTF-8 text.", "Check that it is the right file.") from None


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    before = logger.propagate
    silent = logging.NullHandler()
    logger.addHandler(silent)
    logger.propagate = False
    try:
        yield
    finally:
        logger.propagate = before
        logger.removeHandler(silent)
