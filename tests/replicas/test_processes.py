"""Replicas as processes: limits and replays hold across them, the log is clean, a drain ends in order."""

import asyncio
import signal

import pytest

from tests.support.processes import replica_process
from tests.support.scripted_upstream import Answer, Script, event, failed, finished, gate, message, raw, started
from tests.support.stack import Stack, parse_events, text_of

pytestmark = pytest.mark.anyio

CANARIES = ("canary-question", "canary-answer", "canary-args", "canary-result", "secret=abc123", "canary-raw", "scripted-upstream-token")


async def test_the_log_of_a_run_has_ids_and_no_content(database_url: str) -> None:
    async with Stack.over(database_url) as stack, replica_process(database_url) as replica:
        application = await stack.application()
        frames = [
            *started(),
            event("RAW", event={"prompt": "canary-raw"}),
            *message("m1", "canary-answer"),
            event("TOOL_CALL_START", toolCallId="k1", toolCallName="search"),
            event("TOOL_CALL_ARGS", toolCallId="k1", delta="canary-args"),
            event("TOOL_CALL_END", toolCallId="k1"),
            event("TOOL_CALL_RESULT", messageId="r1", toolCallId="k1", content="canary-result"),
        ]
        ends = [finished(), failed("secret=abc123"), raw(b"data: {canary-raw\n\n")]
        stack.upstream.use(Script(ag_ui=[Answer(frames=[*frames, end]) for end in ends]))
        ada = replica.client("ada")
        run_ids = []
        for number in range(len(ends)):
            _, events = await ada.ask(application, f"canary-question-{number}", "canary-question")
            run_ids.append(events[0].data["runId"])
        await ada.submit(application, "s", "canary-question\x00")
        await ada.http.post(f"/api/internal/apps/{application}/agent/runs?x=canary-question", content=b"canary-question")
        replica.terminate()
        assert await replica.ended() == 0
        for canary in CANARIES:
            assert canary not in replica.log
        assert ada.headers["Authorization"].removeprefix("Bearer ") not in replica.log
        log = replica.events
        ended = [line for line in log if line["event"] == "run_ended"]
        assert [line["run_id"] for line in ended] == run_ids
        assert [line["execution"] for line in ended] == ["succeeded", "failed", "unknown"]
        assert all(line["conversation_id"] and line["request_id"] for line in ended)
        native_ids = [post.native_run_id for post in stack.upstream.posts]
        assert not any(native_id and native_id in replica.log for native_id in native_ids)


async def test_one_submission_over_two_processes_runs_once(database_url: str) -> None:
    async with Stack.over(database_url) as stack, replica_process(database_url) as one, replica_process(database_url) as two:
        application = await stack.application()
        clients = [one.client("ada"), two.client("ada")]
        responses = await asyncio.gather(*(clients[n % 2].ask(application, "s1", "hi") for n in range(10)))
        assert {response.status_code for response, _ in responses} == {200}
        assert len({events[0].data["runId"] for _, events in responses}) == 1
        assert {text_of(events) for _, events in responses} == {"Let me look that up.You said: hi."}
        assert all(events[-1].type == "RUN_FINISHED" for _, events in responses)
        assert stack.upstream.counts().ag_ui == 1


async def test_o23_sigterm_lets_a_running_answer_end_and_saves_it(database_url: str) -> None:
    async with Stack.over(database_url) as stack, replica_process(database_url) as one, replica_process(database_url) as two:
        application = await stack.application()
        frames = [*started(), *message("m1", "first "), gate("rest"), *message("m2", "last"), finished()]
        stack.upstream.use(Script(ag_ui=[Answer(frames=frames)]))
        ada = one.client("ada")
        async with ada.stream(application, "s1", "hi") as response:
            pieces = response.aiter_raw()
            shown = await anext(pieces)
            await stack.upstream.waiting_at("rest")
            one.terminate()
            async for piece in pieces:  # the stream ends, without a terminal frame
                shown += piece
        types = [frame.type for frame in parse_events(shown)]
        assert types[-1] == "CUSTOM"
        assert not {"RUN_FINISHED", "RUN_ERROR"} & set(types)
        stack.upstream.release("rest")
        assert await one.ended() == 0
        run = await two.client("ada").run(application, parse_events(shown)[0].data["runId"])
        assert (run["execution"], run["persistence"]) == ("succeeded", "saved")
        assert stack.upstream.counts().ag_ui == 1


async def test_o23_sigterm_hands_over_what_does_not_end_within_the_budget(database_url: str) -> None:
    changes = {"GATEWAY_DRAIN_SECONDS": "0.3"}
    async with (
        Stack.over(database_url) as stack,
        replica_process(database_url, changes=changes) as one,
        replica_process(database_url) as two,
    ):
        application = await stack.application()
        frames = [*started(), *message("m1", "what was seen"), gate("never")]
        stack.upstream.use(Script(ag_ui=[Answer(frames=frames)]))
        submitted = await one.client("ada").submit(application, "s1", "hi")
        await stack.upstream.waiting_at("never")
        one.terminate()
        assert await one.ended() == 0
        run = await two.client("ada").run(application, submitted.json()["run_id"])
        assert (run["execution"], run["persistence"], run["reason"]) == ("unknown", "partial", "drained")
        items = await two.client("ada").items(application, run["conversation_id"])
        assert [item["text"] for item in items] == ["hi", "what was seen"]


async def test_while_draining_replays_are_served_and_new_work_is_refused(database_url: str) -> None:
    changes = {"GATEWAY_DRAIN_DELAY_SECONDS": "20"}
    async with Stack.over(database_url) as stack, replica_process(database_url, changes=changes) as replica:
        application = await stack.application()
        ada = replica.client("ada")
        await ada.ask(application, "s1", "hi")
        replica.terminate()
        async with asyncio.timeout(10):
            while (await replica.http.get("/readyz")).status_code == 200:
                pass
        refused = await ada.submit(application, "s2", "hi")
        assert (refused.status_code, refused.json()["code"], refused.json()["retry"]) == (503, "draining", "same-submission")
        replayed = await ada.submit(application, "s1", "hi")
        assert (replayed.status_code, replayed.headers["idempotent-replayed"]) == (200, "true")
        assert (await replica.http.get("/healthz")).status_code == 200
        replica.kill()
        assert await replica.ended() == -signal.SIGKILL
