"""The machine of deploy/compose without its containers: the same files, settings, secrets and processes, their addresses filled in.

And what docs/handbook.md says under "Install" and "Roll back", step by step, through the pooler and the proxy of that machine.
"""

import asyncio
import json
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
import yaml
from psycopg.conninfo import conninfo_to_dict

from tests.support.pgbouncer import pgbouncer_of
from tests.support.postgres import folder_for_server
from tests.support.processes import kept_environment, replica_process
from tests.support.proxies import free_port, nginx
from tests.support.scripted_upstream import ScriptedUpstream

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

COMPOSE: Final = Path(__file__).resolve().parents[2] / "deploy" / "compose"
WITHOUT_FILES: Final = {"DATABASE_URL": "", "API_ENCRYPTION_KEY": "", "GATEWAY_JWT_KEY": ""}
"""What tests' replicas have in their environment, and these have in files; empty is unset."""


def replaced(text: str, before: str, after: str) -> str:
    assert before in text, before
    return text.replace(before, after)


@dataclass(frozen=True)
class Machine:
    """Secrets as make-secrets.sh wrote them, and the services of the compose file, whose images' commands are `gateway …`."""

    folder: Path
    services: Mapping[str, Any]

    def environment(self, service: str) -> dict[str, str]:
        told = self.services[service]["environment"]
        filled = {name: re.sub("^/run/secrets", str(self.folder / "compose" / "secrets"), text) for name, text in told.items()}
        return {**filled, "GATEWAY_TRUSTED_UPSTREAM_HOSTS": "127.0.0.1"}  # the agent service of this test is on this machine

    async def gateway(self, service: str, *arguments: str, given: str = "", status: int = 0) -> str:
        """`docker compose exec SERVICE gateway …`, or what the service itself runs; what it printed."""
        command = [sys.executable, "-m", "gateway", *(arguments or self.services[service]["command"])]
        pipe, environment = asyncio.subprocess.PIPE, {**kept_environment(), **self.environment(service)}
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment)
        out, err = await process.communicate(given.encode())
        assert process.returncode == status, out + err
        return out.decode()

    async def checked(self, service: str, *arguments: str) -> list[str]:
        """What `gateway check` looked at. All of it is well but one thing: tests' PostgreSQL writes nothing through to a disk."""
        found = json.loads(await self.gateway(service, "check", *arguments, "--json", status=1))["checks"]
        assert [(one["about"], one["says"]) for one in found if not one["ok"]] == [
            ("durability", "fsync, full_page_writes off: what was confirmed can be lost; set it to on")
        ]
        return [one["about"] for one in found]


@contextmanager
def machine(database_url: str) -> Iterator[Machine]:
    parts = conninfo_to_dict(database_url)
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("do $$ begin create role gateway login; exception when duplicate_object then null; end $$")
        connection.execute(f"alter database {parts['dbname']} owner to gateway".encode())
        connection.execute(f"alter database {parts['dbname']} set synchronous_commit to on".encode())  # as the service's command has it
    with folder_for_server() as folder:
        shutil.copytree(COMPOSE, folder / "compose", ignore=shutil.ignore_patterns("secrets"))
        subprocess.run([folder / "compose" / "make-secrets.sh"], check=True)
        assert subprocess.run([folder / "compose" / "make-secrets.sh"], check=False, capture_output=True).returncode == 1
        secrets, port = folder / "compose" / "secrets", free_port()
        assert secrets.stat().st_mode & 0o077 == 0
        secrets.chmod(0o711)  # containers read the files through mounts; here the pooler's user has to enter
        direct, pooled = (secrets / name for name in ("database_direct_url", "database_url"))
        direct.write_text(replaced(direct.read_text(), "@postgres:5432/gateway", f"@/{parts['dbname']}?host={parts['host']}"))
        pooled.write_text(replaced(pooled.read_text(), "@pgbouncer:6432", f"@127.0.0.1:{port}"))
        pooler = (COMPOSE / "pgbouncer.ini").read_text(encoding="utf-8")
        for before, after in (
            ("host=postgres port=5432 dbname=gateway", f"host={parts['host']} dbname={parts['dbname']}"),
            ("listen_addr = *", "listen_addr = 127.0.0.1"),
            ("listen_port = 6432", f"listen_port = {port}"),
            ("/etc/pgbouncer/userlist.txt", str(secrets / "userlist.txt")),
        ):
            pooler = replaced(pooler, before, after)
        compose = replaced((COMPOSE / "compose.yaml").read_text(), "${GATEWAY_MODERATION:?name the moderators, or none}", "none")
        with pgbouncer_of(pooler, folder, port=port):
            yield Machine(folder, yaml.safe_load(compose)["services"])


@asynccontextmanager
async def serving(it: Machine) -> AsyncIterator[str]:
    """Both replicas behind the proxy."""
    async with AsyncExitStack() as exits:
        ports = [free_port(), free_port()]
        for service, port in zip(("gateway-1", "gateway-2"), ports, strict=True):
            assert "command" not in it.services[service]  # the image's own: serve
            changes = {**WITHOUT_FILES, **it.environment(service), "GATEWAY_PORT": str(port)}
            await exits.enter_async_context(replica_process("", changes=changes))
        yield await exits.enter_async_context(nginx(ports))


async def test_one_machine_from_its_secrets_to_an_answer_as_the_handbook_says(empty_database_url: str, tmp_path: Path) -> None:
    with machine(empty_database_url) as it:
        async with ScriptedUpstream() as upstream:
            await it.gateway("migrate")
            await it.gateway("gateway-1", "migrate", "--check")
            async with serving(it) as url:
                await it.gateway("gateway-1", "providers", "create", "agents", "--base-url", upstream.base_url)
                new = ("apps", "create", "helper", "--provider", "agents", "--assistant", "agent", "--token-file", "-")
                await it.gateway("gateway-1", *new, given=upstream.token)
                expected = ["settings", "database", "schema", "keys", "durability", "app helper at agents"]
                assert await it.checked("gateway-1") == expected
                edge = await it.checked("gateway-2", "--through", url, "--idle-seconds", "2")
                assert edge[:6] == expected
                assert len([about for about in edge if about.startswith("edge")]) == 8
                bearer = await it.gateway("gateway-1", "token", "ada")
                said = await it.gateway("gateway-1", "chat", "helper", "hello", "--url", url, "--token-file", "-", given=bearer)
                assert "You said: hello." in said
            assert upstream.counts().executions == 1


async def test_a_machine_without_its_migration_says_so(empty_database_url: str) -> None:
    with machine(empty_database_url) as it:
        assert "run gateway migrate" in await it.gateway("gateway-1", "check", status=1)
        await it.gateway("gateway-1", "migrate", "--check", status=1)
