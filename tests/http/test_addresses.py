"""What holds for every address: methods, 404, 406, request ids, security headers, access lines, health."""

import json
from uuid import uuid4

import anyio
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from structlog.testing import capture_logs

from gateway.web.endpoint import Endpoint
from gateway.web.middleware import API_POLICY, RequestContext
from gateway.web.routes import PUBLIC_ROUTES, route_table
from gateway.web.services import Readiness
from tests.http.raw import head, request, wire
from tests.http.world import World, open_world, serving
from tests.support.postgres import PostgresForTests
from tests.support.tcp_proxy import Pass, Reset, TcpProxy

pytestmark = pytest.mark.anyio


async def test_an_unknown_address_is_a_problem(world: World) -> None:
    for path in ("/nothing", "/api/internal/me/", "/api", "/api/internal/apps/", "/static/../chat.html", "/static/%2e%2e%2fchat.html"):
        answer = await world.client.get(path)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


@pytest.mark.parametrize(("method", "path"), [("PUT", "/healthz"), ("POST", "/api/internal/me"), ("DELETE", "/"), ("TRACE", "/readyz")])
async def test_another_method_is_405_with_allow(world: World, method: str, path: str) -> None:
    answer = await world.client.request(method, path)
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, HEAD, OPTIONS"


async def test_options_says_what_there_is_and_allows_no_other_origin(world: World) -> None:
    address = f"{world.agent(uuid4())}/conversations/{uuid4()}"
    answer = await world.client.options(address, headers={"Origin": "http://evil.example", "Access-Control-Request-Method": "DELETE"})
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["allow"] == "DELETE, GET, HEAD, OPTIONS, PATCH"
    assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_head_is_get_without_a_body(world: World) -> None:
    got, headed = await world.client.get("/healthz"), await world.client.head("/healthz")
    assert (headed.status_code, headed.content) == (200, b"")
    assert headed.headers["content-length"] == got.headers["content-length"]
    # A stream has no HEAD: it would be opened for nothing.
    assert (await world.client.head(f"{world.agent(uuid4())}/runs/{uuid4()}/events", headers=world.bearer("ada"))).status_code == 405


async def test_what_json_cannot_satisfy_is_406(world: World) -> None:
    answer = await world.client.get("/api/internal/me", headers=world.bearer("ada") | {"Accept": "text/html"})
    assert (answer.status_code, answer.json()["code"]) == (406, "not_acceptable")
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("path", ["/healthz", "/", "/nothing", "/api/internal/me", "/static/chat.css"])
async def test_every_answer_has_a_request_id_and_security_headers(world: World, path: str) -> None:
    answer = await world.client.get(path)
    assert len(answer.headers["x-request-id"]) == 32
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    if path != "/":
        assert answer.headers["content-security-policy"] == API_POLICY


async def test_a_sane_request_id_is_kept_and_another_is_replaced(world: World) -> None:
    kept = await world.client.get("/nothing", headers={"X-Request-Id": "abc-1.2:3_4"})
    assert kept.headers["x-request-id"] == "abc-1.2:3_4"
    assert kept.json()["instance"] == "urn:request:abc-1.2:3_4"
    for bad in ("", "a b", "<script>", "x" * 101, "é"):
        answer = await world.client.get("/nothing", headers=[(b"X-Request-Id", bad.encode("latin-1"))])
        assert len(answer.headers["x-request-id"]) == 32


async def test_the_access_line_has_the_template_and_nothing_of_the_caller(world: World) -> None:
    app_id, token = uuid4(), world.token("ada")
    headers = {"Authorization": f"Bearer {token}", "X-Request-Id": "line-1"}
    with capture_logs() as lines:
        await world.client.get(f"{world.agent(app_id)}/conversations?cursor=secret", headers=headers)
        await world.client.get("/secret-path")
    access = [line for line in lines if line["event"] == "request"]
    assert [(line["method"], line["route"], line["status"]) for line in access] == [
        ("GET", "/api/internal/apps/{app_id}/agent/conversations", 404),
        ("GET", "unknown", 404),
    ]
    assert all(0 <= line["duration_seconds"] < 10 for line in access)
    text = json.dumps(lines)
    assert not [word for word in ("secret", token, str(app_id), "ada") if word in text]


async def test_health(world: World) -> None:
    assert (await world.client.get("/healthz", headers={"Accept": "text/html"})).json() == {"alive": True}
    assert (await world.client.get("/readyz")).json() == {"ready": True, "checks": {"database": True}, "warnings": []}
    world.health.answer = Readiness(False, {"database": False, "draining": False}, ["key_rings_differ"])
    answer = await world.client.get("/readyz")
    world.health.answer = Readiness(True)
    document = {"ready": False, "checks": {"database": False, "draining": False}, "warnings": ["key_rings_differ"]}
    assert (answer.status_code, answer.json()) == (503, document)


async def test_an_exception_is_500_without_its_text(world: World) -> None:
    async def broken(scope: object, receive: object, send: object) -> None:
        raise ValueError("a secret in a text")

    with capture_logs() as lines:
        async with serving(RequestContext(broken)) as base_url, wire(base_url) as (reader, writer):
            writer.write(request("GET", "/", {"Connection": "close"}))
            status, headers = await head(reader)
            body = json.loads(await reader.read())
    assert (status, body["code"]) == (500, "internal_error")
    assert body["instance"] == f"urn:request:{headers['x-request-id']}"
    assert "secret" not in json.dumps([body, lines])


async def test_a_header_block_that_is_too_large_is_refused(world: World) -> None:
    async with wire(world.base_url) as (reader, writer):
        writer.write(request("GET", "/healthz", {"X-Filler": "x" * 200_000}))
        status, _ = await head(reader)
    assert status == 400


def test_the_table_is_consistent(world: World) -> None:
    table = route_table(world.services)
    assert len({(spec.method, spec.path) for spec in table}) == len(table)
    assert len({spec.name for spec in table}) == len(table)
    assert set(PUBLIC_ROUTES) <= set(table)
    assert Endpoint(world.services, "/", {"GET": PUBLIC_ROUTES[0]}) is not None
    for spec in table:
        assert spec.method in ("POST", "PUT", "PATCH") if spec.takes else spec.method not in ("PUT", "PATCH"), spec.name
        # Every address of the API answers JSON or a stream, and what users call below an application asks whether they see it.
        if spec.path.startswith("/api/"):
            assert spec.answers, spec.name
        if spec.path.startswith("/api/internal"):
            assert ("{app_id}" in spec.path) == (type(spec.caller).__name__ in ("ApplicationUser", "Submitter")), spec.name


async def test_a_database_that_is_away_is_503_and_comes_back(postgres: PostgresForTests) -> None:
    with postgres.migrated_database() as url:
        parts = conninfo_to_dict(url)
        socket_path = f"{parts['host']}/.s.PGSQL.{parts.get('port') or 5432}"
        async with TcpProxy(socket_path) as proxy:
            pool_url = make_conninfo("", **{**parts, "host": "127.0.0.1", "port": proxy.port})
            async with open_world(url, pool_url=pool_url, call_seconds=1.0) as world:
                application_id = world.application()
                addresses = ("/api/internal/me", f"{world.agent(application_id)}/conversations")
                proxy.fault = Reset()
                for address in addresses:
                    answer = await world.client.get(address, headers=world.bearer("ada"))
                    assert (answer.status_code, answer.json()["code"], answer.headers["retry-after"]) == (503, "database_unavailable", "5")
                body = {"submission_id": "s", "text": "hi"}
                answer = await world.client.post(f"{world.agent(application_id)}/runs", headers=world.bearer("ada"), json=body)
                assert (answer.status_code, answer.json()["retry"]) == (503, "same-submission")
                assert (await world.client.get("/healthz")).status_code == 200
                proxy.fault = Pass()
                with anyio.fail_after(20):
                    # The pool may still hand out a connection that it has not found broken.
                    while (await world.client.get(addresses[0], headers=world.bearer("ada"))).status_code != 200:
                        pass
                assert (
                    await world.client.post(f"{world.agent(application_id)}/runs", headers=world.bearer("ada"), json=body)
                ).status_code == 202
