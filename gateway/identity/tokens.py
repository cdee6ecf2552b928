"""Bearer tokens: from bytes that anybody may send to verified claims. Accounts and visibility are in `accounts`, fetched keys in
`key_sets`.

Algorithms are allow-listed by the key; `exp` is required, because a token without an end cannot be taken back. Every fault is the same
refusal: a caller learns nothing about why, and no text of a token reaches a log.
"""

import base64
import math
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from joserfc import jws, jwt
from joserfc.errors import JoseError, UnsupportedAlgorithmError
from joserfc.jwk import Key, OctKey
from joserfc.jwt import ClaimsOption, JWTClaimsRegistry

from gateway.domain import strict_json
from gateway.domain.limits import MAX_SUBJECT_CHARACTERS
from gateway.domain.problems import Code, Refused

ALGORITHM: Final = "HS256"
MAX_TOKEN_CHARACTERS: Final = 8 * 1024
"""A cookie holds half of that; a server's header block rarely more."""
MAX_NAMES: Final = 500
"""Groups or roles of one caller: they go into every statement that asks about visibility."""
OPERATOR_ROLE: Final = "operator"

_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
# 1 to 200 characters, none of them control, line separator or half of a pair: what a name may be in a row, a log line and a page.
_NAME: Final = re.compile(f"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]{{1,{MAX_SUBJECT_CHARACTERS}}}")


@dataclass(frozen=True, slots=True)
class Claims:
    """What a verified token says. `operator`: its roles name the operator role."""

    subject: str
    groups: frozenset[str]
    operator: bool


class Identity(Protocol):
    """Verifies bearer tokens: by a local key, or by a key set that is fetched."""

    async def verify(self, token: str) -> Claims:
        """The token's claims. Raises Refused: UNAUTHENTICATED for whatever is wrong with it, IDENTITY_UNAVAILABLE while nobody can tell."""
        ...

    async def ready(self) -> bool:
        """Whether tokens can be verified at all."""
        ...


@dataclass(frozen=True, slots=True)
class ClaimNames:
    """Where an identity provider puts things."""

    subject: str = "sub"
    groups: str = "groups"
    roles: str = "roles"


DEFAULT_CLAIM_NAMES: Final = ClaimNames()


def is_name(text: str) -> bool:
    """Whether `text` may name a subject, a group or a role."""
    return _NAME.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class VerifyingKey:
    """A key and all that it may verify: whatever a token's header says, no other algorithm is tried with it."""

    key: Key = field(repr=False)
    algorithms: frozenset[str]
    key_id: str | None = None


@dataclass(frozen=True, slots=True)
class Header:
    """What chooses the key of a token; nothing else of its header is believed."""

    algorithm: str
    key_id: str | None


class TokenChecks:
    """What every token must stand, whoever signed it. `issuer` and `audience` are checked where they are given."""

    def __init__(
        self,
        *,
        claim_names: ClaimNames = DEFAULT_CLAIM_NAMES,
        leeway_seconds: float = 30.0,
        issuer: str | None = None,
        audience: str | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._claim_names = claim_names
        options: dict[str, ClaimsOption] = {"exp": {"essential": True}}
        if issuer is not None:
            options["iss"] = {"essential": True, "value": issuer}
        if audience is not None:
            options["aud"] = {"essential": True, "value": audience}
        self._registry = JWTClaimsRegistry(now=lambda: math.floor(now()), leeway=math.ceil(leeway_seconds), **options)

    def claims(self, payload: bytes | None) -> Claims:
        """The claims of a `signed_payload`. Raises Refused(UNAUTHENTICATED), for None too."""
        claims = None if payload is None else self._claims(payload)
        if claims is None:
            raise Refused(Code.UNAUTHENTICATED)
        return claims

    def _claims(self, payload: bytes) -> Claims | None:
        try:
            document = strict_json.loads(payload)
            if not isinstance(document, dict):
                return None
            self._registry.validate(document)
        except (JoseError, ValueError, TypeError, OverflowError):
            return None
        return claims_from(document, self._claim_names)


def signed_payload(token: str, key: VerifyingKey) -> bytes | None:
    """What `key` signed of a token that `header_of` found well formed; None when it did not sign it."""
    try:
        return jws.deserialize_compact(token, key.key, registry=_Algorithms(key.algorithms)).payload or b""
    # The library's own errors, and what its decoders let through for odd headers.
    except (JoseError, ValueError, TypeError, OverflowError, RecursionError):
        return None


class _Algorithms(jws.JWSRegistry):
    """Exactly these algorithms. Parameters of a header that nobody here knows are ignored (RFC 7515 4), but for those that are critical."""

    max_header_length = MAX_TOKEN_CHARACTERS

    def __init__(self, allowed: Collection[str]) -> None:
        super().__init__(algorithms=allowed, strict_check_header=False)

    def get_alg(self, name: str) -> Any:
        if self.allowed is None or name not in self.allowed:
            raise UnsupportedAlgorithmError(name)
        # Without the library's warning about EdDSA: issuers go on to call Ed25519 so (RFC 9864).
        return self.algorithms[name]


def header_of(token: str) -> Header:
    """The header of a well formed token. Raises Refused(UNAUTHENTICATED)."""
    header = _header(token)
    if header is None:
        raise Refused(Code.UNAUTHENTICATED)
    return header


def _header(token: str) -> Header | None:
    if len(token) > MAX_TOKEN_CHARACTERS or not _TOKEN.fullmatch(token):
        return None
    encoded = token.partition(".")[0]
    try:
        header = strict_json.loads(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
    except (strict_json.NotStrictJson, ValueError):
        return None
    if not isinstance(header, dict):
        return None
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or not (key_id is None or isinstance(key_id, str)):
        return None
    return Header(algorithm, key_id)


class HmacIdentity:
    """Tokens signed with one shared key (HS256)."""

    def __init__(self, key: bytes, checks: TokenChecks | None = None) -> None:
        self._key = VerifyingKey(OctKey.import_key(key), frozenset({ALGORITHM}))
        self._checks = checks or TokenChecks()

    async def verify(self, token: str) -> Claims:
        """See Identity."""
        header_of(token)
        return self._checks.claims(signed_payload(token, self._key))

    async def ready(self) -> bool:
        """See Identity."""
        return True


def claims_from(document: Mapping[str, strict_json.Json], names: ClaimNames) -> Claims | None:
    """The claims of a document whose signature and times were verified; None when a claim has another form than it should."""
    subject = document.get(names.subject)
    groups = _names(document.get(names.groups))
    roles = _names(document.get(names.roles))
    if not isinstance(subject, str) or not is_name(subject) or groups is None or roles is None:
        return None
    return Claims(subject=subject, groups=groups, operator=OPERATOR_ROLE in roles)


def sign_token(
    key: bytes,
    *,
    subject: str,
    groups: Collection[str] = (),
    roles: Collection[str] = (),
    lifetime_seconds: float = 12 * 3600,
    claim_names: ClaimNames = DEFAULT_CLAIM_NAMES,
    issuer: str | None = None,
    audience: str | None = None,
    now: float | None = None,
) -> str:
    """A token that HmacIdentity with the same key and names accepts. Raises ValueError for a subject, group or role of a wrong form."""
    if not all(is_name(text) for text in (subject, *groups, *roles)):
        raise ValueError("subjects, groups and roles have 1 to 200 characters and no control characters")
    issued_at = math.floor(time.time() if now is None else now)
    document: dict[str, object] = {
        claim_names.subject: subject,
        claim_names.groups: _sorted(groups),
        claim_names.roles: _sorted(roles),
        "iat": issued_at,
        "exp": issued_at + math.ceil(lifetime_seconds),
    }
    document |= {name: value for name, value in (("iss", issuer), ("aud", audience)) if value is not None}
    return jwt.encode({"alg": ALGORITHM}, document, OctKey.import_key(key), algorithms=[ALGORITHM])


def _names(value: strict_json.Json) -> frozenset[str] | None:
    if value is None:
        return frozenset()
    if not isinstance(value, list) or len(value) > MAX_NAMES:
        return None
    names = [name for name in value if isinstance(name, str) and is_name(name)]
    return frozenset(names) if len(names) == len(value) else None


def _sorted(names: Iterable[str]) -> list[str]:
    return sorted(set(names))
