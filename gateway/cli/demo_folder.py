"""The demo's folder: who holds it, and the files that are kept in it between runs.

What lives here: the lock, keys, the agent's port, the deny file, logs. What does not: the database (`store.embedded`, in a folder of its
own below this one) and what anything here is used for. Whatever holds a secret has mode 600.
"""

import base64
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from gateway.cli.output import CommandFailed
from gateway.settings import KEY_BYTES

LOG_KEPT_BYTES: Final = 4 * 1024 * 1024
_DENY_TEXT: Final = """\
# Moderation of the demo: messages with one of these are refused, and nothing of them is sent or stored.
# One term or /pattern/ a line; read when the demo starts.
swordfish
"""


@dataclass(frozen=True, slots=True)
class DemoFolder:
    """The folder at `path`, which is made when it is missing."""

    path: Path

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder alone. Raises CommandFailed that names the holder."""
        if sys.platform == "win32":
            raise CommandFailed("The demo needs Linux or macOS.", "Run it in WSL or in a container.")
        import fcntl  # absent on Windows

        self._make()
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise self._in_use() from None
            self._lock.write_text(f"{os.getpid()}\n", encoding="utf-8")
            yield
            self._lock.write_text("", encoding="utf-8")
        finally:
            os.close(descriptor)

    def tell_address(self, url: str) -> None:
        """Note for the next one who comes where the holder's page is."""
        self._lock.write_text(f"{os.getpid()}\n{url}\n", encoding="utf-8")

    def key(self, name: str) -> Path:
        """A file with 32 random bytes in base64, made at the first run."""
        path = self.path / name
        if not path.exists():
            self.write_secret(name, base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode())
        return path

    def token(self, name: str) -> Path:
        """A file with a random bearer token, made at the first run."""
        path = self.path / name
        if not path.exists():
            self.write_secret(name, secrets.token_urlsafe(KEY_BYTES))
        return path

    def write_secret(self, name: str, text: str) -> Path:
        """Write or replace a file of mode 600, at once: a killed process leaves no half of it."""
        path, fresh = self.path / name, self.path / f"{name}.new"
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(f"{text}\n")
        fresh.replace(path)
        return path

    def deny_file(self) -> Path:
        """The deny list of local moderation; left as it is once it is there, so that people can edit it."""
        path = self.path / "deny.txt"
        if not path.exists():
            path.write_text(_DENY_TEXT, encoding="utf-8")
        return path

    def denied_term(self) -> str | None:
        """The first plain term of the deny list, for people to try."""
        lines = [line.strip() for line in self.deny_file().read_text(encoding="utf-8", errors="replace").splitlines()]
        return next((line for line in lines if line and not line.startswith(("#", "/"))), None)

    @property
    def agent_port(self) -> int:
        """The agent's port of the run before, 0 when there was none."""
        try:
            text = (self.path / "agent.port").read_text(encoding="utf-8").strip()
        except OSError:
            return 0
        return int(text) if text.isdecimal() and int(text) < 65536 else 0

    def keep_agent_port(self, port: int) -> None:
        """Keep it: with another port the agent would be another service to the gateway, and old conversations would end."""
        (self.path / "agent.port").write_text(f"{port}\n", encoding="utf-8")

    @contextmanager
    def log(self, name: str) -> Iterator[TextIO]:
        """A log to append to; a large one is put aside first."""
        path = self.path / name
        if path.exists() and path.stat().st_size > LOG_KEPT_BYTES:
            path.replace(self.path / f"{name}.old")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace") as file:
            yield file

    @property
    def _lock(self) -> Path:
        return self.path / "lock"

    def _make(self) -> None:
        try:
            if not self.path.exists():
                # Root's database runs as another user, who must pass through here by name; everybody else keeps the folder closed.
                mode = 0o711 if os.geteuid() == 0 else 0o700
                self.path.mkdir(mode=mode, parents=True)
                self.path.chmod(mode)  # whatever the umask
            if not os.access(self.path, os.W_OK | os.X_OK):
                raise PermissionError(13, "Permission denied")
        except OSError as error:
            raise CommandFailed(
                f"The folder {self.path} cannot be used: {error.strerror}.", "Give one that you may write: --data DIR"
            ) from None

    def _in_use(self) -> CommandFailed:
        holder, _, url = self._lock.read_text(encoding="utf-8", errors="replace").strip().partition("\n")
        where = f"; its page is {url}" if url else ""
        return CommandFailed(
            f"The demo folder {self.path} is in use by process {holder or 'unknown'}{where}.",
            "Use that demo, or stop it, or give this one a folder of its own: --data DIR",
            code="folder_in_use",
        )
