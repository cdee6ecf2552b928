"""The built-in agent over an OpenAI-compatible endpoint: a real server that speaks chat completions, streamed."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from agent_service.settings import Settings
from tests.support.agent_service_server import new_thread, run_input, running_agent_service, service_settings

CANARY = "canary-2c77-of-the-provider"
KEY = "sk-test-key-of-the-provider"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def delta(**fields: object) -> str:
    choice = {"index": 0, "delta": {"role": "assistant", **fields}, "finish_reason": None}
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "small", "choices": [choice]}
    return f"data: {json.dumps(chunk)}\n\n"


def call_fragment(arguments: str, **named: str) -> dict[str, object]:
    opening = {"id": "call_abc", "type": "function"} if named else {}
    return {"index": 0, **opening, "function": {**named, "arguments": arguments}}


class Provider:
    """Calls get_weather at first, then tells its result; refuses with the canary when the user asks for it."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.keys: set[str | None] = set()
        self.app = Starlette(routes=[Route("/v1/chat/completions", self.complete, methods=["POST"])])

    async def complete(self, request: Request) -> Response:
        asked = json.loads(await request.body())
        self.requests.append(asked)
        self.keys.add(request.headers.get("authorization"))
        conversation = asked["messages"]
        if conversation[-1]["content"] == "fail":
            return JSONResponse({"error": {"message": CANARY, "type": "server_error"}}, 500)
        if conversation[-1]["role"] == "tool":
            pieces = [delta(content="It is "), delta(content=conversation[-1]["content"])]
        else:
            called = [call_fragment("", name="get_weather"), call_fragment('{"city": '), call_fragment('"Rome"}')]
            pieces = [delta(content="Let me see."), *(delta(tool_calls=[fragment]) for fragment in called)]

        async def body() -> AsyncIterator[str]:
            for piece in [*pieces, "data: [DONE]\n\n"]:
                yield piece

        return StreamingResponse(body(), media_type="text/event-stream")


@asynccontextmanager
async def provided(tmp_path: Path) -> AsyncIterator[tuple[Provider, Settings]]:
    provider = Provider()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(provider.app, http="h11", ws="none", lifespan="off", log_config=None))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        base_url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        given: dict[str, object] = {"openai_base_url": base_url, "openai_model": "small", "openai_api_key": KEY}
        try:
            yield provider, service_settings(tmp_path / "agent.db", model="openai", **given)
        finally:
            server.should_exit = True
            await serving


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]


@pytest.mark.anyio
async def test_text_tool_text_from_an_openai_compatible_endpoint(tmp_path: Path) -> None:
    async with provided(tmp_path) as (provider, settings), running_agent_service(settings) as client:
        thread_id = await new_thread(client)
        stream = events((await client.post("/ag-ui", json=run_input(thread_id, "weather?"))).text)
        kinds = [event["type"] for event in stream]
        assert kinds.index("TEXT_MESSAGE_END") < kinds.index("TOOL_CALL_START") < kinds.index("TOOL_CALL_RESULT")
        assert "".join(event["delta"] for event in stream if event["type"] == "TEXT_MESSAGE_CONTENT") == "Let me see.It is 17 °C and windy"
        assert stream[-1]["type"] == "RUN_FINISHED"
        assert provider.keys == {f"Bearer {KEY}"}
        assert [offered["function"]["name"] for offered in provider.requests[0]["tools"]] == ["get_weather", "get_time"]
        assert [message["role"] for message in provider.requests[1]["messages"]] == ["system", "user", "assistant", "tool"]


@pytest.mark.anyio
async def test_a_provider_that_fails_is_asked_once_and_never_quoted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with provided(tmp_path) as (provider, settings), running_agent_service(settings) as client:
        thread_id = await new_thread(client)
        answer = await client.post("/ag-ui", json=run_input(thread_id, "fail"))
        assert events(answer.text)[-1]["type"] == "RUN_ERROR"
        assert CANARY not in answer.text
        assert CANARY in caplog.text, "the log has the details"
        assert len(provider.requests) == 1
        assert KEY not in answer.text + caplog.text
