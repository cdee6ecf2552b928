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
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    if program is None:
        missing("pgbouncer", "the database behind a transaction pooler is not tried here")
        raise AssertionError
    with folder_for_server() as folder:
        parts = conninfo_to_dict(url)
        options: dict[str, int | list[int]] = {}
        sockets = folder / "sockets"
        sockets.mkdir()
        if os.geteuid() == 0:  # it refuses to run as root
            entry = pwd.getpwnam("nobody")
            options = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
            os.chown(sockets, entry.pw_uid, entry.pw_gid)
        configuration = folder / "pgbouncer.ini"
        configuration.write_text(
            f"[databases]\n* = host={parts['host']} user=postgres\n[pgbouncer]\nlisten_addr =\nunix_socket_dir = {sockets}\n"
            f"auth_type = any\npool_mode = transaction\ndefault_pool_size = {pool_size}\nmax_client_conn = {max_clients}\n",
            encoding="utf-8",
        )
        with (folder / "log").open("w") as log:
            command = [program, str(configuration)]
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", **options)  # type: ignore[call-overload]
            try:
                _until_listening(process, sockets, folder / "log")
                yield f"postgresql://postgres@/{parts['dbname']}?host={sockets}&port=6432"
            finally:
                process.terminate()
                process.wait(10)


def _until_listening(process: "subprocess.Popen[bytes]", sockets: Path, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not (sockets / ".s.PGSQL.6432").exists():
        assert process.poll() is None, log.read_text(encoding="utf-8")
        assert time.monotonic() < deadline
        time.sleep(0.005)
