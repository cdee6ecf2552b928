"""The pages and the demo's sign-in over HTTP."""

import hashlib
import re
from collections.abc import AsyncIterator

import pytest

from gateway.domain.evidence import EVIDENCE_DOCS
from gateway.domain.reasons import REASON_MESSAGES, REASON_NOTES
from gateway.domain.resolution import OBSTACLE_DOCS, OUTCOME_DOCS
from gateway.domain.states import EXECUTION_DOCS, PERSISTENCE_DOCS
from gateway.web.pages import FOLDER, PAGE_POLICY
from gateway.web.routes import DEMO_ROUTES, route_table
from tests.http.world import COOKIE, ORIGIN, World, demo, open_world, web_settings
from tests.support.postgres import PostgresForTests

pytestmark = pytest.mark.anyio

VENDORED = FOLDER / "preact-htm.js"


@pytest.fixture(scope="module")
async def demo_world(postgres: PostgresForTests, anyio_backend: str) -> AsyncIterator[World]:
    with postgres.migrated_database() as url:
        async with open_world(url, demo=demo()) as opened:
            yield opened


@pytest.mark.parametrize("path", ["/", "/operator"])
async def test_a_page_has_a_policy_without_exceptions(world: World, path: str) -> None:
    answer = await world.client.get(path)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == PAGE_POLICY
    assert "unsafe" not in PAGE_POLICY
    assert PAGE_POLICY.startswith("default-src 'self'")
    assert 'data-demo="off" data-session="off"' in answer.text
    signed_in = await world.client.get(path, headers={"Cookie": f"{COOKIE}=x"})
    assert 'data-session="on"' in signed_in.text
    assert signed_in.headers["cache-control"] == "no-store"


def test_the_vendored_file_is_the_one_that_is_named() -> None:
    told = (FOLDER / "preact-htm.md").read_text(encoding="utf-8")
    (digest,) = re.findall(r"`([0-9a-f]{64})`", told)
    assert hashlib.sha256(VENDORED.read_bytes()).hexdigest() == digest
    assert re.search(r"`htm` \d+\.\d+\.\d+", told)
    assert "MIT License" in told
    assert "Apache License 2.0" in told


def test_no_file_needs_what_the_policy_forbids_or_another_host() -> None:
    for path in set(FOLDER.iterdir()) - {VENDORED}:
        text = path.read_text(encoding="utf-8")
        assert not re.search(
            r"""\son\w+=(?!\$\{)|style="|[iI]nnerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function""", text
        ), path
        assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text), path
        for script in re.findall(r"<script[^>]*>", text):
            assert "src=" in script, path


async def test_files_are_revalidated(world: World) -> None:
    pages = (await world.client.get("/")).text + (await world.client.get("/operator")).text
    for name in re.findall(r"/static/([\w.-]+)", pages):
        answer = await world.client.get(f"/static/{name}")
        assert answer.status_code == 200, name
        again = await world.client.get(f"/static/{name}", headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    assert (await world.client.get("/static/chat.html")).status_code == 404
    assert (await world.client.get("/static/none.js")).json()["code"] == "not_found"


async def test_the_pages_have_the_sentences_of_the_tables(world: World) -> None:
    answer = await world.client.get("/static/reasons.js")
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert all(sentence in answer.text for sentence in REASON_MESSAGES.values())
    for_operators = (await world.client.get("/static/operator-tables.js")).text
    tables = (EVIDENCE_DOCS, REASON_NOTES, EXECUTION_DOCS, PERSISTENCE_DOCS, OUTCOME_DOCS, OBSTACLE_DOCS)
    assert all(f'"{key.value}": "{sentence}"' in for_operators for table in tables for key, sentence in table.items())


async def test_pages_can_be_switched_off(postgres: PostgresForTests) -> None:
    with postgres.migrated_database() as url:
        async with open_world(url, settings=web_settings(pages=False)) as world:
            for path in ("/", "/operator", "/static/chat.js", "/demo/users", "/demo/session"):
                assert (await world.client.get(path)).status_code == 404
            assert (await world.client.get("/healthz")).status_code == 200


async def test_the_demo_exists_in_the_demo_only(world: World, demo_world: World) -> None:
    assert (await world.client.post("/demo/session", json={"subject": "ada"})).status_code == 404
    assert not set(DEMO_ROUTES) & set(route_table(world.services))
    assert (await demo_world.client.get("/demo/users")).json()["users"][0] == {"subject": "ada", "about": "Uses both applications"}
    assert 'data-demo="on"' in (await demo_world.client.get("/")).text


async def test_a_session_of_the_demo(demo_world: World) -> None:
    opened = await demo_world.client.post("/demo/session", json={"subject": "ada"}, headers={"Origin": ORIGIN})
    cookie = opened.headers["set-cookie"]
    assert opened.json() == {"subject": "ada"}
    assert re.fullmatch(rf"{COOKIE}=[\w.-]+; Path=/; Max-Age=\d+; HttpOnly; SameSite=Strict", cookie)
    token = cookie.split(";")[0]
    assert (await demo_world.client.get("/api/internal/me", headers={"Cookie": token})).json()["subject"] == "ada"
    closed = await demo_world.client.delete("/demo/session", headers={"Origin": ORIGIN})
    assert closed.headers["set-cookie"].startswith(f"{COOKIE}=; Path=/; Max-Age=0; HttpOnly")


@pytest.mark.parametrize(
    ("body", "headers", "expected"),
    [
        ({"subject": "mallory"}, {}, (404, "not_found")),
        ({"subject": 1}, {}, (400, "malformed_request")),
        ({"subject": "ada", "roles": ["operator"]}, {}, (400, "malformed_request")),
        ({"subject": "ada"}, {"Origin": "http://evil.example"}, (403, "origin_not_allowed")),
    ],
)
async def test_no_other_session(demo_world: World, body: object, headers: dict[str, str], expected: tuple[int, str]) -> None:
    answer = await demo_world.client.post("/demo/session", json=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == expected
    assert "set-cookie" not in answer.headers
