"""Real PostgreSQL for tests: one server of each major and test process, a migrated template, a database for each test.

Servers are ours (gateway.store.embedded), crash safety off, in a folder of their own that is removed at the end. DATABASE_URL is
not read: tests never touch a database that somebody keeps.
"""

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import psycopg
from psycopg import sql

from gateway.store.embedded import Binaries, EmbeddedPostgres, EmbeddedPostgresError, find_binaries
from gateway.store.migrate import migrate
from tests.support.require import missing

DEFAULT_MAJOR: Final = 18
MAJORS: Final = (18, 15)
# A server of tests takes about 100 MB; a container's default /dev/shm of 64 MB is too small.
ROOM_BYTES: Final = 1024**3
TEMPLATE: Final = "template_gateway"


class PostgresForTests:
    """A running server that hands out databases: migrated ones cloned from a template, or empty ones."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self.server = server
        self._numbers = itertools.count(1)
        # Kept open, because a connection for each CREATE and DROP costs more than a clone's bookkeeping.
        self._admin = psycopg.connect(server.url, autocommit=True)
        self._template_ready = False
        self._finished: list[str] = []

    @property
    def version(self) -> str:
        return self.server.version

    @property
    def major(self) -> int:
        return int(self.version.partition(".")[0])

    def close(self) -> None:
        self._admin.close()

    @contextmanager
    def empty_database(self) -> Iterator[str]:
        """The URL of a database without any schema, dropped afterwards."""
        with self._database("template1") as url:
            yield url

    @contextmanager
    def migrated_database(self) -> Iterator[str]:
        """The URL of a database with this build's schema, dropped afterwards."""
        if not self._template_ready:
            migrate(self.server.create_database(TEMPLATE))
            self._template_ready = True
        with self._database(TEMPLATE) as url:
            yield url

    @contextmanager
    def _database(self, template: str) -> Iterator[str]:
        self._drop_finished()
        name = f"test_{next(self._numbers)}"
        # On tmpfs file_copy takes 25 ms and wal_log 60; on this disk they were alike (PostgreSQL 15 and 18).
        create = sql.SQL("create database {} template {} strategy file_copy")
        self._admin.execute(create.format(sql.Identifier(name), sql.Identifier(template)))
        try:
            yield self.server.url_of(name)
        finally:
            self._finished.append(name)

    def _drop_finished(self) -> None:
        """Dropping waits 100 ms when a session is just ending, so it is done before the next database instead of after this one."""
        while self._finished:
            self._admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(self._finished.pop())))


class Servers:
    """The servers of this test process by major, each started when the first test asks for it."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._running: dict[int, PostgresForTests] = {}

    def default(self) -> PostgresForTests:
        """PostgreSQL 18, or whatever major this machine has; skips when there is none."""
        try:
            binaries = find_binaries()
        except EmbeddedPostgresError as error:
            missing("postgresql", error.message)
            raise AssertionError from None
        return self._start(binaries)

    def of(self, major: int) -> PostgresForTests:
        """That major; skips as `postgresql-<major>` when the machine lacks it."""
        try:
            binaries = find_binaries(major)
        except EmbeddedPostgresError as error:
            missing(f"postgresql-{major}", error.message)
            raise AssertionError from None
        return self._start(binaries)

    def stop(self) -> None:
        self._stack.close()

    def _start(self, binaries: Binaries) -> PostgresForTests:
        if binaries.major not in self._running:
            folder = self._stack.enter_context(folder_for_server())
            server = self._stack.enter_context(EmbeddedPostgres(folder / "postgres", durable=False, binaries=binaries.folder))
            self._running[binaries.major] = PostgresForTests(server)
            self._stack.callback(self._running[binaries.major].close)
        return self._running[binaries.major]


@contextmanager
def folder_for_server() -> Iterator[Path]:
    """A short temporary folder that the server's user can enter; pytest's own is closed to `nobody` when root runs the tests.

    In memory where there is room: cloning a database was ten times faster there (25 instead of 250 ms).
    """
    memory = Path("/dev/shm")
    roomy = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= ROOM_BYTES
    folder = Path(tempfile.mkdtemp(prefix="gateway-test-", dir=memory if roomy else None))
    if os.geteuid() == 0:
        folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
