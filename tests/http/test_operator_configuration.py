"""Providers, applications and accounts under /api/operator: the rules of the commands, all or nothing, audited, no secret shown."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID, uuid4

import httpx
import pytest

from tests.http.world import VAULT, World
from tests.support.scripted_upstream import ScriptedUpstream

pytestmark = pytest.mark.anyio

OPERATOR: Final = "/api/operator"
CONFIG: Final = {"backend_type": "langchain", "langchain": {"assistant_id": "agent"}}


@dataclass(frozen=True)
class Desk:
    """An operator's desk."""

    world: World
    headers: dict[str, str]

    async def ask(self, method: str, path: str, body: object = None, *, status: int | None = 200) -> Any:
        """The JSON of an answer, which must have that status; None: any."""
        # Escaped, so that any text can be sent.
        headers, content = self.headers | {"Content-Type": "application/json"}, json.dumps(body)
        answer = await self.world.client.request(method, f"{OPERATOR}{path}", headers=headers, content=content)
        assert status in (None, answer.status_code), answer.text
        return answer.json()

    async def refused(self, method: str, path: str, body: object, code: str, **extra: object) -> Any:
        document = await self.ask(method, path, body, status=None)
        assert document.get("code") == code, document
        assert {name: document.get(name) for name in extra} == extra, document
        return document

    async def provider(self, base_url: str = "https://agents.example") -> Any:
        return await self.ask("POST", "/providers", {"name": f"provider {uuid4()}", "base_url": base_url}, status=201)

    async def app(self, provider: Any, **more: object) -> Any:
        body = {"name": f"app {uuid4()}", "provider_id": provider["provider_id"], "config": CONFIG, **more}
        return await self.ask("POST", "/apps", body, status=201)

    def entries(self, target: str) -> list[tuple[str, str, dict[str, Any]]]:
        """(actor, act, detail) of what was done to something, oldest first."""
        return [tuple(row) for row in self.world.sql("select actor, act, detail from audit where target_id = %s order by audit_id", target)]

    async def listed(self, name: str, **query: str) -> list[Any]:
        """All pages of a list."""
        rows, cursor = list[Any](), None
        while True:
            params = {"limit": "2", **query, **({"cursor": cursor} if cursor else {})}
            answer = await self.world.client.get(f"{OPERATOR}/{name}", headers=self.headers, params=params)
            assert answer.status_code == 200, answer.text
            page = answer.json()
            assert len(page[name]) == 2 or page["next"] is None
            rows += page[name]
            cursor = page["next"]
            if cursor is None:
                return rows


@pytest.fixture
async def desk(world: World) -> AsyncIterator[Desk]:
    world.sql("insert into account (account_id, subject, roles) values (%s, 'olga', '{operator}') on conflict do nothing", uuid4())
    yield Desk(world, world.bearer("olga"))
    assert "CANARY" not in str(world.sql("select row_to_json(a)::text from audit a"))


# --- providers ----------------------------------------------------------------------------------------------------------------------------


async def test_a_provider_is_made_listed_and_changed(desk: Desk) -> None:
    made = await desk.provider("https://Agents.example:443/one/")
    assert (made["base_url"], made["enabled"]) == ("https://agents.example/one", True)
    path = f"/providers/{made['provider_id']}"
    changed = await desk.ask("PATCH", path, {"name": f"{made['name']} new", "base_url": "https://agents.example/two", "enabled": False})
    assert (changed["name"], changed["base_url"], changed["enabled"]) == (f"{made['name']} new", "https://agents.example/two", False)
    assert changed["updated_at"] > made["updated_at"]
    # Nothing that is not asked for changes, and nothing at all is no change.
    assert await desk.ask("PATCH", path, {}) == await desk.ask("PATCH", path, {"name": None, "enabled": False}) == changed
    rows = {row["provider_id"]: row for row in await desk.listed("providers")}
    assert rows[made["provider_id"]] == changed
    assert [row["name"] for row in rows.values()] == [row[0] for row in desk.world.sql("select name from provider order by name")]
    assert desk.entries(made["provider_id"]) == [
        ("web:olga", "provider_create", {"name": made["name"], "base_url": made["base_url"]}),
        (
            "web:olga",
            "provider_set",
            {
                "name": made["name"],
                "new_name": changed["name"],
                "was_base_url": made["base_url"],
                "base_url": changed["base_url"],
            },
        ),
        ("web:olga", "provider_disable", {"name": changed["name"]}),
    ]


WRONG_URLS: Final = (
    "http://agents.example",
    "https://u:CANARY@agents.example",
    "https://agents.example/?CANARY",
    "https://agents.example/#CANARY",
    "https://169.254.169.254",
    "https://10.0.0.1",
    "ftp://agents.example",
    "https://agents.example\ud800",
    "",
)


async def test_a_wrong_provider_is_refused_by_its_field(desk: Desk) -> None:
    made, other = await desk.provider(), await desk.provider()
    path = f"/providers/{made['provider_id']}"
    for base_url in WRONG_URLS:
        for method, where, body in (("POST", "/providers", {"name": "x"}), ("PATCH", path, {"enabled": False})):
            document = await desk.refused(method, where, body | {"base_url": base_url}, "configuration_invalid", field="base_url")
            assert "CANARY" not in str(document)
    for name in ("", " x", "a\nb", "a" * 101, "\x00", "\ud800"):
        await desk.refused("POST", "/providers", {"name": name, "base_url": "https://x.example"}, "configuration_invalid", field="name")
        await desk.refused("PATCH", path, {"name": name}, "configuration_invalid", field="name")
    await desk.refused("POST", "/providers", {"name": other["name"], "base_url": "https://x.example"}, "already_exists")
    await desk.refused("PATCH", path, {"name": other["name"], "enabled": False}, "already_exists")
    good = {"name": "x", "base_url": "https://x.example"}
    for malformed in (good | {"name": 7}, good | {"extra": 1}, {"name": "x"}, ["x"]):
        await desk.refused("POST", "/providers", malformed, "malformed_request")
    for wrong in ({"enabled": "yes"}, {"base_url": 1}, {"provider_id": str(uuid4())}):
        await desk.refused("PATCH", path, wrong, "malformed_request")
    for missing in (str(uuid4()), "none", "CANARY"):
        await desk.refused("PATCH", f"/providers/{missing}", {}, "not_found")
    assert [row for row in await desk.listed("providers") if row["provider_id"] == made["provider_id"]] == [made]


# --- applications -------------------------------------------------------------------------------------------------------------------------


async def test_an_application_is_made_listed_and_changed(desk: Desk) -> None:
    provider = await desk.provider()
    metadata = {"app_type": "model", "is_marketplace_app": False, "tags": ["Agent"]}
    whole = {
        "backend_type": "langchain",
        "langchain": {"assistant_id": "agent", "human_input": False},
        "app_metadata": metadata,
    }
    made = await desk.app(
        provider, config=whole, description="about", visibility="private", owner="ada", users=["ben", "ada", "ben"], token=" tok_CANARY\n"
    )
    assert made["config"] == whole
    assert (made["provider_id"], made["provider"]) == (provider["provider_id"], provider["name"])
    assert (made["visibility"], made["owner"], made["users"], made["groups"]) == ("private", "ada", ["ada", "ben"], [])
    assert (made["token"], made["available"], made["unavailable"], made["token_version"]) == ("readable", True, None, 1)
    row = desk.world.sql("select token_ciphertext, token_key_id from application where application_id = %s", made["app_id"])[0]
    assert await VAULT.open(UUID(made["app_id"]), bytes(row[0]), row[1]) == "tok_CANARY"
    path = f"/apps/{made['app_id']}"
    changed = await desk.ask("PATCH", path, {"owner": None, "visibility": "group", "groups": ["staff"], "name": f"{made['name']} new"})
    assert (changed["owner"], changed["visibility"], changed["groups"], changed["users"]) == (None, "group", ["staff"], ["ada", "ben"])
    assert (changed["config_version"], changed["token_version"]) == (1, 1)
    assert await desk.ask("PATCH", path, {}) == await desk.ask("PATCH", path, {"config": whole, "owner": None}) == changed
    moved = await desk.ask("PATCH", path, {"config": CONFIG | {"langchain": {"assistant_id": "other"}}, "enabled": False})
    assert (moved["config_version"], moved["config"]["app_metadata"]["tags"]) == (2, [])
    assert (moved["available"], moved["unavailable"]) == (False, "app_disabled")
    assert {row["app_id"]: row for row in await desk.listed("apps")}[made["app_id"]] == moved
    entries = desk.entries(made["app_id"])
    assert [(actor, act) for actor, act, _ in entries] == [
        ("web:olga", "app_create"),
        ("web:olga", "app_set"),
        ("web:olga", "app_set"),
        ("web:olga", "app_disable"),
    ]
    assert entries[1][2]["changed"] == ["groups", "name", "owner_subject", "visibility"]
    assert entries[2][2] == {
        "name": changed["name"],
        "changed": ["app_type", "assistant_id", "is_marketplace_app", "tags"],
        "moved": True,
        "token_dropped": False,
    }


async def test_a_missing_backend_type_means_dify(desk: Desk) -> None:
    made = await desk.app(await desk.provider(), config={"app_metadata": {"dify_apptype": "chatflow"}})
    assert made["config"]["backend_type"] == "dify"
    assert (made["available"], made["unavailable"], made["token"]) == (False, "backend_not_served", "none")
    await desk.refused("PUT", f"/apps/{made['app_id']}/token", {"token": "tok_CANARY"}, "configuration_invalid", field="token")
    users = await desk.world.client.get(f"/api/internal/apps/{made['app_id']}", headers=desk.world.bearer("ada"))
    assert users.json()["available"] is False
    submitted = await desk.world.client.post(
        f"{desk.world.agent(UUID(made['app_id']))}/runs", headers=desk.world.bearer("ada"), json={"submission_id": "s", "text": "hi"}
    )
    assert submitted.json()["code"] == "backend_not_served"


WRONG_APPS: Final[list[tuple[dict[str, Any], str, str | None]]] = [
    ({"config": {"backend_type": "langchain"}}, "configuration_invalid", "langchain"),
    ({"config": {"langchain": {"assistant_id": "agent"}}}, "configuration_invalid", "langchain"),
    ({"config": {"backend_type": "other"}}, "configuration_invalid", "backend_type"),
    ({"config": {**CONFIG, "token": "tok_CANARY"}}, "configuration_invalid", "config"),
    ({"config": {**CONFIG, "langchain": {"assistant_id": "agent", "api_key": "tok_CANARY"}}}, "configuration_invalid", "langchain"),
    ({"config": {**CONFIG, "app_metadata": {"dify_apptype": "chat"}}}, "configuration_invalid", "app_metadata.dify_apptype"),
    ({"config": {**CONFIG, "app_metadata": {"tags": ["\ud800"]}}}, "configuration_invalid", "app_metadata.tags"),
    ({"config": "tok_CANARY"}, "configuration_invalid", "config"),
    ({"name": "a\x00"}, "configuration_invalid", "name"),
    ({"description": "a" * 2001}, "configuration_invalid", "description"),
    ({"description": "\x00"}, "configuration_invalid", "description"),
    ({"visibility": "group"}, "configuration_invalid", "groups"),
    ({"visibility": "private"}, "configuration_invalid", "owner"),
    ({"users": ["a\x1b"]}, "configuration_invalid", "users"),
    ({"groups": ["a"] * 1001}, "configuration_invalid", "groups"),
    ({"token": "tök_CANARY"}, "configuration_invalid", "token"),
    ({"token": ""}, "configuration_invalid", "token"),
    ({"token": "tok_CANARY" * 500}, "configuration_invalid", "token"),
    ({"token": ["tok_CANARY"]}, "malformed_request", None),
    ({"visibility": "tok_CANARY"}, "malformed_request", None),
    ({"provider_id": "tok_CANARY"}, "malformed_request", None),
    ({"api_key": "tok_CANARY"}, "malformed_request", None),
    ({"provider_id": str(uuid4())}, "not_found", "provider"),
]


@pytest.mark.parametrize(("wrong", "code", "field"), WRONG_APPS)
async def test_a_wrong_application_is_refused_by_its_field(desk: Desk, wrong: dict[str, Any], code: str, field: str | None) -> None:
    provider = await desk.provider()
    good = {"name": f"app {uuid4()}", "provider_id": provider["provider_id"], "config": CONFIG}
    extra = {} if field is None else {"field": field}
    document = await desk.refused("POST", "/apps", good | wrong, code, **extra)
    assert "CANARY" not in str(document)
    assert desk.world.sql("select 1 from application where provider_id = %s", provider["provider_id"]) == []
    if "token" not in wrong:
        made = await desk.app(provider)
        changed = {key: value for key, value in wrong.items() if key != "token"}
        document = await desk.refused("PATCH", f"/apps/{made['app_id']}", {"enabled": False, **changed}, code, **extra)
        assert "CANARY" not in str(document)
        assert [row for row in await desk.listed("apps") if row["app_id"] == made["app_id"]] == [made]


async def test_a_name_is_taken_once_and_what_is_missing_is_not_found(desk: Desk) -> None:
    provider = await desk.provider()
    made, other = await desk.app(provider), await desk.app(provider)
    body = {"name": other["name"], "provider_id": provider["provider_id"], "config": CONFIG}
    await desk.refused("POST", "/apps", body, "already_exists")
    await desk.refused("PATCH", f"/apps/{made['app_id']}", {"name": other["name"]}, "already_exists")
    for missing in (str(uuid4()), "CANARY"):
        await desk.refused("PATCH", f"/apps/{missing}", {}, "not_found")
        await desk.refused("PUT", f"/apps/{missing}/token", {"token": "tok"}, "not_found")


async def test_a_token_is_replaced_once_the_service_takes_it(desk: Desk) -> None:
    async with ScriptedUpstream(token="tok_CANARY_NEW") as upstream:
        app = await desk.app(await desk.provider(upstream.base_url), token="tok_CANARY_OLD")
        path = f"/apps/{app['app_id']}/token"
        await desk.refused("PUT", path, {"token": "tok_CANARY_WRONG"}, "upstream_check_failed")
        for malformed in ({}, {"token": None}, {"token": 1}, {"token": "a", "more": 1}, "tok_CANARY"):
            await desk.refused("PUT", path, malformed, "malformed_request")
        await desk.refused("PUT", path, {"token": "tok CANARY"}, "configuration_invalid", field="token")
        assert len(upstream.requests) == 1
        set_anew = await desk.ask("PUT", path, {"token": "tok_CANARY_NEW\n"})
        assert (set_anew["token"], set_anew["token_version"], set_anew["config_version"]) == ("readable", 2, 1)
    await desk.refused("PUT", path, {"token": "tok_CANARY_NEW"}, "upstream_check_failed")
    assert [act for _, act, _ in desk.entries(app["app_id"])] == ["app_create", "app_set_token"]


async def test_o36_an_application_whose_token_does_not_open_says_why_and_all_others_work(desk: Desk) -> None:
    provider = await desk.provider()
    lost, damaged, swapped, good = [await desk.app(provider, token="tok_CANARY") for _ in range(4)]
    desk.world.sql("update application set token_key_id = 'ffffffff' where application_id = %s", lost["app_id"])
    desk.world.sql("update application set token_ciphertext = '\\x01ff' where application_id = %s", damaged["app_id"])
    desk.world.sql(
        "update application a set token_ciphertext = b.token_ciphertext from application b where a.application_id = %s"
        " and b.application_id = %s",
        swapped["app_id"],
        good["app_id"],
    )
    rows = {row["app_id"]: row for row in await desk.listed("apps")}
    ada = desk.world.bearer("ada")
    for app, token in ((lost, "no_key"), (damaged, "damaged"), (swapped, "damaged"), (good, "readable")):
        row, available = rows[app["app_id"]], token == "readable"
        assert (row["token"], row["available"], row["unavailable"]) == (token, available, None if available else f"token_{token}")
        assert (await desk.world.client.get(f"/api/internal/apps/{app['app_id']}", headers=ada)).json()["available"] is available
        body = {"submission_id": str(uuid4()), "text": "hi"}
        answer = await desk.world.client.post(f"{desk.world.agent(UUID(app['app_id']))}/runs", headers=ada, json=body)
        assert answer.status_code == (202 if available else 409), answer.text
        if not available:
            assert answer.json()["code"] == "app_disabled"


# --- accounts -----------------------------------------------------------------------------------------------------------------------------


async def test_an_account_is_made_listed_and_changed(desk: Desk) -> None:
    subject = f"person {uuid4()}"
    made = await desk.ask("POST", "/accounts", {"subject": subject, "groups": ["b", "a", "b"], "roles": ["operator"]}, status=201)
    assert (made["subject"], made["state"], made["groups"], made["roles"]) == (subject, "active", ["a", "b"], ["operator"])
    headers = desk.world.bearer(subject)
    assert (await desk.world.client.get(f"{OPERATOR}/apps", headers=headers)).status_code == 200
    path = f"/accounts/{made['account_id']}"
    changed = await desk.ask("PATCH", path, {"roles": [], "groups": ["c"]})
    assert (changed["groups"], changed["roles"], changed["state"]) == (["c"], [], "active")
    assert (await desk.world.client.get(f"{OPERATOR}/apps", headers=headers)).json()["code"] == "not_operator"
    suspended = await desk.ask("PATCH", path, {"state": "suspended"})
    assert suspended["state"] == "suspended"
    assert (await desk.world.client.get("/api/internal/me", headers=headers)).json()["code"] == "account_inactive"
    assert await desk.ask("PATCH", path, {"state": "suspended", "groups": ["c"]}) == suspended
    await desk.ask("PATCH", path, {"state": "active"})
    assert (await desk.world.client.get("/api/internal/me", headers=headers)).json()["groups"] == ["c"]
    assert [row["subject"] for row in await desk.listed("accounts")] == [
        row[0] for row in desk.world.sql("select subject from account order by subject")
    ]
    assert desk.entries(subject) == [
        ("web:olga", "account_create", {"groups": ["a", "b"], "roles": ["operator"]}),
        ("web:olga", "account_set", {"groups": ["c"], "roles": []}),
        ("web:olga", "account_suspend", {}),
        ("web:olga", "account_activate", {}),
    ]


async def test_accounts_are_found_by_the_beginning_of_their_subject(desk: Desk) -> None:
    made = [(await desk.ask("POST", "/accounts", {"subject": f"seeker-{n}"}, status=201))["subject"] for n in range(5)]
    first = await desk.ask("GET", "/accounts?subject_from=seeker-2&limit=2")
    assert [row["subject"] for row in first["accounts"]] == made[2:4]
    after = await desk.ask("GET", f"/accounts?subject_from=seeker-2&limit=1&cursor={first['next']}")
    assert [row["subject"] for row in after["accounts"]] == made[4:]
    for wrong in ("a" * 201, "%00", "a&subject_from=b"):
        answer = await desk.world.client.get(f"{OPERATOR}/accounts?subject_from={wrong}", headers=desk.headers)
        assert (answer.status_code, answer.json()["code"]) == (400, "malformed_request"), wrong


async def test_a_wrong_account_is_refused_by_its_field(desk: Desk) -> None:
    made = await desk.ask("POST", "/accounts", {"subject": f"person {uuid4()}"}, status=201)
    path = f"/accounts/{made['account_id']}"
    await desk.refused("POST", "/accounts", {"subject": made["subject"]}, "already_exists")
    for subject in ("", "a" * 201, "a\x00", "\ud800", "a\u2028b"):
        await desk.refused("POST", "/accounts", {"subject": subject}, "configuration_invalid", field="subject")
    for wrong, field in (({"groups": [""]}, "groups"), ({"groups": ["g"] * 501}, "groups"), ({"roles": ["admin"]}, "roles")):
        await desk.refused("POST", "/accounts", {"subject": "never", **wrong}, "configuration_invalid", field=field)
        await desk.refused("PATCH", path, {"state": "suspended", **wrong}, "configuration_invalid", field=field)
    malformed: list[dict[str, Any]] = [{"groups": "staff"}, {"groups": [1]}, {"roles": {}}, {"state": "gone"}, {"subject": "other"}]
    for body in malformed:
        await desk.refused("PATCH", path, body, "malformed_request")
    await desk.refused("PATCH", f"/accounts/{uuid4()}", {}, "not_found")
    assert [row for row in await desk.listed("accounts") if row["account_id"] == made["account_id"]] == [made]
    assert desk.world.sql("select 1 from account where subject = 'never'") == []


# --- all of them --------------------------------------------------------------------------------------------------------------------------


async def test_pages_are_of_one_list_and_bounded(desk: Desk) -> None:
    for _ in range(3):
        await desk.app(await desk.provider())
    cursor = (await desk.world.client.get(f"{OPERATOR}/apps?limit=1", headers=desk.headers)).json()["next"]
    for path in (f"providers?cursor={cursor}", f"accounts?cursor={cursor}", "apps?cursor=CANARY", "apps?limit=0", "apps?limit=201"):
        answer = await desk.world.client.get(f"{OPERATOR}/{path}", headers=desk.headers)
        assert (answer.status_code, answer.json()["code"]) == (400, "malformed_request")


async def test_two_operators_at_once_have_one_order_and_one_winner(desk: Desk) -> None:
    provider, name = await desk.provider(), f"app {uuid4()}"
    body = {"name": name, "provider_id": provider["provider_id"], "config": CONFIG}
    answers: list[httpx.Response] = await asyncio.gather(
        *(desk.world.client.post(f"{OPERATOR}/apps", headers=desk.headers, json=body) for _ in range(4))
    )
    assert sorted(answer.status_code for answer in answers) == [201, 409, 409, 409]
    app = next(answer.json() for answer in answers if answer.status_code == 201)
    wanted = [{"config": CONFIG | {"langchain": {"assistant_id": f"other-{number}"}}} for number in range(4)]
    moved = await asyncio.gather(*(desk.ask("PATCH", f"/apps/{app['app_id']}", change) for change in wanted))
    assert max(one["config_version"] for one in moved) == 5
    entries = [detail for _, act, detail in desk.entries(app["app_id"]) if act == "app_set"]
    assert [detail["moved"] for detail in entries] == [True] * 4
