"""Quota rules, chains of moderators, usage and the heaviest over HTTP: for operators, and for those whose usage it is."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.http.test_operator_configuration import Desk
from tests.http.world import World

pytestmark = pytest.mark.anyio


@pytest.fixture
async def desk(world: World) -> AsyncIterator[Desk]:
    world.sql("insert into account (account_id, subject, roles) values (%s, 'olga', '{operator}') on conflict do nothing", uuid4())
    world.sql("delete from quota_charge; delete from quota_usage; delete from quota_rule; delete from moderator where token_owner is null")
    yield Desk(world, world.bearer("olga"))
    assert "CANARY" not in str(world.sql("select row_to_json(a)::text from audit a"))


async def app(desk: Desk) -> Any:
    return await desk.app(await desk.provider(), token="tok_X")


async def test_a_rule_is_set_listed_and_removed(desk: Desk) -> None:
    made = await desk.ask("POST", "/quotas", {"scope": "user", "limit": 5, "window": "day"})
    path = f"/quotas/{made['quota_rule_id']}"
    assert {name: made[name] for name in ("scope", "limit", "window", "app_id", "app", "group")} == {
        "scope": "user", "limit": 5, "window": "day", "app_id": None, "app": None, "group": None,
    }  # fmt: skip
    again = await desk.ask("POST", "/quotas", {"scope": "user", "limit": 6, "window": "day", "app_id": None, "group": None})
    assert again == {**made, "limit": 6}
    where = await app(desk)
    others = [
        await desk.ask("POST", "/quotas", {"scope": "user", "limit": 1, "window": "30d", "group": "staff"}),
        await desk.ask("POST", "/quotas", {"scope": "group", "limit": 1, "window": "1h", "group": "staff", "app_id": where["app_id"]}),
        await desk.ask("POST", "/quotas", {"scope": "app", "limit": 1, "window": "month", "app_id": where["app_id"]}),
    ]
    assert others[1]["app"] == where["name"]
    assert await desk.listed("quotas") == [again, *others]
    assert await desk.ask("DELETE", path) == again
    await desk.refused("DELETE", path, None, "not_found")
    assert await desk.listed("quotas") == others
    assert [(actor, act) for actor, act, _ in desk.entries(made["quota_rule_id"])] == [
        ("web:olga", "quota_set"),
        ("web:olga", "quota_set"),
        ("web:olga", "quota_remove"),
    ]


@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        ({"scope": "planet"}, "malformed_request", None),
        ({"limit": 0}, "malformed_request", None),
        ({"limit": -1}, "malformed_request", None),
        ({"limit": 1.5}, "malformed_request", None),
        ({"limit": True}, "malformed_request", None),
        ({"limit": 10**15}, "malformed_request", None),
        ({"limit": "5"}, "malformed_request", None),
        ({"app_id": "7"}, "malformed_request", None),
        ({"more": 1}, "malformed_request", None),
        ({"window": "week"}, "configuration_invalid", "window"),
        ({"window": "0h"}, "configuration_invalid", "window"),
        ({"window": "367d"}, "configuration_invalid", "window"),
        ({"scope": "app"}, "configuration_invalid", "app"),
        ({"scope": "group"}, "configuration_invalid", "group"),
        ({"group": "a\nb"}, "configuration_invalid", "group"),
        ({"group": ""}, "configuration_invalid", "group"),
        ({"group": "\ud800"}, "configuration_invalid", "group"),
        ({"app_id": "00000000-0000-0000-0000-000000000000"}, "not_found", "application"),
    ],
    ids=str,
)
async def test_a_rule_that_cannot_be(desk: Desk, change: dict[str, Any], code: str, field: str | None) -> None:
    body = {"scope": "user", "limit": 5, "window": "day", **change}
    await desk.refused("POST", "/quotas", body, code, **({} if field is None else {"field": field}))
    assert await desk.listed("quotas") == []


async def test_what_is_used_is_shown_to_whose_it_is(desk: Desk) -> None:
    where = await app(desk)
    world, path = desk.world, f"/api/internal/apps/{where['app_id']}/agent"

    async def usage(subject: str, groups: list[str]) -> Any:
        answer = await world.client.get(f"{path}/usage", headers=world.bearer(subject, groups=groups))
        assert answer.status_code == 200, answer.text
        return answer.json()

    active = {"user": {"active": 0, "limit": 50}, "app": {"active": 0, "limit": 50}}
    assert await usage("ada", ["staff"]) == {"unlimited": True, "quotas": [], **active}
    await desk.ask("POST", "/quotas", {"scope": "user", "limit": 9, "window": "day"})
    await desk.ask("POST", "/quotas", {"scope": "group", "limit": 3, "window": "30d", "group": "staff"})
    await desk.ask("POST", "/quotas", {"scope": "app", "limit": 5, "window": "month", "app_id": where["app_id"]})
    await desk.ask("POST", "/quotas", {"scope": "app", "limit": 1, "window": "day", "app_id": (await app(desk))["app_id"]})
    for subject, groups in (("ada", ["staff"]), ("ben", ["staff"]), ("cleo", [])):
        body = {"submission_id": "s1", "text": "hello"}
        sent = await world.client.post(f"{path}/runs", headers=world.bearer(subject, groups=groups), json=body)
        assert sent.status_code == 202, sent.text
    shown = await usage("ada", ["staff"])
    assert [(rule["scope"], rule["window"], rule["limit"], rule["used"], rule["remaining"]) for rule in shown["quotas"]] == [
        ("group", "30d", 3, 2, 1),
        ("app", "month", 5, 3, 2),
        ("user", "day", 9, 1, 8),
    ]
    assert (shown["unlimited"], shown["user"], shown["app"]) == (False, {"active": 1, "limit": 50}, {"active": 3, "limit": 50})
    assert all(rule["resets_at"] for rule in shown["quotas"])
    assert [rule["scope"] for rule in (await usage("cleo", []))["quotas"]] == ["app", "user"]
    [unused] = [rule for rule in (await usage("dora", ["x"]))["quotas"] if rule["scope"] == "user"]
    assert (unused["used"], unused["resets_at"]) == (0, None)
    heaviest = await desk.ask("GET", "/usage?window=1h&limit=200")
    assert {"app_id": where["app_id"], "name": where["name"], "tasks": 3} in heaviest["apps"]
    assert {user["subject"] for user in heaviest["users"]} >= {"ada", "ben", "cleo"}
    tasks = [user["tasks"] for user in heaviest["users"]]
    assert tasks == sorted(tasks, reverse=True)
    assert len((await desk.ask("GET", "/usage?limit=1"))["users"]) == 1
    await desk.refused("GET", "/usage?window=day", None, "configuration_invalid", field="window")
    await desk.refused("GET", "/usage?limit=0", None, "malformed_request")


async def test_a_chain_is_set_and_shown(desk: Desk) -> None:
    where = await app(desk)
    body = {"moderators": ["local", "webhook:https://judge.example/hook"], "app_id": where["app_id"], "tokens": ["tok_CANARY"]}
    chains = (await desk.ask("POST", "/moderation", body))["chains"]
    assert chains == (await desk.ask("GET", "/moderation"))["chains"]
    assert chains[0] == {"app_id": None, "app": None, "since": None, "moderators": []}
    [chain] = [chain for chain in chains if chain["app_id"] == where["app_id"]]
    assert chain["app"] == where["name"]
    assert chain["moderators"] == [{"moderator": "local"}, {"moderator": "webhook:https://judge.example/hook", "token": "readable"}]
    assert desk.entries(where["app_id"])[-1] == (
        "web:olga",
        "moderation_set",
        {"moderators": ["local", "webhook:https://judge.example/hook"], "new_tokens": 1},
    )
    await desk.ask("POST", "/moderation", {"moderators": ["default"], "app_id": where["app_id"]})
    assert where["app_id"] not in [chain["app_id"] for chain in (await desk.ask("GET", "/moderation"))["chains"]]
    for wrong, code in (
        ({"moderators": []}, "configuration_invalid"),
        ({"moderators": ["\ud800"]}, "configuration_invalid"),
        ({"moderators": ["webhook:https://u:CANARY@judge.example"]}, "configuration_invalid"),
        ({"moderators": ["local"], "tokens": ["tok_CANARY"]}, "configuration_invalid"),
        ({"moderators": "local"}, "malformed_request"),
        ({"moderators": [None]}, "malformed_request"),
        ({"moderators": ["local"], "app_id": str(UUID(int=0))}, "not_found"),
        ({}, "malformed_request"),
    ):
        assert "CANARY" not in str(await desk.refused("POST", "/moderation", wrong, code))


async def test_only_operators_may(desk: Desk) -> None:
    world = desk.world
    rule = f"/quotas/{uuid4()}"
    for method, path in (
        ("GET", "/quotas"), ("POST", "/quotas"), ("DELETE", rule), ("GET", "/usage"), ("GET", "/moderation"), ("POST", "/moderation"),
    ):  # fmt: skip
        for headers, code in ((world.bearer("ada"), "not_operator"), ({}, "unauthenticated")):
            answer = await world.client.request(method, f"/api/operator{path}", headers=headers, json={})
            assert answer.json()["code"] == code, (method, path)


async def test_usage_of_an_application_that_is_not_seen(desk: Desk) -> None:
    hidden = await desk.app(await desk.provider(), token="tok_X", visibility="private", owner="olga")
    for app_id in (hidden["app_id"], str(uuid4()), "x"):
        answer = await desk.world.client.get(f"/api/internal/apps/{app_id}/agent/usage", headers=desk.world.bearer("ada"))
        assert answer.json()["code"] == "not_found"
