"""The native profile's stream: every recorded one gives its items however it is cut, and nothing of it ends a run or leaks."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.domain.evidence import StreamBroken
from gateway.domain.ids import NativeRunId
from gateway.domain.limits import StreamBounds
from gateway.domain.native import AssistantMessage
from gateway.domain.reasons import Reason
from gateway.domain.snapshot import Item, MessageItem, ToolItem, ToolStatus
from gateway.sse_parser.native import NativeParser
from gateway.sse_parser.parser import Batch
from gateway.sse_parser.projection import Change

SAMPLES = Path(__file__).parent.parent / "samples"
STREAMS = sorted(path.relative_to(SAMPLES).as_posix().removesuffix(".sse") for path in SAMPLES.glob("*-api/*.sse"))
RUN = NativeRunId("run-1")
PLAIN = (MessageItem(1, "Hello from the fake model.\n\nSecond line — 你好.", True),)
TOOL = (
    MessageItem(1, "Let me check the weather. ", True),
    ToolItem(2, "get_weather", ToolStatus.RETURNED, 1),
    MessageItem(3, "It is 21 degrees in Paris — café weather ☕.", True),
)
QUESTION = (MessageItem(1, "I need your confirmation.", True),)
EXPECTED: dict[str, tuple[Item, ...]] = {
    "aegra-api/stream_boom_mid": (MessageItem(1, "Hello ", False),),
    "aegra-api/stream_confirm": QUESTION,
    "aegra-api/stream_disconnect_None": (MessageItem(1, "Hello from the ", False),),
    "aegra-api/stream_plain_messages-tuple": PLAIN,
    "aegra-api/stream_tool_values_messages": TOOL,
    "langgraph-api/stream_boom_mid": (MessageItem(1, "Hello ", False),),
    "langgraph-api/stream_confirm": QUESTION,
    "langgraph-api/stream_disconnect_None": (MessageItem(1, "Hello from ", False),),
    "langgraph-api/stream_disconnect_cancel": (MessageItem(1, "Hello from ", False),),
    "langgraph-api/stream_heartbeat": (MessageItem(1, "Hello ", False),),
    "langgraph-api/stream_plain_messages-tuple": PLAIN,
    "langgraph-api/stream_plain_values+messages-tuple+updates": PLAIN,
    "langgraph-api/stream_rejoin_last_event_id": PLAIN,
    "langgraph-api/stream_resumable_ids": PLAIN,
    "langgraph-api/stream_slow_first": PLAIN,
    "langgraph-api/stream_timeout": (MessageItem(1, "Hello from the fake ", False),),
    "langgraph-api/stream_tool_values_messages": TOOL,
}
"""All others asked for no messages, or said nothing."""


def parser_of(run: NativeRunId = RUN, bounds: StreamBounds | None = None) -> NativeParser:
    return NativeParser(native_run_id=run, bounds=bounds or StreamBounds())


def recorded(sample: str) -> tuple[bytes, NativeRunId]:
    raw = (SAMPLES / f"{sample}.sse").read_bytes()
    meta = json.loads((SAMPLES / f"{sample}.meta.json").read_text())
    return raw, NativeRunId(str(meta["headers"].get("content-location", "")).rpartition("/")[2])


def test_what_is_expected_exists() -> None:
    assert EXPECTED.keys() <= set(STREAMS)
    assert len(STREAMS) > 40


@pytest.mark.parametrize("sample", STREAMS)
def test_recorded_streams_whole_and_cut(sample: str) -> None:
    raw, run = recorded(sample)
    cut = random.Random(sample)
    for size in (len(raw) + 1, 1, 7, cut.randrange(2, 400)):
        parser = parser_of(run)
        batches = [parser.feed(raw[start : start + size]) for start in range(0, len(raw), size)]
        assert parser.items() == EXPECTED.get(sample, ())
        assert all(batch.end is None for batch in batches)
        assert parser.end() == StreamBroken(Reason.STREAM_ENDED, "no_terminal_event")
        assert parser.whole
        changes: list[Change] = [change for batch in batches for change in batch.changes]
        assert bool(changes) is bool(EXPECTED.get(sample))
        seen = repr((batches, parser.items(), parser.counts, parser.shown()))
        assert not [canary for canary in ("abc123", "/srv/app", "RuntimeError", "provider failure") if canary in seen]


@pytest.mark.parametrize("family", ["langgraph-api", "aegra-api"])
def test_errors_are_counted_and_what_comes_after_is_no_success(family: str) -> None:
    raw, run = recorded(f"{family}/stream_boom")
    parser = parser_of(run)
    assert parser.feed(raw).end is None
    assert parser.counts.errors == 1


def event(name: str, document: object) -> bytes:
    return f"event: {name}\r\ndata: {json.dumps(document, ensure_ascii=False)}\r\n\r\n".encode()


def piece(text: object, message_id: object = "m-1", **more: object) -> bytes:
    return event("messages", [{"type": "AIMessageChunk", "id": message_id, "content": text, **more}, {"langgraph_node": "agent"}])


def fed(*events: bytes, bounds: StreamBounds | None = None) -> tuple[NativeParser, Batch]:
    parser = parser_of(bounds=bounds)
    batch = Batch()
    for one in events:
        batch = parser.feed(one)
    return parser, batch


def test_messages_grow_by_id_and_other_types_are_dropped() -> None:
    parser, _ = fed(
        event("metadata", {"run_id": "run-1", "attempt": 1}),
        piece("Hel"),
        piece("Other", "m-2"),
        piece([{"type": "text", "text": "lo"}]),
        event("messages", [{"type": "human", "id": "u-1", "content": "hi"}, {}]),
        event("messages", [{"type": "system", "id": "s-1", "content": "secret"}, {}]),
        piece("no id", None),
        event("messages|sub:1", [{"type": "ai", "id": "x", "content": "of a subgraph"}, {}]),
        event("messages", [{"type": "ai", "id": "m-3", "content": "Whole"}, {}]),
        event("messages", [{"type": "ai", "id": "m-3", "content": "Whole again"}, {}]),
    )
    assert parser.items() == (MessageItem(1, "Hello", False), MessageItem(2, "Other", False), MessageItem(3, "Whole", True))
    assert (parser.counts.dropped, parser.counts.ignored) == (4, 1)
    assert parser.shown() == (AssistantMessage("m-1", "Hello"), AssistantMessage("m-2", "Other"), AssistantMessage("m-3", "Whole"))
    parser.close_open()
    assert len(parser.take_changes().changes) == 2
    assert all(item.complete for item in parser.items() if isinstance(item, MessageItem))


def test_tools_show_their_name_and_how_far_they_got_and_nothing_else() -> None:
    call = {"name": "send", "args": '{"to": "secret"', "id": "c-1", "index": 0}
    parser, _ = fed(
        piece("", tool_call_chunks=[call]),
        piece("", tool_call_chunks=[{**call, "name": None, "id": None}]),
        piece("", chunk_position="last"),
        event("messages", [{"type": "tool", "tool_call_id": "c-1", "id": "t", "content": "secret"}, {}]),
        event("messages", [{"type": "tool", "tool_call_id": "c-9", "id": "t", "content": "secret"}, {}]),
        event("messages", [{"type": "ai", "id": "m-2", "content": "", "tool_calls": [{"name": "bad name!", "id": "c-2"}]}, {}]),
    )
    assert parser.items() == (
        MessageItem(1, "", True),
        ToolItem(2, "send", ToolStatus.RETURNED, 1),
        MessageItem(3, "", True),
        ToolItem(4, "tool", ToolStatus.CALLED, 3),
    )
    assert "secret" not in repr((parser.items(), parser.counts))


@pytest.mark.parametrize(
    ("bad", "reason", "detail"),
    [
        (event("metadata", {"run_id": "run-2"}), Reason.ID_MISMATCH, "native_changed"),
        (event("metadata", {"attempt": 1}), Reason.BAD_FRAME, "required_field"),
        (event("metadata", []), Reason.BAD_FRAME, "required_field"),
        (event("messages", {}), Reason.BAD_FRAME, "message_tuple"),
        (event("messages", []), Reason.BAD_FRAME, "message_tuple"),
        (event("messages", ["x", {}]), Reason.BAD_FRAME, "message_tuple"),
        (b"event: messages\ndata: [{\n\n", Reason.BAD_FRAME, "syntax"),
        (b'event: metadata\ndata: {"run_id":"run-1","run_id":"run-1"}\n\n', Reason.BAD_FRAME, "duplicate_key"),
        (b"event: messages\ndata: \xff\n\n", Reason.BAD_FRAME, "utf8"),
        (piece("x", "i" * 1025), Reason.BOUND_EXCEEDED, "id_length"),
        (piece("", tool_call_chunks=[{"name": "t", "id": "i" * 1025}]), Reason.BOUND_EXCEEDED, "id_length"),
        (piece("x" * 3000), Reason.BOUND_EXCEEDED, "kept_frame_bytes"),
        (piece("x" * 600), Reason.BOUND_EXCEEDED, "text_bytes"),
        (piece("b", "m-3"), Reason.BOUND_EXCEEDED, "messages"),
        (piece("", tool_call_chunks=[{"name": "t", "id": f"c-{n}"} for n in range(3)]), Reason.BOUND_EXCEEDED, "tools"),
    ],
)
def test_faults(bad: bytes, reason: Reason, detail: str) -> None:
    bounds = StreamBounds(kept_frame_bytes=2048, text_bytes=500, messages=2, tools=2)
    parser, batch = fed(piece("a"), piece("a", "m-2"), bad, bounds=bounds)
    assert batch.end == StreamBroken(reason, detail)
    assert parser.feed(piece("more")).changes == ()
    assert parser.end() == batch.end
    assert not parser.whole


def test_bodies_that_are_cut() -> None:
    parser, _ = fed(piece("a")[:-4])
    assert parser.end() == StreamBroken(Reason.STREAM_ENDED, "open_frame")
    assert not parser.whole


def spelt(name: bytes, line_end: bytes, order: Callable[[list[bytes]], list[bytes]]) -> bytes:
    lines = order([b"event: " + name, b"id: 7", b'data: {"run_id":', b'data: "run-2"}'])
    return line_end.join(lines) + line_end * 2


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("order", [list, lambda lines: lines[2:] + lines[:2]], ids=["name first", "name last"])
def test_names_and_data_in_any_order_and_line_end(line_end: bytes, order: Callable[[list[bytes]], list[bytes]]) -> None:
    raw = spelt(b"metadata", line_end, order)
    for size in (1, len(raw)):
        parser = parser_of()
        ends = [parser.feed(raw[start : start + size]).end for start in range(0, len(raw), size)]
        if line_end == b"\r":
            ends.append(parser.feed(b"\n").end)
        assert StreamBroken(Reason.ID_MISMATCH, "native_changed") in ends
    other = parser_of()
    other.feed(spelt(b"metadat", line_end, order) + b'data: {"run_id":"run-2"}\n\n: heartbeat\n\nevent: metadata\n\n')
    assert other.end().reason is Reason.STREAM_ENDED
    assert (other.counts.ignored, other.counts.comments) == (2, 2)


def test_data_without_anything_in_it_is_no_frame() -> None:
    parser, batch = fed(b"event: messages\ndata:\n\n")
    assert (batch.changes, batch.activity, parser.counts.empty) == ((), False, 1)


def test_a_tool_that_is_open_at_the_end_was_called_and_a_snapshot_is_as_complete_as_its_caller_says() -> None:
    parser, _ = fed(piece("", tool_call_chunks=[{"name": "send", "args": "{", "id": "c-1", "index": 0}]))
    assert parser.items() == (MessageItem(1, "", False), ToolItem(2, "send", ToolStatus.STARTED, 1))
    parser.close_open()
    parser.close_open()
    assert len(parser.take_changes().changes) == 2
    assert parser.items() == (MessageItem(1, "", True), ToolItem(2, "send", ToolStatus.CALLED, 1))
    assert parser.snapshot(True).complete
    assert not parser.snapshot(False).complete


def test_heartbeats_are_no_activity() -> None:
    parser = parser_of()
    assert not parser.feed(b": heartbeat\r\n\r\n").activity
    assert parser.feed(event("updates", {"agent": {}})).activity
