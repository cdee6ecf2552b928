"""The migration runner: forward-only files `NNNN_name.sql`, each in a transaction of its own, exactly once.

One at a time across replicas through a transaction-level advisory lock (a session lock does not hold behind a transaction pooler).
An applied file is known by its SHA-256, and an edited one is refused. A schema newer than this build is left alone, and this build
serves on it: migrations only add. What the tables mean is in the files; nothing here knows them.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, LiteralString

import psycopg

from gateway.store.database import Database
from gateway.store.errors import UNDEFINED_TABLE, DatabaseUnavailable, StatementFailed
from gateway.store.sql_files import sql_folder
from gateway.store.statements import Statement

# Any constant that no other program on this database uses: the bytes "gateway".
LOCK_KEY: Final = int.from_bytes(b"gateway", "big")
# How long to wait for another process that is migrating.
TURN_SECONDS: Final = 120
# How long a migration may wait for a table lock: whoever queues behind it waits as well, so it gives up early and is run again.
LOCK_SECONDS: Final = 5
CONNECT_SECONDS: Final = 10

_FILE_NAME: Final = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")
_TRANSACTION_CONTROL: Final = re.compile(
    r"^\s*(begin|start\s+transaction|commit|rollback)(\s+(work|transaction))?\s*;", re.IGNORECASE | re.MULTILINE
)

_CREATE_TABLE: Final = """
    create table if not exists schema_migration (
        version integer primary key check (version > 0),
        name text not null,
        checksum text not null,
        applied_at timestamptz not null default clock_timestamp()
    )
"""
_READ_APPLIED: Final = "select version, checksum from schema_migration order by version"
_VERSION: Final = Statement(
    name="migrate.version",
    purpose="The newest applied migration; 0 before the first.",
    text="select coalesce(max(version), 0)::integer as version from schema_migration",
)


@dataclass(frozen=True, slots=True)
class Migration:
    """One file. `checksum` is the SHA-256 of its text with LF line ends, in hexadecimal."""

    version: int
    name: str
    text: LiteralString
    checksum: str


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """`applied`: names of what this call applied, in order; `pending`: what is still to apply; `current`, `needed`: schema versions."""

    applied: tuple[str, ...]
    pending: tuple[str, ...]
    current: int
    needed: int

    @property
    def is_ready(self) -> bool:
        """Whether this build can serve on the schema: it is at least as new as needed."""
        return self.current >= self.needed


class MigrationError(Exception):
    """The schema cannot be brought to this build's version; the text says why and what to do, and is safe to show."""


@dataclass(frozen=True, slots=True)
class _Version:
    version: int


def load_migrations(folder: Path | None = None) -> tuple[Migration, ...]:
    """The files of `folder` (default: this build's) in order. Raises MigrationError for a gap, a strange name or a COMMIT in a file."""
    found: list[Migration] = []
    for path in sorted((folder or sql_folder() / "migrations").glob("*.sql")):
        match = _FILE_NAME.fullmatch(path.name)
        if not match or int(match[1]) != len(found) + 1:
            raise MigrationError(f"Migration {path.name} is out of order: expected {len(found) + 1:04d}_name.sql.")
        text = path.read_text(encoding="utf-8").replace("\r\n", "\n")
        control = _TRANSACTION_CONTROL.search(text)
        if control:
            raise MigrationError(f"Migration {path.name} says {control[1].upper()}: the runner owns the transaction.")
        checksum = hashlib.sha256(text.encode()).hexdigest()
        # LiteralString although it was read at run time: the file is shipped with this program.
        found.append(Migration(version=int(match[1]), name=path.stem, text=text, checksum=checksum))
    return tuple(found)


def needed_version() -> int:
    """The schema version that this build needs: its newest migration."""
    return len(load_migrations())


def migrate(url: str, *, folder: Path | None = None) -> MigrationReport:
    """Apply what is missing. Blocking. Safe to run in any number of processes at once: each file is applied by exactly one of them.

    Raises MigrationError (edited, missing or failing file; nothing of that file stays) and DatabaseUnavailable.
    """
    migrations = load_migrations(folder)
    applied: list[str] = []
    with _connect(url) as connection:
        try:
            while (step := _apply_next(connection, migrations)) is not None:
                applied.append(step)
            current = _newest(_read_applied(connection))
        except psycopg.OperationalError as error:
            if error.sqlstate is None:
                raise DatabaseUnavailable("the connection was lost while migrating; run it again") from None
            raise MigrationError(_explain("The migration", error)) from None
        except psycopg.Error as error:
            raise MigrationError(_explain("The migration table", error)) from None
    return _report(migrations, current, applied)


def check(url: str, *, folder: Path | None = None) -> MigrationReport:
    """What `migrate` would do, changing nothing. Raises as `migrate`."""
    migrations = load_migrations(folder)
    with _connect(url) as connection:
        try:
            there = connection.execute("select to_regclass('schema_migration') is not null").fetchone()
            applied = _read_applied(connection) if there and there[0] else {}
        except psycopg.Error as error:
            raise MigrationError(_explain("Reading the schema version", error)) from None
    _verify(migrations, applied)
    return _report(migrations, _newest(applied), ())


async def schema_version(database: Database) -> int:
    """The version of the schema that `database` has; 0 when it was never migrated."""
    try:
        row = await database.one(_VERSION, _Version, {}, reading=True)
    except StatementFailed as error:
        if error.sqlstate == UNDEFINED_TABLE:
            return 0
        raise
    assert row is not None  # an aggregate has exactly one row
    return row.version


def _connect(url: str) -> "psycopg.Connection[tuple[object, ...]]":
    try:
        return psycopg.connect(url, autocommit=True, prepare_threshold=None, connect_timeout=CONNECT_SECONDS)
    except psycopg.Error:
        raise DatabaseUnavailable("no connection to the database") from None


def _apply_next(connection: "psycopg.Connection[tuple[object, ...]]", migrations: Sequence[Migration]) -> str | None:
    """Wait for our turn, look again, apply the first missing file; None when nothing is missing."""
    with connection.transaction():
        connection.execute(f"set local lock_timeout = '{TURN_SECONDS}s'")
        connection.execute("set local statement_timeout = 0")  # a role's own limit is made for requests
        connection.execute("select pg_advisory_xact_lock(%s)", (LOCK_KEY,))
        connection.execute(f"set local lock_timeout = '{LOCK_SECONDS}s'")
        if connection.execute("select to_regclass('schema_migration')").fetchone() == (None,):
            connection.execute(_CREATE_TABLE)
        applied = _read_applied(connection)
        _verify(migrations, applied)
        pending = migrations[_newest(applied) :]
        if not pending:
            return None
        step = pending[0]
        try:
            connection.execute(step.text)
        except psycopg.Error as error:
            if error.sqlstate is None:
                raise
            raise MigrationError(_explain(f"Migration {step.name}", error)) from None
        connection.execute(
            "insert into schema_migration (version, name, checksum) values (%s, %s, %s)", (step.version, step.name, step.checksum)
        )
        return step.name


def _read_applied(connection: "psycopg.Connection[tuple[object, ...]]") -> Mapping[int, str]:
    return {int(str(version)): str(checksum) for version, checksum in connection.execute(_READ_APPLIED)}


def _verify(migrations: Sequence[Migration], applied: Mapping[int, str]) -> None:
    if sorted(applied) != list(range(1, len(applied) + 1)):
        raise MigrationError("The table schema_migration has gaps: it was changed by hand. Restore it before migrating.")
    for migration in migrations:
        checksum = applied.get(migration.version)
        if checksum is not None and checksum != migration.checksum:
            raise MigrationError(
                f"Migration {migration.name} was edited after it was applied here."
                " Restore the file as it was released, and put the change into a new migration."
            )


def _newest(applied: Mapping[int, str]) -> int:
    return max(applied, default=0)


def _report(migrations: Sequence[Migration], current: int, applied: Sequence[str]) -> MigrationReport:
    pending = tuple(migration.name for migration in migrations[current:])
    return MigrationReport(applied=tuple(applied), pending=pending, current=current, needed=len(migrations))


def _explain(what: str, error: psycopg.Error) -> str:
    """PostgreSQL's primary message only: details can hold values of rows."""
    primary = error.diag.message_primary or "no message"
    text = f"{what} failed and left nothing behind: {primary} (SQLSTATE {error.sqlstate})."
    if isinstance(error, psycopg.errors.LockNotAvailable):
        text += " Another transaction holds a table or another process is migrating: run it again."
    return text
