"""One message from a browser to an agent and back, over real sockets, and what field reports say goes wrong on the way."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

from gateway.domain.reasons import REASON_MESSAGES, Reason
from tests.support.scripted_upstream import Answer, Ending, Framing, Script, event, failed, finished, gate, message, started
from tests.support.stack import Client, Stack, parse_events, text_of

pytestmark = pytest.mark.anyio

AGENT_DELTAS = [f"part {number} " for number in range(20)]


def _gated_run(*, open_for: int) -> list[Any]:
    """Twenty deltas, the first `open_for` of them at once, the rest when the gate "rest" is released."""
    deltas = [event("TEXT_MESSAGE_CONTENT", messageId="m1", delta=delta) for delta in AGENT_DELTAS]
    return [
        *started(),
        event("TEXT_MESSAGE_START", messageId="m1", role="assistant"),
        *deltas[:open_for],
        gate("rest"),
        *deltas[open_for:],
        event("TEXT_MESSAGE_END", messageId="m1"),
        finished(),
    ]


async def _read_until(pieces: AsyncIterator[bytes], wanted: str) -> bytes:
    """The raw stream up to and with the first piece after which `wanted` is in its text."""
    raw = b""
    async for piece in pieces:
        raw += piece
        if wanted in text_of(parse_events(raw[: raw.rfind(b"\n\n") + 2])):
            return raw
    raise AssertionError(f"the stream ended before {wanted!r}: {raw!r}")


async def test_text_tool_text_arrives_in_order_and_is_saved_in_order(database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        ada = (await stack.replica()).client("ada")
        response, events = await ada.ask(application, "s1", "hello")
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert response.headers["cache-control"] == "no-store, no-transform"
        assert response.headers["x-accel-buffering"] == "no"
        shown = [frame.type for frame in events if frame.type != "CUSTOM"]
        assert shown == [
            "RUN_STARTED",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_END",
            "TOOL_CALL_START",
            "TOOL_CALL_END",
            "TOOL_CALL_RESULT",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_END",
            "RUN_FINISHED",
        ]
        states = [(f.data["value"]["execution"], f.data["value"]["persistence"]) for f in events if f.type == "CUSTOM"]
        assert states[0] == ("reserved", "none")
        assert states[-1] == ("succeeded", "saved")
        run_id, conversation_id = events[0].data["runId"], events[0].data["threadId"]
        items = await ada.items(application, conversation_id)
        assert [(item["type"], item.get("role") or item.get("name"), item["position"]) for item in items] == [
            ("message", "user", 0),
            ("message", "assistant", 1),
            ("tool", "get_weather", 2),
            ("message", "assistant", 3),
        ]
        assert items[0]["text"] == "hello"
        assert items[0]["state"] == "accepted"
        assert items[2]["parent_item_id"] == items[1]["item_id"]
        run = await ada.run(application, run_id)
        evidence = await _evidence(stack, run_id)
        assert [kind for kind, _ in evidence] in (["fence", "started", "run_finished"], ["fence", "run_finished"])
        detail = evidence[-1][1]
        assert (detail["bytes_may_have_left"], detail["response_status"], detail["outcome"]) == (True, 200, "success")
        assert detail["counts"]["messages"] == 2
        assert run["snapshot"]["complete"] is True
        assert run["snapshot"]["items"] == items[1:]


async def test_a_second_turn_uses_the_same_thread_and_sends_only_the_new_message(database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        ada = (await stack.replica()).client("ada")
        _, first = await ada.ask(application, "s1", "one")
        await ada.ask(application, "s2", "two", first[0].data["threadId"])
        posts = stack.upstream.posts
        assert len({post.thread_id for post in posts}) == 1
        assert [post.text for post in posts] == ["one", "two"]
        assert len({post.run_id for post in posts}) == 2


async def test_o02_the_browser_leaves_and_the_answer_is_complete_in_history(database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        stack.upstream.use(Script(ag_ui=[Answer(frames=_gated_run(open_for=3))]))
        ada = (await stack.replica()).client("ada")
        async with ada.stream(application, "s1", "hello") as response:
            raw = await _read_until(response.aiter_raw(), AGENT_DELTAS[2])
        events = parse_events(raw[: raw.rfind(b"\n\n") + 2])
        stack.upstream.release("rest")
        run = await ada.until_over(application, events[0].data["runId"])
        assert (run["execution"], run["persistence"]) == ("succeeded", "saved")
        items = await ada.items(application, run["conversation_id"])
        assert items[1]["text"] == "".join(AGENT_DELTAS)
        assert stack.upstream.counts().ag_ui == 1


async def test_a_second_watcher_gets_what_was_shown_so_far_and_then_the_rest(database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        stack.upstream.use(Script(ag_ui=[Answer(frames=_gated_run(open_for=5))]))
        ada = (await stack.replica()).client("ada")
        async with ada.stream(application, "s1", "hello") as response:
            first_pieces = response.aiter_raw()
            raw = await _read_until(first_pieces, AGENT_DELTAS[4])
            run_id = parse_events(raw[: raw.rfind(b"\n\n") + 2])[0].data["runId"]
            async with ada.watch(application, run_id) as second:
                second_pieces = second.aiter_raw()
                shown = await _read_until(second_pieces, AGENT_DELTAS[4])
                stack.upstream.release("rest")
                shown += b"".join([piece async for piece in second_pieces])
            raw += b"".join([piece async for piece in first_pieces])
        assert text_of(parse_events(raw)) == text_of(parse_events(shown)) == "".join(AGENT_DELTAS)
        assert [frame.type for frame in parse_events(shown)].count("RUN_FINISHED") == 1


async def test_o05_the_same_submission_ten_times_at_once_over_two_replicas(database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        clients = [(await stack.replica()).client("ada"), (await stack.replica()).client("ada")]
        responses = await asyncio.gather(*(clients[n % 2].submit(application, "s1", "hi") for n in range(10)))
        assert sorted({response.status_code for response in responses}) == [200, 202]
        assert [response.status_code for response in responses].count(202) == 1
        run_ids = {response.json()["run_id"] for response in responses}
        assert len(run_ids) == 1
        await clients[0].until_over(application, run_ids.pop())
        assert stack.upstream.counts().ag_ui == 1
        conflict = await clients[1].submit(application, "s1", "other")
        assert (conflict.status_code, conflict.json()["code"]) == (409, "submission_conflict")
        other_user = clients[0].http
        response = await Client(other_user, (await stack.replica()).client("ben").headers).submit(application, "s1", "hi")
        assert response.status_code == 202


async def test_o06_two_submissions_of_one_user_at_once(database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        replicas = [await stack.replica(), await stack.replica()]
        stack.upstream.use(Script(ag_ui=[Answer(frames=_gated_run(open_for=1))]))
        # Without a conversation: the user's limit catches the double Enter.
        first, second = await asyncio.gather(
            *(replica.client("ada").submit(application, f"s{n}", "hi") for n, replica in enumerate(replicas))
        )
        assert sorted((first.status_code, second.status_code)) == [202, 429]
        admitted, refused = (first, second) if first.status_code == 202 else (second, first)
        assert refused.json()["code"] == "user_busy"
        assert refused.json()["run_id"] == admitted.json()["run_id"]
        assert refused.json()["retry"] == "poll-run"
        # In the conversation: it is told first, whatever the user's limit is.
        busy = await replicas[0].client("ada").submit(application, "s9", "hi", admitted.json()["conversation_id"])
        assert (busy.status_code, busy.json()["code"]) == (409, "conversation_busy")
        assert busy.json()["run_id"] == admitted.json()["run_id"]
        stack.upstream.release("rest")
        await replicas[0].client("ada").until_over(application, admitted.json()["run_id"])
        items = await replicas[0].client("ada").items(application, admitted.json()["conversation_id"])
        assert [item["text"] for item in items if item.get("role") == "user"] == ["hi"]


async def test_o07_a_page_that_posts_again_joins_its_run(database_url: str) -> None:
    """A tab switch drops the stream and repeats the POST: four times, once after the end."""
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        stack.upstream.use(Script(ag_ui=[Answer(frames=_gated_run(open_for=3))]))
        ada = (await stack.replica()).client("ada")
        seen = set()
        for _ in range(3):
            async with ada.stream(application, "s1", "hello") as response:
                raw = await _read_until(response.aiter_raw(), AGENT_DELTAS[2])
            seen.add(parse_events(raw[: raw.rfind(b"\n\n") + 2])[0].data["runId"])
        stack.upstream.release("rest")
        await ada.until_over(application, next(iter(seen)))
        response, events = await ada.ask(application, "s1", "hello")
        seen.add(events[0].data["runId"])
        assert len(seen) == 1
        assert response.headers["idempotent-replayed"] == "true"
        assert text_of(events) == "".join(AGENT_DELTAS)
        assert events[-1].type == "RUN_FINISHED"
        assert stack.upstream.counts().ag_ui == 1


@pytest.mark.parametrize(
    ("script", "text", "free"),
    [
        (Script(), "x" * 20_000, True),
        (Script(capabilities=[Answer(http_status=500)]), "hello", True),
        (Script(threads=[Answer(close="after_request")]), "hello", True),
        (Script(ag_ui=[Answer(frames=[*started(), failed()])]), "hello", True),
        (Script(ag_ui=[Answer(http_status=429)]), "hello", True),
        (Script(), "hello", True),
        (Script(ag_ui=[Answer(close="after_request")]), "hello", False),
        (Script(ag_ui=[Answer(frames=started(), ending="stall")]), "hello", False),
    ],
)
async def test_o09_a_slot_comes_back_at_once_unless_the_outcome_is_unknown(
    database_url: str, script: Script, text: str, free: bool
) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        stack.upstream.use(script)
        ada = (await stack.replica(stack.settings(GATEWAY_STREAM_IDLE_SECONDS="0.5"))).client("ada")
        await ada.ask(application, "s1", text)
        stack.upstream.use(Script())
        again, events = await ada.ask(application, "s2", "again")
        if free:
            assert events[-1].type == "RUN_FINISHED"
        else:
            assert (again.status_code, events) == (429, [])


async def test_o08_eight_conversations_of_one_user_admit_one_and_eight_users_of_one_application_two(database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        replicas = [await stack.replica(), await stack.replica()]
        stack.upstream.use(Script(ag_ui=[Answer(frames=_gated_run(open_for=1))]))
        one_user = await asyncio.gather(*(replicas[n % 2].client("ada").submit(application, f"s{n}", "hi") for n in range(8)))
        assert sorted(response.status_code for response in one_user) == [202, *[429] * 7]
        other = await stack.application()
        eight_users = await asyncio.gather(*(replicas[n % 2].client(f"user-{n}").submit(other, f"s{n}", "hi") for n in range(8)))
        assert sorted(response.status_code for response in eight_users) == [202, 202, *[429] * 6]
        assert {response.json()["code"] for response in eight_users if response.status_code == 429} == {"app_busy"}
        assert all("retry-after" in response.headers for response in eight_users if response.status_code == 429)
        await stack.upstream.executed(3)
        assert stack.upstream.counts().ag_ui == 3
        stack.upstream.release("rest")


@pytest.mark.parametrize(
    ("answer", "execution", "reason"),
    [
        (Answer(http_status=200, json={"error": {"message": "quota"}}), "unknown", "bad_response"),
        (Answer(http_status=200, headers={"content-type": "text/event-stream"}, body=b""), "unknown", "stream_ended"),
        (
            Answer(http_status=200, headers={"content-type": "text/event-stream"}, body=b'event: error\ndata: {"error":"overloaded"}\n\n'),
            "unknown",
            "bad_frame",
        ),
        *(
            (Answer(http_status=status, headers={"content-type": "text/html"}, body=b"<h1>no</h1>"), "failed", "upstream_rejected")
            for status in (401, 403, 404, 429)
        ),
        (Answer(http_status=500, headers={"content-type": "text/html"}, body=b"<h1>no</h1>"), "unknown", "bad_response"),
    ],
)
async def test_o12_an_answer_that_is_no_stream_is_never_an_empty_answer(
    database_url: str, answer: Answer, execution: str, reason: str
) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        stack.upstream.use(Script(ag_ui=[answer]))
        ada = (await stack.replica()).client("ada")
        _, events = await ada.ask(application, "s1", "hello")
        assert events[-1].type == "RUN_ERROR"
        assert events[-1].data == {"type": "RUN_ERROR", "message": REASON_MESSAGES[Reason(reason)], "code": reason}
        run = await ada.run(application, events[0].data["runId"])
        assert (run["execution"], run["reason"]) == (execution, reason)
        items = await ada.items(application, run["conversation_id"])
        assert [item["role"] for item in items] == ["user"]
        again = await ada.submit(application, "s2", "again")
        assert again.status_code == (202 if execution == "failed" else 429)


async def test_run_error_keeps_what_was_shown_and_frees_the_conversation(database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        canary = "secret=abc123 /srv/app/x.py"
        frames = [*started(), event("TEXT_MESSAGE_START", messageId="m1", role="assistant")]
        frames += [event("TEXT_MESSAGE_CONTENT", messageId="m1", delta="half an answ"), failed(canary)]
        stack.upstream.use(Script(ag_ui=[Answer(frames=frames)]))
        ada = (await stack.replica()).client("ada")
        _, events = await ada.ask(application, "s1", "hello")
        assert events[-1].data["code"] == "upstream_error"
        assert "abc123" not in str(events)
        run = await ada.run(application, events[0].data["runId"])
        assert (run["execution"], run["persistence"]) == ("failed", "saved")
        assert run["snapshot"]["complete"] is False
        items = await ada.items(application, run["conversation_id"])
        assert (items[1]["text"], items[1]["complete"]) == ("half an answ", False)
        stack.upstream.use(Script())
        _, again = await ada.ask(application, "s2", "again", run["conversation_id"])
        assert again[-1].type == "RUN_FINISHED"


@pytest.mark.parametrize(
    ("framing", "ending"),
    [("chunked", "unfinished"), ("chunked", "mid_chunk"), ("chunked", "reset"), ("chunked", "clean"), ("close", "clean")],
)
async def test_o01_a_broken_stream_is_unknown_with_its_partial_items_visible(database_url: str, framing: Framing, ending: Ending) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        frames = [*started(), *message("m1", "whole"), event("TEXT_MESSAGE_START", messageId="m2", role="assistant")]
        frames += [event("TEXT_MESSAGE_CONTENT", messageId="m2", delta="The invoice total is 1")]
        stack.upstream.use(Script(ag_ui=[Answer(frames=frames, framing=framing, ending=ending)]))
        ada = (await stack.replica()).client("ada")
        _, events = await ada.ask(application, "s1", "hello")
        assert events[-1].data["code"] == "stream_ended"
        run = await ada.run(application, events[0].data["runId"])
        assert (run["execution"], run["persistence"], run["attention"]) == ("unknown", "partial", None)
        assert run["poll_after_seconds"] is not None
        items = await ada.items(application, run["conversation_id"])
        assert [(item["text"], item["complete"]) for item in items] == [
            ("hello", True),
            ("whole", True),
            ("The invoice total is 1", False),
        ]
        blocked = await ada.submit(application, "s2", "again", run["conversation_id"])
        assert blocked.json()["code"] == "conversation_busy"
        assert stack.upstream.counts().ag_ui == 1


async def test_o01_a_stream_that_breaks_before_the_native_id_is_for_an_operator(database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        stack.upstream.use(Script(ag_ui=[Answer(frames=started()[:1], ending="unfinished")]))
        ada = (await stack.replica()).client("ada")
        _, events = await ada.ask(application, "s1", "hello")
        run = await ada.run(application, events[0].data["runId"])
        assert (run["execution"], run["reason"], run["attention"]) == ("unknown", "stream_ended", "operator")
        assert (stack.upstream.counts().ag_ui, stack.upstream.counts().lookups) == (1, 0)


async def test_o35_a_redirect_is_never_followed(database_url: str) -> None:
    async with Stack.over(database_url) as stack, Stack.over(database_url) as elsewhere:
        application = await stack.application()
        ada = (await stack.replica()).client("ada")
        for number, status in enumerate((301, 302, 303, 307, 308)):
            answer = Answer(http_status=status, redirect=f"{elsewhere.upstream.base_url}/ag-ui")
            stack.upstream.use(Script(ag_ui=[answer]))
            _, events = await ada.ask(application, f"s{number}", "hello")
            assert events[-1].data["code"] == "upstream_rejected"
        stack.upstream.use(Script(threads=[Answer(http_status=307, redirect=f"{elsewhere.upstream.base_url}/threads")]))
        _, events = await ada.ask(application, "threads", "hello")
        assert events[-1].data["code"] == "thread_failed"
        stack.upstream.use(Script(capabilities=[Answer(http_status=307, redirect=f"{elsewhere.upstream.base_url}/capabilities")]))
        _, events = await (await stack.replica()).client("ada").ask(application, "capabilities", "hello")
        assert events[-1].data["code"] == "capabilities_failed"
        assert elsewhere.upstream.counts().connections == 0


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (Script(capabilities=[Answer(http_status=500)]), "capabilities_failed"),
        (Script(capabilities=[Answer(http_status=200, json={"assistant_id": "other"})]), "capabilities_failed"),
        (Script(threads=[Answer(http_status=503)]), "thread_failed"),
        (Script(threads=[Answer(http_status=200, json={"thread_id": "with space"})]), "thread_failed"),
    ],
)
async def test_a_failure_before_the_fence_releases_the_run_and_costs_nothing(database_url: str, script: Script, reason: str) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        stack.upstream.use(script)
        ada = (await stack.replica()).client("ada")
        _, events = await ada.ask(application, "s1", "hello")
        assert events[-1].data["code"] == reason
        run = await ada.run(application, events[0].data["runId"])
        assert (run["execution"], run["persistence"], run["reason"]) == ("released", "none", reason)
        items = await ada.items(application, run["conversation_id"])
        assert [(item["text"], item["state"]) for item in items] == [("hello", "not_sent")]
        assert stack.upstream.counts().ag_ui == 0
        stack.upstream.use(Script())
        _, again = await ada.ask(application, "s2", "hello again", run["conversation_id"])
        assert again[-1].type == "RUN_FINISHED"


async def test_a_thread_that_is_handed_out_twice_is_not_used_twice(database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        stack.upstream.use(Script(thread_ids=["t-same", "t-same"]))
        ada = (await stack.replica()).client("ada")
        await ada.ask(application, "s1", "one")
        _, events = await ada.ask(application, "s2", "two")
        assert events[-1].data["code"] == "thread_not_fresh"
        assert stack.upstream.counts().ag_ui == 1


async def test_an_upstream_that_lost_the_thread_blocks_the_conversation(database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        ada = (await stack.replica()).client("ada")
        _, first = await ada.ask(application, "s1", "one")
        conversation_id = first[0].data["threadId"]
        stack.upstream.use(Script(ag_ui=[Answer(http_status=404, json={"detail": "gone"})]))
        _, events = await ada.ask(application, "s2", "two", conversation_id)
        assert events[-1].data["code"] == "thread_gone"
        refused = await ada.submit(application, "s3", "three", conversation_id)
        assert (refused.status_code, refused.json()["code"], refused.json()["blocked"]) == (409, "conversation_blocked", "thread_gone")


async def test_o18_streams_hold_no_database_connection(database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        stack.upstream.use(Script(ag_ui=[Answer(frames=_gated_run(open_for=1))]))
        settings = stack.settings(GATEWAY_DATABASE_POOL_MAX="4", AGENT_MAX_ACTIVE_PER_APP="100")
        replica = await stack.replica(settings)
        runs = await asyncio.gather(*(replica.client(f"user-{n}").submit(application, "s1", "hi") for n in range(40)))
        assert {response.status_code for response in runs} == {202}
        await stack.upstream.executed(40, timeout_seconds=60)
        ready = await asyncio.gather(*(replica.http.get("/readyz") for _ in range(20)))
        assert {response.status_code for response in ready} == {200}
        await _until_all_transactions_ended(stack)
        stack.upstream.release("rest")
        for number, response in enumerate(runs):
            run = await replica.client(f"user-{number}").until_over(application, response.json()["run_id"])
            assert run["persistence"] == "saved"


async def _evidence(stack: Stack, run_id: str) -> list[tuple[str, dict[str, Any]]]:
    async with await psycopg.AsyncConnection.connect(stack.database_url, autocommit=True) as connection:
        cursor = await connection.execute("select kind, detail from evidence where run_id = %s order by evidence_id", (run_id,))
        return [(kind, detail) for kind, detail in await cursor.fetchall()]


async def _until_all_transactions_ended(stack: Stack) -> None:
    """Each transaction that is open now ends while the streams are open. Some of a moment are: of what runs wrote down, of heartbeats."""
    query = "select pid, xact_start from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'"
    async with await psycopg.AsyncConnection.connect(stack.database_url, autocommit=True) as connection, asyncio.timeout(30):
        cursor = await connection.execute(query)
        open_now = set(await cursor.fetchall())
        while open_now:
            cursor = await connection.execute(query)
            open_now &= set(await cursor.fetchall())
