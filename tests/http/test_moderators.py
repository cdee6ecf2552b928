"""Moderators over HTTP, whole way: what they are asked, what each of their failures does, and who is asked for which application."""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import psycopg
import pytest

from gateway.admission.operator_chains import OperatorChains
from gateway.bindings.vault import KeyRing, Vault
from gateway.domain.ids import ApplicationId
from gateway.domain.problems import Refused
from tests.db.world import everything_in
from tests.support.moderator import ALLOWED, JSON, REFUSED, moderator_server, saying
from tests.support.raw_server import RawConnection, refusing_port, response
from tests.support.stack import ENCRYPTION_KEY, Client, Replica, Stack

pytestmark = pytest.mark.anyio

KINDS = ("openai", "webhook")
PATHS = {"openai": "/v1/moderations", "webhook": ""}
TABLES = ("account", "conversation", "submission", "run", "item", "snapshot", "binding", "evidence", "quota_usage", "quota_charge")


async def sql(stack: Stack, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    async with await psycopg.AsyncConnection.connect(stack.database_url, autocommit=True) as connection:
        cursor = await connection.execute(statement.encode(), parameters)
        return await cursor.fetchall() if cursor.description else []


async def rows(stack: Stack) -> list[int]:
    return [(await sql(stack, f"select count(*) from {table}"))[0][0] for table in TABLES]


async def replica_with(stack: Stack, *moderators: str, seconds: str = "20", **changes: str) -> Replica:
    settings = stack.settings(GATEWAY_MODERATION=",".join(moderators), GATEWAY_MODERATION_SECONDS=seconds, **changes)
    return await stack.replica(settings)


async def chain(stack: Stack, moderators: Sequence[str], *, tokens: Sequence[str] = (), which: ApplicationId | None = None) -> None:
    vault = Vault(KeyRing([base64.b64decode(ENCRYPTION_KEY)]))
    await OperatorChains(stack.database, vault, {"127.0.0.1"}, None).set(which, moderators, tokens)


async def hang(connection: RawConnection) -> None:
    await connection.until_gone()


async def drip(connection: RawConnection) -> None:
    """A verdict that would be a yes, a byte at a time, for ever."""
    await connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
    while True:
        await connection.send(b" ")
        await asyncio.sleep(0.02)


async def cut(connection: RawConnection) -> None:
    whole = saying({"allowed": True, "categories": []})
    await connection.send(whole[:-5])


def _drop(document: Any, *path: Any) -> Any:
    copy = json.loads(json.dumps(document))
    inner = copy
    for step in path[:-1]:
        inner = inner[step]
    del inner[path[-1]]
    return copy


def _put(document: Any, value: Any, *path: Any) -> Any:
    copy = json.loads(json.dumps(document))
    inner = copy
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return copy


NO_VERDICTS: dict[str, list[bytes]] = {
    "openai": [
        saying(_drop(ALLOWED["openai"], "results")),
        saying(_drop(ALLOWED["openai"], "results", 0, "flagged")),
        saying(_drop(ALLOWED["openai"], "results", 0, "categories")),
        saying(_drop(ALLOWED["openai"], "results", 0)),
        saying(_put(ALLOWED["openai"], {}, "results", 0, "categories")),
        saying(_put(ALLOWED["openai"], 0, "results", 0, "categories", "violence")),
        saying(_put(ALLOWED["openai"], True, "results", 0, "categories", "violence")),
        saying(_put(ALLOWED["openai"], 0, "results", 0, "flagged")),
        saying(_put(ALLOWED["openai"], "false", "results", 0, "flagged")),
        saying(_put(ALLOWED["openai"], None, "results", 0, "flagged")),
        saying(_put(ALLOWED["openai"], [*ALLOWED["openai"]["results"]] * 2, "results")),
        saying(_put(ALLOWED["openai"], {"flagged": False}, "results")),
        saying(ALLOWED["webhook"]),
    ],
    "webhook": [
        saying({"allowed": True}),
        saying({"categories": []}),
        saying({"allowed": False}),
        saying({"allowed": "true", "categories": []}),
        saying({"allowed": 1, "categories": []}),
        saying({"allowed": None, "categories": []}),
        saying({"allowed": True, "categories": ["violence"]}),
        saying({"allowed": True, "categories": {}}),
        saying({"allowed": False, "categories": [7]}),
        saying({"allowed": False, "categories": ["<script>"]}),
        saying({"allowed": False, "categories": ["x"] * 65}),
        saying(ALLOWED["openai"]),
        response("200 OK", JSON, b'{"allowed":false,"allowed":true,"categories":["x"],"categories":[]}'),
    ],
}
NONSENSE = (
    response("200 OK", "Content-Type: text/html\r\nConnection: close\r\n", b"<html>all is well</html>"),
    response("200 OK", JSON, b""),
    response("200 OK", JSON, b"true"),
    response("200 OK", JSON, b"[]"),
    response("200 OK", JSON, b"null"),
    response("200 OK", JSON, b'{"allowed": NaN}'),
    response("200 OK", JSON, b"\xff\xfe"),
    response("200 OK", JSON, b"[" * 3000 + b"]" * 3000),
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
    b"this is not HTTP\r\n\r\n",
)


async def refused_as_unavailable(stack: Stack, ada: Client, application: Any, submission_id: str, before: list[int]) -> str:
    """One submission that could not be checked: nothing but the verdict's row, nothing upstream. The fault that the row has."""
    answer = await ada.submit(application, submission_id, "hello")
    assert (answer.status_code, answer.json()["code"], answer.json()["retry"]) == (503, "moderation_unavailable", "same-submission")
    assert answer.headers["retry-after"] == "5"
    assert await rows(stack) == before
    assert stack.upstream.counts().connections == 0
    [(run_id, outcome, fault, mode)] = await sql(
        stack, "select run_id, outcome, fault, mode from moderation_verdict where submission_id = %s", submission_id
    )
    assert (run_id, outcome, mode) == (None, "unavailable", "closed")
    return str(fault)


@pytest.mark.parametrize("kind", KINDS)
async def test_o26_whatever_a_moderator_does_but_allow_refuses(database_url: str, kind: str) -> None:
    async with Stack.over(database_url) as stack, moderator_server(kind) as moderator:
        application = await stack.application()
        ada = (await replica_with(stack, moderator.named)).client("ada")
        await ada.get("/api/internal/me")
        await sql(
            stack, "insert into quota_rule (quota_rule_id, scope, task_limit, calendar_window) values (gen_random_uuid(), 'user', 1, 'day')"
        )
        before, numbers = await rows(stack), iter(range(1000))

        async def fault_of(*pieces: bytes, times: int = 1) -> str:
            moderator.says(*pieces)
            moderator.asked.clear()
            fault = await refused_as_unavailable(stack, ada, application, f"s{next(numbers)}", before)
            assert len(moderator.asked) == times, fault
            return fault

        for status in ("500 Internal Server Error", "503 Service Unavailable", "502 Bad Gateway"):
            assert await fault_of(saying(ALLOWED[kind], status), times=2) == f"status_{status[:3]}"
        for status in ("429 Too Many Requests", "401 Unauthorized", "404 Not Found", "202 Accepted"):
            assert (
                await fault_of(saying(ALLOWED[kind], status) if status[:3] != "204" else response(status, JSON)) == f"status_{status[:3]}"
            )
        redirect = response("307 Temporary Redirect", f"Location: {moderator.server.base_url}/elsewhere\r\nConnection: close\r\n")
        assert await fault_of(redirect) == "status_307"
        for nonsense in NONSENSE:
            assert await fault_of(nonsense) in ("reply_malformed", "reply_encoded"), nonsense
        for half in NO_VERDICTS[kind]:
            assert await fault_of(half) == "reply_malformed", half
        assert await fault_of(response("200 OK", JSON, b" " * (64 * 1024) + json.dumps(ALLOWED[kind]).encode())) == "reply_too_large"
        moderator.answering = cut
        assert await refused_as_unavailable(stack, ada, application, "cut", before) == "reply_cut"
        # and when it is well again the same submission goes its way, once
        moderator.says(saying(ALLOWED[kind]))
        admitted = await ada.submit(application, "cut", "hello")
        assert admitted.status_code == 202
        await ada.until_over(application, admitted.json()["run_id"])
        assert stack.upstream.counts().ag_ui == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("answering", [hang, drip], ids=["no answer", "slow drip"])
async def test_o26_a_moderator_that_takes_too_long_refuses(
    database_url: str, kind: str, answering: Callable[[RawConnection], Awaitable[None]]
) -> None:
    async with Stack.over(database_url) as stack, moderator_server(kind) as moderator:
        application = await stack.application()
        moderator.answering = answering
        ada = (await replica_with(stack, moderator.named, seconds="0.5")).client("ada")
        await ada.get("/api/internal/me")
        assert await refused_as_unavailable(stack, ada, application, "s1", await rows(stack)) == "timed_out"
        assert len(moderator.asked) == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_o26_a_moderator_that_is_not_there_refuses(database_url: str, kind: str) -> None:
    with refusing_port() as port:
        async with Stack.over(database_url) as stack:
            application = await stack.application()
            ada = (await replica_with(stack, "local", f"{kind}:http://127.0.0.1:{port}")).client("ada")
            await ada.get("/api/internal/me")
            before = await rows(stack)
            answer = await ada.submit(application, "s1", "hello")
            assert (answer.status_code, answer.json()["code"]) == (503, "moderation_unavailable")
            assert await rows(stack) == before
            asked = "select position, provider, outcome, fault from moderation_verdict order by position"
            assert await sql(stack, asked) == [(0, "local", "allowed", None), (1, kind, "unavailable", "not_connected")]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_failure_that_may_pass_is_asked_once_more(database_url: str, kind: str) -> None:
    async with Stack.over(database_url) as stack, moderator_server(kind) as moderator:
        application = await stack.application()
        ada = (await replica_with(stack, moderator.named)).client("ada")

        async def at_the_second_time(connection: RawConnection) -> None:
            if len(moderator.asked) == 1:
                connection.reset()
            else:
                await connection.send(saying(ALLOWED[kind]))

        moderator.answering = at_the_second_time
        assert (await ada.submit(application, "s1", "hello")).status_code == 202
        assert len(moderator.asked) == 2
        assert moderator.asked[0] == moderator.asked[1]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_refusal_tells_categories_and_what_to_do(database_url: str, kind: str) -> None:
    async with Stack.over(database_url) as stack, moderator_server(kind) as moderator:
        application = await stack.application()
        ada = (await replica_with(stack, moderator.named)).client("ada")
        moderator.says(saying(REFUSED[kind]))
        refused = await ada.submit(application, "s1", "hello")
        assert (refused.status_code, refused.json()["code"], refused.json()["retry"]) == (422, "moderation_refused", "new-submission")
        assert refused.json()["categories"] == ["violence", "hate/threatening"]
        assert refused.json()["advice"] == "It breaks this service's rules on content. Rephrase it."
        flagged_as_nothing = {"results": [{"flagged": True, "categories": {"violence": False}}]}
        unspecified = {"openai": flagged_as_nothing, "webhook": {"allowed": False, "categories": []}}
        moderator.says(saying(unspecified[kind]))
        assert (await ada.submit(application, "s2", "hello")).json()["categories"] == ["unspecified"]
        assert stack.upstream.counts().connections == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_moderator_is_asked(database_url: str, kind: str) -> None:
    text = 'Größe 🙂 \u200d می\u200cخواهم "\\ \u2028'
    async with Stack.over(database_url) as stack, moderator_server(kind) as moderator:
        application = await stack.application()
        replica = await replica_with(stack, "none")
        await chain(stack, [moderator.named], tokens=["tok_CANARY\n"], which=application)
        assert (await replica.client("ada").submit(application, "s1", text)).status_code == 202
        [request] = moderator.asked
        head = request.partition(b"\r\n\r\n")[0].split(b"\r\n")
        assert head[0] == f"POST {PATHS[kind] or '/'} HTTP/1.1".encode()
        assert b"Authorization: Bearer tok_CANARY" in head
        [body] = moderator.bodies()
        account_id = (await sql(stack, "select account_id::text from account"))[0][0]
        context = {"kind": "message", "app_id": str(application), "account_id": account_id}
        assert body == ({"input": text} if kind == "openai" else {"text": text, "context": context})
        assert "tok_CANARY" not in everything_in(stack.database_url)
        assert await sql(stack, "select provider, version, outcome from moderation_verdict") == [
            (kind, {"openai": "model-7", "webhook": "hook-3"}[kind], "allowed")
        ]


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:{port}", "http://127.0.0.1:{port}/v1", "http://127.0.0.1:{port}/v1/", "http://127.0.0.1:{port}/v1/moderations"],
)
async def test_a_service_of_that_shape_is_named_by_any_of_its_addresses(database_url: str, url: str) -> None:
    async with Stack.over(database_url) as stack, moderator_server("openai") as moderator:
        application = await stack.application()
        ada = (await replica_with(stack, "openai:" + url.format(port=moderator.server.port))).client("ada")
        assert (await ada.submit(application, "s1", "hello")).status_code == 202
        assert moderator.asked[0].startswith(b"POST /v1/moderations HTTP/1.1\r\n")


async def test_an_applications_own_chain_comes_first_then_that_of_all_then_the_settings(database_url: str) -> None:
    """And each change counts from the next message on, on every replica."""
    async with Stack.over(database_url) as stack, moderator_server("webhook") as all_hook, moderator_server("openai") as own_hook:
        own, other = await stack.application(), await stack.application()
        settings = stack.settings(GATEWAY_MODERATION="none", AGENT_MAX_ACTIVE_PER_USER="99", AGENT_MAX_ACTIVE_PER_APP="99")
        adas = [(await stack.replica(settings)).client("ada") for _ in range(2)]
        numbers = iter(range(100))

        async def asked(application: ApplicationId) -> list[str]:
            """Who is asked about a message, on each replica the same."""
            found = []
            for ada in adas:
                submission_id = f"s{next(numbers)}"
                assert (await ada.submit(application, submission_id, "hello")).status_code == 202
                provider = "select provider from moderation_verdict where submission_id = %s order by position"
                found.append([row[0] for row in await sql(stack, provider, submission_id)])
            assert found[0] == found[1]
            return found[0]

        assert (await asked(own), await asked(other)) == (["none"], ["none"])
        await chain(stack, ["local", all_hook.named])
        assert (await asked(own), await asked(other)) == (["local", "webhook"], ["local", "webhook"])
        await chain(stack, [own_hook.named, "local"], which=own)
        assert (await asked(own), await asked(other)) == (["openai", "local"], ["local", "webhook"])
        await chain(stack, ["none"], which=own)
        assert (await asked(own), await asked(other)) == (["none"], ["local", "webhook"])
        await chain(stack, ["default"], which=own)
        assert (await asked(own), await asked(other)) == (["local", "webhook"], ["local", "webhook"])
        await chain(stack, ["default"])
        assert (await asked(own), await asked(other)) == (["none"], ["none"])
        chains = "select count(*), count(*) filter (where replaced_at is null) from moderation_chain"
        assert await sql(stack, chains) == [(3, 0)]
        verdict = "select v.provider from moderation_verdict v join moderator m on (m.chain_id, m.position) = (v.chain_id, v.position)"
        assert len(await sql(stack, verdict + " where m.kind = v.provider")) == len(await sql(stack, verdict)) > 0


async def test_a_service_keeps_its_token_while_it_stays_in_the_chain(database_url: str) -> None:
    async with Stack.over(database_url) as stack, moderator_server("webhook") as hook, moderator_server("openai") as other:
        application = await stack.application()
        ada = (await replica_with(stack, "none", AGENT_MAX_ACTIVE_PER_USER="9", AGENT_MAX_ACTIVE_PER_APP="9")).client("ada")

        async def token(submission_id: str) -> bool:
            hook.asked.clear()
            assert (await ada.submit(application, submission_id, "hello")).status_code == 202
            return b"Authorization: Bearer tok_CANARY" in hook.asked[0]

        await chain(stack, [hook.named], tokens=["tok_CANARY"])
        assert await token("s1")
        await chain(stack, ["local", hook.named, other.named])
        assert await token("s2")
        assert all(b"tok_CANARY" not in request for request in other.asked)
        stored = "select count(*) from moderator where token_ciphertext is not null"
        assert await sql(stack, stored) == [(1,)]
        await chain(stack, ["local"])
        assert await sql(stack, stored) == [(0,)]
        await chain(stack, [hook.named])
        assert not await token("s3")


async def test_a_token_that_does_not_open_refuses(database_url: str) -> None:
    async with Stack.over(database_url) as stack, moderator_server("webhook") as hook:
        application = await stack.application()
        ada = (await replica_with(stack, "none")).client("ada")
        await ada.get("/api/internal/me")
        await chain(stack, [hook.named], tokens=["tok_X"])
        await sql(stack, "update moderator set token_owner = gen_random_uuid()")
        assert await refused_as_unavailable(stack, ada, application, "s1", await rows(stack)) == "token_damaged"
        await sql(stack, "update moderator set token_key_id = '00000000'")
        assert await refused_as_unavailable(stack, ada, application, "s2", await rows(stack)) == "token_no_key"
        assert hook.asked == []


async def test_a_host_that_is_no_longer_trusted_is_not_asked(database_url: str) -> None:
    async with Stack.over(database_url) as stack, moderator_server("webhook") as hook:
        application = await stack.application()
        await chain(stack, [hook.named])
        replica = await replica_with(stack, "none", GATEWAY_TRUSTED_UPSTREAM_HOSTS="elsewhere.example")
        ada = replica.client("ada")
        await ada.get("/api/internal/me")
        assert await refused_as_unavailable(stack, ada, application, "s1", await rows(stack)) == "url_not_allowed"
        assert hook.asked == []


@pytest.mark.parametrize(
    ("moderators", "tokens", "field"),
    [
        ([], [], "moderators"),
        (["local", "none"], [], "moderators"),
        (["local", "local"], [], "moderators"),
        (["local", "default"], [], "moderators"),
        (["ask-jeeves:https://a.example"], [], "moderators"),
        (["openai"], [], "moderators"),
        (["openai:"], [], "moderators"),
        (["webhook:http://a.example"], [], "moderators"),
        (["webhook:https://user:CANARY@a.example"], [], "moderators"),
        (["webhook:https://a.example/?key=CANARY"], [], "moderators"),
        (["webhook:https://169.254.169.254/latest"], [], "moderators"),
        (["webhook:https://10.0.0.1/"], [], "moderators"),
        (["local"], ["tok_X"], "tokens"),
        (["webhook:https://a.example", "openai:https://b.example"], ["tok_X"], "tokens"),
        (["webhook:https://a.example"], ["tok CANARY"], "token"),
        ([f"webhook:https://{number}.example" for number in range(9)], [], "moderators"),
    ],
)
async def test_a_chain_that_cannot_be_is_refused_unseen(database_url: str, moderators: list[str], tokens: list[str], field: str) -> None:
    async with Stack.over(database_url) as stack:
        with pytest.raises(Refused) as refused:
            await chain(stack, moderators, tokens=tokens)
        assert (refused.value.code, refused.value.extra["field"]) == ("configuration_invalid", field)
        assert "CANARY" not in str(refused.value.extra)
        assert await sql(stack, "select chain_id from moderation_chain") == []
