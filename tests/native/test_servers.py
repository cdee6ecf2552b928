"""The native interrupt profile as real servers speak it, driven directly: what the gateway may rely on, and where they differ."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

import pytest

from tests.support.native_client import NativeClient
from tests.support.native_servers import NativeServer
from tests.upstreams.graphs import CANARY, PROMPT


@dataclass(frozen=True, slots=True)
class Ways:
    """Where the servers differ, as seen."""

    line_end: bytes
    waiting: str
    """Status of a run that stopped at an interrupt."""
    interrupt_event: str
    busy: int
    """Answer to a POST with `multitask_strategy: reject` while a run is active."""
    resumed_again: int
    """Answer to a resume when nothing is pending any more."""
    wrong_id: int
    """Answer to a resume for an interrupt that is not pending."""
    unknown_thread: int
    """Answer to a POST on a thread that was never made."""
    lists_metadata: bool
    ends: bool
    """A failed run's stream ends with an `end` event that says success."""


WAYS: Final = {
    "agent-service": Ways(b"\r\n", "interrupted", "updates", 409, 400, 400, 404, True, False),
    "langgraph-api": Ways(b"\r\n", "success", "updates", 409, 200, 200, 404, True, False),
    "aegra-api": Ways(b"\n", "interrupted", "values", 200, 400, 200, 200, False, True),
}
NEVER_MADE: Final = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
async def client(native_server: NativeServer, anyio_backend: str) -> AsyncIterator[NativeClient]:
    opened = NativeClient.of(native_server)
    yield opened
    await opened.http.aclose()


@pytest.fixture
def ways(native_server: NativeServer) -> Ways:
    return WAYS[native_server.name]


@pytest.mark.anyio
async def test_the_token_is_asked_for_by_every_call(client: NativeClient) -> None:
    thread_id = await client.thread()
    calls = [
        ("GET", "/capabilities"),
        ("POST", "/threads"),
        ("POST", f"/threads/{thread_id}/runs/stream"),
        ("GET", f"/threads/{thread_id}/state"),
        ("GET", f"/threads/{thread_id}/runs"),
        ("GET", f"/threads/{thread_id}/runs/{NEVER_MADE}"),
    ]
    for header in ("Bearer wrong", ""):
        answers = [await client.http.request(*call, json=client.body(), headers={"Authorization": header}) for call in calls]
        assert [answer.status_code for answer in answers] == [401] * len(calls)
    told = (await client.http.get("/capabilities")).json()
    assert told["assistant_id"] == "agent"
    assert (told["native_interrupt"], told["native_resume"], told["one_task_per_thread"]) == (True, True, True)
    assert told["actions"] == ["approve", "reject"]


@pytest.mark.anyio
async def test_a_chat_ends_in_success_with_nothing_pending(client: NativeClient, ways: Ways) -> None:
    thread_id = await client.thread()
    empty = await client.state(thread_id)
    assert (empty["next"], empty["tasks"], empty["interrupts"]) == ([], [], [])
    streamed = await client.begin(thread_id, "tool")
    assert streamed.status == 200
    assert streamed.headers["content-type"].partition(";")[0] == "text/event-stream"
    assert streamed.body.count(ways.line_end * 2) == len(streamed.events)
    assert streamed.events[0] == ("metadata", {"run_id": streamed.run_id, "attempt": 1})
    assert streamed.names == ["metadata", "messages", "updates", "messages", "updates", "messages", "updates"]
    assert streamed.text == "Let me look that up.\nHello from the fake model."
    told = await client.run(thread_id, streamed.run_id)
    assert (told["thread_id"], told["run_id"], told["status"]) == (thread_id, streamed.run_id, "success")
    state = await client.state(thread_id)
    assert (state["next"], state["tasks"], state["interrupts"]) == ([], [], [])
    assert [message["type"] for message in state["values"]["messages"]] == ["human", "ai", "tool", "ai"]
    assert state["metadata"]["run_id"] == streamed.run_id


@pytest.mark.anyio
@pytest.mark.parametrize(
    "answer", [{"action": "approve"}, {"action": "reject", "comment": "Not today, naïve 猫."}], ids=["approve", "reject"]
)
async def test_a_prompt_waits_and_its_answer_is_acted_on_once(
    client: NativeClient, native_server: NativeServer, ways: Ways, answer: dict[str, str]
) -> None:
    thread_id = await client.thread()
    asked = await client.begin(thread_id, "ask")
    assert asked.events[-1][0] == ways.interrupt_event
    assert asked.events[-1][1]["__interrupt__"][0]["value"] == PROMPT
    assert (await client.run(thread_id, asked.run_id))["status"] == ways.waiting
    state = await client.state(thread_id)
    assert state["next"] == ["ask"]
    assert [one["value"] for one in state["interrupts"]] == [PROMPT]
    assert [task["interrupts"] for task in state["tasks"]] == [state["interrupts"]]
    assert state["metadata"]["run_id"] == asked.run_id

    interrupt_id = state["interrupts"][0]["id"]
    resumed = await client.resume(thread_id, {interrupt_id: answer})
    assert resumed.status == 200
    assert resumed.run_id != asked.run_id
    assert resumed.text.endswith(f"You chose to {answer['action']}.")
    assert (await client.run(thread_id, resumed.run_id))["status"] == "success"
    assert await client.pending(thread_id) == []
    assert native_server.acts(thread_id) == [{"thread_id": thread_id, "answer": answer}]

    again = await client.resume(thread_id, {interrupt_id: answer})
    assert again.status == ways.resumed_again
    assert native_server.acts(thread_id) == [{"thread_id": thread_id, "answer": answer}], "the same answer again does nothing"

    listed = await client.runs(thread_id)
    assert [run["run_id"] for run in listed][-2:] == [resumed.run_id, asked.run_id], "newest first"
    found = [run.get("metadata", {}).get("gateway_run_id") for run in listed[-2:]]
    assert found == (["run-1", "run-1"] if ways.lists_metadata else [None, None])


@pytest.mark.anyio
async def test_an_answer_to_a_wrong_id_changes_nothing(client: NativeClient, native_server: NativeServer, ways: Ways) -> None:
    thread_id = await client.thread()
    await client.begin(thread_id, "ask")
    before = await client.pending(thread_id)
    wrong = await client.resume(thread_id, {"0" * 32: {"action": "approve"}})
    assert wrong.status == ways.wrong_id, "a 200 says nothing: the state does"
    assert await client.pending(thread_id) == before
    assert native_server.acts(thread_id) == []


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("ask-two", [{**PROMPT, "title": "Left?"}, {**PROMPT, "title": "Right?"}]),
        ("ask-other", [{"question": "Which one?", "options": ["a", "b"], "canary": CANARY}]),
        ("ask 2020-01-01T00:00:00Z", [{**PROMPT, "expires_at": "2020-01-01T00:00:00Z"}]),
    ],
    ids=["two", "another form", "expired"],
)
async def test_other_prompts_are_pending_too(client: NativeClient, ways: Ways, text: str, values: list[object]) -> None:
    thread_id = await client.thread()
    asked = await client.begin(thread_id, text)
    assert (await client.run(thread_id, asked.run_id))["status"] == ways.waiting
    assert [one["value"] for one in await client.pending(thread_id)] == values


@pytest.mark.anyio
async def test_a_failed_run_says_error_only_when_it_is_looked_up(client: NativeClient, ways: Ways) -> None:
    thread_id = await client.thread()
    failed = await client.begin(thread_id, "fail-late")
    assert failed.names == ["metadata", "messages", "error", *(["end"] if ways.ends else [])]
    assert await client.ended(thread_id, failed.run_id) == "error"
    assert await client.pending(thread_id) == []


@pytest.mark.anyio
async def test_one_run_at_a_time_where_the_server_keeps_to_it(client: NativeClient, native_server: NativeServer, ways: Ways) -> None:
    thread_id = await client.thread()
    first = asyncio.create_task(client.begin(thread_id, "wait one-at-a-time"))
    await native_server.reached("one-at-a-time")
    [active] = await client.runs(thread_id)
    assert active["status"] == "running"
    second = await client.begin(thread_id, "hello")
    native_server.open("one-at-a-time")
    assert second.status == ways.busy
    assert (await first).text == "The gate was opened."
    assert len(await client.runs(thread_id)) == (1 if ways.busy == 409 else 2), "a refused POST leaves no run"


@pytest.mark.anyio
async def test_a_client_that_leaves_changes_nothing(client: NativeClient, native_server: NativeServer) -> None:
    thread_id = await client.thread()
    said = {"messages": [{"role": "user", "content": "wait left", "id": "message-1"}]}
    async with client.http.stream("POST", f"/threads/{thread_id}/runs/stream", json=client.body(input=said)) as answer:
        assert answer.status_code == 200
        await native_server.reached("left")
    [active] = await client.runs(thread_id)
    assert active["status"] == "running"
    native_server.open("left")
    assert await client.ended(thread_id, active["run_id"]) == "success"


@pytest.mark.anyio
async def test_a_thread_that_was_never_made(client: NativeClient, ways: Ways) -> None:
    assert (await client.begin(NEVER_MADE, "hello")).status == ways.unknown_thread
