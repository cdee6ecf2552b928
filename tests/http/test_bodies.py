"""Request bodies over HTTP: media type, bounds, strict JSON (field case O-27)."""

import json
from uuid import uuid4

import pytest

from gateway.domain.limits import MAX_BROWSER_BODY_BYTES
from tests.http.raw import head, request, wire
from tests.http.world import World

pytestmark = pytest.mark.anyio

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json; charset=latin-1",
        "application/json; charset=utf-8; x=y",
        "application/jsonx",
        "application/problem+json",
        "application/json, text/plain",
    ],
)
async def test_another_media_type_is_415(world: World, content_type: str | None) -> None:
    headers = world.bearer("ada") | ({"Content-Type": content_type} if content_type else {})
    answer = await world.client.post(
        f"{world.agent(world.application())}/runs", headers=headers, content=b'{"submission_id":"s","text":"t"}'
    )
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")


@pytest.mark.parametrize("content_type", ["application/json", "Application/JSON;charset=UTF-8", 'application/json ; charset = "utf-8"'])
async def test_json_in_utf_8_is_taken(world: World, content_type: str) -> None:
    body = json.dumps({"submission_id": str(uuid4()), "text": "hello"}).encode()
    headers = world.bearer(f"u{uuid4()}") | {"Content-Type": content_type}
    answer = await world.client.post(f"{world.agent(world.application())}/runs", headers=headers, content=body)
    assert answer.status_code == 202


async def test_a_compressed_body_is_415(world: World) -> None:
    headers = world.bearer("ada") | JSON | {"Content-Encoding": "gzip"}
    answer = await world.client.post(f"{world.agent(world.application())}/runs", headers=headers, content=b"\x1f\x8b")
    assert answer.json()["code"] == "unsupported_media_type"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"text"',
        b"{",
        b'{"submission_id": "s", "text": "BAD", "text": "ok"}',
        b'{"submission_id": "s", "text": NaN}',
        b'{"submission_id": "s", "text": ["BAD"]}',
        b'{"submission_id": "s", "text": "ok", "content": [{"type": "text", "text": "BAD"}]}',
        b'{"submission_id": "s", "text": "ok", "conversation_id": "x"}',
        b'{"submission_id": "s", "text": "ok", "thread_id": "t"}',
        b'{"submission_id": 1, "text": "ok"}',
        b'{"submission_id": "", "text": "ok"}',
        b'{"text": "ok"}',
        b'{"submission_id": "s", "text": "\xff"}',
        b'{"submission_id": "s", "text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"submission_id": "s", "text": "ok", "n": ' + b"9" * 10_000 + b"}",
    ],
)
async def test_what_is_not_the_documented_object_is_400(world: World, body: bytes) -> None:
    answer = await world.client.post(f"{world.agent(world.application())}/runs", headers=world.bearer("ada") | JSON, content=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_request")
    assert "BAD" not in answer.text


async def test_a_text_that_cannot_be_kept_is_422(world: World) -> None:
    address, headers = f"{world.agent(world.application())}/runs", world.bearer("ada") | JSON
    for text, code in (
        (r'"\u0000"', "invalid_text"),
        (r'"\ud800"', "invalid_text"),
        ('"  "', "invalid_text"),
        (json.dumps("x" * 16_001), "text_too_long"),
    ):
        answer = await world.client.post(address, headers=headers, content=f'{{"submission_id": "s", "text": {text}}}'.encode())
        assert (answer.status_code, answer.json()["code"]) == (422, code)


async def test_a_declared_length_over_the_cap_is_refused_before_a_byte_of_it_is_read(world: World) -> None:
    headers = world.bearer("ada") | JSON | {"Content-Length": str(MAX_BROWSER_BODY_BYTES + 1), "Expect": "100-continue"}
    async with wire(world.base_url) as (reader, writer):
        writer.write(request("POST", f"{world.agent(world.application())}/runs", headers))
        status, _ = await head(reader)
    assert status == 413  # and no 100 before it


async def test_a_chunked_body_is_bounded_while_it_is_read(world: World) -> None:
    headers = world.bearer("ada") | JSON | {"Transfer-Encoding": "chunked"}
    piece = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    async with wire(world.base_url) as (reader, writer):
        writer.write(request("POST", f"{world.agent(world.application())}/runs", headers))
        writer.write(piece * (MAX_BROWSER_BODY_BYTES // 0x10000 + 1))  # no last chunk: it would wait for more
        status, _ = await head(reader)
    assert status == 413


async def test_the_largest_body_passes_the_bound(world: World) -> None:
    body = b'{"submission_id":"s","text":"t"}'
    body += b" " * (MAX_BROWSER_BODY_BYTES - len(body))
    answer = await world.client.post(f"{world.agent(world.application())}/runs", headers=world.bearer(f"u{uuid4()}") | JSON, content=body)
    assert answer.status_code == 202


async def test_who_leaves_in_mid_body_is_no_fault(world: World) -> None:
    async with wire(world.base_url) as (_, writer):
        headers = world.bearer("ada") | JSON | {"Content-Length": "100"}
        writer.write(request("POST", f"{world.agent(world.application())}/runs", headers, b'{"sub'))
        await writer.drain()
    assert (await world.client.get("/healthz")).status_code == 200
