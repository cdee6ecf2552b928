"""Where the caller's token stands in a request: the Authorization header, else the session cookie (interface.md "Who is calling").

A cookie is sent by browsers on their own, so with one an unsafe method needs an allowed Origin. What a token means is `gateway.identity`.
"""

import re
from dataclasses import dataclass
from typing import Final

from starlette.datastructures import Headers

from gateway.domain.problems import Code, Refused
from gateway.web.services import WebSettings

_BEARER: Final = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +([A-Za-z0-9\-._~+/]+=*) *")
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class Credential:
    """A token as it was sent, not yet verified."""

    token: str
    from_cookie: bool


def credential(headers: Headers, settings: WebSettings) -> Credential:
    """The request's token; a bearer token wins over a cookie, also when it is a bad one. Raises Refused(unauthenticated)."""
    authorizations = headers.getlist("authorization")
    if authorizations:
        match = _BEARER.fullmatch(authorizations[0])
        if len(authorizations) > 1 or match is None:
            raise Refused(Code.UNAUTHENTICATED)
        return Credential(match[1], from_cookie=False)
    if settings.session_cookie is not None:
        tokens = set(_cookies(headers, settings.session_cookie))
        # Two different ones: somebody planted a cookie beside ours (another path or subdomain). Neither is believed.
        if len(tokens) == 1:
            return Credential(tokens.pop(), from_cookie=True)
    raise Refused(Code.UNAUTHENTICATED)


def check_origin(method: str, headers: Headers, found: Credential, settings: WebSettings) -> None:
    """Refuse an unsafe method that comes with the cookie and without an allowed Origin. Raises Refused(origin_not_allowed)."""
    if found.from_cookie and method not in SAFE_METHODS and not origin_allowed(headers, settings):
        raise Refused(Code.ORIGIN_NOT_ALLOWED)


def origin_allowed(headers: Headers, settings: WebSettings) -> bool:
    """Whether there is exactly one Origin, and it is on the list."""
    origins = headers.getlist("origin")
    return len(origins) == 1 and origins[0].lower() in settings.allowed_origins


def _cookies(headers: Headers, name: str) -> list[str]:
    found = []
    for header in headers.getlist("cookie"):
        for pair in header.split(";"):
            key, separator, value = pair.strip().partition("=")
            if separator and key == name and value:
                found.append(value.strip('"'))
    return found
