"""The description of the API: it is served, well formed, complete, and what answers are compared with would find a fault."""

import json
from dataclasses import replace

import httpx
import jsonschema_rs
import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR

from gateway.domain.problems import Code
from gateway.web.call import Anybody, RouteSpec, refusals
from gateway.web.openapi import description
from gateway.web.routes import DEMO_ROUTES, PUBLIC_ROUTES, route_table
from tests.http.world import COOKIE, World, demo, open_world, web_settings
from tests.support.described import Described
from tests.support.postgres import PostgresForTests

pytestmark = pytest.mark.anyio

DESCRIBED = description((*PUBLIC_ROUTES, *DEMO_ROUTES))


async def test_anybody_may_read_it(world: World) -> None:
    answer = await world.client.get("/openapi.json")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json() == description(route_table(world.services), session_cookie=COOKIE)


async def test_it_is_of_this_gateway(postgres: PostgresForTests) -> None:
    with postgres.migrated_database() as url:
        async with open_world(url, settings=web_settings(session_cookie=None, pages=False), demo=demo()) as world:
            paths = (await world.client.get("/openapi.json")).json()["paths"]
    assert "/demo/session" in paths
    assert "/" not in paths


def test_each_route_is_in_it_with_a_sentence_and_its_answers() -> None:
    operations = {(method.upper(), path): of for path, item in DESCRIBED["paths"].items() for method, of in item.items()}
    assert set(operations) == {(spec.method, spec.path) for spec in (*PUBLIC_ROUTES, *DEMO_ROUTES)}
    for operation in operations.values():
        assert operation["summary"].endswith("."), operation["operationId"]
        good = [answer for code, answer in operation["responses"].items() if code.startswith("2")]
        assert good, operation["operationId"]
        assert all(answer["content"] for answer in good), operation["operationId"]


def test_it_is_openapi() -> None:
    OPENAPI_31_VALIDATOR.validate(json.loads(json.dumps(DESCRIBED)))


def test_each_schema_is_one_and_all_that_is_named_is_there() -> None:
    components = DESCRIBED["components"]["schemas"]
    for name, schema in components.items():
        jsonschema_rs.meta.validate(schema)
        assert "description" in schema, name
        jsonschema_rs.Draft202012Validator({**schema, "components": {"schemas": components}})
    assert {"App", "Run", "Conversation", "Problem", "SubmissionBody"} <= set(components)


def test_what_a_kind_of_route_refuses_is_described() -> None:
    for spec in PUBLIC_ROUTES:
        codes = {
            code
            for answer in DESCRIBED["paths"][spec.path][spec.method.lower()]["responses"].values()
            for part in answer["content"].get("application/problem+json", {"schema": {"allOf": []}})["schema"]["allOf"][1:]
            for code in part["properties"]["code"]["enum"]
        }
        assert codes == {code.value for code in refusals(spec)}
        assert ("unauthenticated" in codes) == (not isinstance(spec.caller, Anybody))


def _without(spec: RouteSpec, **changes: object) -> Described:
    return Described([replace(spec, **changes)])  # type: ignore[arg-type]


async def test_an_answer_that_is_not_described_is_found(world: World) -> None:
    """The check behind the client of every HTTP test: without one line of a row it finds what is missing."""
    rows = {spec.name: spec for spec in PUBLIC_ROUTES}
    application_id = world.application()
    async with httpx.AsyncClient(base_url=world.base_url) as client:
        me = await client.get("/api/internal/me", headers=world.bearer("ada"))
        nobody = await client.get("/api/internal/me")
        missing = await client.get(f"{world.agent(application_id)}/runs/x", headers=world.bearer("ada"))
        renamed = await client.patch(f"{world.agent(application_id)}/conversations/x", headers=world.bearer("ada"), json={"title": 7})
    for spec, answer in ((rows["me"], me), (rows["me"], nobody), (rows["read_run"], missing), (rows["rename_conversation"], renamed)):
        await Described([spec]).check(answer)
    with pytest.raises(AssertionError, match="None"):
        await _without(rows["me"], returns=rows["list_applications"].returns).check(me)
    with pytest.raises(AssertionError, match="not described"):
        await _without(rows["me"], returns={201: rows["me"].returns[200]}).check(me)
    with pytest.raises(AssertionError, match="unauthenticated"):
        await _without(rows["me"], caller=rows["healthz"].caller).check(nobody)
    with pytest.raises(AssertionError, match="not_found"):
        await _without(rows["me"], path=rows["read_run"].path.replace("{run_id}", "x").replace("{app_id}", str(application_id))).check(
            missing
        )


def test_no_route_refuses_a_code_twice_over() -> None:
    """What follows from a row's kind is not said again in it."""
    for spec in (*PUBLIC_ROUTES, *DEMO_ROUTES):
        assert set(spec.refuses) & (refusals(replace(spec, refuses=())) - {Code.NOT_FOUND, Code.ACCOUNT_INACTIVE}) == set(), spec.name
