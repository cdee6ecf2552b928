"""Refusals and faults as `application/problem+json` (RFC 9457). The table is `domain.problems`; here it becomes a response.

Nothing of an exception's text goes out. What is not expected is 500 internal_error, logged by its type only.
"""

from typing import Final, NotRequired
from uuid import UUID

import orjson
import structlog
from starlette.responses import Response
from typing_extensions import TypedDict

from gateway.admission.quota import QuotaJson
from gateway.domain.problems import PROBLEMS, Code, Refused, Retry
from gateway.domain.reasons import Reason
from gateway.domain.resolution import Obstacle
from gateway.domain.states import Execution, Persistence
from gateway.json_shapes import Time
from gateway.store.errors import DatabaseTrouble, DeadlockOrSerialization
from gateway.web.rate_limit import rate_limit_headers

MEDIA_TYPE: Final = "application/problem+json"
OVERLOADED: Final = frozenset({429, 503})
"""Statuses that always carry Retry-After (interface.md "Problems")."""
_RETRY_AFTER_SECONDS: Final = 5

_log: Final[structlog.stdlib.BoundLogger] = structlog.get_logger("gateway.web")


class RunInTheWayJson(TypedDict):
    """A run that blocks a change."""

    run_id: UUID
    execution: Execution
    persistence: Persistence


class ProblemJson(TypedDict):
    """Why a request was refused. The members from `run_id` on are there where they help: the run that is in the way; what is wrong and by
    which rule; why a conversation is blocked; why an outcome may not be recorded, or not yet; the runs that block a change; what moderation
    found and what to do about it; which limit is reached, with the rule of quota that speaks and the policies that have nothing left."""

    type: str
    title: str
    status: int
    code: Code
    detail: str
    instance: str
    retry: Retry
    run_id: NotRequired[UUID]
    field: NotRequired[str]
    rule: NotRequired[str]
    max_characters: NotRequired[int]
    blocked: NotRequired[Reason]
    why: NotRequired[Obstacle]
    allowed_from: NotRequired[Time]
    runs: NotRequired[list[RunInTheWayJson]]
    categories: NotRequired[list[str]]
    advice: NotRequired[str]
    limit: NotRequired[int]
    quota: NotRequired[QuotaJson]
    exhausted: NotRequired[list[str]]


def problem(refused: Refused, request_id: str, *, allow: str | None = None) -> Response:
    """The response of a refusal. `instance` names this occurrence by its request id; it tells nothing about what was asked for."""
    row = PROBLEMS[refused.code]
    document: dict[str, object] = {
        **refused.extra,
        "type": f"/problems/{refused.code.value}",
        "title": row.title,
        "status": row.status,
        "code": refused.code.value,
        "detail": row.detail,
        "instance": f"urn:request:{request_id}",
        "retry": row.retry.value,
    }
    if refused.run_id is not None:
        document["run_id"] = str(refused.run_id)
    headers = {"Cache-Control": "no-store", **rate_limit_headers(refused.quota)}
    retry_after = refused.retry_after_seconds if refused.retry_after_seconds is not None else row.retry_after_seconds
    if retry_after is None and row.status in OVERLOADED:
        retry_after = _RETRY_AFTER_SECONDS
    if retry_after is not None:
        headers["Retry-After"] = str(retry_after)
    if row.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if allow is not None:
        headers["Allow"] = allow
    return Response(orjson.dumps(document), row.status, headers, MEDIA_TYPE)


def refusal_of(error: Exception) -> Refused:
    """What a caller is told about `error`. An error that no part expected is logged here, by its type, and becomes internal_error."""
    match error:
        case Refused():
            return error
        case DatabaseTrouble() | DeadlockOrSerialization():
            # AnswerLost too: whether it happened is found out by asking again, which is what `same-submission` says.
            _log.warning("database_trouble", error=type(error).__name__)
            return Refused(Code.DATABASE_UNAVAILABLE)
        case _:
            _log.error("unexpected_error", error=_type_name(error))
            return Refused(Code.INTERNAL_ERROR)


def _type_name(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}"
