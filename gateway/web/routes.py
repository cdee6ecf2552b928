"""The one table of routes, and the ASGI application that is built from it.

Everything that knows routes reads this table: the server, the access matrix, OpenAPI, the docs. Handlers are in `*_routes.py`.
"""

from typing import Final

from starlette.routing import Route, Router
from starlette.types import ASGIApp, Lifespan, Receive, Scope, Send

from gateway.domain.problems import Code, Refused
from gateway.web import account_routes, conversation_routes, demo, health_routes, operator_routes, run_routes
from gateway.web.call import (
    ANYTHING,
    JSON,
    JSON_OR_STREAM,
    STREAM,
    ActiveAccount,
    Anybody,
    ApplicationUser,
    Method,
    Operator,
    RouteSpec,
    Submitter,
)
from gateway.web.endpoint import Endpoint
from gateway.web.middleware import REQUEST_ID, RequestContext
from gateway.web.pages import Pages, load_pages
from gateway.web.problems import problem
from gateway.web.services import Services

_APPS: Final = "/api/internal/apps"
_AGENT: Final = f"{_APPS}/{{app_id}}/agent"
_RUN: Final = f"{_AGENT}/runs/{{run_id}}"
_CONVERSATION: Final = f"{_AGENT}/conversations/{{conversation_id}}"
_OPERATOR: Final = "/api/operator"
_OPERATOR_RUN: Final = f"{_OPERATOR}/runs/{{run_id}}"
_S, _M = RouteSpec, Method

PUBLIC_ROUTES: Final[tuple[RouteSpec, ...]] = (
    _S(path="/healthz", method=_M.GET, name="healthz", caller=Anybody(health_routes.healthz), answers=ANYTHING),
    _S(path="/readyz", method=_M.GET, name="readyz", caller=Anybody(health_routes.readyz), answers=ANYTHING),
    _S(path="/api/internal/me", method=_M.GET, name="me", caller=ActiveAccount(account_routes.me), answers=JSON),
    _S(path=_APPS, method=_M.GET, name="list_applications", caller=ActiveAccount(account_routes.list_applications), answers=JSON),
    _S(
        path=f"{_APPS}/{{app_id}}",
        method=_M.GET,
        name="read_application",
        caller=ApplicationUser(account_routes.read_application),
        answers=JSON,
    ),
    _S(
        path=f"{_AGENT}/runs",
        method=_M.POST,
        name="submit_run",
        caller=Submitter(run_routes.submit),
        answers=JSON_OR_STREAM,
        body=True,
    ),
    _S(path=_RUN, method=_M.GET, name="read_run", caller=ApplicationUser(run_routes.read), answers=JSON),
    _S(path=f"{_RUN}/refresh", method=_M.POST, name="refresh_run", caller=ApplicationUser(run_routes.refresh), answers=JSON),
    _S(path=f"{_RUN}/acknowledge", method=_M.POST, name="acknowledge_run", caller=ApplicationUser(run_routes.acknowledge), answers=JSON),
    _S(path=f"{_RUN}/events", method=_M.GET, name="watch_run", caller=ApplicationUser(run_routes.events), answers=STREAM),
    _S(
        path=f"{_AGENT}/conversations",
        method=_M.GET,
        name="list_conversations",
        caller=ApplicationUser(conversation_routes.list_conversations),
        answers=JSON,
    ),
    _S(
        path=_CONVERSATION,
        method=_M.GET,
        name="read_conversation",
        caller=ApplicationUser(conversation_routes.read_conversation),
        answers=JSON,
    ),
    _S(
        path=_CONVERSATION,
        method=_M.PATCH,
        name="rename_conversation",
        caller=ApplicationUser(conversation_routes.rename_conversation),
        answers=JSON,
        body=True,
    ),
    _S(
        path=_CONVERSATION,
        method=_M.DELETE,
        name="delete_conversation",
        caller=ApplicationUser(conversation_routes.delete_conversation),
        answers=JSON,
    ),
    _S(
        path=f"{_CONVERSATION}/items",
        method=_M.GET,
        name="list_items",
        caller=ApplicationUser(conversation_routes.list_items),
        answers=JSON,
    ),
    _S(path=f"{_OPERATOR}/runs", method=_M.GET, name="operator_list_runs", caller=Operator(operator_routes.list_runs), answers=JSON),
    _S(path=_OPERATOR_RUN, method=_M.GET, name="operator_read_run", caller=Operator(operator_routes.read_run), answers=JSON),
    _S(
        path=f"{_OPERATOR_RUN}/lookup",
        method=_M.POST,
        name="operator_look_up_run",
        caller=Operator(operator_routes.look_up_run),
        answers=JSON,
    ),
    _S(
        path=f"{_OPERATOR_RUN}/retry-save",
        method=_M.POST,
        name="operator_retry_save",
        caller=Operator(operator_routes.retry_save),
        answers=JSON,
    ),
    _S(
        path=f"{_OPERATOR_RUN}/resolve",
        method=_M.POST,
        name="operator_resolve_run",
        caller=Operator(operator_routes.resolve_run),
        answers=JSON,
        body=True,
    ),
    _S(path=f"{_OPERATOR}/audit", method=_M.GET, name="operator_list_audit", caller=Operator(operator_routes.list_audit), answers=JSON),
)
"""The routes of every gateway."""

DEMO_ROUTES: Final[tuple[RouteSpec, ...]] = (
    _S(path="/demo/users", method=_M.GET, name="demo_users", caller=Anybody(demo.list_users), answers=JSON),
    _S(path="/demo/session", method=_M.POST, name="demo_open_session", caller=Anybody(demo.open_session), answers=JSON, body=True),
    _S(path="/demo/session", method=_M.DELETE, name="demo_close_session", caller=Anybody(demo.close_session), answers=JSON),
)
"""These exist in the demo only."""


def page_routes(pages: Pages) -> tuple[RouteSpec, ...]:
    """The pages; `GATEWAY_PAGES=off` leaves them out."""
    return (
        _S(path="/", method=_M.GET, name="chat_page", caller=Anybody(pages.index), answers=ANYTHING),
        _S(path="/static/{file}", method=_M.GET, name="page_file", caller=Anybody(pages.static), answers=ANYTHING),
    )


def route_table(services: Services) -> tuple[RouteSpec, ...]:
    """All routes of this gateway."""
    return (
        *PUBLIC_ROUTES,
        *(page_routes(load_pages()) if services.settings.pages else ()),
        *(DEMO_ROUTES if services.demo is not None else ()),
    )


def build_web(services: Services, *, lifespan: Lifespan[Router] | None = None) -> ASGIApp:
    """The web part as one ASGI application. `lifespan` is Starlette's, for who wants the server to start and stop things."""
    specs = route_table(services)
    paths = dict.fromkeys(spec.path for spec in specs)
    routes = [
        Route(path, Endpoint(services, path, {spec.method.value: spec for spec in specs if spec.path == path}), name=path) for path in paths
    ]
    # No redirects for a missing or added slash: a redirected POST would be sent twice.
    return RequestContext(Router(routes, redirect_slashes=False, default=_nowhere, lifespan=lifespan))


async def _nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    await problem(Refused(Code.NOT_FOUND), scope[REQUEST_ID])(scope, receive, send)
