"""Every recorded AG-UI stream has its verdict, however its bytes are cut. The samples are byte-exact; `seed001-derived` is not recorded."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gateway.domain.decide import decide
from gateway.domain.evidence import Outcome, RunErrored, RunFinished, StreamFact
from gateway.domain.limits import StreamBounds
from gateway.domain.reasons import Reason
from gateway.domain.snapshot import Item, MessageItem, ToolItem, ToolStatus
from gateway.domain.states import Execution
from gateway.sse_parser.parser import Counts, StreamParser
from gateway.sse_parser.projection import Change, MessageEnded, MessageStarted, TextAppended, ToolCalled, ToolReturned, ToolStarted

SAMPLES = Path(__file__).parent.parent / "samples"
NATIVE = "33333333-3333-4333-8333-333333333333"
SUCCESS = RunFinished(Outcome.SUCCESS)
INTERRUPT = RunFinished(Outcome.INTERRUPT)
STATUS: dict[StreamFact, tuple[Execution, Reason | None]] = {
    SUCCESS: (Execution.SUCCEEDED, None),
    INTERRUPT: (Execution.FAILED, Reason.INTERRUPT_UNSUPPORTED),
    RunErrored(): (Execution.FAILED, Reason.UPSTREAM_ERROR),
}
"""What becomes of the run, and why."""

PLAIN = "Hello from the fake model.\n\nSecond line — 你好."
WEATHER = "It is 21 degrees in Paris — café weather ☕."
CONFIRMED = (MessageItem(1, "Done: decision recorded.", True),)
PLAIN_ITEMS = (MessageItem(1, PLAIN, True),)
PARTIAL_ITEMS = (MessageItem(1, "Hello ", False),)
TOOL_ITEMS = (
    MessageItem(1, "Let me check the weather. ", True),
    ToolItem(2, "get_weather", ToolStatus.RETURNED, 1),
    MessageItem(3, WEATHER, True),
)
TWO_TOOLS_ITEMS = (
    MessageItem(1, "Let me check the weather. ", True),
    ToolItem(2, "get_weather", ToolStatus.RETURNED, 1),
    ToolItem(3, "get_time", ToolStatus.RETURNED, 1),
    MessageItem(4, WEATHER, True),
)


@dataclass(frozen=True)
class Verdict:
    path: str
    task: str
    fact: StreamFact
    items: tuple[Item, ...] = ()
    turn: str = "1"
    native: str | None = None
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def raw(self) -> bytes:
        return (SAMPLES / f"{self.path}.sse").read_bytes()

    def parser(self) -> StreamParser:
        return StreamParser(thread_id=f"thread-{self.task}", correlation_id=f"run-{self.task}-{self.turn}", bounds=StreamBounds())


VERDICTS = [
    Verdict("agui-0.1.22/boom", "boom", RunErrored()),
    Verdict("agui-0.1.22/boom_mid", "boom_mid", RunErrored(), PARTIAL_ITEMS),
    Verdict("agui-0.1.22/confirm", "confirm", INTERRUPT),
    Verdict("agui-0.1.22/confirm2", "confirm2", INTERRUPT),
    Verdict("agui-0.1.22/confirm2_outcome", "confirm2_outcome", INTERRUPT),
    Verdict("agui-0.1.22/confirm_again_without_resume", "confirm", INTERRUPT, turn="1b"),
    Verdict("agui-0.1.22/confirm_outcome", "confirm_outcome", INTERRUPT),
    Verdict("agui-0.1.22/confirm_outcome_resume_entries", "confirm_outcome", SUCCESS, CONFIRMED, turn="2"),
    Verdict("agui-0.1.22/confirm_outcome_resume_replayed", "confirm_outcome", SUCCESS, turn="3"),
    Verdict("agui-0.1.22/confirm_resume_command", "confirm", SUCCESS, CONFIRMED, turn="2"),
    Verdict("agui-0.1.22/node_error", "node_error", RunErrored()),
    Verdict("agui-0.1.22/plain", "plain", SUCCESS, PLAIN_ITEMS, counts={"missing_native": 1, "ignored_step": 2, "ignored_snapshot": 3}),
    Verdict("agui-0.1.22/second_turn_only_new_message", "plain", SUCCESS, PLAIN_ITEMS, turn="2"),
    Verdict("agui-0.1.22/tool", "tool", SUCCESS, TOOL_ITEMS, counts={"frames": 36, "events": 36, "stray": 0, "closed_open": 0}),
    Verdict("agui-0.1.22/tool2", "tool2", SUCCESS, TWO_TOOLS_ITEMS),
    Verdict("agui-1.0.0/confirm_outcome", "confirm_outcome", INTERRUPT),
    Verdict("agui-1.0.0/plain", "plain", SUCCESS, PLAIN_ITEMS),
    Verdict("agui-1.0.0/tool", "tool", SUCCESS, TOOL_ITEMS),
    Verdict("agui-1.0.0-raw-on/boom_mid", "boom_mid", RunErrored(), PARTIAL_ITEMS),
    Verdict("agui-1.0.0-raw-on/confirm", "confirm", INTERRUPT),
    Verdict("agui-1.0.0-raw-on/plain", "plain", SUCCESS, PLAIN_ITEMS, counts={"ignored_raw": 20, "frames": 38}),
    Verdict("agui-1.0.0-raw-on/tool", "tool", SUCCESS, TOOL_ITEMS, counts={"ignored_raw": 43, "frames": 79}),
    *(
        Verdict(f"seed001-derived/{task}.{kind}", task, fact, items, native=NATIVE)
        for kind in ("full", "strict")
        for task, fact, items in (
            ("boom", RunErrored(), ()),
            ("boom_mid", RunErrored(), PARTIAL_ITEMS),
            ("plain", SUCCESS, PLAIN_ITEMS),
            ("tool", SUCCESS, TOOL_ITEMS),
            ("tool2", SUCCESS, TWO_TOOLS_ITEMS),
        )
    ),
]


def test_every_sample_has_a_verdict() -> None:
    found = {str(path.relative_to(SAMPLES).with_suffix("")) for path in SAMPLES.glob("*/*.sse")}
    ours = {path for path in found if path.startswith(("agui-", "seed001-"))}
    assert ours == {verdict.path for verdict in VERDICTS}


def replayed(changes: list[Change]) -> tuple[Item, ...]:
    """The items as a browser builds them from the changes alone."""
    items: dict[int, Item] = {}
    for change in changes:
        match change:
            case MessageStarted(position):
                items[position] = MessageItem(position, "", False)
            case TextAppended(position, text):
                before = items[position]
                assert isinstance(before, MessageItem)
                items[position] = MessageItem(position, before.text + text, before.complete)
            case MessageEnded(position):
                before = items[position]
                assert isinstance(before, MessageItem)
                items[position] = MessageItem(position, before.text, True)
            case ToolStarted(position, name, parent):
                items[position] = ToolItem(position, name, ToolStatus.STARTED, parent)
            case ToolCalled(position) | ToolReturned(position):
                tool = items[position]
                assert isinstance(tool, ToolItem)
                status = ToolStatus.CALLED if isinstance(change, ToolCalled) else ToolStatus.RETURNED
                items[position] = ToolItem(position, tool.name, status, tool.parent)
    return tuple(items.values())


def outcome(verdict: Verdict, parts: Iterator[bytes]) -> tuple[StreamFact, tuple[Item, ...], str | None, Counts]:
    parser = verdict.parser()
    changes: list[Change] = []
    started = 0
    natives = []
    ends = []
    for part in parts:
        batch = parser.feed(part)
        changes += batch.changes
        started += batch.started
        if batch.native_run_id is not None:
            natives.append(batch.native_run_id)
        if batch.end is not None:
            ends.append(batch.end)
    fact = parser.end()
    assert ends == [fact]
    assert started == 1
    assert natives == ([] if parser.native_run_id is None else [parser.native_run_id])
    assert replayed(changes) == parser.items()
    assert parser.snapshot(True).items == parser.items()
    return fact, parser.items(), parser.native_run_id, parser.counts


def cut(raw: bytes, offsets: list[int]) -> Iterator[bytes]:
    edges = [0, *sorted(offsets), len(raw)]
    return (raw[start:end] for start, end in itertools.pairwise(edges))


def by_path(verdict: Verdict) -> str:
    return verdict.path


@pytest.mark.parametrize("verdict", VERDICTS, ids=by_path)
def test_sample_whole(verdict: Verdict) -> None:
    fact, items, native, counts = outcome(verdict, iter([verdict.raw]))
    assert fact == verdict.fact
    transition = decide(Execution.RUNNING, fact)
    assert transition is not None
    assert (transition.to, transition.reason) == STATUS[verdict.fact]
    assert items == verdict.items
    assert native == verdict.native
    assert counts.stream_bytes == len(verdict.raw)
    assert counts.after_terminal == 0
    for name, number in verdict.counts.items():
        assert getattr(counts, name) == number, name


@pytest.mark.parametrize("verdict", VERDICTS, ids=by_path)
def test_sample_one_read_per_frame(verdict: Verdict) -> None:
    raw = verdict.raw
    ends = [index + 2 for index in range(len(raw)) if raw.startswith(b"\n\n", index)]
    assert outcome(verdict, cut(raw, ends)) == outcome(verdict, iter([raw]))


@pytest.mark.parametrize("verdict", VERDICTS, ids=by_path)
def test_sample_byte_by_byte(verdict: Verdict) -> None:
    raw = verdict.raw
    assert outcome(verdict, cut(raw, list(range(1, len(raw))))) == outcome(verdict, iter([raw]))


@pytest.mark.parametrize("verdict", VERDICTS, ids=by_path)
def test_sample_split_once_at_every_offset(verdict: Verdict) -> None:
    raw = verdict.raw
    whole = verdict.parser()
    whole.feed(raw)
    # The large ones repeat themselves: a stride that is no divisor of a frame's length.
    stride = 1 if len(raw) < 4_000 else 3 if len(raw) < 8_000 else 1 + len(raw) // 400
    for offset in range(1, len(raw), stride):
        parser = verdict.parser()
        parser.feed(raw[:offset])
        parser.feed(raw[offset:])
        assert parser.end() == verdict.fact, offset
        assert parser.items() == verdict.items, offset
        assert parser.counts == whole.counts, offset


@pytest.mark.parametrize("verdict", VERDICTS, ids=by_path)
@pytest.mark.parametrize("line_end", [b"\r\n", b"\r"], ids=["crlf", "cr"])
def test_sample_with_other_line_ends_and_random_cuts(verdict: Verdict, line_end: bytes) -> None:
    raw = verdict.raw
    fact, items, native, _ = outcome(verdict, iter([raw]))
    other = b"\xef\xbb\xbf" + raw.replace(b"\n", line_end)
    chance = random.Random(len(raw))
    for _ in range(10):
        offsets = chance.sample(range(1, len(other)), 12)
        assert outcome(verdict, cut(other, offsets))[:3] == (fact, items, native), offsets


@pytest.mark.parametrize("verdict", VERDICTS, ids=by_path)
def test_sample_cut_short_is_never_over(verdict: Verdict) -> None:
    raw = verdict.raw
    for length in range(0, len(raw), 1 + len(raw) // 300):
        parser = verdict.parser()
        parser.feed(raw[:length])
        fact = parser.end()
        assert fact.__class__.__name__ == "StreamBroken", length


def test_nothing_of_an_error_message_is_kept() -> None:
    for verdict in VERDICTS:
        parser = verdict.parser()
        batch = parser.feed(verdict.raw)
        kept = repr((batch, parser.items(), parser.counts, parser.end())).encode()
        for canary in (b"abc123", b"/srv/app"):
            assert canary not in kept, verdict.path
