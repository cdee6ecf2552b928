"""The reference upstream keeps the upstream contract (bridge profile), over real sockets and a real SQLite file.

What runs inside the agent is gated by events, so that a test knows where a run stands instead of hoping for it.
"""

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool

from agent_service.events import ERROR_TEXT
from agent_service.scripted_model import Script, ScriptedChatModel, ToolUse, Turn, turns
from agent_service.store import DatabaseInUseError, open_database
from tests.support import own_graph
from tests.support.agent_service_server import (
    TOKEN,
    agent_service_process,
    new_thread,
    run_input,
    running_agent_service,
    service_settings,
)
from tests.support.own_graph import CANARY

ROOT = Path(__file__).parents[2]
DEMO = "What is the weather in Paris?"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def client(anyio_backend: str, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with running_agent_service(service_settings(tmp_path / "agent.db")) as opened:
        yield opened


class Gate:
    """A tool that says when it was reached and waits until it may go on."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()
        self.calls = 0

    def agent(self, script: Script | None = None) -> object:
        @tool
        async def wait_here() -> str:
            """Wait."""
            self.calls += 1
            self.reached.set()
            await self.open.wait()
            return "went on"

        model = ScriptedChatModel(script=script or turns(Turn("Well.", (ToolUse("wait_here"),)), Turn("Done.")))
        return create_agent(model, [wait_here])


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]


async def say(client: httpx.AsyncClient, thread_id: str, text: str, *, run_id: str = "correlation-1") -> list[dict[str, Any]]:
    answer = await client.post("/ag-ui", json=run_input(thread_id, text, run_id=run_id))
    assert answer.status_code == 200, answer.text
    return events(answer.text)


def said(stream: list[dict[str, Any]]) -> str:
    return "".join(event["delta"] for event in stream if event["type"] == "TEXT_MESSAGE_CONTENT")


def native(stream: list[dict[str, Any]]) -> str:
    return str(stream[1]["value"]["run_id"])


async def look_up(client: httpx.AsyncClient, thread_id: str, run_id: str) -> str:
    answer = await client.get(f"/threads/{thread_id}/runs/{run_id}")
    told = answer.json()
    assert (answer.status_code, told["thread_id"], told["run_id"]) == (200, thread_id, run_id)
    return str(told["status"])


@pytest.mark.anyio
@pytest.mark.parametrize("header", [None, "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", TOKEN, "Bearer \xff"])
async def test_without_the_token_nothing_is_told(client: httpx.AsyncClient, header: str | None) -> None:
    calls = [("GET", "/capabilities"), ("POST", "/threads"), ("POST", "/ag-ui"), ("GET", "/threads/a/runs/b"), ("GET", "/nowhere")]
    for method, path in calls:
        headers = [(b"host", b"x")] + ([(b"authorization", header.encode("latin-1"))] if header is not None else [])
        async with httpx.AsyncClient(base_url=client.base_url, trust_env=False) as stranger:
            answer = await stranger.request(method, path, headers=headers, content=b"{}")
        assert (answer.status_code, answer.json()) == (401, {"detail": "Unauthorized"})
    async with httpx.AsyncClient(base_url=client.base_url, trust_env=False) as stranger:
        assert (await stranger.get("/healthz")).json() == {"status": "ok"}


@pytest.mark.anyio
async def test_capabilities_are_those_that_we_publish(client: httpx.AsyncClient) -> None:
    assert (await client.get("/capabilities")).json() == {
        "assistant_id": "agent",
        "assistants": [{"assistant_id": "agent"}, {"assistant_id": "approvals"}],
        "protocol": "ag-ui",
        "protocol_version": "0.1.22",
        "native_interrupt": True,
        "native_resume": True,
        "one_task_per_thread": True,
        "actions": ["approve", "reject"],
    }


@pytest.mark.anyio
async def test_the_demo_message_streams_text_tool_text(client: httpx.AsyncClient) -> None:
    thread_id = await new_thread(client)
    answer = await client.post("/ag-ui", json=run_input(thread_id, DEMO))
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    stream = events(answer.text)
    kinds = [event["type"] for event in stream]
    content = "TEXT_MESSAGE_CONTENT"
    assert [kind for place, kind in enumerate(kinds) if kind != content or kinds[place - 1] != content] == [
        "RUN_STARTED",
        "CUSTOM",
        "TEXT_MESSAGE_START",
        content,
        "TEXT_MESSAGE_END",
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "TOOL_CALL_RESULT",
        "TEXT_MESSAGE_START",
        content,
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    assert stream[0] == {"type": "RUN_STARTED", "threadId": thread_id, "runId": "correlation-1"}
    assert stream[1]["name"] == "native_run"
    assert native(stream) != "correlation-1"
    assert said(stream) == "Let me look that up.The weather in Paris is 13 °C and windy."
    assert stream[-1]["usage"][0]["outputTokens"] > 0
    assert await look_up(client, thread_id, native(stream)) == "success"


@pytest.mark.anyio
async def test_a_second_turn_remembers_and_threads_do_not_mix(client: httpx.AsyncClient) -> None:
    first, second = await new_thread(client), await new_thread(client)
    await say(client, first, "hello")
    assert "message 2 of our conversation" in said(await say(client, first, "again"))
    assert "message 1 of our conversation" in said(await say(client, second, "hello"))


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"messages": []}, 422),
        ({"messages": [{"id": "1", "role": "user", "content": "a"}, {"id": "2", "role": "user", "content": "b"}]}, 422),
        ({"messages": [{"id": "1", "role": "assistant", "content": "a"}]}, 422),
        ({"messages": [{"id": "1", "role": "user", "content": [{"type": "text", "text": "a"}]}]}, 422),
        ({"messages": [{"id": "1", "role": "user", "content": "  "}]}, 422),
        ({"messages": [{"id": "1", "role": "user", "content": "a" * 16_001}]}, 422),
        ({"messages": [{"role": "user", "content": "no id"}]}, 422),
        ({"runId": "with space"}, 422),
        ({"runId": ""}, 422),
        ({"tools": [{"name": "x", "description": "x", "parameters": {}}]}, 422),
        ({"state": {"a": 1}}, 422),
        ({"forwardedProps": {"a": 1}}, 422),
        ({"resume": [{"interruptId": "1", "status": "resolved"}]}, 422),
        ({"threadId": "never-handed-out"}, 404),
        ({"padding": "x" * 65_536}, 413),
    ],
)
async def test_what_the_profile_does_not_take_is_refused(client: httpx.AsyncClient, changed: dict[str, object], status: int) -> None:
    thread_id = await new_thread(client)
    answer = await client.post("/ag-ui", json={**run_input(thread_id, "hello"), **changed})
    assert (answer.status_code, list(answer.json())) == (status, ["detail"])
    assert "message 1 of" in said(await say(client, thread_id, "hello")), "nothing of it reached the agent"


@pytest.mark.anyio
async def test_broken_bodies_wrong_methods_and_unknown_paths(client: httpx.AsyncClient) -> None:
    thread_id = await new_thread(client)
    answers = [
        await client.post("/ag-ui", content=b"{"),
        await client.post("/ag-ui", content=b"\xff"),
        await client.post("/ag-ui", content=b"[]"),
        await client.post("/threads", json={"thread_id": "mine"}),
        await client.get("/ag-ui"),
        await client.put("/threads"),
        await client.post("/capabilities"),
        await client.post("/ag-ui/", json={}),
        await client.get(f"/threads/{thread_id}/runs/unknown"),
    ]
    assert [answer.status_code for answer in answers] == [422, 422, 422, 422, 405, 405, 405, 404, 404]
    assert all(list(answer.json()) == ["detail"] for answer in answers)


@pytest.mark.anyio
async def test_the_longest_text_is_taken(client: httpx.AsyncClient) -> None:
    text = "é" * 16_000
    body = json.dumps(run_input(await new_thread(client), text), ensure_ascii=False).encode()
    answer = await client.post("/ag-ui", content=body)
    assert text in said(events(answer.text))


@pytest.mark.anyio
async def test_a_client_that_leaves_changes_nothing(tmp_path: Path) -> None:
    gate = Gate()
    async with running_agent_service(service_settings(tmp_path / "agent.db"), graph=gate.agent()) as client:
        thread_id = await new_thread(client)
        async with client.stream("POST", "/ag-ui", json=run_input(thread_id, "go")) as answer:
            text = "".join([line async for line in _until(answer, "native_run")])
            await gate.reached.wait()
        run_id = re.findall(r'"run_id":"([^"]+)"', text)[0]
        assert await look_up(client, thread_id, run_id) == "running"
        gate.open.set()
        async with asyncio.timeout(10):
            while await look_up(client, thread_id, run_id) == "running":
                pass
        assert await look_up(client, thread_id, run_id) == "success"
        assert gate.calls == 1


@pytest.mark.anyio
async def test_one_run_per_thread_at_a_time(tmp_path: Path) -> None:
    gate = Gate()
    async with running_agent_service(service_settings(tmp_path / "agent.db"), graph=gate.agent()) as client:
        thread_id, other = await new_thread(client), await new_thread(client)
        async with asyncio.TaskGroup() as group:
            first = group.create_task(say(client, thread_id, "go"))
            await gate.reached.wait()
            second = await client.post("/ag-ui", json=run_input(thread_id, "go", run_id="correlation-2"))
            assert (second.status_code, second.json()) == (409, {"detail": "Thread is already running a task"})
            elsewhere = group.create_task(say(client, other, "go"))
            gate.open.set()
        assert [first.result()[-1]["type"], elsewhere.result()[-1]["type"]] == ["RUN_FINISHED", "RUN_FINISHED"]
        assert gate.calls == 2


@tool
def break_down() -> str:
    """Fail."""
    raise RuntimeError(CANARY)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "listed",
    [
        [Turn("Well.", (ToolUse("break_down"),))],
        [Turn("Well.", fails=CANARY)],
        [Turn("", (ToolUse("not_bound"),))],
        [],
    ],
    ids=["tool", "model", "unbound tool", "script over"],
)
async def test_errors_are_told_as_such_and_never_in_their_own_words(
    tmp_path: Path, listed: list[Turn], caplog: pytest.LogCaptureFixture
) -> None:
    graph = create_agent(ScriptedChatModel(script=turns(*listed)), [break_down])
    async with running_agent_service(service_settings(tmp_path / "agent.db"), graph=graph) as client:
        thread_id = await new_thread(client)
        answer = await client.post("/ag-ui", json=run_input(thread_id, "go"))
        assert answer.status_code == 200
        stream = events(answer.text)
        assert stream[-1]["type"] == "RUN_ERROR"
        assert (stream[-1]["message"], stream[-1]["code"]) == (ERROR_TEXT, "agent_error")
        assert CANARY not in answer.text
        assert await look_up(client, thread_id, native(stream)) == "error"
    assert f"run {native(stream)} of thread {thread_id} failed" in caplog.text
    assert TOKEN not in caplog.text


@pytest.mark.anyio
async def test_a_thread_goes_on_after_a_failed_run(tmp_path: Path) -> None:
    listed = turns(Turn("Well.", (ToolUse("break_down"),)), Turn("Better now."))
    graph = create_agent(ScriptedChatModel(script=listed), [break_down])
    async with running_agent_service(service_settings(tmp_path / "agent.db"), graph=graph) as client:
        thread_id = await new_thread(client)
        assert (await say(client, thread_id, "go"))[-1]["type"] == "RUN_ERROR"
        stream = await say(client, thread_id, "again")
        assert (said(stream), stream[-1]["type"]) == ("Better now.", "RUN_FINISHED")


@pytest.mark.anyio
@pytest.mark.parametrize(("graph", "reason"), [(own_graph.asking, "langgraph:interrupt"), (own_graph.stopping, "langgraph:breakpoint")])
async def test_an_interrupted_run_is_no_success(tmp_path: Path, graph: object, reason: str) -> None:
    async with running_agent_service(service_settings(tmp_path / "agent.db"), graph=graph) as client:
        thread_id = await new_thread(client)
        stream = await say(client, thread_id, "go")
        assert [event["type"] for event in stream] == ["RUN_STARTED", "CUSTOM", "CUSTOM", "RUN_FINISHED"]
        assert stream[2]["name"] == "on_interrupt"
        assert stream[3]["outcome"]["type"] == "interrupt"
        assert [one["reason"] for one in stream[3]["outcome"]["interrupts"]] == [reason]
        assert await look_up(client, thread_id, native(stream)) == "interrupted"


@pytest.mark.anyio
async def test_a_stop_ends_what_runs_and_says_so(tmp_path: Path) -> None:
    gate = Gate()
    settings = service_settings(tmp_path / "agent.db")
    async with running_agent_service(settings, graph=gate.agent()) as client:
        thread_id = await new_thread(client)
        async with client.stream("POST", "/ag-ui", json=run_input(thread_id, "go")) as answer:
            text = "".join([line async for line in _until(answer, "native_run")])
            await gate.reached.wait()
    run_id = re.findall(r'"run_id":"([^"]+)"', text)[0]
    async with running_agent_service(settings, graph=gate.agent()) as client:
        assert await look_up(client, thread_id, run_id) == "error"


async def _until(answer: httpx.Response, mark: str) -> AsyncIterator[str]:
    async for line in answer.aiter_lines():
        yield line
        if mark in line:
            return


@pytest.mark.anyio
async def test_a_database_belongs_to_one_process(tmp_path: Path) -> None:
    async with open_database(tmp_path / "agent.db"):
        with pytest.raises(DatabaseInUseError):
            async with open_database(tmp_path / "agent.db"):
                pass
    async with open_database(tmp_path / "agent.db"):
        pass


# The command line, in a process of its own


@pytest.mark.anyio
async def test_a_graph_of_your_own_survives_the_death_of_its_process(tmp_path: Path) -> None:
    own = ("--agent", "tests.support.own_graph:hanging")
    async with agent_service_process(tmp_path, *own, AGENT_SERVICE_ASSISTANT="mine") as (process, client):
        assert (await client.get("/capabilities")).json()["assistant_id"] == "mine"
        thread_id = await new_thread(client)
        assert said(await say(client, thread_id, "one")) == "1: one"
        async with client.stream("POST", "/ag-ui", json=run_input(thread_id, "hang")) as answer:
            text = "".join([line async for line in _until(answer, "native_run")])
            run_id = re.findall(r'"run_id":"([^"]+)"', text)[0]
            assert await look_up(client, thread_id, run_id) == "running"
            process.kill()
            await process.wait()
    async with agent_service_process(tmp_path, *own) as (process, client):
        assert await look_up(client, thread_id, run_id) == "error", "nobody will ever finish it"
        assert said(await say(client, thread_id, "three")) in ("2: three", "3: three"), (
            "whether the cut message is remembered is LangGraph's"
        )
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
