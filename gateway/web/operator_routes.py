"""What operators ask and do over HTTP. The use cases are `gateway.runs.operator_reads`, `resolve`, `audit_trail` and
`overview`."""

from enum import StrEnum
from typing import Annotated, Final, TypeVar
from uuid import UUID

from pydantic import Field, WithJsonSchema
from starlette.types import ASGIApp
from typing_extensions import TypedDict

from gateway.domain.audit import web_actor
from gateway.domain.ids import ApplicationId, RunId, uuid_of
from gateway.domain.limits import MAX_REASON_CHARACTERS
from gateway.domain.problems import Code, Refused
from gateway.domain.resolution import ResolutionOutcome, RunFilter, RunOrder
from gateway.identity.accounts import Access
from gateway.json_shapes import AnyText, Body, text_schema
from gateway.runs.audit_trail import AuditChainJson, AuditJson, audit_page_json, chain_json
from gateway.runs.operator_reads import (
    OperatorRunDetailJson,
    OperatorRunsJson,
    operator_run_detail_json,
    operator_runs_json,
)
from gateway.runs.overview import OverviewJson
from gateway.store.operators import Selection
from gateway.web.call import JSON, OPERATOR, Call, Group, Method, Operator, RouteSpec, json_response
from gateway.web.query import MAX_SECONDS, PageQuery, one, page_of, seconds, yes


class ResolutionBody(Body):
    """What became of a run, and how that is known. Its owner reads the reason."""

    outcome: Annotated[ResolutionOutcome, Field(strict=False)]
    reason: Annotated[str, AnyText, WithJsonSchema(text_schema(MAX_REASON_CHARACTERS))]


class RunsQuery(PageQuery, total=False):
    """Which runs."""

    state: Annotated[RunFilter, Field(description=f"`{RunFilter.UNRESOLVED.value}` where it is not given.")]
    app_id: Annotated[UUID, Field(description="Of one application only.")]
    order: Annotated[RunOrder, Field(description=f"By `since_at`; `{RunOrder.NEWEST.value}` first where it is not given.")]
    older_than_seconds: Annotated[int, Field(ge=0, le=MAX_SECONDS, description="Only those whose `since_at` is longer ago.")]
    created_within_seconds: Annotated[
        int, Field(ge=0, le=MAX_SECONDS, description="Only those made since; without it, `all` has to read every run there is.")
    ]


class RunQuery(TypedDict, total=False):
    """How much of a run."""

    text: Annotated[bool, Field(description="Whether to show what was said; that it was read is recorded.")]


_RUN: Final = f"{OPERATOR}/runs/{{run_id}}"
_Word = TypeVar("_Word", bound=StrEnum)


async def list_runs(call: Call, _: Access) -> ASGIApp:
    """GET /runs?state=unresolved|attention|active|waiting|all&app_id&order&older_than_seconds&created_within_seconds&limit&cursor."""
    limit, cursor = page_of(call)
    selection = Selection(
        run_filter=_word(RunFilter, one(call, "state"), RunFilter.UNRESOLVED),
        order=_word(RunOrder, one(call, "order"), RunOrder.NEWEST),
        application_id=_application(one(call, "app_id")),
        older_than_seconds=seconds(call, "older_than_seconds"),
        created_within_seconds=seconds(call, "created_within_seconds"),
    )
    page = await call.services.operator_reads.runs(selection, limit=limit, cursor=cursor)
    return json_response(operator_runs_json(page))


async def read_run(call: Call, access: Access) -> ASGIApp:
    """GET /runs/{run_id}?text=true."""
    reader = web_actor(access.subject) if yes(call, "text") else None
    return json_response(operator_run_detail_json(await call.services.operator_reads.run(_run(call), text_for=reader)))


async def look_up_run(call: Call, access: Access) -> ASGIApp:
    """POST /runs/{run_id}/lookup: one look-up more, now."""
    run = await call.services.operator_acts.look_up_now(web_actor(access.subject), _run(call))
    return json_response(operator_run_detail_json(run))


async def retry_save(call: Call, access: Access) -> ASGIApp:
    """POST /runs/{run_id}/retry-save: the save of a pending run, now."""
    return json_response(operator_run_detail_json(await call.services.operator_acts.retry_save(web_actor(access.subject), _run(call))))


async def resolve_run(call: Call, access: Access) -> ASGIApp:
    """POST /runs/{run_id}/resolve {"outcome", "reason"}."""
    run_id, body = _run(call), await call.body_of(ResolutionBody)
    run = await call.services.operator_acts.resolve(web_actor(access.subject), run_id, body.outcome, body.reason)
    return json_response(operator_run_detail_json(run))


async def list_audit(call: Call, _: Access) -> ASGIApp:
    """GET /audit?limit&cursor: newest first."""
    limit, cursor = page_of(call)
    page = await call.services.trail.page(limit=limit, cursor=cursor)
    return json_response(audit_page_json(page))


async def verify_audit(call: Call, _: Access) -> ASGIApp:
    """GET /audit/chain."""
    return json_response(chain_json(await call.services.trail.verify()))


async def read_overview(call: Call, _: Access) -> ASGIApp:
    """GET /overview."""
    return json_response(await call.services.overview.read())


def _run(call: Call) -> RunId:
    return RunId(call.path_id("run_id"))


def _word(words: type[_Word], text: str | None, otherwise: _Word) -> _Word:
    if text is None:
        return otherwise
    if text not in frozenset(words):
        raise Refused(Code.MALFORMED_REQUEST)
    return words(text)


def _application(text: str | None) -> ApplicationId | None:
    if text is None:
        return None
    found = uuid_of(text)
    if found is None:
        raise Refused(Code.MALFORMED_REQUEST)
    return ApplicationId(found)


ROUTES: Final = (
    RouteSpec(
        path=f"{OPERATOR}/overview",
        method=Method.GET,
        name="operator_read_overview",
        group=Group.OPERATORS,
        caller=Operator(read_overview),
        answers=JSON,
        about="Live numbers: what is under way, what waits for somebody, the replicas, and what came to nothing within a day.",
        returns={200: OverviewJson},
    ),
    RouteSpec(
        path=f"{OPERATOR}/runs",
        method=Method.GET,
        name="operator_list_runs",
        group=Group.OPERATORS,
        caller=Operator(list_runs),
        answers=JSON,
        about="Runs, by default those that wait for somebody.",
        returns={200: OperatorRunsJson},
        query=RunsQuery,
    ),
    RouteSpec(
        path=_RUN,
        method=Method.GET,
        name="operator_read_run",
        group=Group.OPERATORS,
        caller=Operator(read_run),
        answers=JSON,
        about="A run with its evidence; its texts only where they are asked for, which is recorded.",
        returns={200: OperatorRunDetailJson},
        query=RunQuery,
    ),
    RouteSpec(
        path=f"{_RUN}/lookup",
        method=Method.POST,
        name="operator_look_up_run",
        group=Group.OPERATORS,
        caller=Operator(look_up_run),
        answers=JSON,
        about="The run after one look-up more.",
        returns={200: OperatorRunDetailJson},
    ),
    RouteSpec(
        path=f"{_RUN}/retry-save",
        method=Method.POST,
        name="operator_retry_save",
        group=Group.OPERATORS,
        caller=Operator(retry_save),
        answers=JSON,
        about="The run after another try at saving.",
        returns={200: OperatorRunDetailJson},
    ),
    RouteSpec(
        path=f"{_RUN}/resolve",
        method=Method.POST,
        name="operator_resolve_run",
        group=Group.OPERATORS,
        caller=Operator(resolve_run),
        answers=JSON,
        about="Records what became of a run: once; the same again is the same answer.",
        returns={200: OperatorRunDetailJson},
        takes=ResolutionBody,
        refuses=(Code.INVALID_TEXT, Code.TEXT_TOO_LONG, Code.ALREADY_RESOLVED, Code.RESOLUTION_NOT_ALLOWED),
    ),
    RouteSpec(
        path=f"{OPERATOR}/audit",
        method=Method.GET,
        name="operator_list_audit",
        group=Group.OPERATORS,
        caller=Operator(list_audit),
        answers=JSON,
        about="What operators did, newest first.",
        returns={200: AuditJson},
        query=PageQuery,
    ),
    RouteSpec(
        path=f"{OPERATOR}/audit/chain",
        method=Method.GET,
        name="operator_verify_audit",
        group=Group.OPERATORS,
        caller=Operator(verify_audit),
        answers=JSON,
        about="Recomputes the whole trail: whether every entry is as it was written.",
        returns={200: AuditChainJson},
    ),
)
