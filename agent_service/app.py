"""The HTTP face as a Starlette application: the bridge profile of the upstream contract, and what both profiles share.

Not here: what only the native profile has (`native.py`), runs, storage, settings.

All answers but the event stream are JSON; a refusal is `{"detail": …}` with a fixed text that repeats nothing of the request.
"""

import hmac
import re
from dataclasses import dataclass
from typing import Final

from ag_ui.core import RunAgentInput, UserMessage
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from agent_service.events import EventMapper
from agent_service.http_parts import BUSY, STREAM_HEADERS, Service, check_text, read_body
from agent_service.native import json_response, native_routes, run_document
from agent_service.records import CorrelationId, NewRun, RunId, ThreadId
from agent_service.runs import Said
from agent_service.store import ThreadBusyError
from agent_service.voices import BridgeVoice

PROTOCOL_VERSION: Final = "0.1.22"
_ID = re.compile(r"[!-~]{1,200}")


@dataclass(frozen=True, kw_only=True)
class Message:
    """A POST /ag-ui that may run."""

    thread_id: ThreadId
    correlation_id: CorrelationId
    text: str


class RequireToken:
    """401 for every request without the bearer token, `/healthz` excepted. Comes before routing: a stranger learns no routes."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what is authorised."""
        if scope["type"] == "http" and scope["path"] != "/healthz":
            given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
            if not hmac.compare_digest(given, self._expected):
                refusal = JSONResponse({"detail": "Unauthorized"}, 401, {"WWW-Authenticate": "Bearer"})
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)


def build_app(service: Service) -> Starlette:
    """The application. Opening and closing what `service` holds is the caller's."""
    bridge = _Bridge(service)
    routes = [
        Route("/healthz", _healthz),
        Route("/capabilities", bridge.capabilities),
        Route("/threads", bridge.create_thread, methods=["POST"]),
        Route("/ag-ui", bridge.run, methods=["POST"]),
        *native_routes(service),
        Route("/threads/{thread_id}/runs/{run_id}", bridge.look_up),
    ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(RequireToken, token=service.token)],
        exception_handlers={HTTPException: _refuse, Exception: _break},
    )
    # A redirect of a POST would be a fault to every caller of this contract; a wrong path is 404.
    app.router.redirect_slashes = False
    return app


async def _healthz(_request: Request) -> Response:
    return JSONResponse({"status": "ok"})


@dataclass(frozen=True, slots=True)
class _Bridge:
    """The handlers of the bridge profile, and of what both profiles share."""

    service: Service

    async def capabilities(self, _request: Request) -> Response:
        return JSONResponse(
            {
                "assistant_id": self.service.assistant,
                "assistants": [{"assistant_id": assistant} for assistant in self.service.runner.graphs],
                "protocol": "ag-ui",
                "protocol_version": PROTOCOL_VERSION,
                "native_interrupt": True,
                "native_resume": True,
                "one_task_per_thread": True,
                "actions": ["approve", "reject"],
            }
        )

    async def create_thread(self, request: Request) -> Response:
        if (await read_body(request)).strip() not in (b"{}", b""):
            raise HTTPException(422, "The body must be an empty object: threads take no settings")
        thread = await self.service.store.create_thread()
        times = {"created_at": thread.created_at, "updated_at": thread.created_at}
        return JSONResponse({"thread_id": thread.thread_id, **times, "metadata": {}, "status": "idle"}, 201)

    async def run(self, request: Request) -> Response:
        service, message = self.service, read_message(await read_body(request))
        await service.require_own_thread(message.thread_id, service.assistant)
        new = NewRun(thread_id=message.thread_id, assistant=service.assistant, correlation_id=message.correlation_id)

        def voice(run_id: RunId) -> BridgeVoice:
            return BridgeVoice(EventMapper(thread_id=message.thread_id, correlation_id=message.correlation_id, run_id=run_id))

        try:
            feed = await service.runner.start(new, Said(text=message.text, over_waiting=True), voice)
        except ThreadBusyError:
            raise HTTPException(409, BUSY) from None
        return StreamingResponse(feed.frames(), media_type="text/event-stream", headers=dict(STREAM_HEADERS))

    async def look_up(self, request: Request) -> Response:
        found = await self.service.store.find_run(thread_id=request.path_params["thread_id"], run_id=request.path_params["run_id"])
        if found is None:
            raise HTTPException(404, "Run not found")
        return json_response(run_document(found))


async def _refuse(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"detail": error.detail}, error.status_code, error.headers)


async def _break(_request: Request, _error: Exception) -> Response:
    return JSONResponse({"detail": "Internal Server Error"}, 500)


def read_message(body: bytes) -> Message:
    """Read a RunAgentInput. Raises HTTPException 422 for whatever the bridge profile does not take."""
    try:
        sent = RunAgentInput.model_validate_json(body)
    except ValidationError as error:
        named = {".".join(str(part) for part in fault["loc"][:1]) for fault in error.errors(include_input=False)} - {""}
        places = sorted(named & {"threadId", "runId", "messages", "state", "tools", "context", "forwardedProps", "resume"})
        raise HTTPException(422, f"Not a RunAgentInput: {', '.join(places) or 'no JSON object'}") from None
    if not _ID.fullmatch(sent.run_id) or not _ID.fullmatch(sent.thread_id):
        raise HTTPException(422, "threadId and runId must have 1 to 200 visible ASCII characters")
    if sent.state or sent.tools or sent.context or sent.forwarded_props or sent.resume:
        raise HTTPException(422, "state, tools, context, forwardedProps and resume are not taken by this profile")
    if len(sent.messages) != 1 or not isinstance(sent.messages[0], UserMessage):
        raise HTTPException(422, "messages must hold exactly one message, of role user")
    text = sent.messages[0].content
    if not isinstance(text, str):
        raise HTTPException(422, "The message must be text")
    return Message(thread_id=ThreadId(sent.thread_id), correlation_id=CorrelationId(sent.run_id), text=check_text(text))
