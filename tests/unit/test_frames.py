"""The browser's frames: what they say of changes, the way from one look at the items to the next, and what never stands in them raw."""

import itertools
import json
import random
from uuid import UUID

import pytest

from gateway.domain.ids import ConversationId, RunId
from gateway.domain.reasons import REASON_MESSAGES, Reason
from gateway.domain.snapshot import Item
from gateway.runs.frames import Frames, changes_between
from gateway.sse_parser.projection import MessageEnded, MessageStarted, TextAppended, ToolCalled, ToolReturned, ToolStarted
from tests.support.stack import parse_events
from tests.unit.test_parser_samples import VERDICTS, Verdict, by_path, replayed

RUN, CONVERSATION = RunId(UUID(int=1)), ConversationId(UUID(int=2))


def frames() -> Frames:
    return Frames(RUN, CONVERSATION)


def test_changes_become_frames_over_local_ids_in_one_piece() -> None:
    changes = (MessageStarted(1), TextAppended(1, "a"), ToolStarted(2, "search", 1), MessageEnded(1), ToolCalled(2), ToolReturned(2))
    piece = frames().changes([*changes, ToolStarted(3, "tool", None)])
    events = [event.data for event in parse_events(piece)]
    message, tool, other = events[0]["messageId"], events[2]["toolCallId"], events[-1]["toolCallId"]
    assert len({message, tool, other}) == 3
    assert events == [
        {"type": "TEXT_MESSAGE_START", "messageId": message, "role": "assistant"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": message, "delta": "a"},
        {"type": "TOOL_CALL_START", "toolCallId": tool, "toolCallName": "search", "parentMessageId": message},
        {"type": "TEXT_MESSAGE_END", "messageId": message},
        {"type": "TOOL_CALL_END", "toolCallId": tool},
        {"type": "TOOL_CALL_RESULT", "messageId": tool, "toolCallId": tool, "content": "", "role": "tool"},
        {"type": "TOOL_CALL_START", "toolCallId": other, "toolCallName": "tool"},
    ]
    assert frames().changes(changes) == frames().changes(changes)


def test_the_ends_of_a_run() -> None:
    ends = parse_events(frames().started() + frames().finished() + frames().failed(Reason.STREAM_ENDED))
    ids = {"threadId": str(CONVERSATION), "runId": str(RUN)}
    error = {"message": REASON_MESSAGES[Reason.STREAM_ENDED], "code": "stream_ended"}
    assert [event.data for event in ends] == [
        {"type": "RUN_STARTED", **ids},
        {"type": "RUN_FINISHED", **ids},
        {"type": "RUN_ERROR", **error},
    ]


@pytest.mark.parametrize("text", ["a\u2028b\u2029c\u0085d", "é 你 🙂\u2028", "\n\r\u000b\u000c", 'plain "quoted" \\', "\ufffd\ufeff"])
def test_o15_nothing_that_some_reader_takes_for_a_line_end_goes_out_raw(text: str) -> None:
    piece = frames().changes([TextAppended(1, text)])
    assert len(piece.decode().splitlines()) == 2  # the data line and the blank one
    assert json.loads(piece.removeprefix(b"data: "))["delta"] == text


@pytest.mark.parametrize("verdict", VERDICTS, ids=by_path)
def test_the_difference_of_two_looks_leads_from_one_to_the_other(verdict: Verdict) -> None:
    chance, raw, parser = random.Random(len(verdict.raw)), verdict.raw, verdict.parser()
    looks: list[tuple[Item, ...]] = [()]
    edges = [0, *sorted(chance.sample(range(len(raw)), min(30, len(raw)))), len(raw)]
    for start, end in itertools.pairwise(edges):
        parser.feed(raw[start:end])
        looks.append(parser.items())
    for at, before in enumerate(looks):
        after = looks[chance.randrange(at, len(looks))]
        assert replayed(changes_between((), before) + changes_between(before, after)) == after
    assert changes_between(looks[-1], looks[-1]) == []
    assert frames().difference(looks[-1], looks[-1]) == b""
