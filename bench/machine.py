"""The machine: what it is, which core does what, processes of ours and what they cost. No measurement here.

Everything that is started here is ended by its own pid; nothing is looked up by name.
"""

import contextlib
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TICK: Final = os.sysconf("SC_CLK_TCK")
_END_SECONDS: Final = 15.0
"""SIGTERM to SIGKILL: longer than the drain that the measured gateway is given."""
_PINNED: Final = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); os.execvp(sys.argv[2], sys.argv[2:])"


@dataclass(frozen=True, slots=True)
class Cores:
    """`subject` runs what is measured and nothing else of ours; `rest` runs upstream, load generator and Postgres. None: not pinned."""

    subject: int | None
    rest: int | None


def choose_cores() -> Cores:
    """The first two cores that we may use; on one core, or where the system cannot pin, nobody is pinned."""
    if not hasattr(os, "sched_setaffinity"):
        return Cores(None, None)
    allowed = sorted(os.sched_getaffinity(0))
    return Cores(allowed[0], allowed[1]) if len(allowed) > 1 else Cores(None, None)


def pin_this_process(core: int | None) -> None:
    """Before threads and children are made: they inherit it."""
    if core is not None:
        os.sched_setaffinity(0, {core})


@dataclass(frozen=True, slots=True)
class Usage:
    """Of a process and its children: user + system CPU seconds so far, resident megabytes now."""

    cpu_seconds: float
    rss_mb: float


def usage(pid: int) -> Usage:
    """Children that have ended and were waited for are not in it."""
    cpu_ticks, rss_kb = 0, 0
    for one in _tree(pid):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{one}/stat").read_text(encoding="ascii", errors="replace").rsplit(")", 1)[1].split()
            cpu_ticks += int(fields[11]) + int(fields[12])
            for line in Path(f"/proc/{one}/status").read_text(encoding="ascii", errors="replace").splitlines():
                if line.startswith("VmRSS"):
                    rss_kb += int(line.split()[1])
    return Usage(cpu_ticks / _TICK, rss_kb / 1024)


def _tree(pid: int) -> set[int]:
    found: set[int] = set()
    todo = [pid]
    while todo:
        one = todo.pop()
        if one in found:
            continue
        found.add(one)
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{one}/task"):
                todo += [int(child) for child in Path(f"/proc/{one}/task/{task}/children").read_text(encoding="ascii").split()]
    return found


@contextlib.contextmanager
def process(
    command: Sequence[str], *, core: int | None, log: Path, environment: Mapping[str, str] | None = None
) -> "Iterator[subprocess.Popen[bytes]]":
    """A child on `core` whose output goes to `log`; ended on leaving."""
    pinned = [sys.executable, "-c", _PINNED, str(core), *command] if core is not None else list(command)
    with log.open("ab") as output:
        child = subprocess.Popen(pinned, stdout=output, stderr=output, env=dict(os.environ if environment is None else environment))
    try:
        yield child
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
            try:
                child.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def wait_for(child: "subprocess.Popen[bytes]", log: Path, sign: str, seconds: float = 60.0) -> str:
    """The first line of `log` with `sign` in it. Raises RuntimeError with the log's end when the child ends or takes too long."""
    deadline = time.monotonic() + seconds
    while True:
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
            if sign in line:
                return line
        if child.poll() is not None or time.monotonic() > deadline:
            tail = log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise RuntimeError(f"{child.args!r} did not come up:\n{tail}")
        time.sleep(0.02)


def find_tool(name: str) -> str | None:
    """A program on PATH, in sbin, or of the newest PostgreSQL that the system packages brought."""
    for folder in (None, "/usr/sbin:/usr/local/sbin"):
        if found := shutil.which(name, path=folder):
            return found
    versioned = [path for path in Path("/usr/lib/postgresql").glob(f"*/bin/{name}") if path.parent.parent.name.isdigit()]
    return str(max(versioned, key=lambda path: int(path.parent.parent.name))) if versioned else None


def version_of(command: Sequence[str]) -> str:
    """What a program says of its version, on one line."""
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return (answer.stdout.strip() or answer.stderr.strip()).splitlines()[0]


def describe() -> dict[str, str]:
    """The machine and the interpreter, for the head of a report."""
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return {
        "cpu": model,
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load": f"{os.getloadavg()[0]:.2f} before the run",
    }
