"""The released AG-UI clients accept what a browser gets, whatever the agent service sent: each sample goes the whole way, over sockets."""

from collections.abc import Iterable

import pytest

from gateway.domain.evidence import Outcome, RunFinished
from gateway.domain.ids import ApplicationId
from gateway.domain.snapshot import Item, MessageItem
from tests.support.ag_ui_client import CLIENTS, AgentRun, AgentSaw, run_agents
from tests.support.scripted_upstream import Answer, Script, raw
from tests.support.stack import Client, Replica, Stack
from tests.unit.test_parser_samples import VERDICTS, Verdict

pytestmark = pytest.mark.anyio


def played(verdict: Verdict) -> Answer:
    """The sample, byte for byte but for the ids that the gateway sent."""
    sample = verdict.raw.decode().replace(f"thread-{verdict.task}", "{threadId}").replace(f"run-{verdict.task}-{verdict.turn}", "{runId}")
    return Answer(frames=[raw(sample)])


def asked(replica: Replica, application: ApplicationId, client: Client, name: str, submission_id: str) -> AgentRun:
    return AgentRun(
        client=name,
        url=f"{replica.base_url}/api/internal/apps/{application}/agent/runs",
        headers={**client.headers, "Accept": "text/event-stream"},
        body={"submission_id": submission_id, "text": submission_id},
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
