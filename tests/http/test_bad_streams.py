"""What agent services really send, the whole way over sockets: each bound and clock ends a run with its reason, and is named in the
evidence; what is not for people reaches no answer, no row and no log.
"""

import asyncio
from typing import Any

import psycopg
import pytest

from gateway.sse_parser.faults import Detail
from tests.db.world import everything_in
from tests.support.scripted_upstream import Answer, Frame, Script, event, failed, finished, message, pause, raw, started, tool
from tests.support.stack import Stack, text_of

pytestmark = pytest.mark.anyio

OPEN = event("TEXT_MESSAGE_START", messageId="m1", role="assistant")
COMMENT = raw(": still here\n\n")


def said(text: str) -> Frame:
    return event("TEXT_MESSAGE_CONTENT", messageId="m1", delta=text)


def sized(frame_bytes: int, start: str = '{"type":"RAW","event":"') -> Frame:
    """A frame of exactly so many bytes, its line end included."""
    head = f"data: {start}"
    return raw(head + "x" * (frame_bytes - len(head) - len('"}\n')) + '"}\n\n')


KEPT = '{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"'
BOUNDS: list[tuple[Detail, dict[str, int], list[Frame], list[Frame]]] = [
    # what is too much, the settings, what still fits and what does not (between RUN_STARTED, native_run, the start of m1, RUN_FINISHED)
    (Detail.FRAME_BYTES, {"FRAME_BYTES": 4096, "KEPT_FRAME_BYTES": 1024}, [sized(4096)], [sized(4097)]),
    (Detail.FRAME_BYTES, {"FRAME_BYTES": 4096, "KEPT_FRAME_BYTES": 1024}, [raw(":" * 4095 + "\n\n")], [raw(":" * 16_000)]),
    (Detail.KEPT_FRAME_BYTES, {"KEPT_FRAME_BYTES": 1024}, [sized(1031, KEPT), sized(9000)], [sized(1032, KEPT)]),
    (Detail.STREAM_BYTES, {"FRAME_BYTES": 4096, "KEPT_FRAME_BYTES": 1024, "STREAM_BYTES": 20_000}, [sized(4096)] * 3, [sized(4096)] * 5),
    (Detail.EVENTS, {"EVENTS": 10}, [COMMENT] * 6, [COMMENT] * 7),
    (Detail.TEXT_BYTES, {"TEXT_BYTES": 5}, [said("Hel"), said("lo")], [said("Hel"), said("lö")]),
    (Detail.MESSAGES, {"MESSAGES": 2}, message("m2"), [*message("m2"), *message("m3")]),
    (Detail.TOOLS, {"TOOLS": 1}, tool("k1", "search"), [*tool("k1", "search"), *tool("k2", "search")]),
]


async def ended_by(stack: Stack, run_id: str) -> dict[str, Any]:
    """The latest evidence of a run."""
    async with await psycopg.AsyncConnection.connect(stack.database_url, autocommit=True) as connection:
        query = "select detail from evidence where run_id = %s order by evidence_id desc limit 1"
        row = await (await connection.execute(query, (run_id,))).fetchone()
    assert row is not None
    return dict(row[0])


@pytest.mark.parametrize(("detail", "bounds", "fits", "too_much"), BOUNDS, ids=[f"{number}-{row[0]}" for number, row in enumerate(BOUNDS)])
async def test_each_bound_ends_a_run_and_is_named(
    database_url: str, detail: Detail, bounds: dict[str, int], fits: list[Frame], too_much: list[Frame]
) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        replica = await stack.replica(stack.settings(**{f"GATEWAY_MAX_{name}": str(value) for name, value in bounds.items()}))
        script = {text: [Answer(frames=[*started(), OPEN, *frames, finished()])] for text, frames in (("fits", fits), ("not", too_much))}
        stack.upstream.use(Script(ag_ui_by_text=script))
        _, events = await replica.client("ada").ask(application, "s1", "fits")
        assert events[-1].type == "RUN_FINISHED", events[-1]
        bea = replica.client("bea")
        _, events = await bea.ask(application, "s1", "not")
        assert (events[-1].type, events[-1].data["code"]) == ("RUN_ERROR", "bound_exceeded")
        run = await bea.run(application, events[0].data["runId"])
        assert (run["execution"], run["reason"]) == ("unknown", "bound_exceeded")
        assert (await ended_by(stack, run["run_id"]))["detail"] == detail


async def test_o17_comments_keep_no_run_alive_and_slow_answers_are_no_silence(database_url: str) -> None:
    """Of time itself, so it takes some: the healthy one is longer than the silence that ends the other."""
    beats = [step for _ in range(40) for step in (pause(0.1), COMMENT)]
    talks = [step for number in range(10) for step in (pause(0.2), said(f"{number} "))]
    scripts = {
        "beats": [*started(), OPEN, *beats],
        "talks": [*started(), OPEN, *talks, finished()],
        "endless": [*started(), OPEN, *talks * 4],
    }
    clocks = {"beats": ("1", "60"), "talks": ("2", "60"), "endless": ("2.5", "3")}
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        stack.upstream.use(Script(ag_ui_by_text={text: [Answer(frames=frames)] for text, frames in scripts.items()}))

        async def ended(text: str) -> tuple[str, str | None, str | None]:
            idle, total = clocks[text]
            settings = stack.settings(
                GATEWAY_STREAM_IDLE_SECONDS=idle,
                GATEWAY_STREAM_TOTAL_SECONDS=total,
                AGENT_MAX_ACTIVE_PER_APP="3",
                GATEWAY_SEND_WINDOW_SECONDS="1",
            )
            client = (await stack.replica(settings)).client(text)
            _, events = await client.ask(application, "s1", text)
            run = await client.run(application, events[0].data["runId"])
            return run["execution"], run["reason"], (await ended_by(stack, run["run_id"])).get("detail")

        ends = await asyncio.gather(*map(ended, scripts))
    assert dict(zip(scripts, ends, strict=True)) == {
        "beats": ("unknown", "idle_timeout", "no_event"),
        "talks": ("succeeded", None, None),
        "endless": ("unknown", "total_timeout", "deadline"),
    }


async def test_o19_o41_an_answer_that_no_database_takes_is_cleaned_once_and_saved(database_url: str) -> None:
    half_pairs = raw(
        'data: {"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"\\ud83d"}\n\n'
        'data: {"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"\\ude42 \\ud83d\\ude42"}\n\n'
    )
    frames = [*started(), OPEN, said("a\x00b"), half_pairs, *tool("k1", "to\x00ol"), finished()]
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        stack.upstream.use(Script(ag_ui=[Answer(frames=frames)]))
        ada = (await stack.replica()).client("ada")
        _, events = await ada.ask(application, "s1", "hello")
        assert events[-1].type == "RUN_FINISHED"
        items = await ada.items(application, events[0].data["threadId"])
        assert text_of(events) == items[1]["text"] == "a\ufffdb\ufffd\ufffd 🙂"
        assert items[2]["name"] == "tool"


CANARY = "CANARY-7f3a"
SECRET = {"canary": CANARY, "deep": [{"text": CANARY}]}
NOT_FOR_PEOPLE: list[Frame] = [
    event("TEXT_MESSAGE_START", messageId="u1", role="user"),
    event("TEXT_MESSAGE_CONTENT", messageId="u1", delta=CANARY),
    event("TEXT_MESSAGE_END", messageId="u1"),
    event("TEXT_MESSAGE_CHUNK", messageId="s1", role="system", delta=CANARY),
    event("TEXT_MESSAGE_START", messageId="a1", role="assistant", subagentRunId="sub"),
    event("TEXT_MESSAGE_CONTENT", messageId="a1", delta=CANARY),
    event("TEXT_MESSAGE_CONTENT", messageId="m1", delta=CANARY, subagentRunId="sub"),
    event("SUBAGENT_STARTED", subagentRunId="sub", name=CANARY, description=CANARY),
    event("TOOL_CALL_START", toolCallId="k9", toolCallName=CANARY, subagentRunId="sub"),
    event("TOOL_CALL_CHUNK", toolCallId="k8", toolCallName=CANARY, subagentRunId="sub"),
    event("SUBAGENT_FINISHED", subagentRunId="sub", result=CANARY),
    event("REASONING_MESSAGE_START", messageId="r1", role="reasoning"),
    event("REASONING_MESSAGE_CONTENT", messageId="r1", delta=CANARY),
    event("REASONING_MESSAGE_CHUNK", messageId="r1", delta=CANARY),
    event("REASONING_ENCRYPTED_VALUE", subtype="message", entityId="m1", encryptedValue=CANARY),
    event("THINKING_TEXT_MESSAGE_CONTENT", delta=CANARY),
    event("STATE_SNAPSHOT", snapshot=SECRET),
    event("STATE_DELTA", delta=[{"op": "add", "path": "/x", "value": CANARY}]),
    event("MESSAGES_SNAPSHOT", messages=[{"id": "m9", "role": "assistant", "content": CANARY}]),
    event("ACTIVITY_SNAPSHOT", messageId="x", activityType="y", content=SECRET),
    event("RAW", event={"type": "TEXT_MESSAGE_CONTENT", "messageId": "m1", "delta": CANARY}, source=CANARY),
    event("CUSTOM", name=CANARY, value=SECRET),
    event(CANARY, messageId="m1", delta=CANARY),
    event("STEP_STARTED", stepName=CANARY, rawEvent=SECRET, metadata=SECRET),
    event("TOOL_CALL_START", toolCallId="k1", toolCallName="search", parentMessageId="m1", rawEvent=SECRET),
    event("TOOL_CALL_ARGS", toolCallId="k1", delta=f'{{"to": "{CANARY}"'),
    event("TOOL_CALL_END", toolCallId="k1"),
    event("TOOL_CALL_RESULT", messageId="k1", toolCallId="k1", content=CANARY),
    event("TOOL_CALL_START", toolCallId="k2", toolCallName=f"not a name: {CANARY}"),
]


@pytest.mark.parametrize(
    "ending",
    [
        finished(result=SECRET),
        failed(CANARY, code=CANARY),
        event("TEXT_MESSAGE_CONTENT", messageId=CANARY, delta=CANARY),
        raw(f'data: {{"type":"RUN_FINISHED","{CANARY}":\n\n'),
        raw(f'data: {{"type":"RUN_FINISHED","threadId":"{CANARY}","runId":"{CANARY}"}}\n\n'),
        raw(f": {CANARY}\nid: {CANARY}\nevent: {CANARY}\ndata: {CANARY}\n\n"),
    ],
    ids=["finished", "failed", "unknown message", "syntax", "ids", "no json"],
)
async def test_what_is_not_for_people_reaches_no_answer_no_row_and_no_log(
    database_url: str, capfd: pytest.CaptureFixture[str], ending: Frame
) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        stack.upstream.use(Script(ag_ui=[Answer(frames=[*started(), OPEN, said("Hello"), *NOT_FOR_PEOPLE, ending])]))
        ada = (await stack.replica()).client("ada")
        _, events = await ada.ask(application, "s1", "hello")
        run = await ada.run(application, events[0].data["runId"])
        items = await ada.items(application, run["conversation_id"])
        assert text_of(events) == "Hello"
        assert [item.get("text", item.get("name")) for item in items] == ["hello", "Hello", "search", "tool"]
        assert CANARY not in str((events, run, items))
        rows = everything_in(database_url)
    logged = capfd.readouterr()
    assert run["run_id"] in rows
    assert CANARY not in rows
    assert run["run_id"] in logged.out + logged.err
    assert CANARY not in logged.out + logged.err
