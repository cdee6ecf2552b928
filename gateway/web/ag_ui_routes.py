"""POST …/ag-ui: any AG-UI client, with nothing but an address and a header. The same admission, the same run, the same stream."""

from starlette.types import ASGIApp

from gateway.admission.gate import DECISION_REFUSALS, SUBMISSION_REFUSALS
from gateway.admission.run_agent_input import RunAgentInputBody
from gateway.domain.ids import ApplicationId
from gateway.domain.limits import MAX_AG_UI_BODY_BYTES
from gateway.domain.problems import Code
from gateway.identity.tokens import Claims
from gateway.runs.ag_ui_stream import AgUiStream
from gateway.web.call import STREAM, Call, Group, Method, RouteSpec, Submitter
from gateway.web.rate_limit import rate_limit_headers
from gateway.web.run_routes import REPLAYED, rights
from gateway.web.stream import EventStream


async def run_agent(call: Call, claims: Claims, application_id: ApplicationId) -> ASGIApp:
    """POST …/ag-ui."""
    services = call.services
    asked, submitted = await services.submissions.run_agent(claims, application_id, await call.body(MAX_AG_UI_BODY_BYTES))
    pieces = AgUiStream(services.streams.of(submitted), submitted.view, asked.client_thread, asked.submission_id)
    return EventStream(
        pieces,
        heartbeat_seconds=services.settings.heartbeat_seconds,
        check_rights=rights(call, application_id, submitted.view.run_id),
        headers=REPLAYED if submitted.replayed else rate_limit_headers(submitted.quota),
        farewell=pieces.farewell,
    )


def ag_ui_route(path: str) -> RouteSpec:
    """The route, at its address below an application."""
    return RouteSpec(
        path=path,
        method=Method.POST,
        name="run_agent",
        group=Group.RUNS,
        caller=Submitter(run_agent),
        answers=STREAM,
        about="For AG-UI clients: the last message is submitted in the conversation that the client calls `threadId`; `runId` is the "
        "submission id. `resume` is a decision. The run's stream, under these two ids.",
        returns={},
        takes=RunAgentInputBody,
        refuses=(*SUBMISSION_REFUSALS, *DECISION_REFUSALS, Code.UNSUPPORTED_INPUT),
    )
