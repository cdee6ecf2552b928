"""What the measurements run against: a durable Postgres, one governed application, users with tokens, the real `gateway serve`, upstreams.

Everything is on loopback, in a folder that is removed, and ends with the `with` that began it.
"""

import asyncio
import base64
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.load import post
from bench.machine import Cores, process, wait_for
from bench.upstream import ASSISTANT
from gateway.bindings import applications, providers
from gateway.bindings.applications import Audience, NewApplication
from gateway.bindings.config import langchain_config
from gateway.bindings.vault import KeyRing, Vault
from gateway.domain.ids import ApplicationId
from gateway.domain.quota import CalendarWindow, Scope, Window
from gateway.identity.tokens import sign_token
from gateway.store.database import Database
from gateway.store.embedded import EmbeddedPostgres
from gateway.store.migrate import migrate
from gateway.store.quotas import set_rule

ENCRYPTION_KEY: Final = b"bench-only-key-for-encryption-32"
_JWT_KEY: Final = b"bench-only-key-of-at-least-32-bytes"
MAX_ACTIVE: Final = 300
"""AGENT_MAX_ACTIVE_PER_APP of the measured gateway: above the 200 streams of G5."""
TEXT: Final = "hello there, a message of ordinary length for a chat"
DENY_RULES: Final = ["forbidden phrase", "another one", r"/\bsecret[0-9]{4}\b/"]


@dataclass(frozen=True, slots=True)
class World:
    """A folder for logs, cores, and a started database."""

    folder: Path
    cores: Cores
    postgres: EmbeddedPostgres


@contextlib.contextmanager
def world(cores: Cores) -> Iterator[World]:
    """A durable Postgres (fsync on) on the rest's core: this process must have been pinned there."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with EmbeddedPostgres(folder / "postgres", durable=True) as postgres:
            yield World(folder, cores, postgres)


@contextlib.contextmanager
def upstream(world: World, *, delay_ms: int = 0) -> Iterator[int]:
    """A cheap agent service; gives its port."""
    with _listening(world, f"upstream-{delay_ms}", ["-m", "bench.upstream", "--delay-ms", str(delay_ms)], world.cores.rest) as (_, port):
        yield port


@contextlib.contextmanager
def served(world: World, kind: str, upstream_port: int) -> Iterator[tuple[int, int]]:
    """An application of `bench.serve`; gives pid and port."""
    with _listening(world, kind, ["-m", "bench.serve", kind, str(upstream_port)], world.cores.subject) as found:
        yield found


@contextlib.contextmanager
def _listening(world: World, name: str, arguments: list[str], core: int | None) -> Iterator[tuple[int, int]]:
    log = _new_log(world, name)
    with process([sys.executable, *arguments], core=core, log=log) as child:
        yield child.pid, int(wait_for(child, log, "listening ").rpartition(" ")[2])


def _new_log(world: World, name: str) -> Path:
    descriptor, path = tempfile.mkstemp(prefix=f"{name}-", suffix=".log", dir=world.folder)
    os.close(descriptor)
    return Path(path)


@dataclass(frozen=True, slots=True)
class Governed:
    """A database with applications behind `upstream_port`, under a quota rule for each user."""

    url: str
    application_ids: tuple[ApplicationId, ...]

    def request(self, port: int, user: int, token: str, submission_id: str) -> bytes:
        """A first message of a new conversation, asked for as a stream; users are spread over the applications."""
        body = json.dumps({"submission_id": submission_id, "text": TEXT}).encode()
        path = f"/api/internal/apps/{self.application_ids[user % len(self.application_ids)]}/agent/runs"
        return post(path, body, port=port, headers=(f"Authorization: Bearer {token}",))


def governed(world: World, name: str, upstream_port: int, *, applications: int) -> Governed:
    """Blocking: call it outside any event loop."""
    url = world.postgres.create_database(name)
    migrate(url)
    return Governed(url, asyncio.run(_configure(url, upstream_port, applications)))


async def _configure(url: str, upstream_port: int, applications: int) -> tuple[ApplicationId, ...]:
    async with await Database.open(url, pool_max=2) as database:
        day = Window(CalendarWindow.DAY, None)
        await set_rule(database, scope=Scope.USER, window=day, task_limit=1_000_000, application_id=None, group_name=None)
        base_url = f"http://127.0.0.1:{upstream_port}"
        return tuple([await new_application(database, f"bench-{number}", base_url) for number in range(applications)])


async def new_application(database: Database, name: str, base_url: str) -> ApplicationId:
    """A public application of a provider of its own."""
    await providers.create(database, name=name, base_url=base_url, trusted_hosts={"127.0.0.1"})
    new = NewApplication(name=name, provider=name, config=langchain_config(ASSISTANT), audience=Audience(), token="bench-token")
    return await applications.create(database, Vault(KeyRing([ENCRYPTION_KEY])), new)


def tokens(count: int) -> list[str]:
    """Bearer tokens of `count` users in two groups each."""
    return [subject_token(f"user-{number}") for number in range(count)]


def subject_token(subject: str) -> str:
    """A bearer token of one user in two groups."""
    return sign_token(_JWT_KEY, subject=subject, groups=("staff", "reading"))


@contextlib.contextmanager
def gateway(world: World, governed: Governed) -> Iterator[tuple[int, int]]:
    """The real `gateway serve`, one process; gives pid and port."""
    deny_file = world.folder / "deny.txt"
    deny_file.write_text("\n".join(DENY_RULES), encoding="utf-8")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("GATEWAY_", "AGENT_", "API_", "DATABASE_"))},
        "DATABASE_URL": governed.url,
        "API_ENCRYPTION_KEY": base64.b64encode(ENCRYPTION_KEY).decode(),
        "GATEWAY_JWT_KEY": _JWT_KEY.decode(),
        "GATEWAY_MODERATION": "local",
        "GATEWAY_MODERATION_DENY_FILE": str(deny_file),
        "GATEWAY_HOST": "127.0.0.1",
        "GATEWAY_PORT": "0",
        "GATEWAY_TRUSTED_UPSTREAM_HOSTS": "127.0.0.1",
        "GATEWAY_DRAIN_DELAY_SECONDS": "0",
        "GATEWAY_DRAIN_SECONDS": "5",
        "GATEWAY_PAGES": "off",
        "AGENT_MAX_ACTIVE_PER_APP": str(MAX_ACTIVE),
    }
    log = _new_log(world, "gateway")
    with process([sys.executable, "-m", "gateway", "serve"], core=world.cores.subject, log=log, environment=environment) as child:
        yield child.pid, int(json.loads(wait_for(child, log, '"listening"'))["port"])
