"""Who is calling, over HTTP: bearer, cookie, Origin, suspended accounts."""

from uuid import uuid4

import httpx
import pytest

from tests.http.world import COOKIE, ORIGIN, World

pytestmark = pytest.mark.anyio

ME = "/api/internal/me"


async def test_a_bearer_token_identifies(world: World) -> None:
    answer = await world.client.get(ME, headers=world.bearer("ada", groups=["b", "a"]))
    assert answer.status_code == 200
    assert answer.json() == {"subject": "ada", "groups": ["a", "b"], "operator": False}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer a.b.c"},
        {"Authorization": "Basic YTpi"},
        {"Authorization": "Bearer a b"},
        {"Cookie": f"{COOKIE}=a.b.c"},
        {"Cookie": "other=x"},
    ],
)
async def test_no_or_bad_identity_is_401(world: World, headers: dict[str, str]) -> None:
    answer = await world.client.get(ME, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_two_authorization_headers_are_refused(world: World) -> None:
    header = world.bearer("ada")["Authorization"]
    answer = await world.client.get(ME, headers=httpx.Headers([("Authorization", header), ("Authorization", header)]))
    assert answer.status_code == 401


async def test_the_cookie_identifies(world: World) -> None:
    answer = await world.client.get(ME, headers={"Cookie": f"theme=dark; {COOKIE}={world.token('grace')}"})
    assert answer.json()["subject"] == "grace"


async def test_two_different_session_cookies_are_refused(world: World) -> None:
    cookie = f"{COOKIE}={world.token('ada')}; {COOKIE}={world.token('grace')}"
    assert (await world.client.get(ME, headers={"Cookie": cookie})).status_code == 401


async def test_bearer_wins_over_the_cookie(world: World) -> None:
    headers = world.bearer("ada") | {"Cookie": f"{COOKIE}={world.token('grace')}"}
    assert (await world.client.get(ME, headers=headers)).json()["subject"] == "ada"
    # A bad bearer is not rescued by a good cookie, and a bearer needs no Origin.
    bad = headers | {"Authorization": "Bearer a.b.c"}
    assert (await world.client.get(ME, headers=bad)).status_code == 401
    address = f"{world.agent(uuid4())}/conversations/{uuid4()}"
    assert (await world.client.delete(address, headers=headers)).status_code == 404


@pytest.mark.parametrize("origin", [None, "null", "http://evil.example", f"{ORIGIN}.evil.example", f"{ORIGIN}/", f"{ORIGIN}:8080"])
async def test_an_unsafe_method_with_the_cookie_needs_an_allowed_origin(world: World, origin: str | None) -> None:
    address = f"{world.agent(uuid4())}/conversations/{uuid4()}"
    headers = {"Cookie": f"{COOKIE}={world.token('ada')}"} | ({"Origin": origin} if origin else {})
    for method in ("DELETE", "PATCH"):
        answer = await world.client.request(method, address, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (403, "origin_not_allowed")
    answer = await world.client.post(f"{world.agent(uuid4())}/runs", headers=headers)
    assert answer.json()["code"] == "origin_not_allowed"


async def test_an_allowed_origin_passes_and_reading_needs_none(world: World) -> None:
    address = f"{world.agent(uuid4())}/conversations/{uuid4()}"
    headers = {"Cookie": f"{COOKIE}={world.token('ada')}"}
    assert (await world.client.delete(address, headers=headers | {"Origin": ORIGIN})).json()["code"] == "not_found"
    assert (await world.client.get(ME, headers=headers | {"Origin": "http://evil.example"})).status_code == 200


async def test_a_bad_cookie_is_401_whatever_the_origin(world: World) -> None:
    address = f"{world.agent(uuid4())}/conversations/{uuid4()}"
    answer = await world.client.delete(address, headers={"Cookie": f"{COOKIE}=a.b.c", "Origin": "http://evil.example"})
    assert answer.status_code == 401


async def test_a_suspended_account_is_403_everywhere(world: World) -> None:
    application_id = world.application()
    world.account("mallory")
    world.sql("update account set state = 'suspended' where subject = 'mallory'")
    headers = world.bearer("mallory")
    body = b'{"submission_id": "s", "text": "hi"}'
    answers = [
        await world.client.get(ME, headers=headers),
        await world.client.get("/api/internal/apps", headers=headers),
        await world.client.get(f"{world.agent(application_id)}/conversations", headers=headers),
        await world.client.post(
            f"{world.agent(application_id)}/runs", headers=headers | {"Content-Type": "application/json"}, content=body
        ),
    ]
    assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {(403, "account_inactive")}


async def test_an_expired_token_is_401(world: World) -> None:
    token = world.token("ada", lifetime_seconds=-3600)
    assert (await world.client.get(ME, headers={"Authorization": f"Bearer {token}"})).status_code == 401
