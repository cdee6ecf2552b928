"""The native interrupt profile over HTTP, in the shapes of LangGraph Agent Server: runs with prompts, their answers, listings, state.

Stricter than those servers where they would lose something or do it twice: see docs/agent-service.md. Not here: threads and the look-up of
one run, which both profiles share (`app.py`).
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from langgraph.types import Interrupt, StateSnapshot
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from agent_service.events import ERROR_TEXT
from agent_service.http_parts import BUSY, STREAM_HEADERS, Service, check_text, read_body
from agent_service.plain import compact_json
from agent_service.records import NewRun, Run, RunStatus
from agent_service.runs import Answers, Content, NotWaitedForError, Said, ThreadWaitsError
from agent_service.store import ThreadBusyError
from agent_service.voices import HEARTBEAT, NativeVoice

DEFAULT_LIMIT: Final = 10
MAX_LIMIT: Final = 1000


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


class _UserMessage(_Strict):
    role: Literal["user"]
    content: str
    id: str | None = None


class _Input(_Strict):
    messages: Annotated[list[_UserMessage], Field(min_length=1, max_length=1)]


class _Command(_Strict):
    resume: Annotated[dict[str, Any], Field(min_length=1)]


class _RunBody(_Strict):
    """The body of a POST that executes. What it does not name (checkpoints above all) is refused, not ignored."""

    assistant_id: str
    input: _Input | None = None
    command: _Command | None = None
    stream_mode: Annotated[list[str], Field(min_length=1)] = Field(default_factory=lambda: ["values"])
    multitask_strategy: Literal["reject"] = "reject"
    on_disconnect: Literal["continue"] = "continue"
    metadata: dict[str, Any] = Field(default_factory=dict)


def native_routes(service: Service) -> list[Route]:
    """The routes that only the native profile has."""

    async def stream(request: Request) -> Response:
        body = _read(await read_body(request))
        run = await _accepted(service, request.path_params["thread_id"], body)
        try:
            feed = await service.runner.start(run, _content(body), lambda run_id: NativeVoice(run_id, body.stream_mode))
        except ThreadBusyError:
            raise HTTPException(409, BUSY) from None
        except ThreadWaitsError:
            raise HTTPException(400, "The thread waits for an answer; a message would take its place") from None
        except NotWaitedForError:
            raise HTTPException(400, "The thread does not wait for that answer") from None
        place = f"/threads/{run.thread_id}/runs/{feed.run_id}"
        headers = {**STREAM_HEADERS, "Content-Location": place, "Location": f"{place}/stream"}
        return StreamingResponse(feed.frames(heartbeat=HEARTBEAT), media_type="text/event-stream", headers=headers)

    async def list_runs(request: Request) -> Response:
        thread_id = request.path_params["thread_id"]
        await service.owner_of(thread_id)
        listed = await service.store.list_runs(
            thread_id=thread_id,
            run_status=_status(request.query_params.get("status")),
            limit=_number(request, "limit", DEFAULT_LIMIT, MAX_LIMIT),
            offset=_number(request, "offset", 0, 2**31),
        )
        return json_response([run_document(run) for run in listed])

    async def state(request: Request) -> Response:
        thread_id = request.path_params["thread_id"]
        graph = service.runner.graphs[await service.owner_of(thread_id) or service.assistant]
        snapshot = await graph.aget_state({"configurable": {"thread_id": thread_id}})
        return json_response(_state_document(snapshot))

    return [
        Route("/threads/{thread_id}/runs/stream", stream, methods=["POST"]),
        Route("/threads/{thread_id}/runs", list_runs),
        Route("/threads/{thread_id}/state", state),
    ]


def json_response(document: object, status_code: int = 200) -> Response:
    """A response of JSON, whatever a graph put into it."""
    return Response(compact_json(document), status_code, media_type="application/json")


def run_document(run: Run) -> dict[str, Any]:
    """A run as a look-up tells it. Never what was said in it."""
    return {
        "run_id": run.run_id,
        "thread_id": run.thread_id,
        "assistant_id": run.assistant,
        "metadata": run.metadata,
        "status": run.run_status,
        "multitask_strategy": "reject",
        "created_at": run.created_at,
        "updated_at": run.updated_at,
    }


def _read(body: bytes) -> _RunBody:
    """The body; 422 with the names of its parts that are at fault."""
    try:
        read = _RunBody.model_validate_json(body)
    except ValidationError as error:
        named = {str(fault["loc"][0]) for fault in error.errors(include_input=False) if fault["loc"]}
        places = sorted(named & _RunBody.model_fields.keys()) or ["a member that is not taken here" if named else "no JSON object"]
        raise HTTPException(422, f"Not a run: {', '.join(places)}") from None
    if (read.input is None) == (read.command is None):
        raise HTTPException(422, "Not a run: either input or command")
    if not set(read.stream_mode) <= NativeVoice.known():
        raise HTTPException(422, f"stream_mode may hold {', '.join(sorted(NativeVoice.known()))}")
    return read


def _content(body: _RunBody) -> Content:
    if body.command is not None:
        return Answers(by_interrupt=body.command.resume)
    assert body.input is not None
    return Said(text=check_text(body.input.messages[0].content), over_waiting=False)


async def _accepted(service: Service, thread_id: str, body: _RunBody) -> NewRun:
    """The run to be recorded; 404 and 422 for a thread and an assistant that are not there or do not belong together."""
    if body.assistant_id not in service.runner.graphs:
        raise HTTPException(422, "No such assistant")
    thread = await service.require_own_thread(thread_id, body.assistant_id)
    return NewRun(thread_id=thread, assistant=body.assistant_id, metadata=body.metadata)


def _status(given: str | None) -> RunStatus | None:
    try:
        return RunStatus(given) if given is not None else None
    except ValueError:
        raise HTTPException(422, f"status is one of {', '.join(RunStatus)}") from None


def _number(request: Request, name: str, default: int, highest: int) -> int:
    given = request.query_params.get(name, str(default))
    if not (given.isascii() and given.isdigit() and len(given) <= 10 and int(given) <= highest):
        raise HTTPException(422, f"{name} is a number from 0 to {highest}")
    return int(given)


def _state_document(snapshot: StateSnapshot) -> dict[str, Any]:
    checkpoint, parent = _checkpoint(snapshot.config), _checkpoint(snapshot.parent_config)
    return {
        "values": snapshot.values,
        "next": snapshot.next,
        "tasks": [
            {
                "id": task.id,
                "name": task.name,
                "path": task.path,
                "error": ERROR_TEXT if task.error is not None else None,
                "interrupts": _interrupts(task.interrupts),
                "checkpoint": None,
                "state": None,
                "result": None,
            }
            for task in snapshot.tasks
        ],
        "metadata": snapshot.metadata,
        "created_at": snapshot.created_at,
        "checkpoint": checkpoint,
        "parent_checkpoint": parent,
        "interrupts": _interrupts(snapshot.interrupts),
        "checkpoint_id": checkpoint and checkpoint["checkpoint_id"],
        "parent_checkpoint_id": parent and parent["checkpoint_id"],
    }


def _interrupts(interrupts: Sequence[Interrupt[Any]]) -> list[dict[str, Any]]:
    return [{"id": interrupt.id, "value": interrupt.value} for interrupt in interrupts]


def _checkpoint(config: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Which checkpoint a configuration names; None where there is none yet."""
    named = (config or {}).get("configurable", {})
    if "checkpoint_id" not in named:
        return None
    return {"checkpoint_id": named["checkpoint_id"], "thread_id": named["thread_id"], "checkpoint_ns": named.get("checkpoint_ns", "")}
