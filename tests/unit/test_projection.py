"""The projection: positions, changes, cleaned and bounded text, tool names."""

import pytest

from gateway.domain.limits import StreamBounds
from gateway.domain.snapshot import MessageItem, Snapshot, ToolItem, ToolStatus, parse
from gateway.sse_parser.projection import (
    ANONYMOUS_TOOL,
    MessageEnded,
    MessageStarted,
    Projection,
    TextAppended,
    ToolCalled,
    ToolReturned,
    ToolStarted,
)
from tests.property.frames import GOOD, NR, RF, RS, framed, ke, kr, ks, new_parser, read_events, tc, te, ts

BOUNDS = StreamBounds(messages=2, tools=2, text_bytes=20)


def test_changes_of_one_read_are_told_once_and_in_order() -> None:
    parser = new_parser()
    parser.feed(framed(RS, NR))
    first = (ts("m1"), tc("m1", "a"), tc("m1", "b"), ks("k1", "search", "m1"), tc("m1", "c"), ke("k1"), kr("k1"))
    batch = parser.feed(framed(*first, tc("m1", "d"), tc("m1", ""), te("m1"), ts("m2"), tc("m2", "e")))
    assert batch.changes == (
        MessageStarted(1),
        TextAppended(1, "ab"),
        ToolStarted(2, "search", 1),
        TextAppended(1, "c"),
        ToolCalled(2),
        ToolReturned(2),
        TextAppended(1, "d"),
        MessageEnded(1),
        MessageStarted(3),
        TextAppended(3, "e"),
    )
    assert parser.feed(framed(tc("m2", "f"), tc("m2", "g"))).changes == (TextAppended(3, "fg"),)
    assert parser.feed(framed(tc("m2", ""))).changes == ()
    assert parser.feed(framed(RF)).changes == (MessageEnded(3),)


def test_interleaved_text_is_not_mixed() -> None:
    parser = new_parser()
    parser.feed(framed(RS, ts("m1"), ts("m2")))
    batch = parser.feed(framed(tc("m1", "a"), tc("m1", "b"), tc("m2", "c"), tc("m1", "d")))
    assert batch.changes == (TextAppended(1, "ab"), TextAppended(2, "c"), TextAppended(1, "d"))


def test_each_read_gives_its_piece() -> None:
    parser = new_parser()
    pieces = [parser.feed(framed(one)).changes for one in GOOD]
    assert pieces == [
        (),
        (),
        (MessageStarted(1),),
        (TextAppended(1, "Hello "),),
        (TextAppended(1, "world"),),
        (MessageEnded(1),),
        (),
    ]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("get_weather", "get_weather"),
        ("mcp:server.tool-1", "mcp:server.tool-1"),
        ("a" * 128, "a" * 128),
        ("a" * 129, ANONYMOUS_TOOL),
        ("", ANONYMOUS_TOOL),
        ("get weather", ANONYMOUS_TOOL),
        ("tool\n", ANONYMOUS_TOOL),
        ("<b>", ANONYMOUS_TOOL),
        ("to\x00ol", ANONYMOUS_TOOL),
        ("werkzeug-für", ANONYMOUS_TOOL),
        ("\ud800", ANONYMOUS_TOOL),
    ],
)
def test_tool_names(name: str, shown: str) -> None:
    tool = Projection(BOUNDS).start_tool(name, None)
    assert tool is not None
    assert tool.name == shown


def test_bounds_are_told_and_nothing_is_added() -> None:
    projection = Projection(BOUNDS)
    message, other = projection.start_message(), projection.start_message()
    assert message is not None
    assert other is not None
    assert projection.start_message() is None
    assert projection.start_tool("a", message) is not None
    assert projection.start_tool("b", other) is not None
    assert projection.start_tool("c", None) is None
    assert projection.append(message, "x" * 15)
    assert not projection.append(other, "é" * 3)
    assert projection.append(other, "é!\n")
    assert (projection.text_bytes, projection.messages, projection.tools) == (19, 2, 2)
    assert projection.items() == (
        MessageItem(1, "x" * 15, False),
        MessageItem(2, "é!\n", False),
        ToolItem(3, "a", ToolStatus.STARTED, 1),
        ToolItem(4, "b", ToolStatus.STARTED, 2),
    )


def test_items_may_be_asked_for_at_any_time() -> None:
    projection = Projection(StreamBounds())
    message = projection.start_message()
    assert message is not None
    for length in range(5):
        assert projection.items() == (MessageItem(1, "ab" * length, False),)
        projection.append(message, "a")
        projection.append(message, "b")
    assert projection.take_changes() == (MessageStarted(1), *(TextAppended(1, "ab") for _ in range(5)))
    assert projection.take_changes() == ()


def test_a_message_without_text_keeps_its_place() -> None:
    parser, _ = read_events(RS, NR, ts("m1"), te("m1"), ks("k1", "search", "m1"), ke("k1"), ts("m2"), tc("m2", "x"), te("m2"), RF)
    assert parser.items() == (
        MessageItem(1, "", True),
        ToolItem(2, "search", ToolStatus.CALLED, 1),
        MessageItem(3, "x", True),
    )
    snapshot = parser.snapshot(True)
    assert snapshot == Snapshot(parser.items(), True)
    assert parse(snapshot.canonical()) == snapshot
