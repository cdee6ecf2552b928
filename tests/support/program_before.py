"""The program of before the newest migration: the wheel of its commit, with the packages of its own pins, in an environment of its own."""

import io
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

from tests.support.require import missing

ROOT: Final = Path(__file__).resolve().parents[2]
NAME: Final = "program-before"


def program_before(folder: Path) -> Path:
    """The interpreter of that environment, made in the empty `folder`. Skips by name where history, uv or a package is not to be had."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}")
    if uv is None:
        missing(NAME, "uv is not here")
        raise AssertionError
    packed = _run(["git", "-C", str(ROOT), "archive", _commit_before()])
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder / "source", filter="data")
    python = folder / "environment" / "bin" / "python"
    _run([uv, "build", "--quiet", "--wheel", "--out-dir", str(folder / "wheel"), str(folder / "source")])
    _run([uv, "venv", "--quiet", "--python", sys.executable, str(folder / "environment")])
    wheel = next((folder / "wheel").glob("*.whl"))
    constraints = folder / "source" / "constraints.txt"
    _run([uv, "pip", "install", "--quiet", "--python", str(python), "--constraint", str(constraints), str(wheel)])
    return python


def _commit_before() -> str:
    """The parent of the commit that added the newest migration; this commit when that migration is in none yet."""
    newest = max((ROOT / "sql" / "migrations").glob("*.sql"))
    git = ["git", "-C", str(ROOT)]
    added = _run([*git, "log", "--diff-filter=A", "--no-renames", "-1", "--format=%H", "--", str(newest)]).decode().strip()
    return _run([*git, "rev-parse", "--verify", f"{added}^" if added else "HEAD"]).decode().strip()


def _run(command: list[str]) -> bytes:
    try:
        done = subprocess.run(command, capture_output=True, check=False, env={**os.environ, "UV_PYTHON_DOWNLOADS": "never"})
    except OSError as error:
        missing(NAME, f"{command[0]}: {error.strerror}")
        raise AssertionError from None
    if done.returncode != 0:
        missing(NAME, f"{' '.join(command[:4])}: {done.stderr.decode(errors='replace')[-500:]}")
    return done.stdout
