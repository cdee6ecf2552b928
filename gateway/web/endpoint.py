"""One address of the route table as an ASGI application: method, identity, rights, negotiation, handler, problems. In this order."""

from collections.abc import Mapping
from typing import Final, assert_never

from starlette.datastructures import Headers, QueryParams
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.domain.ids import ApplicationId, uuid_of
from gateway.domain.problems import Code, Refused
from gateway.identity.tokens import Claims
from gateway.web.auth import check_origin, credential
from gateway.web.body import SenderLeft
from gateway.web.call import STREAM, ActiveAccount, Anybody, ApplicationUser, Call, Operator, RouteSpec, Submitter
from gateway.web.middleware import REQUEST_ID, ROUTE_TEMPLATE
from gateway.web.negotiation import Answer, negotiate
from gateway.web.problems import problem, refusal_of
from gateway.web.services import Services

APPLICATION: Final = "app_id"
"""The path parameter that names the application."""


class Endpoint:
    """All methods of one path."""

    def __init__(self, services: Services, path: str, specs: Mapping[str, RouteSpec]) -> None:
        self._services = services
        self._path = path
        self._specs = dict(specs)
        get = specs.get("GET")
        if get is not None and get.answers != STREAM:
            self._specs["HEAD"] = get
        self._allow = ", ".join(sorted({*self._specs, "OPTIONS"}))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[ROUTE_TEMPLATE] = self._path
        try:
            answer = await self._answer(scope, receive)
        except SenderLeft:
            return
        except Exception as error:  # noqa: BLE001 - the border to HTTP: every fault has a public problem
            refused = refusal_of(error)
            allow = self._allow if refused.code is Code.METHOD_NOT_ALLOWED else None
            answer = problem(refused, scope[REQUEST_ID], allow=allow)
        await answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> ASGIApp:
        method: str = scope["method"]
        if method == "OPTIONS":
            return Response(status_code=204, headers={"Allow": self._allow})
        spec = self._specs.get(method)
        if spec is None:
            raise Refused(Code.METHOD_NOT_ALLOWED)
        return await self._call(spec, scope, receive)

    async def _call(self, spec: RouteSpec, scope: Scope, receive: Receive) -> ASGIApp:
        services, caller = self._services, spec.caller
        headers = Headers(scope=scope)
        found = None if isinstance(caller, Anybody) else credential(headers, services.settings)
        claims = None
        if found is not None:
            claims = await services.identity.verify(found.token)
            check_origin(scope["method"], headers, found, services.settings)
        call = Call(
            services=services,
            method=scope["method"],
            headers=headers,
            query=QueryParams(scope["query_string"]),
            path=scope["path_params"],
            receive=receive,
            request_id=scope[REQUEST_ID],
            answer=negotiate(headers, spec.answers) if spec.answers else Answer.JSON,
            credential=found,
            secure=scope["scheme"] == "https",
        )
        if isinstance(caller, Anybody):
            return await caller.handler(call)
        if claims is None:
            raise Refused(Code.UNAUTHENTICATED)
        match caller:
            case ActiveAccount():
                return await caller.handler(call, await services.access.account(claims))
            case ApplicationUser():
                application_id = await self._application(call, claims)
                return await caller.handler(call, await services.access.application(claims, application_id), application_id)
            case Submitter():
                application_id = await self._application(call, claims)
                if any(name.endswith("_id") and uuid_of(text) is None for name, text in call.path.items()):
                    await services.access.application(claims, application_id)
                    raise Refused(Code.NOT_FOUND)
                return await caller.handler(call, claims, application_id)
            case Operator():
                access = await services.access.account(claims)
                if not access.operator:
                    raise Refused(Code.NOT_OPERATOR)
                return await caller.handler(call, access)
            case _:
                assert_never(caller)

    async def _application(self, call: Call, claims: Claims) -> ApplicationId:
        """The id in the path. What is no id is refused as one that is not there, so after whatever is wrong with the account."""
        found = uuid_of(call.path[APPLICATION])
        if found is None:
            await self._services.access.account(claims)
            raise Refused(Code.NOT_FOUND)
        return ApplicationId(found)
