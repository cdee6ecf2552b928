"""POST …/ag-ui: what an AG-UI client sends and gets. The released clients run whole conversations; the rest is asked by hand."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import httpx
import pytest

from gateway.domain.ids import ApplicationId
from gateway.domain.limits import MAX_BROWSER_BODY_BYTES
from tests.support.ag_ui_client import CLIENTS, AgentRun, AgentSaw, run_agents
from tests.support.native_upstream import TOKEN, native_upstream
from tests.support.postgres import PostgresForTests
from tests.support.scripted_upstream import Answer, Script, event, failed, finished, gate, message, started, tool
from tests.support.stack import Client, Event, Replica, Stack, parse_events, text_of

pytestmark = pytest.mark.anyio


def address(application: ApplicationId) -> str:
    return f"/api/internal/apps/{application}/agent/ag-ui"


def run_input(thread: str, run: str, text: str = "hello", **changes: Any) -> dict[str, Any]:
    user = {"id": "m1", "role": "user", "content": text}
    empty: dict[str, Any] = {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
    return {"threadId": thread, "runId": run, "messages": [user], **empty, **changes}


async def post(client: Client, application: ApplicationId, body: dict[str, Any]) -> tuple[httpx.Response, list[Event]]:
    headers = {**client.headers, "Accept": "text/event-stream"}
    response = await client.http.post(address(application), json=body, headers=headers)
    return response, parse_events(response.content) if response.status_code == 200 else []


def conversation_of(events: list[Event]) -> str:
    """Ours, as the run in the stream tells it."""
    return str(next(frame.data["value"]["conversation_id"] for frame in events if frame.type == "CUSTOM"))


def code(answer: tuple[httpx.Response, list[Event]]) -> tuple[int, str]:
    return answer[0].status_code, answer[0].json()["code"]


@pytest.fixture(scope="module")
async def stack_of_refusals(postgres: PostgresForTests, anyio_backend: str) -> AsyncIterator[tuple[Stack, Replica, ApplicationId]]:
    with postgres.migrated_database() as url:
        async with Stack.over(url) as stack:
            yield stack, await stack.replica(), await stack.application()


@pytest.mark.parametrize("name", CLIENTS)
async def test_a_released_client_has_a_conversation_an_error_a_refusal_and_a_drained_stream(database_url: str, name: str) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        replica = await stack.replica()
        stack.upstream.use(
            Script(
                ag_ui_by_text={
                    "fail": [Answer(frames=[*started(), *message("m1", "Half an ans"), failed()])],
                    "last": [
                        Answer(
                            frames=[
                                *started(),
                                event("TEXT_MESSAGE_START", messageId="m1", role="assistant"),
                                event("TEXT_MESSAGE_CONTENT", messageId="m1", delta="The beginning"),
                                gate("rest"),
                                finished(),
                            ]
                        )
                    ],
                }
            )
        )
        ada = replica.client("ada")

        async def turn(text: str, before: AgentSaw | None, thread: str = "my thread, 1") -> AgentSaw:
            messages = [*(before.messages if before else []), {"id": f"user {text}", "role": "user", "content": text}]
            url = replica.base_url + address(application)
            (saw,) = await run_agents(
                [AgentRun(client=name, url=url, headers=ada.headers, run_input={"threadId": thread, "messages": messages})]
            )
            return saw

        first = await turn("one", None)
        second = await turn("two", first)
        for saw in (first, second):
            assert saw.error is None
            assert (saw.types[0], saw.types[-1]) == ("RUN_STARTED", "RUN_FINISHED")
            assert {event["threadId"] for event in saw.events if "threadId" in event} == {"my thread, 1"}
        assert len(second.texts) == 2 * len(first.texts)
        (conversation,) = (await ada.get(f"/api/internal/apps/{application}/agent/conversations")).json()["conversations"]
        items = await ada.items(application, conversation["conversation_id"])
        assert [item["text"] for item in items if item.get("role") == "user"] == ["one", "two"]

        error = await turn("fail", second)
        assert (error.types[-1], error.events[-1]["code"]) == ("RUN_ERROR", "upstream_error")
        refused = await turn("", second)
        assert refused.types == []
        assert refused.error is not None
        assert "422" in refused.error

        drained = asyncio.create_task(turn("last", None, "another"))
        await stack.upstream.waiting_at("rest")
        replica.gateway.supervisor.draining = True
        replica.gateway.supervisor.end_streams()
        saw = await drained
        assert (saw.types[-1], saw.events[-1]["code"]) == ("RUN_ERROR", "detached")
        stack.upstream.release()
        assert stack.upstream.counts().executions == 4


@pytest.mark.parametrize("name", CLIENTS)
async def test_no_step_of_a_finished_run_is_the_clients_to_answer(database_url: str, name: str) -> None:
    """A step whose result never came: 1.0 takes it for a tool of the application. History tells it as it was."""
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        replica = await stack.replica()
        silent, told = tool("k1", "search")[:-1], tool("k2", "send")
        stack.upstream.use(Script(ag_ui=[Answer(frames=[*started(), *silent, *told, *message("m1", "done"), finished()])]))
        ada, body = replica.client("ada"), run_input("t", "r1")
        asked = AgentRun(client=name, url=replica.base_url + address(application), headers=ada.headers, body=body)
        for saw in await run_agents([asked, asked]):  # live, and from what was saved
            assert saw.error is None
            assert saw.types[-1] == "RUN_FINISHED"
            assert not saw.pending
            assert saw.types.count("TOOL_CALL_START") == saw.types.count("TOOL_CALL_RESULT") == 2
        run_id = next(event for event in saw.events if event["type"] == "CUSTOM")["value"]["run_id"]
        items = (await ada.run(application, run_id))["snapshot"]["items"]
        assert [item["status"] for item in items if item["type"] == "tool"] == ["called", "returned"]


async def test_the_stream_has_the_clients_ids_and_a_replay_joins_the_run(database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        ada = (await stack.replica()).client("ada")
        # What could be taken for the ids of a frame is only text.
        asked = run_input('a "thread", é', "run-1")
        response, events = await post(ada, application, asked)
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert (events[0].type, events[0].data["threadId"], events[0].data["runId"]) == ("RUN_STARTED", 'a "thread", é', "run-1")
        assert (events[-1].type, events[-1].data["threadId"], events[-1].data["runId"]) == ("RUN_FINISHED", 'a "thread", é', "run-1")
        replay, again = await post(ada, application, asked)
        assert replay.headers["Idempotent-Replayed"] == "true"
        assert (again[0], again[-1], text_of(again)) == (events[0], events[-1], text_of(events))
        assert stack.upstream.counts().executions == 1
        # The same run id with another text, or for another conversation, or by the other address, is other content.
        for other in (run_input('a "thread", é', "run-1", "other"), run_input("another thread", "run-1")):
            assert code(await post(ada, application, other)) == (409, "submission_conflict")
        assert (await ada.submit(application, "run-1", "hello")).json()["code"] == "submission_conflict"
        # Names are of one user.
        _, others = await post((await stack.replica()).client("grace"), application, asked)
        assert conversation_of(others) != conversation_of(events)


async def test_a_thread_goes_on_in_its_conversation_and_ends_with_it(database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        ada = (await stack.replica()).client("ada")
        _, first = await post(ada, application, run_input("t", "r1"))
        history = [
            {"id": "m1", "role": "user", "content": "hello"},
            {"id": "m2", "role": "assistant", "content": "x" * (MAX_BROWSER_BODY_BYTES + 1)},
            {"id": "m3", "role": "user", "content": [{"type": "text", "text": "second"}]},
        ]
        _, second = await post(ada, application, run_input("t", "r2", messages=history))
        assert conversation_of(first) == conversation_of(second)
        items = await ada.items(application, conversation_of(first))
        assert [item["text"] for item in items if item.get("role") == "user"] == ["hello", "second"]
        path = f"/api/internal/apps/{application}/agent/conversations/{conversation_of(first)}"
        assert (await ada.http.delete(path, headers=ada.headers)).status_code == 200
        assert code(await post(ada, application, run_input("t", "r3"))) == (404, "not_found")
        assert stack.upstream.counts().executions == 2


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({"tools": [{"name": "f", "description": "", "parameters": {}}]}, (422, "unsupported_input")),
        ({"context": [{"description": "d", "value": "v"}]}, (422, "unsupported_input")),
        ({"state": {"a": 1}}, (422, "unsupported_input")),
        ({"state": 0}, (422, "unsupported_input")),
        ({"forwardedProps": {"a": 1}}, (422, "unsupported_input")),
        ({"resume": {"interruptId": "x"}}, (422, "unsupported_input")),
        ({"messages": []}, (422, "invalid_text")),
        ({"messages": [{"id": "1", "role": "user", "content": "\u0000"}]}, (422, "invalid_text")),
        ({"messages": [{"id": "1", "role": "user", "content": "x" * 16_001}]}, (422, "text_too_long")),
        ({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]}, (422, "unsupported_input")),
        ({"messages": [{"role": "user", "content": [{"type": "binary", "url": "https://x"}]}]}, (422, "unsupported_input")),
        ({"messages": [{"id": "1", "role": "user"}]}, (422, "unsupported_input")),
        ({"messages": "hi"}, (400, "malformed_request")),
        ({"threadId": ""}, (400, "malformed_request")),
        ({"threadId": "t" * 201}, (400, "malformed_request")),
        ({"threadId": "\u0000"}, (400, "malformed_request")),
        ({"threadId": None}, (400, "malformed_request")),
        ({"runId": "r" * 201}, (400, "malformed_request")),
        ({"runId": "with a blank"}, (400, "malformed_request")),
    ],
)  # fmt: skip
async def test_what_is_refused_is_a_problem_and_leaves_nothing(
    stack_of_refusals: tuple[Stack, Replica, ApplicationId], changes: dict[str, Any], answer: tuple[int, str]
) -> None:
    stack, replica, application = stack_of_refusals
    assert code(await post(replica.client("ada"), application, run_input("t", "r") | changes)) == answer
    assert stack.upstream.counts().executions == 0
    # Who may not see the application learns nothing of the body.
    foreign = ApplicationId(uuid4())
    assert code(await post(replica.client("ada"), foreign, run_input("t", "r") | changes)) == (404, "not_found")


async def test_what_later_versions_say_besides_is_not_in_the_way(database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        ada = (await stack.replica()).client("ada")
        messages = [{"id": "m", "role": "user", "content": "hello", "name": "ada", "later": 1}]
        body = run_input("t", "r", messages=messages, resume=[], later={"a": 1}) | {"state": None, "forwardedProps": None}
        response, events = await post(ada, application, body)
        assert (response.status_code, events[-1].type) == (200, "RUN_FINISHED")


async def test_two_replicas_agree_on_one_run_and_on_one_conversation_for_a_name(database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        settings = stack.settings(AGENT_MAX_ACTIVE_PER_USER="20", AGENT_MAX_ACTIVE_PER_APP="20")
        clients = [(await stack.replica(settings)).client("ada") for _ in range(2)]
        # One run id, ten times at once, for a thread that nobody has used.
        answers = await asyncio.gather(*(post(clients[number % 2], application, run_input("t", "r")) for number in range(10)))
        assert {response.status_code for response, _ in answers} == {200}
        assert [response.headers.get("Idempotent-Replayed") for response, _ in answers].count(None) == 1
        assert len({conversation_of(events) for _, events in answers}) == 1
        assert stack.upstream.counts().executions == 1
        # Ten run ids at once for the first use of a thread: one makes the conversation, and the others find it, busy or not.
        answers = await asyncio.gather(*(post(clients[number % 2], application, run_input("u", f"r{number}")) for number in range(10)))
        admitted = [events for response, events in answers if response.status_code == 200]
        assert len({conversation_of(events) for events in admitted}) == 1
        assert {response.json()["code"] for response, _ in answers if response.status_code != 200} <= {"conversation_busy"}
        conversations = (await clients[0].get(f"/api/internal/apps/{application}/agent/conversations")).json()["conversations"]
        assert len(conversations) == 2


@pytest.mark.parametrize("name", CLIENTS)
async def test_a_released_client_is_asked_and_answers(database_url: str, name: str) -> None:
    async with native_upstream() as upstream, Stack.over(database_url) as stack:
        application = await stack.application_of(upstream.base_url, TOKEN)
        replica = await stack.replica()
        ada = replica.client("ada")

        async def turn(**changes: Any) -> AgentSaw:
            asking = {"threadId": "t", "messages": [{"id": "m1", "role": "user", "content": "please"}], **changes}
            url = replica.base_url + address(application)
            (saw,) = await run_agents([AgentRun(client=name, url=url, headers=ada.headers, run_input=asking)])
            return saw

        asked = await turn()
        assert (asked.error, asked.types[-1]) == (None, "RUN_FINISHED")
        (interrupt,) = asked.events[-1]["outcome"]["interrupts"]
        answer = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"decision": "approve", "comment": "Go on."}}
        for wrong in (
            {**answer, "status": "cancelled"},
            {**answer, "payload": {"decision": "perhaps"}},
            {**answer, "payload": {}},
            {**answer, "interruptId": "x"},
        ):
            refused = await post(ada, application, run_input("t", "r", resume=[wrong]))
            assert code(refused) == (422, "unsupported_input")
        assert code(await post(ada, application, run_input("t", "r", resume=[answer, answer]))) == (422, "unsupported_input")
        assert code(await post(ada, application, run_input("another", "r", resume=[answer]))) == (404, "not_found")
        assert code(await post(replica.client("grace"), application, run_input("t", "r", resume=[answer]))) == (404, "not_found")
        answered = await turn(resume=[answer])
        assert (answered.error, answered.types[-1]) == (None, "RUN_FINISHED")
        assert "outcome" not in answered.events[-1]
        assert code(await post(ada, application, run_input("t", "r", resume=[answer]))) == (409, "interrupt_not_pending")
        (conversation,) = (await ada.get(f"/api/internal/apps/{application}/agent/conversations")).json()["conversations"]
        items = await ada.items(application, conversation["conversation_id"])
        assert [item["text"] for item in items if item.get("role") == "user"] == ["please"]
