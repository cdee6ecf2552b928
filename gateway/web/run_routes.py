"""Runs over HTTP: submit, read, watch. What a run is and does is `gateway.runs`; what a stream looks like too."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from starlette.types import ASGIApp

from gateway.domain.ids import ApplicationId, RunId
from gateway.domain.problems import Code, Refused
from gateway.identity.accounts import Access
from gateway.identity.tokens import Claims
from gateway.runs.read import run_json
from gateway.runs.streams import Stream
from gateway.runs.submit import Submitted
from gateway.web.call import Call, json_response
from gateway.web.negotiation import Answer
from gateway.web.rate_limit import rate_limit_headers
from gateway.web.stream import EventStream

REPLAYED: Final = {"Idempotent-Replayed": "true"}


async def submit(call: Call, claims: Claims, application_id: ApplicationId) -> ASGIApp:
    """POST …/runs: 202 and the run, or 200 where this submission was made before; as a stream 200 in both cases."""
    return _submitted(call, await call.services.submissions.submit(claims, application_id, await call.body()), application_id)


async def decide(call: Call, claims: Claims, application_id: ApplicationId) -> ASGIApp:
    """POST …/runs/{run_id}/decision: the resume run, answered as POST …/runs is."""
    run_id = RunId(call.path_id("run_id"))
    return _submitted(call, await call.services.submissions.decide(claims, application_id, run_id, await call.body()), application_id)


def _submitted(call: Call, submitted: Submitted, application_id: ApplicationId) -> ASGIApp:
    headers = REPLAYED if submitted.replayed else rate_limit_headers(submitted.quota)
    if call.answer is Answer.JSON:
        return json_response(run_json(submitted.view), 200 if submitted.replayed else 202, headers)
    return _stream(call, call.services.streams.of(submitted), application_id, submitted.view.run_id, headers)


async def read(call: Call, access: Access, application_id: ApplicationId) -> ASGIApp:
    """GET …/runs/{run_id}."""
    view = await call.services.reads.run(access, application_id, RunId(call.path_id("run_id")))
    call.services.refresh.due(view)
    return json_response(run_json(view))


async def refresh(call: Call, access: Access, application_id: ApplicationId) -> ASGIApp:
    """POST …/runs/{run_id}/refresh: a status look-up or a save retry now, never an execution."""
    view = await call.services.refresh.now(access, application_id, RunId(call.path_id("run_id")))
    return json_response(run_json(view), 202)


async def acknowledge(call: Call, access: Access, application_id: ApplicationId) -> ASGIApp:
    """POST …/runs/{run_id}/acknowledge: the owner accepts an incomplete answer and goes on with the conversation."""
    view = await call.services.refresh.acknowledge(access, application_id, RunId(call.path_id("run_id")))
    return json_response(run_json(view))


async def events(call: Call, access: Access, application_id: ApplicationId) -> ASGIApp:
    """GET …/runs/{run_id}/events: what is known so far, then live to the end. `Last-Event-ID` is ignored."""
    run_id = RunId(call.path_id("run_id"))
    return _stream(call, await call.services.streams.open(access, application_id, run_id), application_id, run_id, {})


def _stream(call: Call, pieces: Stream, application_id: ApplicationId, run_id: RunId, headers: Mapping[str, str]) -> EventStream:
    return EventStream(
        pieces,
        heartbeat_seconds=call.services.settings.heartbeat_seconds,
        check_rights=rights(call, application_id, run_id),
        headers=headers,
    )


def rights(call: Call, application_id: ApplicationId, run_id: RunId) -> Callable[[], Awaitable[None]]:
    """Asks again what was asked before the stream: token, account, application, and that the conversation is still there."""
    services = call.services

    async def check() -> None:
        if call.credential is None:
            raise Refused(Code.UNAUTHENTICATED)
        access = await services.access.application(await services.identity.verify(call.credential.token), application_id)
        await services.history.check_run(access, application_id, run_id)

    return check
