"""What operators ask and do over HTTP. The use cases are `gateway.runs.operator_reads` and `gateway.runs.resolve`."""

from typing import Final

from starlette.types import ASGIApp

from gateway.domain.audit import web_actor
from gateway.domain.ids import ApplicationId, RunId, uuid_of
from gateway.domain.problems import Code, Refused
from gateway.domain.resolution import ResolutionOutcome, RunFilter
from gateway.identity.accounts import Access
from gateway.runs.operator_reads import audit_json, operator_run_json
from gateway.web.body import json_object
from gateway.web.call import Call, json_response
from gateway.web.query import one, page_of

_RESOLUTION: Final = frozenset({"outcome", "reason"})
_YES_OR_NO: Final = {None: False, "false": False, "true": True}


async def list_runs(call: Call, _: Access) -> ASGIApp:
    """GET /runs?state=unresolved|attention|active|waiting|all&app_id&limit&cursor."""
    limit, cursor = page_of(call)
    application_id = _application(one(call, "app_id"))
    page = await call.services.operator_reads.runs(_filter(one(call, "state")), application_id=application_id, limit=limit, cursor=cursor)
    return json_response({"runs": [operator_run_json(run) for run in page.runs], "next": page.next})


async def read_run(call: Call, access: Access) -> ASGIApp:
    """GET /runs/{run_id}?text=true."""
    text = one(call, "text")
    if text not in _YES_OR_NO:
        raise Refused(Code.MALFORMED_REQUEST)
    reader = web_actor(access.subject) if _YES_OR_NO[text] else None
    return json_response(operator_run_json(await call.services.operator_reads.run(_run(call), text_for=reader)))


async def look_up_run(call: Call, access: Access) -> ASGIApp:
    """POST /runs/{run_id}/lookup: one look-up more, now."""
    run = await call.services.operator_acts.look_up_now(web_actor(access.subject), _run(call))
    return json_response(operator_run_json(run))


async def retry_save(call: Call, access: Access) -> ASGIApp:
    """POST /runs/{run_id}/retry-save: the save of a pending run, now."""
    return json_response(operator_run_json(await call.services.operator_acts.retry_save(web_actor(access.subject), _run(call))))


async def resolve_run(call: Call, access: Access) -> ASGIApp:
    """POST /runs/{run_id}/resolve {"outcome", "reason"}."""
    run_id, document = _run(call), json_object(await call.body(), _RESOLUTION)
    outcome, reason = document.get("outcome"), document.get("reason")
    if not isinstance(outcome, str) or outcome not in frozenset(ResolutionOutcome) or not isinstance(reason, str):
        raise Refused(Code.MALFORMED_REQUEST)
    run = await call.services.operator_acts.resolve(web_actor(access.subject), run_id, ResolutionOutcome(outcome), reason)
    return json_response(operator_run_json(run))


async def list_audit(call: Call, _: Access) -> ASGIApp:
    """GET /audit?limit&cursor: newest first."""
    limit, cursor = page_of(call)
    page = await call.services.operator_reads.audit(limit=limit, cursor=cursor)
    return json_response({"audit": [audit_json(row) for row in page.entries], "next": page.next})


def _run(call: Call) -> RunId:
    return RunId(call.path_id("run_id"))


def _filter(text: str | None) -> RunFilter:
    if text is None:
        return RunFilter.UNRESOLVED
    if text not in frozenset(RunFilter):
        raise Refused(Code.MALFORMED_REQUEST)
    return RunFilter(text)


def _application(text: str | None) -> ApplicationId | None:
    if text is None:
        return None
    found = uuid_of(text)
    if found is None:
        raise Refused(Code.MALFORMED_REQUEST)
    return ApplicationId(found)
