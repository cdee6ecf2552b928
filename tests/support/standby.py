"""Two PostgreSQL servers with streaming replication: a primary that can be lost and a standby that can be promoted."""

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg

from gateway.store.embedded import EmbeddedPostgres, EmbeddedPostgresError, find_binaries
from tests.support.postgres import folder_for_server
from tests.support.require import missing

MAJOR: Final = 15
"""Debian's, which brings pg_basebackup."""
START_SECONDS: Final = 60.0


class Pair:
    """A durable primary and its standby. `url` leads to whichever of them takes writes."""

    def __init__(self, primary: EmbeddedPostgres, folder: Path, binaries: Path) -> None:
        self._primary = primary
        self._folder = folder
        self._binaries = binaries
        self._standby: subprocess.Popen[bytes] | None = None
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            entry = pwd.getpwnam("nobody")
            self._as = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
            os.chown(folder, entry.pw_uid, entry.pw_gid)

    @property
    def primary_url(self) -> str:
        return self._primary.url

    @property
    def url(self) -> str:
        """Of the server that takes writes, before and after a failover."""
        hosts = f"{psycopg.conninfo.conninfo_to_dict(self._primary.url)['host']},{self._folder}"
        database = psycopg.conninfo.conninfo_to_dict(self._primary.url)["dbname"]
        return f"postgresql://postgres@/{database}?host={hosts}&target_session_attrs=read-write"

    @property
    def standby_url(self) -> str:
        database = psycopg.conninfo.conninfo_to_dict(self._primary.url)["dbname"]
        return f"postgresql://postgres@/{database}?host={self._folder}"

    def start_standby(self) -> None:
        """Copy the primary and follow it."""
        host = str(psycopg.conninfo.conninfo_to_dict(self._primary.url)["host"])
        copy = [str(self._binaries / "pg_basebackup"), "-h", host, "-U", "postgres", "-D", str(self._folder / "data")]
        subprocess.run([*copy, "-R", "-X", "stream", "--checkpoint=fast"], check=True, capture_output=True, cwd="/", **self._as)
        command = [str(self._binaries / "postgres"), "-D", str(self._folder / "data"), "-c", f"unix_socket_directories={self._folder}"]
        # as on the primary: a standby refuses less
        command += ["-c", "listen_addresses=", "-c", "max_connections=120"]
        with (self._folder / "log").open("wb") as log:
            self._standby = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", **self._as)
        self.until("select count(*) = 1 from pg_stat_replication where state = 'streaming'")

    def make_synchronous(self) -> None:
        """Commits wait for the standby from now on."""
        with psycopg.connect(self.primary_url, autocommit=True) as connection:
            connection.execute("alter system set synchronous_standby_names = '*'")
            connection.execute("select pg_reload_conf()")
        self.until("select count(*) = 1 from pg_stat_replication where sync_state in ('sync', 'quorum')")

    def restart_primary(self, *, crash: bool) -> None:
        """Fast: clients are thrown out and a checkpoint is written. Crash: nothing is written, and recovery replays the log."""
        if crash:
            self.lose_primary()
        self._primary.stop()
        self._primary.start()

    def lose_primary(self) -> None:
        """Every process of the primary goes at once: as with a machine that is gone."""
        pid = self._primary.server_pid
        assert pid is not None
        os.kill(pid, signal.SIGQUIT)  # immediate: no checkpoint, nothing is flushed, clients are thrown out

    def promote(self) -> None:
        """The standby takes writes, and waits for nobody."""
        with psycopg.connect(self.standby_url, autocommit=True) as connection:
            connection.execute("select pg_promote(true, 60)")
            connection.execute("alter system reset synchronous_standby_names")
            connection.execute("select pg_reload_conf()")

    def stop_following(self) -> None:
        """The standby stays at this moment, as a backup would, whatever the primary goes on to do."""
        self.until("select replay_lsn >= pg_current_wal_lsn() from pg_stat_replication")
        with psycopg.connect(self.standby_url, autocommit=True) as connection:
            connection.execute("alter system set primary_conninfo = ''")
            connection.execute("select pg_reload_conf()")
        self.until("select count(*) = 0 from pg_stat_replication")

    def until(self, question: str) -> None:
        """Wait until the primary says yes: replication has no other signal."""
        deadline = time.monotonic() + START_SECONDS
        with psycopg.connect(self.primary_url, autocommit=True) as connection:
            while connection.execute(question.encode()).fetchone() != (True,):
                assert time.monotonic() < deadline, (self._folder / "log").read_text(encoding="utf-8")
                time.sleep(0.02)

    def close(self) -> None:
        if self._standby is not None:
            self._standby.send_signal(signal.SIGQUIT)
            self._standby.wait(30)


@contextmanager
def pair() -> Iterator[Pair]:
    """A primary alone; `start_standby` makes it two."""
    try:
        binaries = find_binaries(MAJOR).folder
    except EmbeddedPostgresError as error:
        missing(f"postgresql-{MAJOR}", error.message)
        raise AssertionError from None
    if shutil.which("pg_basebackup", path=str(binaries)) is None:
        missing("pg_basebackup", "a standby cannot be made")
    with folder_for_server() as folder, folder_for_server() as standby_folder:
        server = EmbeddedPostgres(folder / "postgres", binaries=binaries)
        server.start()
        made = Pair(server, standby_folder, binaries)
        try:
            yield made
        finally:
            made.close()
            server.stop()
