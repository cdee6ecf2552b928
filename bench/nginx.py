"""The peer of G5: nginx as a bare proxy, tuned for its best: no buffering, kept connections to upstream, no log, one worker."""

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from typing import Final

from bench.machine import find_tool, process, version_of
from bench.world import World

_CONFIG: Final = """
daemon off;
{user}
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/nginx-error.log warn;
events {{ worker_connections 2048; }}
http {{
    access_log off;
    client_body_temp_path {folder}/nginx-body;
    proxy_temp_path {folder}/nginx-proxy;
    fastcgi_temp_path {folder}/nginx-fastcgi;
    uwsgi_temp_path {folder}/nginx-uwsgi;
    scgi_temp_path {folder}/nginx-scgi;
    keepalive_requests 1000000;
    upstream agent {{ server 127.0.0.1:{upstream_port}; keepalive 512; }}
    server {{
        listen 127.0.0.1:{port} backlog=2048;
        location / {{
            proxy_pass http://agent;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_read_timeout 60s;
        }}
    }}
}}
"""


def version() -> str | None:
    """None: there is no nginx here."""
    found = find_tool("nginx")
    return version_of([found, "-v"]) if found else None


@contextlib.contextmanager
def nginx(world: World, upstream_port: int) -> Iterator[tuple[int, int]]:
    """Gives pid and port."""
    found = find_tool("nginx")
    assert found is not None
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    config = world.folder / "nginx.conf"
    user = "user root;" if os.geteuid() == 0 else ""
    config.write_text(_CONFIG.format(folder=world.folder, port=port, upstream_port=upstream_port, user=user), encoding="utf-8")
    log = world.folder / "nginx.log"
    with process([found, "-c", str(config), "-e", str(log)], core=world.cores.subject, log=log) as child:
        _wait_until_listening(port)
        yield child.pid, port


def _wait_until_listening(port: int, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return
