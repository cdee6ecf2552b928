"""`usage` of terminal events: numbers of the protocol's own fields, summed; whatever else it is, nothing breaks and nothing is kept."""

import json
from typing import Any

import pytest
from ag_ui.core import EventType, RunErrorEvent, RunFinishedEvent, TokenUsage
from ag_ui.encoder import EventEncoder

from gateway.domain.evidence import Outcome, RunErrored, RunFinished
from gateway.domain.limits import StreamBounds
from gateway.sse_parser.parser import StreamParser
from gateway.sse_parser.usage import usage_of

STARTED = b'data: {"type":"RUN_STARTED","threadId":"t","runId":"c"}\n\n'
TWO = [
    TokenUsage(provider="someone", model="m-1", input_tokens=10, output_tokens=5, total_tokens=15, cached_input_tokens=2),
    TokenUsage(provider="someone", model="m-2", input_tokens=1, reasoning_tokens=7),
]
SUMS = {"input_tokens": 11, "output_tokens": 5, "total_tokens": 15, "cached_input_tokens": 2, "reasoning_tokens": 7}


def parsed(*frames: bytes) -> StreamParser:
    parser = StreamParser(thread_id="t", correlation_id="c", bounds=StreamBounds())
    for frame in frames:
        parser.feed(frame)
    return parser


def test_the_protocols_own_encoder_is_understood() -> None:
    finished = EventEncoder().encode(RunFinishedEvent(type=EventType.RUN_FINISHED, thread_id="t", run_id="c", usage=TWO))
    parser = parsed(STARTED, finished.encode())
    assert (parser.end(), parser.usage) == (RunFinished(Outcome.SUCCESS), SUMS)


@pytest.mark.parametrize("before", [b"", STARTED])
def test_a_run_that_failed_brings_it_too(before: bytes) -> None:
    failed = EventEncoder().encode(RunErrorEvent(type=EventType.RUN_ERROR, message="boom", usage=TWO[:1]))
    parser = parsed(before, failed.encode())
    assert (parser.end(), parser.usage["total_tokens"]) == (RunErrored(), 15)


def test_only_the_first_terminal_event_of_this_run_counts() -> None:
    def finished(run_id: str, tokens: int) -> bytes:
        document = {"type": "RUN_FINISHED", "threadId": "t", "runId": run_id, "usage": [{"inputTokens": tokens}]}
        return b"data: " + json.dumps(document).encode() + b"\n\n"

    assert parsed(STARTED, finished("c", 1), finished("c", 2)).usage == {"input_tokens": 1}
    assert parsed(STARTED, finished("other", 1)).usage == {}
    assert parsed(STARTED).usage == {}


@pytest.mark.parametrize(
    ("raw", "counted"),
    [
        (None, {}),
        ([], {}),
        ({}, {}),
        ("12", {}),
        (7, {}),
        ([None, 7, "x", [], {}], {}),
        ([{"inputTokens": None}], {}),
        ([{"inputTokens": "7"}], {}),
        ([{"inputTokens": True}], {}),
        ([{"inputTokens": -1}], {}),
        ([{"inputTokens": 1.5}], {}),
        ([{"inputTokens": 2**53 + 1}], {}),
        ([{"inputTokens": 10**60, "outputTokens": 3}], {"output_tokens": 3}),
        ([{"inputTokens": 0}], {"input_tokens": 0}),
        ([{"inputTokens": 2**53}, {"inputTokens": 2**53}], {"input_tokens": 2**53}),
        ([{"model": "secret=abc123", "prompt": "x", "input_tokens": 4}], {}),
        ([{"inputTokens": 1}] * 100, {"input_tokens": 64}),
    ],
    ids=str,
)
def test_what_is_no_count_is_left_out(raw: Any, counted: dict[str, int]) -> None:
    assert usage_of(raw) == counted
