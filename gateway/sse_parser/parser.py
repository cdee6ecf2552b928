"""The façade: bytes of one upstream stream in, batches of visible changes and, once, the fact that ends it. No rules of its own.

Remote faults are values, never exceptions; after the first fact the parser stays in it. What follows is only counted.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from gateway.domain.evidence import RunErrored, RunFinished, StreamBroken, StreamFact
from gateway.domain.ids import NativeRunId
from gateway.domain.limits import StreamBounds
from gateway.domain.snapshot import Item, Snapshot
from gateway.sse_parser.decode import decode, looks_terminal, plain_content, plain_read
from gateway.sse_parser.events import IgnoredClass
from gateway.sse_parser.faults import Detail, broken
from gateway.sse_parser.guard import Guard, Payload
from gateway.sse_parser.projection import Change, Projection
from gateway.sse_parser.sequence import Sequence


@dataclass(frozen=True)
class Batch:
    """What one feed() brought.

    `native_run_id` and `started` are set in the one batch in which they became known. `end` is the fact that ends the stream, in the one
    batch in which it came. `activity`: an event arrived, and not only comments; the idle clock starts again (field case O-17).
    """

    changes: tuple[Change, ...] = ()
    native_run_id: NativeRunId | None = None
    started: bool = False
    end: StreamFact | None = None
    activity: bool = False


def _only_changes(changes: tuple[Change, ...]) -> Batch:
    # Nearly every batch. Five checked assignments of a frozen dataclass cost as much as all of the decoding; the defaults are on the class.
    batch = object.__new__(Batch)
    batch.__dict__["changes"] = changes
    batch.__dict__["activity"] = True
    return batch


_NOTHING: Final = Batch()
_IGNORED_ONLY: Final = Batch(activity=True)


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers for the evidence row, and nothing that upstream wrote. The same for every way of cutting the bytes.

    `events`: blocks of lines, comments included: what the bound counts; `frames`: those with data; `after_terminal`: frames behind the
    first terminal event, of which `terminal_again` look terminal too; `stray`: events about nothing known; `closed_open`: items that
    RUN_FINISHED closed.
    """

    stream_bytes: int
    events: int
    comments: int
    empty: int
    frames: int
    ignored_step: int
    ignored_snapshot: int
    ignored_raw: int
    ignored_activity: int
    ignored_reasoning: int
    ignored_subagent: int
    ignored_custom: int
    unknown: int
    dropped_text: int
    stray: int
    closed_open: int
    missing_native: int
    after_terminal: int
    terminal_again: int
    messages: int
    tools: int
    text_bytes: int


class StreamParser:
    """Reads the stream of one run. `thread_id` and `correlation_id` are what we sent as threadId and runId."""

    __slots__ = (
        "_after_terminal",
        "_ended",
        "_fact",
        "_guard",
        "_kept_frame_bytes",
        "_late_frames",
        "_projection",
        "_sequence",
        "_terminal_again",
        "_told_native",
        "_told_started",
    )

    def __init__(self, *, thread_id: str, correlation_id: str, bounds: StreamBounds) -> None:
        self._guard = Guard(bounds)
        self._projection = Projection(bounds)
        self._sequence = Sequence(thread_id=thread_id, correlation_id=correlation_id, bounds=bounds, projection=self._projection)
        self._kept_frame_bytes = bounds.kept_frame_bytes
        self._fact: StreamFact | None = None
        self._told_started = False
        self._told_native = False
        self._ended = False
        self._late_frames = 0
        self._after_terminal = 0
        self._terminal_again = 0

    @property
    def native_run_id(self) -> NativeRunId | None:
        """Upstream's own id of the run, once native_run was seen. Never for a browser."""
        return self._sequence.native_run_id

    @property
    def usage(self) -> Mapping[str, int]:
        """The counts of tokens that the terminal event brought, summed; empty without."""
        return self._sequence.usage

    @property
    def buffered(self) -> int:
        """Bytes kept for an unfinished frame: at most `frame_bytes`."""
        return self._guard.buffered

    def feed(self, data: bytes) -> Batch:
        """Take the next bytes, cut anywhere. Never raises for what they are."""
        if self._fact is not None:
            return self._feed_late(data)
        if data.find(b"\n") == len(data) - 2:
            plain = plain_read(data, self._kept_frame_bytes)
            if plain is not None and self._guard.count_frame(len(data)):
                return self._feed_plain(*plain)
        frames = self._guard.feed(data)
        sequence = self._sequence
        kept_frame_bytes = self._kept_frame_bytes
        fact: StreamFact | None = None
        rest = iter(frames)
        for frame in rest:
            plain = plain_content(frame, kept_frame_bytes)
            if plain is not None:
                fact = sequence.content(*plain)
            else:
                event = decode(frame, kept_frame_bytes)
                fact = event if isinstance(event, StreamBroken) else sequence.apply(event)
            if fact is not None:
                self._fact = fact
                self._count_late(list(rest))
                break
        else:
            self._fact = fact = self._guard.fault
        changes = self._projection.take_changes()
        if fact is not None or sequence.news:
            return self._with_news(changes, fact, bool(frames))
        if changes:
            return _only_changes(changes)
        return _IGNORED_ONLY if frames else _NOTHING

    def end(self) -> StreamFact:
        """The body is over: the fact that ended the stream, or STREAM_ENDED when none came. May be called again."""
        if self._fact is None:
            self._ended = True
            if self._guard.in_frame:
                self._fact = broken(Detail.OPEN_FRAME)
            else:
                self._fact = broken(Detail.NO_TERMINAL_EVENT if self.counts.frames else Detail.NO_EVENT)
        return self._fact

    def items(self) -> tuple[Item, ...]:
        """The visible items so far."""
        return self._projection.items()

    def snapshot(self, complete: bool) -> Snapshot:
        """The items as a snapshot; only a terminal event lets the caller say `complete`."""
        return Snapshot(self._projection.items(), complete)

    @property
    def counts(self) -> Counts:
        """The numbers so far."""
        guard, sequence, projection = self._guard, self._sequence, self._projection
        ignored = sequence.ignored
        return Counts(
            stream_bytes=guard.fed_bytes,
            events=guard.events,
            comments=guard.comments,
            empty=guard.empty,
            frames=guard.events - guard.comments - guard.empty - self._late_frames,
            ignored_step=ignored[IgnoredClass.STEP],
            ignored_snapshot=ignored[IgnoredClass.SNAPSHOT],
            ignored_raw=ignored[IgnoredClass.RAW],
            ignored_activity=ignored[IgnoredClass.ACTIVITY],
            ignored_reasoning=ignored[IgnoredClass.REASONING],
            ignored_subagent=ignored[IgnoredClass.SUBAGENT],
            ignored_custom=ignored[IgnoredClass.CUSTOM],
            unknown=ignored[IgnoredClass.UNKNOWN],
            dropped_text=sequence.dropped_text,
            stray=sequence.stray,
            closed_open=sequence.closed_open,
            missing_native=sequence.missing_native,
            after_terminal=self._after_terminal,
            terminal_again=self._terminal_again,
            messages=projection.messages,
            tools=projection.tools,
            text_bytes=projection.text_bytes,
        )

    def _feed_plain(self, message_id: str, delta: str) -> Batch:
        fact = self._sequence.content(message_id, delta)
        changes = self._projection.take_changes()
        if fact is not None:
            self._fact = fact
            return Batch(changes, end=fact, activity=True)
        return _only_changes(changes) if changes else _IGNORED_ONLY

    def _with_news(self, changes: tuple[Change, ...], fact: StreamFact | None, activity: bool) -> Batch:
        sequence = self._sequence
        sequence.news = False
        started = sequence.started and not self._told_started
        native_run_id = None if self._told_native else sequence.native_run_id
        self._told_started = sequence.started
        self._told_native = sequence.native_run_id is not None
        return Batch(changes, native_run_id, started, fact, activity)

    def _feed_late(self, data: bytes) -> Batch:
        """After the end: framing goes on, within its bounds, so that the counts are the same for every way of cutting the bytes."""
        if not self._ended:
            self._count_late(self._guard.feed(data))
        return _NOTHING

    def _count_late(self, frames: Collection[Payload]) -> None:
        self._late_frames += len(frames)
        if isinstance(self._fact, RunFinished | RunErrored):
            self._after_terminal += len(frames)
            self._terminal_again += sum(map(looks_terminal, frames))
