"""Tokens of an identity provider, verified with the keys that a real server on loopback gives: what enters, what never does, rotation, and
an issuer that is away."""

import asyncio
import base64
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from joserfc.jwk import Key
from structlog.testing import capture_logs

from gateway.domain.problems import Code, Refused
from gateway.http_client import HttpClient
from gateway.identity.key_sets import (
    FETCH_SECONDS,
    MAX_AGE_SECONDS,
    MAX_KEYS,
    MAX_SET_BYTES,
    REFRESH_GAP_SECONDS,
    RETRY_GAP_SECONDS,
    FetchedKeys,
    KeySetFault,
    KeySetIdentity,
    fetch_key_set,
    parse_key_set,
)
from gateway.identity.tokens import Claims, TokenChecks
from gateway.runs.tasks import Tasks
from tests.http.world import open_world
from tests.support.issuer import AUDIENCE, ISSUER, Issuer, ec, issuing, okp, public, reply, rsa, signed
from tests.support.postgres import PostgresForTests
from tests.support.raw_server import RawServer, answer_with
from tests.support.stack import Stack

NOW = 1_800_000_000.0
pytestmark = pytest.mark.anyio


def good(**changes: Any) -> dict[str, Any]:
    return {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "exp": NOW + 60, "groups": ["staff"], **changes}


@dataclass
class Caller:
    """A gateway's identity over an issuer, with a clock that the test moves."""

    identity: KeySetIdentity
    tasks: Tasks
    issuer: Issuer
    client: HttpClient
    seconds: float = 0.0

    async def enters(self, token: str) -> None:
        assert await self.identity.verify(token) == Claims("alice", frozenset({"staff"}), operator=False)

    async def refused(self, token: str, code: Code = Code.UNAUTHENTICATED) -> None:
        with pytest.raises(Refused) as caught:
            await self.identity.verify(token)
        assert (caught.value.code, caught.value.extra) == (code, {})


@asynccontextmanager
async def calling(*entries: dict[str, Any]) -> AsyncIterator[Caller]:
    async with issuing(*entries) as issuer, HttpClient(connect_seconds=1, trusted_hosts=("127.0.0.1",)) as client:
        tasks = Tasks()
        keys = FetchedKeys(client, issuer.url, own=tasks.own, clock=lambda: caller.seconds)
        checks = TokenChecks(issuer=ISSUER, audience=AUDIENCE, now=lambda: NOW)
        caller = Caller(KeySetIdentity(keys, checks), tasks, issuer, client)
        yield caller
        issuer.release()
        assert await tasks.finish(10)


ALGORITHMS: list[tuple[str, Callable[[], Key]]] = [
    *((name, rsa) for name in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
    ("ES256", ec),
    ("ES384", lambda: ec("e384", "P-384")),
    ("ES512", lambda: ec("e521", "P-521")),
    ("Ed25519", okp),
    ("Ed448", lambda: okp("o448", "Ed448")),
]


@pytest.mark.parametrize(("algorithm", "made"), ALGORITHMS)
async def test_each_algorithm_of_a_public_key_is_verified(algorithm: str, made: Callable[[], Key]) -> None:
    key = made()
    async with calling(public(rsa("another")), public(key)) as caller:
        await caller.enters(signed(good(), key, algorithm))
        await caller.enters(signed(good(aud=["other", AUDIENCE]), key, algorithm, typ="at+jwt", private_note={"x": 1}))
        await caller.refused(signed(good(sub="mallory"), key, algorithm)[:-8] + "AAAAAAAA")
        assert caller.issuer.fetches == 2


async def test_the_old_name_of_ed25519_is_verified(recwarn: pytest.WarningsRecorder) -> None:
    claims = signed(good(), okp(), "Ed25519").split(".")[1]
    head = encoded(b'{"alg":"EdDSA","kid":"o"}')
    signature = okp().get_op_key("sign").sign(f"{head}.{claims}".encode())  # type: ignore[union-attr]
    async with calling(public(okp())) as caller:
        await caller.enters(f"{head}.{claims}.{encoded(signature)}")
    assert not recwarn.list


def encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()


def hmac_with(secret: bytes, kid: str = "r") -> str:
    """By hand: the library refuses to sign with what looks like a public key."""
    head = f"{encoded(json.dumps({'alg': 'HS256', 'kid': kid}).encode())}.{encoded(json.dumps(good()).encode())}"
    return f"{head}.{encoded(hmac.digest(secret, head.encode(), 'sha256'))}"


def unsigned(algorithm: str) -> str:
    parts = (json.dumps({"alg": algorithm, "kid": "r"}).encode(), json.dumps(good()).encode())
    return ".".join(map(encoded, parts)) + "."


CONFUSED: dict[str, Callable[[], str]] = {
    "another key under a known id": lambda: signed(good(), rsa("stranger"), "RS256", kid="r"),
    "none": lambda: unsigned("none"),
    "none with something for a signature": lambda: unsigned("none") + "AAAA",
    "None": lambda: unsigned("None") + "AAAA",
    "the public key's PEM as the secret": lambda: hmac_with(rsa().as_pem(private=False)),
    "the public key's JSON as the secret": lambda: hmac_with(json.dumps(public(rsa())).encode()),
    "a secret that the set gives away": lambda: hmac_with(b"s" * 32, kid="h"),
    "an algorithm of another key's type": lambda: signed(good(), rsa(), "RS256", kid="e"),
    "a curve's algorithm with another curve": lambda: signed(good(), ec("e384", "P-384"), "ES384", kid="e"),
    "an algorithm that the key's own member rules out": lambda: signed(good(), rsa("only-ps"), "RS256"),
    "a key for encryption": lambda: signed(good(), rsa("enc"), "RS256"),
    "a key that may not verify": lambda: signed(good(), rsa("no-verify"), "RS256"),
    "a key that is too short": lambda: signed(good(), rsa("short", 1024), "RS256"),
    "a curve that is not known here": lambda: signed(good(), ec("k1", "secp256k1"), "ES256K"),
    "no key id where there is a choice": lambda: signed(good(), rsa(), "RS256", kid=None),
    "a key id of another type": lambda: _with_header({"alg": "RS256", "kid": 7}),
    "an unknown critical parameter": lambda: signed(good(), rsa(), "RS256", crit=["exp"], exp=1),
}


def _with_header(header: object) -> str:
    return ".".join([encoded(json.dumps(header).encode()), *signed(good(), rsa(), "RS256").split(".")[1:]])


@pytest.mark.parametrize("wrong", CONFUSED)
async def test_no_confusion_of_keys_and_algorithms_enters(wrong: str) -> None:
    secret = {"kty": "oct", "kid": "h", "k": base64.urlsafe_b64encode(b"s" * 32).decode()}
    entries = [
        *(public(key) for key in (rsa(), rsa("another"), ec(), ec("e384", "P-384"), okp(), rsa("short", 1024), ec("k1", "secp256k1"))),
        public(rsa("only-ps"), alg="PS256"),
        public(rsa("enc"), use="enc"),
        public(rsa("no-verify"), key_ops=["sign"]),
        secret,
    ]
    async with calling(*entries) as caller:
        await caller.enters(signed(good(), rsa(), "RS256"))
        await caller.enters(signed(good(), rsa("only-ps"), "PS256"))
        await caller.refused(CONFUSED[wrong]())


async def test_keys_that_a_token_brings_along_are_not_looked_at() -> None:
    stranger = rsa("stranger")
    async with calling(public(rsa())) as caller, issuing(public(stranger, kid="r")) as other:
        for header in ({"jwk": public(stranger)}, {"jku": other.url}, {"x5u": other.url}):
            await caller.refused(signed(good(), stranger, "RS256", kid="r", **header))
        assert (other.fetches, caller.issuer.fetches) == (0, 2)  # asked once more whether the key is another by now


@pytest.mark.parametrize(
    "claims",
    [
        good(exp=NOW - 31),
        good(exp=None),
        {name: claim for name, claim in good().items() if name != "exp"},
        good(nbf=NOW + 31),
        good(iat=NOW + 31),
        good(iss="https://idp.example/"),
        good(iss="https://evil.example"),
        good(iss=[ISSUER]),
        {name: claim for name, claim in good().items() if name != "iss"},
        good(aud="another-application"),
        good(aud=["another-application"]),
        good(aud=[]),
        {name: claim for name, claim in good().items() if name != "aud"},
        good(sub=""),
        good(groups="staff"),
        b"not json",
        b'{"sub": "alice", "sub": "bob"}',
    ],
    ids=str,
)
async def test_other_claims_are_refused(claims: dict[str, Any] | bytes) -> None:
    async with calling(public(rsa())) as caller:
        await caller.refused(signed(claims, rsa(), "RS256"))
        await caller.enters(signed(good(exp=NOW - 29, nbf=NOW + 29), rsa(), "RS256"))


@pytest.mark.parametrize("token", ["", "a.b.c", "..", "x" * 9000, "ü.a.b"])
async def test_what_is_no_token_asks_nobody(token: str) -> None:
    async with calling(public(rsa())) as caller:
        await caller.refused(token)
        await caller.refused(signed(good(note="x" * 9000), rsa(), "RS256"))
        await caller.refused(unsigned("none"))
        await caller.refused(hmac_with(b"s" * 32))
        assert caller.issuer.fetches == 0


async def test_a_key_without_an_id_serves_where_there_is_no_choice() -> None:
    async with calling(public(rsa(), kid=None), public(ec())) as caller:
        caller.issuer.entries = [{name: part for name, part in entry.items() if part is not None} for entry in caller.issuer.entries]
        await caller.enters(signed(good(), rsa(), "RS256", kid=None))
        await caller.enters(signed(good(), ec(), "ES256", kid=None))


async def test_a_rotated_key_is_learnt_at_once_and_a_withdrawn_one_is_forgotten() -> None:
    old, new, newest = (signed(good(), rsa(name), "RS256") for name in ("old", "new", "newest"))
    async with calling(public(rsa("old"))) as caller:
        await caller.enters(old)
        caller.issuer.entries = [public(rsa("old")), public(rsa("new"))]
        await caller.enters(new)
        await caller.enters(old)
        assert caller.issuer.fetches == 2
        caller.issuer.entries = [public(rsa("new")), public(rsa("newest"))]
        await caller.refused(newest)  # just asked: anybody may make up ids
        assert caller.issuer.fetches == 2
        caller.seconds += REFRESH_GAP_SECONDS
        await caller.enters(newest)
        await caller.refused(old)
        assert caller.issuer.fetches == 3
        caller.issuer.entries = [public(rsa("newest"))]
        caller.seconds += MAX_AGE_SECONDS
        await caller.enters(new)
        caller.seconds += 1
        await caller.refused(new)
        await caller.enters(newest)


@pytest.mark.parametrize("kid", [None, "the-one"])
async def test_another_key_under_the_same_id_or_none_is_learnt_at_once(kid: str | None) -> None:
    def entry(name: str) -> dict[str, Any]:
        return {member: value for member, value in public(rsa(name), kid=kid).items() if value is not None}

    async with calling(entry("old")) as caller:
        await caller.enters(signed(good(), rsa("old"), "RS256", kid=kid))
        caller.issuer.entries = [entry("new")]
        await caller.enters(signed(good(), rsa("new"), "RS256", kid=kid))
        await caller.refused(signed(good(), rsa("old"), "RS256", kid=kid))
        assert caller.issuer.fetches == 2


async def test_made_up_signatures_cost_one_fetch_and_no_wait_for_an_issuer_that_is_away() -> None:
    forged = signed(good(), rsa("stranger"), "RS256", kid=public(rsa())["kid"])
    async with calling(public(rsa())) as caller:
        await caller.enters(signed(good(), rsa(), "RS256"))
        for _ in range(20):
            await caller.refused(forged)
        assert caller.issuer.fetches == 2


async def test_made_up_key_ids_cost_one_fetch() -> None:
    async with calling(public(rsa())) as caller:
        await caller.enters(signed(good(), rsa(), "RS256"))
        tokens = [signed(good(), rsa("stranger"), "RS256", kid=f"made-up-{number}") for number in range(20)]
        await asyncio.gather(*(caller.refused(token) for token in tokens))
        await asyncio.gather(*(caller.refused(token) for token in tokens))
        assert caller.issuer.fetches == 2


async def test_whoever_comes_at_once_waits_for_one_fetch_and_who_leaves_ends_it_for_nobody() -> None:
    token = signed(good(), rsa(), "RS256")
    async with calling(public(rsa())) as caller:
        caller.issuer.hold()
        leaves, *others = [asyncio.create_task(caller.enters(token)) for _ in range(10)]
        await caller.issuer.server.until(lambda: caller.issuer.fetches == 1)
        leaves.cancel()
        caller.issuer.release()
        await asyncio.gather(*others)
        assert leaves.cancelled()
        assert caller.issuer.fetches == 1


async def test_an_issuer_that_was_never_reached_is_503_and_comes_back() -> None:
    token = signed(good(), rsa(), "RS256")
    async with calling(public(rsa())) as caller:
        caller.issuer.away = True
        with capture_logs() as logged:
            for _ in range(3):
                await caller.refused(token, Code.IDENTITY_UNAVAILABLE)
        assert caller.issuer.fetches == 1
        assert [(line["event"], line["fault"]) for line in logged] == [("key_set_not_had", "disconnected")]
        assert not await caller.identity.ready()
        caller.issuer.away = False
        caller.seconds += RETRY_GAP_SECONDS
        assert await caller.identity.ready()
        await caller.enters(token)


async def test_the_last_good_set_serves_while_the_issuer_is_away() -> None:
    token, rotated = signed(good(), rsa(), "RS256"), signed(good(), rsa("new"), "RS256")
    async with calling(public(rsa())) as caller:
        await caller.enters(token)
        for fault in (reply("503 Service Unavailable"), reply("200 OK", b'{"keys": []}'), reply("200 OK", b"<html>")):
            caller.issuer.answer = fault
            caller.seconds += MAX_AGE_SECONDS + 1
            await caller.enters(token)
            # Nobody knows: the key may be a new one of the issuer's.
            await caller.refused(rotated, Code.IDENTITY_UNAVAILABLE)
            await caller.refused(signed(good(), rsa("stranger"), "RS256", kid="r"))
            assert await caller.identity.ready()
        caller.issuer.answer, caller.issuer.entries = None, [public(rsa("new"))]
        caller.seconds += RETRY_GAP_SECONDS
        await caller.enters(rotated)
        await caller.refused(token)


async def test_nobody_waits_for_an_issuer_that_is_known_to_be_away() -> None:
    token = signed(good(), rsa(), "RS256")
    async with calling(public(rsa())) as caller:
        await caller.enters(token)
        caller.issuer.away = True
        caller.seconds += MAX_AGE_SECONDS + 1
        await caller.enters(token)
        caller.issuer.hold()
        caller.seconds += RETRY_GAP_SECONDS
        await asyncio.wait_for(caller.enters(token), FETCH_SECONDS / 2)
        await caller.issuer.server.until(lambda: caller.issuer.fetches == 3)


FAULTY = {
    "a status": (reply("500 Internal Server Error"), KeySetFault.STATUS),
    "no content": (reply("204 No Content"), KeySetFault.STATUS),
    "no JSON": (reply("200 OK", b"<html>"), KeySetFault.MALFORMED),
    "no object": (reply("200 OK", b"[]"), KeySetFault.MALFORMED),
    "no list": (reply("200 OK", b'{"keys": {}}'), KeySetFault.MALFORMED),
    "a name twice": (reply("200 OK", b'{"keys": [], "keys": []}'), KeySetFault.MALFORMED),
    "too many keys": (reply("200 OK", json.dumps({"keys": [{}] * (MAX_KEYS + 1)}).encode()), KeySetFault.MALFORMED),
    "nothing to verify with": (reply("200 OK", b'{"keys": [{"kty": "oct", "k": "AAAA"}, 7, {"kty": "RSA"}]}'), KeySetFault.EMPTY),
}


@pytest.mark.parametrize("fault", FAULTY)
async def test_a_reply_that_is_no_key_set_is_a_named_fault(fault: str) -> None:
    answer, named = FAULTY[fault]
    async with calling() as caller:
        caller.issuer.answer = answer
        assert await fetch_key_set(caller.client, caller.issuer.url) is named
        await caller.refused(signed(good(), rsa(), "RS256"), Code.IDENTITY_UNAVAILABLE)


async def test_a_redirect_is_not_followed_and_a_set_is_bounded() -> None:
    async with calling(public(rsa())) as caller, RawServer(answer_with()) as target:
        caller.issuer.answer = reply("302 Found", headers=f"Location: {target.base_url}/keys\r\n")
        assert await fetch_key_set(caller.client, caller.issuer.url) is KeySetFault.STATUS
        assert target.connections == []
        padded = json.dumps({"keys": [public(rsa())], "note": "x" * MAX_SET_BYTES}).encode()
        caller.issuer.answer = reply("200 OK", padded)
        fault = await fetch_key_set(caller.client, caller.issuer.url)
        assert fault == "reply_too_large"


def test_broken_and_strange_keys_are_left_out_and_the_rest_serves() -> None:
    strange = [
        None,
        7,
        {},
        {"kty": ["RSA"]},
        {"kty": "RSA", "n": 7, "e": "AQAB"},
        {"kty": "RSA", "n": "!", "e": "AQAB"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
        {"kty": "EC", "crv": "P-999", "x": "AA", "y": "AA"},
        {"kty": "OKP", "crv": "X25519", "x": "AA"},
        {"kty": "AKP", "alg": "ML-DSA-44", "pub": "AA"},
        public(rsa("a"), kid=7),
        public(rsa("b"), alg="HS256"),
        public(rsa("c"), alg=["RS256"]),
        public(rsa("d"), key_ops="verify"),
        public(rsa("e"), use=7),
    ]
    found = parse_key_set(json.dumps({"keys": [*strange, public(rsa())]}).encode())
    assert isinstance(found, tuple)
    assert [key.key_id for key in found] == ["r"]
    assert "AQAB" not in repr(found)


def test_a_private_key_in_a_set_is_taken_for_its_public_half() -> None:
    found = parse_key_set(json.dumps({"keys": [rsa().as_dict(private=True)]}).encode())
    assert isinstance(found, tuple)
    assert not found[0].key.is_private


async def test_over_http_it_is_503_with_retry_after_and_200_once_the_issuer_answers(postgres: PostgresForTests) -> None:
    token = {"Authorization": f"Bearer {signed(good(), rsa(), 'RS256')}"}
    with postgres.migrated_database() as url:
        async with calling(public(rsa())) as caller, open_world(url, identity=caller.identity) as world:
            caller.issuer.away = True
            answer = await world.client.get("/api/internal/me", headers=token)
            assert (answer.status_code, answer.json()["code"], answer.json()["retry"]) == (503, "identity_unavailable", "same-submission")
            assert answer.headers["retry-after"] == "5"
            assert (await world.client.get("/api/internal/me", headers={"Authorization": "Bearer a.b.c"})).status_code == 401
            caller.issuer.away = False
            caller.seconds += RETRY_GAP_SECONDS
            answer = await world.client.get("/api/internal/me", headers=token)
            assert answer.json() == {"subject": "alice", "groups": ["staff"], "operator": False}
            world.sql("update account set state = 'suspended' where subject = 'alice'")
            assert (await world.client.get("/api/internal/me", headers=token)).json()["code"] == "account_inactive"


async def test_a_replica_is_ready_once_it_had_the_keys_and_then_serves(database_url: str) -> None:
    """A whole replica as the settings make it, with the clocks of the system."""
    moment = time.time()
    async with issuing(public(rsa())) as issuer, Stack.over(database_url) as stack:
        issuer.away = True
        changes = {"GATEWAY_JWT_KEY": "", "GATEWAY_JWKS_URL": issuer.url, "GATEWAY_JWT_ISSUER": ISSUER, "GATEWAY_JWT_AUDIENCE": AUDIENCE}
        replica = await stack.replica(stack.settings(**changes))
        answer = await replica.http.get("/readyz")
        assert (answer.status_code, answer.json()["checks"]["identity"]) == (503, False)
        issuer.away = False
        async with asyncio.timeout(30):
            while (answer := await replica.http.get("/readyz")).status_code != 200:
                await asyncio.sleep(0.05)  # the retry gap, by the clock of the system
        assert answer.json()["checks"]["identity"]
        token = signed({"sub": "olga", "iss": ISSUER, "aud": AUDIENCE, "exp": moment + 600, "roles": ["operator"]}, rsa(), "RS256")
        me = await replica.http.get("/api/internal/me", headers={"Authorization": f"Bearer {token}"})
        assert me.json() == {"subject": "olga", "groups": [], "operator": True}
