"""PgBouncer in transaction mode in front of a test's database (building-blocks.md 3.3): few server connections for many clients."""

import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from tests.support.postgres import folder_for_server
from tests.support.require import missing

START_SECONDS = 30.0


@contextmanager
def pgbouncer(url: str, *, pool_size: int = 3, max_clients: int = 50) -> Iterator[str]:
    """The URL of `url`'s database through a pooler with `pool_size` server connections."""
    with folder_for_server() as folder:
        parts = conninfo_to_dict(url)
        configuration = (
            f"[databases]\n* = host={parts['host']} user=postgres\n[pgbouncer]\nlisten_addr =\n"
            f"auth_type = any\npool_mode = transaction\ndefault_pool_size = {pool_size}\nmax_client_conn = {max_clients}\n"
        )
        with pgbouncer_of(configuration, folder) as sockets:
            yield f"postgresql://postgres@/{parts['dbname']}?host={sockets}&port=6432"


@contextmanager
def pgbouncer_of(configuration: str, folder: Path, *, port: int = 6432) -> Iterator[Path]:
    """PgBouncer with a configuration, which ends in its own section; the folder of its socket. `folder` is one of `folder_for_server`."""
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    if program is None:
        missing("pgbouncer", "the database behind a transaction pooler is not tried here")
        raise AssertionError
    options: dict[str, int | list[int]] = {}
    sockets = folder / "sockets"
    sockets.mkdir()
    if os.geteuid() == 0:  # it refuses to run as root
        entry = pwd.getpwnam("nobody")
        options = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        os.chown(sockets, entry.pw_uid, entry.pw_gid)
    (folder / "pgbouncer.ini").write_text(f"{configuration}\nunix_socket_dir = {sockets}\n", encoding="utf-8")
    with (folder / "log").open("w") as log:
        command = [program, str(folder / "pgbouncer.ini")]
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", **options)  # type: ignore[call-overload]
        try:
            _until_listening(process, sockets / f".s.PGSQL.{port}", folder / "log")
            yield sockets
        finally:
            process.terminate()
            process.wait(10)


def _until_listening(process: "subprocess.Popen[bytes]", door: Path, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not door.exists():
        assert process.poll() is None, log.read_text(encoding="utf-8")
        assert time.monotonic() < deadline
        time.sleep(0.005)
