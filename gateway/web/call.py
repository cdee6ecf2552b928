"""One request as a handler sees it, and the closed set of who may call a route.

The kind of a route decides what its handler is given: nothing, claims, an account, or an account that may use the application. So a
handler cannot forget a check: without it there is no value to work with.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
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
from gateway.web.auth import Credential
from gateway.web.body import read_body
from gateway.web.negotiation import Answer
from gateway.web.services import Services


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
        return path_uuid(self.path, name)

    async def body(self, max_bytes: int = MAX_BROWSER_BODY_BYTES) -> bytes:
        """The body, bounded. Raises Refused, or SenderLeft."""
        return await read_body(self.headers, self.receive, max_bytes)


def path_uuid(path: Mapping[str, str], name: str) -> UUID:
    found = uuid_of(path[name])
    if found is None:
        raise Refused(Code.NOT_FOUND)
    return found


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
    PATCH = "PATCH"
    DELETE = "DELETE"


JSON: Final = (Answer.JSON,)
STREAM: Final = (Answer.STREAM,)
JSON_OR_STREAM: Final = (Answer.JSON, Answer.STREAM)
ANYTHING: Final[tuple[Answer, ...]] = ()
"""What the address answers with is not negotiated: pages, files, probes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSpec:
    """One row of the route table. `body`: whether it reads one, as application/json."""

    path: str
    method: Method
    name: str
    caller: Caller
    answers: tuple[Answer, ...]
    body: bool = False
