"""The released AG-UI clients accept what a browser gets, whatever the agent service sent: each sample goes the whole way, over sockets."""

from collections.abc import Iterable

import pytest

from gateway.domain.evidence import Outcome, RunFinished
from gateway.domain.ids import ApplicationId
from gateway.domain.snapshot import Item, MessageItem
from tests.support.ag_ui_client import CLIENTS, AgentRun, AgentSaw, run_agents
from tests.support.scripted_upstream import Answer, Frame, Script, event, finished, message, raw, started
from tests.support.stack import Client, Replica, Stack
from tests.unit.test_parser_samples import STATUS, VERDICTS, Verdict

pytestmark = pytest.mark.anyio


def played(verdict: Verdict) -> Answer:
    """The sample, byte for byte but for the ids that the gateway sent."""
    sample = verdict.raw.decode().replace(f"thread-{verdict.task}", "{threadId}").replace(f"run-{verdict.task}-{verdict.turn}", "{runId}")
    return Answer(frames=[raw(sample)])


def asked(replica: Replica, application: ApplicationId, client: Client, name: str, text: str) -> AgentRun:
    return AgentRun(
        client=name,
        url=f"{replica.base_url}/api/internal/apps/{application}/agent/runs",
        headers={**client.headers, "Accept": "text/event-stream"},
        body={"submission_id": text.replace(" ", "_"), "text": text},
    )


def texts_of(items: Iterable[Item]) -> list[str]:
    return [item.text for item in items if isinstance(item, MessageItem) and item.text]


@pytest.mark.parametrize("name", CLIENTS)
async def test_every_sample_is_accepted_to_its_end(database_url: str, name: str) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        replica = await stack.replica(stack.settings(AGENT_MAX_ACTIVE_PER_USER="100", AGENT_MAX_ACTIVE_PER_APP="100"))
        stack.upstream.use(Script(ag_ui_by_text={verdict.path: [played(verdict)] for verdict in VERDICTS}))
        ada = replica.client("ada")
        posts = await run_agents([asked(replica, application, ada, name, verdict.path) for verdict in VERDICTS])
        for verdict, saw in zip(VERDICTS, posts, strict=True):
            assert saw.error is None, (verdict.path, saw.error)
            succeeded = verdict.fact == RunFinished(Outcome.SUCCESS)
            assert saw.types[0] == "RUN_STARTED"
            assert saw.types[-1] == ("RUN_FINISHED" if succeeded else "RUN_ERROR"), verdict.path
            assert saw.texts == texts_of(verdict.items), verdict.path
            run = await ada.run(application, saw.events[0]["runId"])
            assert (run["execution"], run["reason"], run["persistence"]) == (*STATUS[verdict.fact], "saved"), verdict.path
        # The same runs again, from what was saved.
        watched = [
            AgentRun(
                client=name,
                url=f"{replica.base_url}/api/internal/apps/{application}/agent/runs/{saw.events[0]['runId']}/events",
                headers={**ada.headers, "Accept": "text/event-stream"},
                method="GET",
            )
            for saw in posts
        ]
        assert [_essence(saw) for saw in await run_agents(watched)] == [_essence(saw) for saw in posts]


def _essence(saw: AgentSaw) -> object:
    # What was saved is told item by item: of parallel tool steps the order of the items is kept, not that of their ends.
    return saw.error, saw.types[-1], saw.texts, sorted(kind for kind in saw.types if kind.startswith("TOOL_CALL_"))


@pytest.mark.parametrize("name", CLIENTS)
async def test_the_clients_refuse_what_is_wrong(database_url: str, name: str) -> None:
    """That they check at all: the samples' own faults, straight from the service."""
    async with Stack.over(database_url) as stack:
        wrong = 'data: {"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"a"}\n\n'
        answer = Answer(http_status=200, headers={"Content-Type": "text/event-stream"}, body=wrong)
        stack.upstream.use(Script(ag_ui=[answer]))
        (saw,) = await run_agents([AgentRun(client=name, url=f"{stack.upstream.base_url}/ag-ui")])
    assert saw.error is not None
    assert "RUN_STARTED" in saw.error


def chunk(message_id: str | None, delta: str, **fields: object) -> Frame:
    return event("TEXT_MESSAGE_CHUNK", delta=delta, **({} if message_id is None else {"messageId": message_id}), **fields)


def tool_chunk(tool_id: str | None, name: str | None, arguments: str = "") -> Frame:
    fields = {"toolCallId": tool_id, "toolCallName": name}
    return event("TOOL_CALL_CHUNK", delta=arguments, **{key: value for key, value in fields.items() if value is not None})


CHUNKED: dict[str, list[Frame]] = {
    "one message": [chunk("m1", "Hel", role="assistant"), chunk("m1", "lo")],
    "without ids": [chunk("m1", "Hel", role="assistant"), chunk(None, "lo "), chunk(None, "there")],
    "two messages": [chunk("m1", "a", role="assistant"), chunk("m2", "b", role="assistant"), chunk(None, "c")],
    "text, tool, text": [
        chunk("m1", "before", role="assistant"),
        tool_chunk("k1", "search", '{"a"'),
        tool_chunk("k1", None, ": 1}"),
        tool_chunk(None, None, " "),
        chunk("m2", "after", role="assistant"),
    ],
    "two tools": [tool_chunk("k1", "search", "{}"), tool_chunk("k2", "send", "{}"), chunk("m1", "done", role="assistant")],
    "long forms between": [
        chunk("m1", "a", role="assistant"),
        *message("m2", "b"),
        chunk("m3", "c", role="assistant"),
        event("STEP_STARTED", stepName="s"),
        event("STEP_FINISHED", stepName="s"),
    ],
}


@pytest.mark.parametrize("name", CLIENTS)
async def test_chunks_are_expanded_as_the_released_clients_do(database_url: str, name: str) -> None:
    """Straight from the service, where the client expands them, and through the gateway, which has expanded them."""
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        replica = await stack.replica(stack.settings(AGENT_MAX_ACTIVE_PER_USER="100", AGENT_MAX_ACTIVE_PER_APP="100"))
        answers = {text: [Answer(frames=[*started(), *frames, finished()])] for text, frames in CHUNKED.items()}
        stack.upstream.use(Script(ag_ui_by_text=answers, any_thread=True))
        through = await run_agents([asked(replica, application, replica.client("ada"), name, text) for text in CHUNKED])
        direct = await run_agents(
            [
                AgentRun(
                    client=name,
                    url=f"{stack.upstream.base_url}/ag-ui",
                    headers={"Authorization": f"Bearer {stack.upstream.token}"},
                    run_input={"threadId": "t", "messages": [{"id": "u", "role": "user", "content": text}]},
                )
                for text in CHUNKED
            ]
        )
    for text, ours, theirs in zip(CHUNKED, through, direct, strict=True):
        assert (ours.error, theirs.error) == (None, None), text
        assert ours.texts == theirs.texts, text
        assert tool_names(ours) == tool_names(theirs), text


def tool_names(saw: AgentSaw) -> list[str]:
    return [event["toolCallName"] for event in saw.events if event["type"] == "TOOL_CALL_START"]
