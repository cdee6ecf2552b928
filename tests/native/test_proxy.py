"""The page on native servers shows what is tested, and its second way, nginx before the server, works as it says."""

import asyncio
import re
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from tests.support.native_client import NativeClient
from tests.support.native_servers import FILES, ROOT, NativeServer
from tests.support.require import missing

CONFIGURATION = FILES / "capabilities.nginx.conf"
_AROUND = "daemon off; pid {folder}/pid; error_log stderr; events {{ worker_connections 64; }} http {{ access_log off; {paths} {server} }}"


def test_the_page_shows_the_files_that_are_tested() -> None:
    page = (ROOT / "docs" / "native-servers.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```\w+\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    files = [file.read_text(encoding="utf-8") for file in (FILES / "gateway_access.py", FILES / "langgraph.json", CONFIGURATION)]
    assert [block[:40] for block in shown if not block.startswith("answer = interrupt") and not any(block in file for file in files)] == []
    assert len(shown) == len(files) + 1


@asynccontextmanager
async def nginx_before(server: NativeServer, folder: Path) -> AsyncIterator[str]:
    """The page's configuration with this server's address and token, running; yields its own address."""
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/bin")
    if program is None:
        missing("nginx", "the package nginx")
    assert program is not None
    with socket.create_server(("127.0.0.1", 0)) as kept:
        port = kept.getsockname()[1]
    text = CONFIGURATION.read_text(encoding="utf-8")
    for shown, real in (
        ("127.0.0.1:2025", f"127.0.0.1:{port}"),
        ("http://127.0.0.1:2024", server.base_url),
        ("THE-SERVICE-TOKEN", server.token),
    ):
        assert shown in text
        text = text.replace(shown, real)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    (folder / "nginx.conf").write_text(_AROUND.format(folder=folder, paths=paths, server=text), encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        *(program, "-c", str(folder / "nginx.conf"), "-p", str(folder)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(30):
            while not await _listens(port):
                assert process.returncode is None
                await asyncio.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        await process.wait()


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


@pytest.mark.anyio
@pytest.mark.parametrize("native_server", ["langgraph-api"], indirect=True)
async def test_nginx_answers_capabilities_and_streams_everything_else(native_server: NativeServer, tmp_path: Path) -> None:
    server = native_server
    headers = {"Authorization": f"Bearer {server.token}"}
    async with (
        nginx_before(server, tmp_path) as base_url,
        httpx.AsyncClient(base_url=base_url, headers=headers, trust_env=False, timeout=60) as http,
    ):
        client = NativeClient(http)
        assert (await http.get("/capabilities")).json()["actions"] == ["approve", "reject"]
        for header in ("", f"Bearer {server.token.swapcase()}", f"Bearer {server.token}x"):
            assert (await http.get("/capabilities", headers={"Authorization": header})).status_code == 401
            assert (await http.post("/threads", json={}, headers={"Authorization": header})).status_code == 401
        thread_id = await client.thread()
        said = {"messages": [{"role": "user", "content": "wait behind-nginx"}]}
        async with http.stream("POST", f"/threads/{thread_id}/runs/stream", json=client.body(input=said)) as answer:
            pieces = answer.aiter_bytes()
            assert b"event: metadata" in await anext(pieces), "not held back: the agent still waits"
            server.open("behind-nginx")
            assert b"opened" in b"".join([piece async for piece in pieces])
