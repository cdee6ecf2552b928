"""One HTTP/1.1 exchange byte by byte, for what a client library would not send or would hide."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

Wire = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def wire(base_url: str) -> AsyncIterator[Wire]:
    parts = urlsplit(base_url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        yield reader, writer
    finally:
        writer.close()


def request(method: str, target: str, headers: dict[str, str], body: bytes = b"") -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: gateway.example", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """Status and headers of the answer."""
    raw = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    first, *lines = raw.decode().strip().split("\r\n")
    return int(first.split()[1]), {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


async def chunk(reader: asyncio.StreamReader) -> bytes:
    """The next chunk of a chunked answer; b"" is the last one."""
    size = int(await asyncio.wait_for(reader.readline(), 10), 16)
    body = await reader.readexactly(size + 2)
    return body[:-2]
