"""Bearer tokens: from bytes that anybody may send to verified claims. Accounts and visibility are in `accounts`.

One algorithm, allow-listed; `exp` is required, because a token without an end cannot be taken back. Every fault is the same refusal:
a caller learns nothing about why, and no text of a token reaches a log.
"""

import math
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from joserfc import jws, jwt
from joserfc.errors import JoseError
from joserfc.jwk import OctKey
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
        """The token's claims. Raises Refused(UNAUTHENTICATED) for whatever is wrong with it."""
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


class HmacIdentity:
    """Tokens signed with one shared key (HS256). `issuer` and `audience` are checked where they are given."""

    def __init__(
        self,
        key: bytes,
        *,
        claim_names: ClaimNames = DEFAULT_CLAIM_NAMES,
        leeway_seconds: float = 30.0,
        issuer: str | None = None,
        audience: str | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._key = OctKey.import_key(key)
        self._claim_names = claim_names
        options: dict[str, ClaimsOption] = {"exp": {"essential": True}}
        if issuer is not None:
            options["iss"] = {"essential": True, "value": issuer}
        if audience is not None:
            options["aud"] = {"essential": True, "value": audience}
        self._registry = JWTClaimsRegistry(now=lambda: math.floor(now()), leeway=math.ceil(leeway_seconds), **options)

    async def verify(self, token: str) -> Claims:
        """See Identity."""
        claims = self._verified(token)
        if claims is None:
            raise Refused(Code.UNAUTHENTICATED)
        return claims

    def _verified(self, token: str) -> Claims | None:
        if len(token) > MAX_TOKEN_CHARACTERS or not _TOKEN.fullmatch(token):
            return None
        try:
            payload = jws.deserialize_compact(token, self._key, algorithms=[ALGORITHM]).payload
            document = strict_json.loads(payload or b"")
            if not isinstance(document, dict):
                return None
            self._registry.validate(document)
        # The library's own errors, and what its decoders let through for odd headers.
        except (JoseError, ValueError, TypeError, OverflowError, RecursionError):
            return None
        return claims_from(document, self._claim_names)


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
