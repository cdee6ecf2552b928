"""Bearer tokens: what is accepted, and that everything else is one and the same refusal."""

import base64
import hashlib
import hmac
import json

import pytest

from gateway.domain.problems import Code, Refused
from gateway.identity.tokens import ClaimNames, Claims, HmacIdentity, TokenChecks, sign_token

KEY = b"k" * 32
NOW = 1_800_000_000.0
pytestmark = pytest.mark.anyio


def identity(**options: object) -> HmacIdentity:
    return HmacIdentity(KEY, TokenChecks(now=lambda: NOW, **options))  # type: ignore[arg-type]


def signed(claims: object, *, key: bytes = KEY, header: object = None) -> str:
    """A token made by hand, so that it can be as wrong as one likes."""
    raw = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    parts = [json.dumps(header or {"alg": "HS256", "typ": "JWT"}).encode(), raw]
    head = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    return f"{head.decode()}.{base64.urlsafe_b64encode(hmac.digest(key, head, hashlib.sha256)).rstrip(b'=').decode()}"


def good(**changes: object) -> dict[str, object]:
    return {"sub": "alice", "exp": NOW + 60, **changes}


async def refused(token: str, **options: object) -> None:
    with pytest.raises(Refused) as caught:
        await identity(**options).verify(token)
    assert caught.value.code is Code.UNAUTHENTICATED
    assert caught.value.extra == {}
    assert caught.value.__context__ is None


async def test_what_is_signed_is_verified() -> None:
    token = sign_token(KEY, subject="zoë", groups=["b", "a", "a"], roles=["operator"], now=NOW)
    assert await identity().verify(token) == Claims("zoë", frozenset({"a", "b"}), operator=True)
    assert await identity().verify(signed(good())) == Claims("alice", frozenset(), operator=False)
    assert await identity().verify(signed(good(groups=None, roles=["Operator"]))) == Claims("alice", frozenset(), operator=False)


async def test_claim_names_are_settings() -> None:
    names = ClaimNames(subject="uid", groups="teams", roles="rights")
    token = sign_token(KEY, subject="alice", groups=["a"], roles=["operator"], claim_names=names, now=NOW)
    assert await identity(claim_names=names).verify(token) == Claims("alice", frozenset({"a"}), operator=True)
    await refused(token)


async def test_times_have_a_leeway() -> None:
    for claims in (good(exp=NOW - 29), good(nbf=NOW + 30), good(iat=NOW + 30), good(exp=NOW + 0.5)):
        assert (await identity().verify(signed(claims))).subject == "alice"
    for claims in (good(exp=NOW - 31), good(nbf=NOW + 31), good(iat=NOW + 31)):
        await refused(signed(claims))
    await refused(signed(good(exp=NOW - 29)), leeway_seconds=0)


async def test_issuer_and_audience_are_checked_where_they_are_set() -> None:
    token = sign_token(KEY, subject="alice", issuer="idp", audience="gateway", now=NOW)
    assert (await identity().verify(token)).subject == "alice"
    assert (await identity(issuer="idp", audience="gateway").verify(token)).subject == "alice"
    await refused(token, issuer="other")
    await refused(token, audience="other")
    await refused(signed(good()), issuer="idp")
    await refused(signed(good()), audience="gateway")


@pytest.mark.parametrize(
    "claims",
    [
        {"sub": "alice"},
        {"exp": NOW + 60},
        good(sub=""),
        good(sub="a" * 201),
        good(sub="a\nb"),
        good(sub="a\x00b"),
        good(sub="a\ud800"),
        good(sub=7),
        good(sub=None),
        good(exp="soon"),
        good(exp=True),
        good(nbf="now"),
        good(groups="staff"),
        good(groups=["staff", 1]),
        good(groups=["a\x1b[31m"]),
        good(groups={"staff": True}),
        good(groups=[f"g{number}" for number in range(501)]),
        good(roles="operator"),
        good(roles=[["operator"]]),
        ["alice"],
        "alice",
        b'{"sub": "alice", "sub": "bob", "exp": 1900000000}',
        b'{"sub": "alice", "exp": NaN}',
        b'{"sub": "alice", "exp": Infinity}',
        b"[" * 500 + b"]" * 500,
        b"not json",
        b"\xff",
        b"",
    ],
)
async def test_other_claims_are_refused(claims: object) -> None:
    await refused(signed(claims))


@pytest.mark.parametrize(
    "token",
    [
        "",
        "x",
        "a.b.c",
        "..",
        signed(good(), key=b"o" * 32),
        signed(good(), header={"alg": "none"}),
        signed(good(), header={"alg": "HS384"}),
        signed(good(), header={"alg": "RS256"}),
        signed(good(), header={"alg": "hs256"}),
        signed(good(), header={"typ": "JWT"}),
        signed(good(), header={"alg": "HS256", "crit": ["x"], "x": 1}),
        signed(good(), header={"alg": "HS256", "b64": False, "crit": ["b64"]}),
        signed(good(), header=["HS256"]),
        signed(good()).rpartition(".")[0] + ".",
        signed(good()) + "=",
        signed(good()) + "\n",
        " " + signed(good()),
        signed(good()) + ".x",
        signed(good(note="x" * 9000)),
        "ü" + signed(good()),
    ],
)
async def test_other_tokens_are_refused(token: str) -> None:
    await refused(token)


@pytest.mark.parametrize("subject", ["", "a\nb", "a" * 201])
def test_no_token_is_signed_for_a_name_that_would_be_refused(subject: str) -> None:
    with pytest.raises(ValueError):
        sign_token(KEY, subject=subject)
