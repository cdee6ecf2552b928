"""Real proxies in front of replicas: nginx and HAProxy with the project's own configuration files, their names and ports filled in.

A test may change the text first, to make an edge that is configured wrongly.
"""

import asyncio
import os
import re
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from tests.support.postgres import folder_for_server
from tests.support.require import missing

DEPLOY: Final = Path(__file__).resolve().parents[2] / "deploy" / "proxies"
START_SECONDS: Final = 30.0
Change = Callable[[str], str]


def program(name: str) -> str:
    """The path of a program; skips by name where it is missing."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    if found is None:
        missing(name, "the way through it is not tried here")
        raise AssertionError
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


def unchanged(text: str) -> str:
    return text


@asynccontextmanager
async def nginx(replica_ports: Sequence[int], change: Change = unchanged) -> AsyncIterator[str]:
    """The base URL of nginx in front of the replicas."""
    found = program("nginx")
    port = free_port()
    text = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    servers = "".join(f"server 127.0.0.1:{replica} max_fails=1 fail_timeout=1s; " for replica in replica_ports)
    text = re.sub(r"(\s+server gateway-\d:8080[^;]*;)+", f"\n        {servers}", text)
    text = text.replace("listen 8080;", f"listen 127.0.0.1:{port};")
    with folder_for_server() as folder:
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        paths = "".join(f"{kind}_temp_path {folder}/{kind}; " for kind in kinds)
        user = "user root; " if os.geteuid() == 0 else ""
        text = text.replace("worker_processes auto;", f"daemon off; {user}worker_processes 1; pid {folder}/pid;")
        text = text.replace("http {", f"http {{ {paths}", 1)
        (folder / "nginx.conf").write_text(change(text), encoding="utf-8")
        async with _running([found, "-e", str(folder / "log"), "-c", str(folder / "nginx.conf")], port, folder):
            yield f"http://127.0.0.1:{port}"


@asynccontextmanager
async def haproxy(replica_ports: Sequence[int], change: Change = unchanged) -> AsyncIterator[str]:
    """The base URL of HAProxy in front of the replicas."""
    found = program("haproxy")
    port = free_port()
    text = (DEPLOY / "haproxy.cfg").read_text(encoding="utf-8")
    servers = "".join(f"    server replica-{number} 127.0.0.1:{replica}\n" for number, replica in enumerate(replica_ports))
    text = re.sub(r"(    server gateway-\d gateway-\d:8080\n)+", servers, text).replace("bind :8080", f"bind 127.0.0.1:{port}")
    text = text.replace("maxconn 20000", "maxconn 2000")
    with folder_for_server() as folder:
        (folder / "haproxy.cfg").write_text(change(text), encoding="utf-8")
        async with _running([found, "-db", "-f", str(folder / "haproxy.cfg")], port, folder):
            yield f"http://127.0.0.1:{port}"


@asynccontextmanager
async def _running(command: Sequence[str], port: int, folder: Path) -> AsyncIterator[None]:
    log = folder / "output"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        async with asyncio.timeout(START_SECONDS):
            while not await _listens(port):
                assert process.returncode is None, log.read_text(encoding="utf-8")
                await asyncio.sleep(0.02)
        yield
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
