"""One request as a handler sees it, and the closed set of who may call a route.

The kind of a route decides what its handler is given: nothing, claims, an account, or an account that may use the application. So a
handler cannot forget a check: without it there is no value to work with.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar
from uuid import UUID

import orjson
from starlette.datastructures import Headers, QueryParams
from starlette.responses import Response
from starlette.types import ASGIApp, Receive

from gateway.domain.ids import ApplicationId, uuid_of
from gateway.domain.limits import MAX_BROWSER_BODY_BYTES
from gateway.domain.problems import Code, Refused
from gateway.identity.accounts import Access
from gateway.identity.tokens import Claims
from gateway.json_shapes import Body, body_of
from gateway.web.auth import SAFE_METHODS, Credential
from gateway.web.body import read_body
from gateway.web.negotiation import Answer
from gateway.web.services import Services

OPERATOR: Final = "/api/operator"
"""Below this lie the operators' addresses."""

_PARAMETER: Final = re.compile(r"{(\w+)}")
_Body = TypeVar("_Body", bound=Body)


@dataclass(frozen=True, slots=True)
class Call:
    """A request. `answer`: what was negotiated. `credential`: None where anybody may call."""

    services: Services
    method: str
    headers: Headers
    query: QueryParams
    path: Mapping[str, str]
    receive: Receive
    request_id: str
    answer: Answer
    credential: Credential | None = None
    secure: bool = False

    def path_id(self, name: str) -> UUID:
        """A UUID of the path. Raises Refused(not_found) for any other text, as for an id that does not exist."""
        found = uuid_of(self.path[name])
        if found is None:
            raise Refused(Code.NOT_FOUND)
        return found

    async def body(self, max_bytes: int = MAX_BROWSER_BODY_BYTES) -> bytes:
        """The body, bounded. Raises Refused, or SenderLeft."""
        return await read_body(self.headers, self.receive, max_bytes)

    async def body_of(self, shape: type[_Body]) -> _Body:
        """The body in the shape that the route's row names. Raises as `body`, and Refused(malformed_request)."""
        return body_of(await self.body(), shape)


def json_response(document: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON that no cache keeps."""
    return Response(orjson.dumps(document), status, {"Cache-Control": "no-store", **(headers or {})}, "application/json")


@dataclass(frozen=True, slots=True)
class Anybody:
    """No identity is asked for: health, pages, the demo's sign-in."""

    handler: Callable[[Call], Awaitable[ASGIApp]]


@dataclass(frozen=True, slots=True)
class ActiveAccount:
    """A verified caller with an active account."""

    handler: Callable[[Call, Access], Awaitable[ASGIApp]]


@dataclass(frozen=True, slots=True)
class ApplicationUser:
    """An active account to which the application of the path is visible."""

    handler: Callable[[Call, Access, ApplicationId], Awaitable[ASGIApp]]


@dataclass(frozen=True, slots=True)
class Submitter:
    """As ApplicationUser, but the use case itself checks account and application, in one read with the rest of its checks."""

    handler: Callable[[Call, Claims, ApplicationId], Awaitable[ASGIApp]]


@dataclass(frozen=True, slots=True)
class Operator:
    """An active account with the role `operator`."""

    handler: Callable[[Call, Access], Awaitable[ASGIApp]]


Caller = Anybody | ActiveAccount | ApplicationUser | Submitter | Operator


class Method(StrEnum):
    """Methods that routes take. HEAD comes with GET, OPTIONS with every address."""

    GET = "GET"
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"


JSON: Final = (Answer.JSON,)
STREAM: Final = (Answer.STREAM,)
JSON_OR_STREAM: Final = (Answer.JSON, Answer.STREAM)
ANYTHING: Final[tuple[Answer, ...]] = ()
"""What the address answers with is not negotiated: pages, files, probes."""


class Group(StrEnum):
    """The parts of the description."""

    CALLER = "The caller and the applications"
    RUNS = "Runs"
    CONVERSATIONS = "Conversations"
    OPERATORS = "Operators"
    HEALTH = "Health and this description"
    PAGES = "Pages"
    DEMO = "The demo's sign-in"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RouteSpec:
    """One row of the route table: what serves an address, and all that the description of the API says of it.

    `about`: a sentence. `returns`: for each status the shape of its JSON, the media type of what has none, or None for no body; an event
    stream is said by `answers`. `takes`: the shape of the body. `query`: the shape of the query. `refuses`: the problems of this route
    beside those that follow from the rest (see `refusals`).
    """

    path: str
    method: Method
    name: str
    group: Group
    caller: Caller
    answers: tuple[Answer, ...]
    about: str
    returns: Mapping[int, type[Any] | str | None]
    takes: type[Body] | None = None
    query: type[Any] | None = None
    refuses: tuple[Code, ...] = ()

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names in the path."""
        return tuple(_PARAMETER.findall(self.path))


def refusals(spec: RouteSpec) -> frozenset[Code]:
    """Every problem that the route can answer with: its own, and what its kind of caller, its body, its query and its path bring along."""
    found = {Code.INTERNAL_ERROR, *spec.refuses}
    if not isinstance(spec.caller, Anybody):
        found |= {Code.UNAUTHENTICATED, Code.IDENTITY_UNAVAILABLE, Code.ACCOUNT_INACTIVE, Code.DATABASE_UNAVAILABLE}
        if spec.method not in SAFE_METHODS:
            found.add(Code.ORIGIN_NOT_ALLOWED)
    if isinstance(spec.caller, Operator):
        found.add(Code.NOT_OPERATOR)
    if spec.parameters:
        found.add(Code.NOT_FOUND)
    if spec.answers:
        found.add(Code.NOT_ACCEPTABLE)
    if spec.query is not None:
        found.add(Code.MALFORMED_REQUEST)
    if spec.takes is not None:
        found |= {Code.MALFORMED_REQUEST, Code.REQUEST_TOO_LARGE, Code.UNSUPPORTED_MEDIA_TYPE}
    return frozenset(found)
