"""One message of a probe, watched to its end by the code that serves runs: the transport, the parser of its profile, the two clocks.

What lives here: sending and noting. What the notes mean for the contract is `judge`'s.
"""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.domain.evidence import BadResponse, NotSent, NotSentProof, PostFact, ResponseFault, RunErrored, StreamBroken, StreamFact
from gateway.domain.ids import NativeRunId
from gateway.domain.limits import StreamBounds
from gateway.domain.reasons import Reason
from gateway.http_client import HttpClient
from gateway.sse_parser.native import NativeParser
from gateway.sse_parser.parser import Batch, StreamParser
from gateway.upstream.endpoint import Endpoint
from gateway.upstream.faults import CALL_SECONDS
from gateway.upstream.generate import PostDeadlines, classified, post_run_input
from gateway.upstream.open_stream import OpenStream
from gateway.upstream.response_decoder import BodyEnd, ResponseHead
from gateway.upstream.send_gate import SendGate
from gateway.upstream.stream_clock import StreamClock

_FRAME_HEAD_BYTES: Final = 4096
"""How much of a frame is kept to name its event."""
_EVENT_NAME: Final = re.compile(rb'^event: ?([a-z|/_-]{1,40})\r?$|"type"[ \t]*:[ \t]*"([A-Z][A-Z_]{1,39})"', re.MULTILINE)

Parser = StreamParser | NativeParser


@dataclass(frozen=True, slots=True)
class Target:
    """The service that is probed, and how patiently. `text` is the message that the agent gets."""

    client: HttpClient
    endpoint: Endpoint
    bounds: StreamBounds
    text: str
    call_seconds: float = CALL_SECONDS
    settle_seconds: float = 5.0
    """How far streams, bodies and look-ups of one run may be apart in time before it is held against the service."""


@dataclass(frozen=True, slots=True)
class Body:
    """What is posted where. `parser_of` is the profile's: the parser for an event stream with that head; None: the head is not fit."""

    sent: bytes
    path: str
    parser_of: Callable[[ResponseHead, StreamBounds], Parser | None]


@dataclass(slots=True, kw_only=True)
class Watched:
    """What one POST brought. Times are the loop's, in seconds; None: it did not come."""

    fact: StreamFact | PostFact
    status: int | None = None
    """Of the response, where there was one."""
    streamed: bool = False
    """An event stream came: whatever it held, a request was taken."""
    broke_at: str | None = None
    """The frame at which the end came: its number, event and size."""
    native_run_id: NativeRunId | None = None
    native_late: bool = False
    """Something visible came before native_run."""
    parser: Parser | None = None
    """What was read, for what a profile asks of it besides."""
    body_end: BodyEnd | None = None
    largest_frame_bytes: int = 0
    token_seen: bool = False
    started_at: float | None = None
    first_visible_at: float | None = None
    last_visible_at: float | None = None
    ended_at: float | None = None

    @property
    def executed(self) -> bool:
        """Whether the agent was run, as far as can be told: a stream, unless it refused with RUN_ERROR at once."""
        return self.streamed and not (isinstance(self.fact, RunErrored) and self.started_at is None)


async def watch(
    target: Target,
    body: Body,
    *,
    endpoint: Endpoint | None = None,
    on_native: Callable[[NativeRunId], None] = lambda _: None,
    to_be_refused: bool = False,
) -> Watched:
    """Send `body` once and read what comes. `to_be_refused`: a stream is read no further than its first event.

    `endpoint` stands in for the target's own, with another token. `on_native` hears of the native run id when it comes.
    """
    clock: StreamClock | None = None
    opened: OpenStream | None = None
    reader: _Reader | None = None
    gate = SendGate(lambda: True)
    try:
        async with asyncio.timeout(None) as scope:
            clock = StreamClock(target.bounds, scope)
            response = await _post(target, endpoint or target.endpoint, body, gate)
            if isinstance(response, NotSentProof):
                return Watched(fact=NotSent(response))
            if isinstance(response, ResponseFault):
                return Watched(fact=BadResponse(response))
            judged = await classified(response, CALL_SECONDS)
            if not isinstance(judged, OpenStream):
                return Watched(fact=judged, status=response.head.status)
            opened = judged
            parser = body.parser_of(opened.head, target.bounds)
            if parser is None:
                return Watched(fact=BadResponse(ResponseFault.RUN_ID, opened.head.status), status=opened.head.status, streamed=True)
            reader = _Reader(target, parser, on_native)
            return await reader.read(opened, clock, to_be_refused=to_be_refused)
    except TimeoutError:
        if clock is None or clock.expired is None:
            raise
        if opened is None or reader is None:
            return Watched(fact=BadResponse(ResponseFault.NO_RESPONSE))
        return reader.watched(StreamBroken(clock.expired, "deadline"), opened)
    finally:
        if clock is not None:
            clock.stop()
        if opened is not None:
            await opened.aclose()


async def _post(target: Target, endpoint: Endpoint, body: Body, gate: SendGate) -> OpenStream | NotSentProof | ResponseFault:
    deadlines = PostDeadlines(connect_seconds=target.bounds.connect_seconds, response_seconds=target.bounds.idle_seconds)
    client = target.client
    return await post_run_input(
        endpoint, body.sent, path=body.path, gate=gate, tls=client.tls, trusted_hosts=client.trusted_hosts, deadlines=deadlines
    )


class _Reader:
    """Feeds the parser line by line, which changes nothing for it, and tells one frame from the next."""

    def __init__(self, target: Target, parser: Parser, on_native: Callable[[NativeRunId], None]) -> None:
        self._parser = parser
        self._settle_seconds = target.settle_seconds
        self._token = target.endpoint.authorization.removeprefix("Bearer ").encode("ascii")
        self._on_native = on_native
        self._loop = asyncio.get_running_loop()
        self._tail = b""
        self._frame = bytearray()
        self._frame_bytes = 0
        self._frames = 0
        self._seen = Watched(fact=StreamBroken(Reason.STREAM_ENDED, "no_event"), streamed=True, parser=parser)
        if parser.native_run_id is not None:  # the response's head told it
            self._seen.started_at = self._loop.time()
            self._note_native(parser.native_run_id)

    async def read(self, opened: OpenStream, clock: StreamClock, *, to_be_refused: bool) -> Watched:
        """Until the body ends, or `settle_seconds` after the terminal event."""
        fact: StreamFact | None = None
        async for piece in opened:
            self._look_for_token(piece)
            for line in piece.splitlines(keepends=True):
                batch = self._feed(line)
                if batch.activity:
                    clock.touch()
                fact = fact or batch.end
            if fact is not None or (to_be_refused and self._frames):
                break
        fact = fact or self._parser.end()
        self._seen.ended_at = self._loop.time()
        clock.stop()
        if not isinstance(fact, StreamBroken) and not to_be_refused:
            await self._read_rest(opened)
        return self.watched(fact, opened)

    def watched(self, fact: StreamFact, opened: OpenStream) -> Watched:
        """The notes, with the end that was come to."""
        seen = self._seen
        seen.ended_at = seen.ended_at or self._loop.time()
        seen.fact, seen.status, seen.body_end = fact, opened.head.status, opened.end
        return seen

    async def _read_rest(self, opened: OpenStream) -> None:
        try:
            async with asyncio.timeout(self._settle_seconds):
                async for piece in opened:
                    self._look_for_token(piece)
                    self._parser.feed(piece)
        except TimeoutError:
            pass  # the body stays open: `body_end` is None

    def _feed(self, line: bytes) -> Batch:
        seen = self._seen
        self._frame += line[: _FRAME_HEAD_BYTES - len(self._frame)]
        self._frame_bytes += len(line)
        batch = self._parser.feed(line)
        self._frames += batch.activity
        if batch.started:
            seen.started_at = self._loop.time()
        if batch.changes:
            seen.last_visible_at = self._loop.time()
            seen.first_visible_at = seen.first_visible_at or seen.last_visible_at
        if batch.native_run_id is not None and seen.native_run_id is None:
            self._note_native(batch.native_run_id)
        if isinstance(batch.end, StreamBroken):
            seen.broke_at = self._frame_in_words()
        if not line.strip(b"\r\n"):
            seen.largest_frame_bytes = max(seen.largest_frame_bytes, self._frame_bytes)
            self._frame.clear()
            self._frame_bytes = 0
        return batch

    def _note_native(self, native_run_id: NativeRunId) -> None:
        self._seen.native_run_id, self._seen.native_late = native_run_id, self._seen.last_visible_at is not None
        self._on_native(native_run_id)

    def _frame_in_words(self) -> str:
        named = _EVENT_NAME.search(self._frame)
        event = "" if named is None else f"{(named[1] or named[2]).decode('ascii')}, "
        return f"frame {self._frames}, {event}{self._frame_bytes} bytes"

    def _look_for_token(self, piece: bytes) -> None:
        searched = self._tail + piece
        self._seen.token_seen = self._seen.token_seen or self._token in searched
        self._tail = searched[-len(self._token) :]
