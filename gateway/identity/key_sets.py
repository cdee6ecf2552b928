"""Key sets of identity providers (JWKS, RFC 7517): which key may verify what, and the last good set of an issuer that may be away.

Symmetric keys are never taken from a set: what verifies would sign as well, and a public key that is taken for a shared secret is the
oldest forgery there is. What a token's own header brings along (jwk, jku, x5u, x5c) is never looked at.
"""

import asyncio
import base64
import math
from collections.abc import Callable, Coroutine, Mapping
from enum import StrEnum
from typing import Any, Final, Protocol

import structlog
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey

from gateway.domain import strict_json
from gateway.domain.problems import Code, Refused
from gateway.http_client import CallFault, HttpClient, Reply
from gateway.identity.tokens import Claims, Header, TokenChecks, VerifyingKey, header_of, signed_payload

FETCH_SECONDS: Final = 5.0
MAX_SET_BYTES: Final = 256 * 1024
"""Providers with certificates in their sets have about 3 KiB for each key."""
MAX_KEYS: Final = 100
MAX_AGE_SECONDS: Final = 600.0
"""After that the set is fetched again: a key that the issuer withdrew is believed for no longer, unless the issuer is away."""
REFRESH_GAP_SECONDS: Final = 10.0
"""The least time between two fetches because of key ids that nobody knows or signatures that do not fit: anybody may make those up."""
RETRY_GAP_SECONDS: Final = 2.0
"""The same after a fetch that failed."""

_RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_RSA_BITS: Final = range(2048, 4096 + 1)
_CURVES: Final[Mapping[tuple[str, str], frozenset[str]]] = {
    ("EC", "P-256"): frozenset({"ES256"}),
    ("EC", "P-384"): frozenset({"ES384"}),
    ("EC", "P-521"): frozenset({"ES512"}),
    ("OKP", "Ed25519"): frozenset({"EdDSA", "Ed25519"}),
    ("OKP", "Ed448"): frozenset({"EdDSA", "Ed448"}),
}
_KINDS: Final[Mapping[str, type[RSAKey] | type[ECKey] | type[OKPKey]]] = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey}
_ASYMMETRIC: Final = _RSA.union(*_CURVES.values())
_PUBLIC: Final = ("kty", "n", "e", "crv", "x", "y")
"""The members that are taken over: no private part, whatever a set holds."""

KeySet = tuple[VerifyingKey, ...]

_log: Final[structlog.stdlib.BoundLogger] = structlog.get_logger("gateway.identity.key_sets")


class KeySetFault(StrEnum):
    """Why a reply is no key set."""

    STATUS = "not_200"
    """Redirects are among these: they are never followed."""
    MALFORMED = "not_a_key_set"
    EMPTY = "no_usable_key"


def parse_key_set(body: bytes) -> KeySet | KeySetFault:
    """The keys of a set that may verify signatures. Left out: those for other uses, of types and sizes not known here, and broken ones."""
    try:
        document = strict_json.loads(body)
    except strict_json.NotStrictJson:
        return KeySetFault.MALFORMED
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list) or len(listed) > MAX_KEYS:
        return KeySetFault.MALFORMED
    keys = tuple(key for entry in listed if isinstance(entry, dict) and (key := _verifying_key(entry)) is not None)
    return keys or KeySetFault.EMPTY


def _verifying_key(entry: Mapping[str, strict_json.Json]) -> VerifyingKey | None:
    kind, key_id, uses = entry.get("kty"), entry.get("kid"), entry.get("key_ops", ["verify"])
    if not isinstance(kind, str) or kind not in _KINDS or not (key_id is None or isinstance(key_id, str)):
        return None
    if entry.get("use", "sig") != "sig" or not isinstance(uses, list) or "verify" not in uses:
        return None
    try:
        if kind == "RSA" and _bits_of(entry["n"]) not in _RSA_BITS:
            return None
        members: dict[str, Any] = {name: entry[name] for name in _PUBLIC if name in entry}
        key = _KINDS[kind].import_key(members)
        allowed = _RSA if kind == "RSA" else _CURVES.get((kind, str(entry["crv"])), frozenset())
        if "alg" in entry:
            allowed &= {str(entry["alg"])}
    # The library's own errors, and what the ones below it raise for members of other types.
    except (JoseError, ValueError, TypeError, KeyError, OverflowError):
        return None
    return VerifyingKey(key, allowed, key_id) if allowed else None


def _bits_of(modulus: strict_json.Json) -> int:
    encoded = modulus if isinstance(modulus, str) else ""
    return int.from_bytes(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))).bit_length()


async def fetch_key_set(http_client: HttpClient, url: str) -> KeySet | KeySetFault | CallFault:
    """The issuer's keys as they are now: bounded in time and size, no redirects. None of the faults has text of the issuer."""
    reply = await http_client.get_json(url, deadline_seconds=FETCH_SECONDS, max_bytes=MAX_SET_BYTES)
    if not isinstance(reply, Reply):
        return reply
    return parse_key_set(reply.body) if reply.status == 200 else KeySetFault.STATUS


class OwnTask(Protocol):
    """Runs a coroutine in a task that no request owns."""

    def __call__(self, coroutine: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]": ...


class FetchedKeys:
    """The last good key set of one issuer. One fetch at a time, whoever waits for it."""

    def __init__(self, http_client: HttpClient, url: str, *, own: OwnTask, clock: Callable[[], float]) -> None:
        self._http_client = http_client
        self._url = url
        self._own = own
        self._clock = clock
        self._keys: KeySet = ()
        self._fetched_at: float | None = None
        self._tried_at = self._unknown_at = -math.inf
        self._failing = False
        self._fetching: asyncio.Task[None] | None = None

    async def key_of(self, header: Header) -> VerifyingKey:
        """The key that a token names. Raises Refused: UNAUTHENTICATED for none, IDENTITY_UNAVAILABLE while the issuer cannot be asked."""
        if header.algorithm not in _ASYMMETRIC:
            raise Refused(Code.UNAUTHENTICATED)
        if not self._knows(header.key_id):
            await self.refresh()
        elif self._fetched_at is not None and self._clock() - self._fetched_at > MAX_AGE_SECONDS:
            await self.renew()
        key = self._find(header)
        if key is None:
            raise Refused(Code.IDENTITY_UNAVAILABLE if self._failing and not self._knows(header.key_id) else Code.UNAUTHENTICATED)
        return key

    async def ready(self) -> bool:
        """Whether there is a set, of now or of before; asks for one where there is none."""
        if self._fetched_at is None:
            await self.refresh()
        return self._fetched_at is not None

    async def refresh(self) -> None:
        """Fetch the set, unless that was tried a moment ago; whoever comes meanwhile waits for the same fetch."""
        task = self._begin()
        if task is not None:
            await asyncio.shield(task)

    async def renew(self) -> bool:
        """As `refresh`; but while the issuer is known to be away nobody waits for it, and the last good set serves. True after a fetch."""
        task = self._begin()
        if task is None or self._failing:
            return False
        await asyncio.shield(task)
        return True

    def _begin(self) -> "asyncio.Task[None] | None":
        if self._fetching is None and self._may_ask(self._clock()):
            self._fetching = self._own(self._fetch(), "key-set")
        return self._fetching

    def _may_ask(self, now: float) -> bool:
        if self._failing:
            return now - self._tried_at >= RETRY_GAP_SECONDS
        if self._fetched_at is None or now - self._fetched_at > MAX_AGE_SECONDS:
            return True
        # Because of an unknown id or a signature that does not fit. The first is asked for at once: a rotation is learnt when it happens.
        if now - self._unknown_at < REFRESH_GAP_SECONDS:
            return False
        self._unknown_at = now
        return True

    async def _fetch(self) -> None:
        try:
            found = await fetch_key_set(self._http_client, self._url)
        finally:
            self._fetching, self._tried_at = None, self._clock()
        if isinstance(found, tuple):
            self._keys, self._fetched_at, self._failing = found, self._clock(), False
        else:
            if not self._failing:
                _log.warning("key_set_not_had", fault=found.value, last_good=self._fetched_at is not None)
            self._failing = True

    def _find(self, header: Header) -> VerifyingKey | None:
        fitting = [
            key for key in self._keys if header.algorithm in key.algorithms and (header.key_id is None or key.key_id == header.key_id)
        ]
        # Without an id there must be no choice.
        return fitting[0] if len(fitting) == 1 or (fitting and header.key_id is not None) else None

    def _knows(self, key_id: str | None) -> bool:
        return self._fetched_at is not None and (key_id is None or any(key.key_id == key_id for key in self._keys))


class KeySetIdentity:
    """Tokens signed with the keys of an identity provider."""

    def __init__(self, keys: FetchedKeys, checks: TokenChecks) -> None:
        self._keys = keys
        self._checks = checks

    async def verify(self, token: str) -> Claims:
        """See Identity."""
        header = header_of(token)
        payload = signed_payload(token, await self._keys.key_of(header))
        if payload is None and await self._keys.renew():
            # The issuer may have another key by now under that id, or under none.
            payload = signed_payload(token, await self._keys.key_of(header))
        return self._checks.claims(payload)

    async def ready(self) -> bool:
        """See Identity. Asks the issuer where there is no set yet."""
        return await self._keys.ready()
