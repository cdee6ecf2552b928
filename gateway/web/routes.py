"""The one table of routes, and the ASGI application that is built from it.

Everything that knows routes reads this table: the server, the access matrix, OpenAPI, the docs. Handlers are in `*_routes.py`, some with
their rows.
"""

import functools
from typing import Final

import orjson
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Lifespan, Receive, Scope, Send

from gateway.admission.gate import DECISION_REFUSALS, SUBMISSION_REFUSALS
from gateway.admission.quota import UsageJson
from gateway.admission.validation import DecisionBody, SubmissionBody
from gateway.bindings.visible import AppJson, AppsJson
from gateway.domain.problems import Code, Refused
from gateway.runs.history import ConversationJson, ConversationsJson, ItemsJson, ReceiptJson
from gateway.runs.read import RunJson
from gateway.web import (
    account_routes,
    conversation_routes,
    demo,
    edge_routes,
    health_routes,
    operator_account_routes,
    operator_app_routes,
    operator_moderation_routes,
    operator_provider_routes,
    operator_quota_routes,
    operator_routes,
    run_routes,
)
from gateway.web.ag_ui_routes import ag_ui_route
from gateway.web.call import (
    ANYTHING,
    JSON,
    JSON_OR_STREAM,
    STREAM,
    ActiveAccount,
    Anybody,
    ApplicationUser,
    Call,
    Group,
    Method,
    RouteSpec,
    Submitter,
)
from gateway.web.endpoint import Endpoint
from gateway.web.middleware import REQUEST_ID, RequestContext
from gateway.web.negotiation import Answer
from gateway.web.openapi import description
from gateway.web.pages import Pages, load_pages
from gateway.web.problems import problem
from gateway.web.query import PageQuery
from gateway.web.services import Services

_APPS: Final = "/api/internal/apps"
_AGENT: Final = f"{_APPS}/{{app_id}}/agent"
_RUN: Final = f"{_AGENT}/runs/{{run_id}}"
_CONVERSATIONS: Final = f"{_AGENT}/conversations"
_CONVERSATION: Final = f"{_CONVERSATIONS}/{{conversation_id}}"
_S, _M, _G = RouteSpec, Method, Group


async def _describe(call: Call) -> ASGIApp:
    """GET /openapi.json."""
    settings = call.services.settings
    described = _description(settings.pages, call.services.demo is not None, settings.session_cookie)
    return Response(described, headers={"Cache-Control": "no-cache"}, media_type=Answer.JSON.value)


PUBLIC_ROUTES: Final[tuple[RouteSpec, ...]] = (
    _S(
        path="/api/internal/me",
        method=_M.GET,
        name="me",
        group=_G.CALLER,
        caller=ActiveAccount(account_routes.me),
        answers=JSON,
        about="Who you are here.",
        returns={200: account_routes.MeJson},
    ),
    _S(
        path=_APPS,
        method=_M.GET,
        name="list_applications",
        group=_G.CALLER,
        caller=ActiveAccount(account_routes.list_applications),
        answers=JSON,
        about="The applications that you may see, by name.",
        returns={200: AppsJson},
    ),
    _S(
        path=f"{_APPS}/{{app_id}}",
        method=_M.GET,
        name="read_application",
        group=_G.CALLER,
        caller=ApplicationUser(account_routes.read_application),
        answers=JSON,
        about="One of them.",
        returns={200: AppJson},
    ),
    _S(
        path=f"{_AGENT}/usage",
        method=_M.GET,
        name="usage",
        group=_G.CALLER,
        caller=ApplicationUser(account_routes.usage),
        answers=JSON,
        about="What is used of the rules that count your tasks in it, and how many runs are active.",
        returns={200: UsageJson},
    ),
    _S(
        path=f"{_AGENT}/runs",
        method=_M.POST,
        name="submit_run",
        group=_G.RUNS,
        caller=Submitter(run_routes.submit),
        answers=JSON_OR_STREAM,
        about="Submits a message, once for each submission id: 202 and the run, 200 where it was submitted before; or the run's stream.",
        returns={200: RunJson, 202: RunJson},
        takes=SubmissionBody,
        refuses=SUBMISSION_REFUSALS,
    ),
    _S(
        path=_RUN,
        method=_M.GET,
        name="read_run",
        group=_G.RUNS,
        caller=ApplicationUser(run_routes.read),
        answers=JSON,
        about="A run of yours. If a look-up is due, it is started.",
        returns={200: RunJson},
    ),
    _S(
        path=f"{_RUN}/decision",
        method=_M.POST,
        name="decide_run",
        group=_G.RUNS,
        caller=Submitter(run_routes.decide),
        answers=JSON_OR_STREAM,
        about="Answers the question of a waiting run, once: the resume run that delivers the answer, as for a message; it costs nothing.",
        returns={200: RunJson, 202: RunJson},
        takes=DecisionBody,
        refuses=DECISION_REFUSALS,
    ),
    _S(
        path=f"{_RUN}/refresh",
        method=_M.POST,
        name="refresh_run",
        group=_G.RUNS,
        caller=ApplicationUser(run_routes.refresh),
        answers=JSON,
        about="A look-up, or another try at saving, starts now. Nothing is executed.",
        returns={202: RunJson},
    ),
    _S(
        path=f"{_RUN}/acknowledge",
        method=_M.POST,
        name="acknowledge_run",
        group=_G.RUNS,
        caller=ApplicationUser(run_routes.acknowledge),
        answers=JSON,
        about="You accept the incomplete answer of a run that succeeded, and the conversation goes on.",
        returns={200: RunJson},
        refuses=(Code.NOTHING_TO_ACKNOWLEDGE,),
    ),
    _S(
        path=f"{_RUN}/events",
        method=_M.GET,
        name="watch_run",
        group=_G.RUNS,
        caller=ApplicationUser(run_routes.events),
        answers=STREAM,
        about="The run's stream: what is known so far, then live to the end.",
        returns={},
    ),
    ag_ui_route(f"{_AGENT}/ag-ui"),
    _S(
        path=_CONVERSATIONS,
        method=_M.GET,
        name="list_conversations",
        group=_G.CONVERSATIONS,
        caller=ApplicationUser(conversation_routes.list_conversations),
        answers=JSON,
        about="Your conversations with this application, newest activity first.",
        returns={200: ConversationsJson},
        query=PageQuery,
    ),
    _S(
        path=_CONVERSATION,
        method=_M.GET,
        name="read_conversation",
        group=_G.CONVERSATIONS,
        caller=ApplicationUser(conversation_routes.read_conversation),
        answers=JSON,
        about="One of them.",
        returns={200: ConversationJson},
    ),
    _S(
        path=_CONVERSATION,
        method=_M.PATCH,
        name="rename_conversation",
        group=_G.CONVERSATIONS,
        caller=ApplicationUser(conversation_routes.rename_conversation),
        answers=JSON,
        about="Gives it a title.",
        returns={200: ConversationJson},
        takes=conversation_routes.TitleBody,
        refuses=(Code.INVALID_TEXT, Code.TEXT_TOO_LONG),
    ),
    _S(
        path=_CONVERSATION,
        method=_M.DELETE,
        name="delete_conversation",
        group=_G.CONVERSATIONS,
        caller=ApplicationUser(conversation_routes.delete_conversation),
        answers=JSON,
        about="Deletes it here, and gives a receipt that says what was and what was not deleted.",
        returns={200: ReceiptJson},
    ),
    _S(
        path=f"{_CONVERSATION}/items",
        method=_M.GET,
        name="list_items",
        group=_G.CONVERSATIONS,
        caller=ApplicationUser(conversation_routes.list_items),
        answers=JSON,
        about="What was said in it, in order.",
        returns={200: ItemsJson},
        query=conversation_routes.ItemsQuery,
    ),
    *operator_routes.ROUTES,
    *operator_provider_routes.ROUTES,
    *operator_app_routes.ROUTES,
    *operator_account_routes.ROUTES,
    *operator_quota_routes.ROUTES,
    *operator_moderation_routes.ROUTES,
    *edge_routes.ROUTES,
    _S(
        path="/healthz",
        method=_M.GET,
        name="healthz",
        group=_G.HEALTH,
        caller=Anybody(health_routes.healthz),
        answers=ANYTHING,
        about="The process answers.",
        returns={200: health_routes.AliveJson},
    ),
    _S(
        path="/readyz",
        method=_M.GET,
        name="readyz",
        group=_G.HEALTH,
        caller=Anybody(health_routes.readyz),
        answers=ANYTHING,
        about="200 while this replica may take new work, else 503; `checks` says why.",
        returns={200: health_routes.ReadyJson, 503: health_routes.ReadyJson},
    ),
    _S(
        path="/metrics",
        method=_M.GET,
        name="metrics",
        group=_G.HEALTH,
        caller=Anybody(health_routes.metrics),
        answers=ANYTHING,
        about="Numbers for Prometheus ([metrics](metrics.md)). A proxy in front must not pass it on.",
        returns={200: "text/plain"},
    ),
    _S(
        path="/openapi.json",
        method=_M.GET,
        name="describe",
        group=_G.HEALTH,
        caller=Anybody(_describe),
        answers=ANYTHING,
        about="This description, as OpenAPI 3.1.",
        returns={200: Answer.JSON.value},
    ),
)
"""The routes of every gateway."""

DEMO_ROUTES: Final[tuple[RouteSpec, ...]] = (
    _S(
        path="/demo/users",
        method=_M.GET,
        name="demo_users",
        group=_G.DEMO,
        caller=Anybody(demo.list_users),
        answers=JSON,
        about="The demo's users.",
        returns={200: demo.DemoUsersJson},
        refuses=(Code.NOT_FOUND,),
    ),
    _S(
        path="/demo/session",
        method=_M.POST,
        name="demo_open_session",
        group=_G.DEMO,
        caller=Anybody(demo.open_session),
        answers=JSON,
        about="Signs in as one of them: sets the session cookie.",
        returns={200: demo.SessionJson},
        takes=demo.SessionBody,
        refuses=(Code.NOT_FOUND, Code.ORIGIN_NOT_ALLOWED),
    ),
    _S(
        path="/demo/session",
        method=_M.DELETE,
        name="demo_close_session",
        group=_G.DEMO,
        caller=Anybody(demo.close_session),
        answers=JSON,
        about="Signs out: forgets the cookie.",
        returns={200: demo.SessionJson},
        refuses=(Code.NOT_FOUND, Code.ORIGIN_NOT_ALLOWED),
    ),
)
"""These exist in the demo only."""


def page_routes(pages: Pages) -> tuple[RouteSpec, ...]:
    """The pages; `GATEWAY_PAGES=off` leaves them out."""
    return (
        _S(
            path="/",
            method=_M.GET,
            name="chat_page",
            group=_G.PAGES,
            caller=Anybody(pages.chat),
            answers=ANYTHING,
            about="The chat page.",
            returns={200: "text/html"},
        ),
        _S(
            path="/operator",
            method=_M.GET,
            name="operator_page",
            group=_G.PAGES,
            caller=Anybody(pages.operator),
            answers=ANYTHING,
            about="The operators' console: a page over the operators' routes, which refuse everybody else.",
            returns={200: "text/html"},
        ),
        _S(
            path="/static/{file}",
            method=_M.GET,
            name="page_file",
            group=_G.PAGES,
            caller=Anybody(pages.static),
            answers=ANYTHING,
            about="A file of the pages.",
            returns={200: "*/*", 304: None},
        ),
    )


def route_table(services: Services) -> tuple[RouteSpec, ...]:
    """All routes of this gateway."""
    return _table(services.settings.pages, services.demo is not None)


@functools.cache
def _table(pages: bool, demo: bool) -> tuple[RouteSpec, ...]:
    return (*PUBLIC_ROUTES, *(page_routes(load_pages()) if pages else ()), *(DEMO_ROUTES if demo else ()))


@functools.cache
def _description(pages: bool, demo: bool, session_cookie: str | None) -> bytes:
    # Anybody may ask for it: it is made once.
    return orjson.dumps(description(_table(pages, demo), session_cookie=session_cookie))


def build_web(services: Services, *, lifespan: Lifespan[Router] | None = None) -> RequestContext:
    """The web part as one ASGI application. `lifespan` is Starlette's, for who wants the server to start and stop things."""
    specs = route_table(services)
    paths = dict.fromkeys(spec.path for spec in specs)
    routes = [
        Route(path, Endpoint(services, path, {spec.method.value: spec for spec in specs if spec.path == path}), name=path) for path in paths
    ]
    # No redirects for a missing or added slash: a redirected POST would be sent twice.
    router = Router(routes, redirect_slashes=False, default=_nowhere, lifespan=lifespan)
    return RequestContext(router, metrics=services.metrics, record=services.record, draining=services.streams.draining)


async def _nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    await problem(Refused(Code.NOT_FOUND), scope[REQUEST_ID])(scope, receive, send)
