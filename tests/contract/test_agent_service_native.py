"""The reference upstream's native interrupt profile: the shapes of the recorded real servers, its own strictness, and what survives."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from agent_service.approval_agent import approval_agent, asked_for, expiry
from agent_service.events import ERROR_TEXT
from agent_service.records import RunId
from agent_service.runs import HEARTBEAT_SECONDS, Feed
from agent_service.store import open_database
from agent_service.voices import HEARTBEAT
from tests.support import own_graph
from tests.support.agent_service_server import agent_service_process, run_input, running_agent_service, service_settings
from tests.support.native_client import NativeClient, Streamed, events_of, run_of
from tests.upstreams import graphs
from tests.upstreams.graphs import CANARY, PROMPT

SAMPLES = Path(__file__).parents[1] / "samples"


@pytest.fixture(autouse=True)
def meeting_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRAPH_FOLDER", str(tmp_path))
    return tmp_path


@pytest.fixture
async def client(anyio_backend: str, tmp_path: Path) -> AsyncIterator[NativeClient]:
    async with running_agent_service(service_settings(tmp_path / "agent.db"), graph=graphs.build()) as http:
        yield NativeClient(http)


# Shapes


def sample(server: str, name: str) -> Any:
    return json.loads((SAMPLES / server / f"{name}.json").read_text(encoding="utf-8"))


def sampled_stream(server: str, name: str) -> Streamed:
    body = (SAMPLES / server / f"{name}.sse").read_bytes()
    return Streamed(200, {}, body, events_of(body))


def differences(ours: Any, langgraph: Any, aegra: Any, place: str) -> list[str]:
    """Where our document lacks a member that both servers have, or has one that neither has. Lists by their first entries.

    Where one of the servers has null, the other says of what kind a value is; where both have, ours is taken. Metadata is everybody's own.
    """
    theirs = [value for value in (langgraph, aegra) if value is not None]
    if theirs and all(isinstance(value, dict) for value in (ours, *theirs)):
        known = set().union(*theirs)
        lacks = [f"{place} lacks {name}" for name in sorted(set.intersection(*map(set, theirs)) - ours.keys())]
        invents = [f"{place} invents {name}" for name in sorted(ours.keys() - known)]
        members = [
            differences(ours[name], langgraph and langgraph.get(name), aegra and aegra.get(name), f"{place}.{name}")
            for name in sorted(ours.keys() & known - {"metadata"})
        ]
        return lacks + invents + [found for member in members for found in member]
    if theirs and all(isinstance(value, list) for value in (ours, *theirs)):
        if not all((ours, *theirs)):
            return [f"{place} is empty on one side"] if any((ours, *theirs)) else []
        return differences(ours[0], langgraph and langgraph[0], aegra and aegra[0], f"{place}[0]")
    kinds = {type(value) for value in theirs}
    return [f"{place} is of another kind"] if ours is not None and kinds and type(ours) not in kinds else []


def test_the_comparison_finds_what_differs() -> None:
    theirs = {"a": {"b": 1}, "c": [{"d": 1}], "e": None}
    assert differences(theirs, theirs, theirs, "") == []
    assert differences({"a": {"x": 1}, "c": [], "e": 1}, theirs, theirs, "") == [".a lacks b", ".a invents x", ".c is empty on one side"]
    assert differences({**theirs, "a": 1, "c": [{"d": {}}]}, theirs, {**theirs, "a": None}, "") == [
        ".a is of another kind",
        ".c[0].d is of another kind",
    ]


def assert_shape(ours: Any, name: str) -> None:
    assert differences(ours, sample("langgraph-api", name), sample("aegra-api", name), name) == []


@pytest.mark.anyio
async def test_threads_runs_and_states_have_the_shapes_of_the_real_servers(client: NativeClient) -> None:
    assert_shape((await client.http.post("/threads", json={})).json(), "thread_create")
    thread_id = await client.thread()
    assert_shape(await client.state(thread_id), "state_empty_thread")
    asked = await client.begin(thread_id, "ask")
    assert_shape(await client.run(thread_id, asked.run_id), "run_get_confirm_interrupted")
    state = await client.state(thread_id)
    assert_shape(state, "state_confirm_pending")
    assert {"run_id", "step", "source", "parents"} <= state["metadata"].keys(), "what the servers tell of a checkpoint differs"
    resumed = await client.resume(thread_id, {state["interrupts"][0]["id"]: {"action": "approve"}})
    assert_shape(await client.run(thread_id, resumed.run_id), "run_get_confirm_resumed")
    assert_shape(await client.state(thread_id), "state_confirm_after")
    assert_shape(await client.runs(thread_id), "runs_list")
    two = await client.thread()
    await client.begin(two, "ask-two")
    assert_shape(await client.state(two), "state_confirm2_pending")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("text", "recorded"),
    [("hello", "stream_plain_messages-tuple"), ("ask", "stream_confirm"), ("fail", "stream_boom"), ("fail-late", "stream_boom_mid")],
)
async def test_streams_have_the_frames_of_langgraph_agent_server(client: NativeClient, text: str, recorded: str) -> None:
    theirs = sampled_stream("langgraph-api", recorded)
    modes = ["messages-tuple"] if recorded == "stream_plain_messages-tuple" else ["values", "updates", "messages-tuple"]
    streamed = await client.begin(await client.thread(), text, stream_mode=modes)
    for stream in (streamed, theirs):
        assert stream.body.count(b"\n") == stream.body.count(b"\r\n") == 3 * len(stream.events)
    assert set(streamed.names) == set(theirs.names)
    assert [streamed.names[0], streamed.names[-1]] == [theirs.names[0], theirs.names[-1]]
    for name in set(streamed.names):
        ours, recorded_one = (next(data for event, data in stream.events if event == name) for stream in (streamed, theirs))
        assert type(ours) is type(recorded_one)
        if name == "messages":
            assert _of_any_message(ours[0]) == _of_any_message(recorded_one[0])
            assert {"run_id", "thread_id", "langgraph_node", "langgraph_step"} <= ours[1].keys() & recorded_one[1].keys()
        elif name in ("metadata", "error"):
            assert ours.keys() == recorded_one.keys()
    assert streamed.headers["content-location"] == streamed.headers["location"].removesuffix("/stream")


def _of_any_message(message: Mapping[str, Any]) -> set[str]:
    """The members that a whole message and a chunk of one share."""
    return set(message) - {"tool_call_chunks", "chunk_position"}


@pytest.mark.anyio
async def test_errors_are_never_told_in_their_own_words(client: NativeClient) -> None:
    thread_id = await client.thread()
    failed = await client.begin(thread_id, "fail")
    assert failed.events[-1] == ("error", {"error": "AgentError", "message": ERROR_TEXT})
    answers = [await client.http.get(f"/threads/{thread_id}/{path}") for path in ("state", "runs", f"runs/{failed.run_id}")]
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert not any(CANARY in text for text in [failed.body.decode(), *(answer.text for answer in answers)])
    assert answers[0].json()["tasks"][0]["error"] == ERROR_TEXT


# Its own strictness


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"assistant_id": "nobody"}, 422),
        ({"input": {"messages": []}}, 422),
        ({"input": {"messages": [{"role": "assistant", "content": "a"}]}}, 422),
        ({"input": {"messages": [{"role": "user", "content": " "}]}}, 422),
        ({"input": {"messages": [{"role": "user", "content": "a" * 16_001}]}}, 422),
        ({"input": {"messages": [{"role": "user", "content": "a"}], "more": 1}}, 422),
        ({"input": None}, 422),
        ({"command": {"resume": {"0" * 32: 1}}}, 422),
        ({"input": None, "command": {"resume": {}}}, 422),
        ({"input": None, "command": {"resume": "bare"}}, 422),
        ({"input": None, "command": {"resume": {"0" * 32: 1}, "goto": "act"}}, 422),
        ({"input": None, "command": {"resume": {"0" * 32: 1}}}, 400),
        ({"checkpoint": {"checkpoint_id": "1"}}, 422),
        ({"multitask_strategy": "enqueue"}, 422),
        ({"on_disconnect": "cancel"}, 422),
        ({"stream_mode": ["events"]}, 422),
        ({"stream_mode": []}, 422),
        ({"metadata": "text"}, 422),
        ({"metadata": {"padding": "x" * 65_536}}, 413),
    ],
)
async def test_what_it_does_not_take_is_refused_and_leaves_nothing(client: NativeClient, changed: dict[str, Any], status: int) -> None:
    thread_id = await client.thread()
    body = client.body(input={"messages": [{"role": "user", "content": "hello"}]}) | changed
    answer = await client.http.post(f"/threads/{thread_id}/runs/stream", json=body)
    assert (answer.status_code, list(answer.json())) == (status, ["detail"])
    assert await client.runs(thread_id) == []
    assert (await client.state(thread_id))["values"] == {}
    assert (await client.begin(thread_id, "hello")).status == 200


@pytest.mark.anyio
async def test_a_message_does_not_take_the_place_of_a_prompt(client: NativeClient) -> None:
    thread_id = await client.thread()
    asked = await client.begin(thread_id, "ask")
    before = await client.pending(thread_id)
    assert (await client.begin(thread_id, "hello")).status == 400
    assert await client.pending(thread_id) == before
    assert [run["run_id"] for run in await client.runs(thread_id)] == [asked.run_id]


@pytest.mark.anyio
async def test_one_of_two_answers_is_given_once_also_at_the_same_moment(client: NativeClient, meeting_folder: Path) -> None:
    thread_id = await client.thread()
    await client.begin(thread_id, "ask")
    [pending] = await client.pending(thread_id)
    answers = await asyncio.gather(*(client.resume(thread_id, {pending["id"]: {"action": "approve"}}) for _ in range(5)))
    assert sorted(answer.status for answer in answers)[0] == 200
    assert {answer.status for answer in answers} <= {200, 400, 409}
    assert [answer.status for answer in answers].count(200) == 1
    assert len((meeting_folder / "acts.jsonl").read_text().splitlines()) == 1
    assert len(await client.runs(thread_id)) == 2


@pytest.mark.anyio
async def test_listing(client: NativeClient) -> None:
    thread_id = await client.thread()
    runs = [(await client.begin(thread_id, text, metadata={"at": text})).run_id for text in ("one", "fail", "three")]
    newest_first = list(reversed(runs))
    assert [run["run_id"] for run in await client.runs(thread_id)] == newest_first
    assert [run["metadata"] for run in await client.runs(thread_id)] == [{"at": "three"}, {"at": "fail"}, {"at": "one"}]
    assert [run["run_id"] for run in await client.runs(thread_id, limit=1, offset=1)] == newest_first[1:2]
    assert [run["run_id"] for run in await client.runs(thread_id, status="error")] == [runs[1]]
    for query in ({"limit": "1001"}, {"limit": "-1"}, {"offset": "x"}, {"status": "odd"}):
        assert (await client.http.get(f"/threads/{thread_id}/runs", params=query)).status_code == 422
    for path in ("/threads/nowhere/runs", "/threads/nowhere/state", f"/threads/{await client.thread()}/runs/{runs[0]}"):
        assert (await client.http.get(path)).status_code == 404


@pytest.mark.anyio
async def test_a_thread_keeps_to_its_assistant(tmp_path: Path) -> None:
    async with running_agent_service(service_settings(tmp_path / "agent.db")) as http:
        client = NativeClient(http)
        thread_id = await client.thread()
        asked = await client.begin(thread_id, "Send it", assistant_id="approvals")
        assert asked.text == "I can do that. It needs your approval first."
        assert (await client.begin(thread_id, "hello")).status == 422
        assert (await http.post("/ag-ui", json=run_input(thread_id, "hello"))).status_code == 422
        assert len(await client.pending(thread_id)) == 1


# The built-in agent that asks


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"action": "approve", "comment": "Please do."}, "Done. (This is a demo: nothing really happened.) You wrote: Please do."),
        ({"action": "reject"}, "All right, I left it."),
    ],
)
async def test_the_built_in_approvals(tmp_path: Path, answer: dict[str, str], said: str) -> None:
    settings = service_settings(tmp_path / "agent.db")
    async with running_agent_service(settings) as http:
        client = NativeClient(http)
        thread_id = await client.thread()
        await client.begin(thread_id, "Send the\nreport to Zoë", assistant_id="approvals")
    # Another process of the service goes on with what waits.
    async with running_agent_service(settings) as http:
        client = NativeClient(http)
        [pending] = await client.pending(thread_id)
        description = "You asked for this: Send the report to Zoë"
        assert pending["value"] == {**PROMPT, "title": "Go ahead?", "description": description}
        resumed = await client.resume(thread_id, {pending["id"]: answer}, assistant_id="approvals")
        assert resumed.text == said
        assert await client.pending(thread_id) == []
        assert [run["status"] for run in await client.runs(thread_id)] == ["success", "interrupted"]


def test_what_the_prompt_says() -> None:
    now = datetime(2026, 12, 31, 23, 59, tzinfo=UTC)
    assert expiry("Do it within 90 seconds, please", now) == "2027-01-01T00:00:30Z"
    assert expiry("within 2 Hours", now) == "2027-01-01T01:59:00Z"
    assert expiry("Do it", now) is None
    assert expiry("within 0 seconds", now) is None
    assert asked_for([HumanMessage("a\x00\tb\u2028c " + "x" * 400)]) == "a b c " + "x" * 293 + "…"


@pytest.mark.anyio
async def test_the_prompt_expires_when_the_message_says() -> None:
    graph = approval_agent(pace_seconds=0, now=lambda: datetime(2026, 12, 1, tzinfo=UTC)).compile(checkpointer=InMemorySaver())
    ended = await graph.ainvoke({"messages": [HumanMessage("Do it within 5 minutes")]}, {"configurable": {"thread_id": "1"}})
    assert ended["__interrupt__"][0].value["expires_at"] == "2026-12-01T00:05:00Z"


# What survives, and what a client notices of silence


@pytest.mark.anyio
async def test_a_prompt_survives_the_death_of_the_process_and_so_does_one_whose_answer_was_cut(
    tmp_path: Path, meeting_folder: Path
) -> None:
    """The answer that was being acted on when the process died is an error, and the prompt waits as before: the graph never got past it."""
    own = ("--agent", "tests.support.own_graph:asking_then_hanging")
    async with agent_service_process(tmp_path, *own) as (process, http):
        client = NativeClient(http)
        thread_id = await client.thread()
        await client.begin(thread_id, "go")
        process.kill()
        await process.wait()
    async with agent_service_process(tmp_path, *own) as (process, http):
        client = NativeClient(http)
        [pending] = await client.pending(thread_id)
        body = client.body(command={"resume": {pending["id"]: "hang"}})
        async with http.stream("POST", f"/threads/{thread_id}/runs/stream", json=body) as answer:
            run_id = run_of(answer.headers)[1]
            assert (await client.run(thread_id, run_id))["status"] in ("pending", "running")
            process.kill()
            await process.wait()
    async with agent_service_process(tmp_path, *own) as (_, http):
        client = NativeClient(http)
        assert (await client.run(thread_id, run_id))["status"] == "error"
        assert await client.pending(thread_id) == [pending]
        assert (await client.resume(thread_id, {pending["id"]: "yes"})).text == "You decided yes"


@pytest.mark.anyio
async def test_a_file_of_an_earlier_version_is_taken_over(tmp_path: Path) -> None:
    file = tmp_path / "agent.db"
    async with open_database(file) as database:
        thread = await database.store.create_thread()
    with sqlite3.connect(file) as old:
        old.execute("alter table runs drop column assistant")
        old.execute("alter table runs drop column metadata")
        old.execute(f"insert into runs values ('old-run', '{thread.thread_id}', 'c', 'success', '2026-01-01', '2026-01-01')")
    old.close()
    async with running_agent_service(service_settings(file), graph=own_graph.asking) as http:
        client = NativeClient(http)
        assert (await client.run(thread.thread_id, "old-run"))["metadata"] == {}
        assert (await client.begin(thread.thread_id, "hello")).status == 200
        assert len(await client.runs(thread.thread_id)) == 2


@pytest.mark.anyio
async def test_silence_is_filled_with_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    assert HEARTBEAT_SECONDS == 5
    monkeypatch.setattr("agent_service.runs.HEARTBEAT_SECONDS", 0.01)
    feed = Feed(RunId("run"))
    frames = feed.frames(heartbeat=HEARTBEAT)
    assert await anext(frames) == HEARTBEAT
    feed.put(["one"])
    feed.end()
    assert [frame async for frame in frames if frame != HEARTBEAT] == ["one"]
    assert events_of(HEARTBEAT.encode()) == []
