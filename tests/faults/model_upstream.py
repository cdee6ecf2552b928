"""The upstream of the model test: what becomes of each POST is a value that a rule gives, and what the service then says, frame by frame.
Its native side, with threads that have a state, is in model_native.py.

It is honest (a look-up tells the truth or nothing), and it remembers all that a checker needs: which POSTs left, which arrived, what was
said in which of them.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeVar

from gateway.domain.evidence import BadResponse, LookedUp, LookupStatus, NotSent, PostFact, Rejected, ResponseFault
from gateway.domain.ids import NativeRunId, ThreadId
from gateway.upstream.open_stream import OpenStream
from gateway.upstream.protocol import Capabilities, CapabilitiesKey, Endpoint, GenerationRequest, SendGate
from gateway.upstream.response_decoder import ResponseHead

_Answer = TypeVar("_Answer")


class Way(StrEnum):
    """What becomes of a POST that is about to be sent."""

    NO_CONNECTION = "no connection, nothing left"
    LOST = "lost on the way"
    UNDER_WAY = "under way for long"
    REJECTED = "refused by upstream"
    THREAD_GONE = "refused by upstream with 404"
    BUSY = "answered thread busy"
    TAKEN = "taken"
    IGNORED = "taken, and if it is an answer, not applied"


class Doing(StrEnum):
    """Where a POST is. What is EXECUTING, DONE, ASKED or ERRED was executed."""

    HELD = "about to be sent"
    NEVER = "never sent"
    UNDER_WAY = "under way"
    LOST = "lost"
    REFUSED = "refused"
    EXECUTING = "executing"
    DONE = "done"
    ASKED = "asked somebody, and waits"
    ERRED = "ended in an error"


class Word(StrEnum):
    """What an executing run says next."""

    STARTED = "RUN_STARTED"
    NATIVE_ID = "its native id"
    TEXT = "text"
    FINISHED = "RUN_FINISHED"
    ASKS = "its question"
    ERROR = "RUN_ERROR"
    CUT = "nothing more, the connection breaks"


EXECUTED: Final = frozenset({Doing.EXECUTING, Doing.DONE, Doing.ASKED, Doing.ERRED})
LEFT: Final = EXECUTED | {Doing.UNDER_WAY, Doing.LOST, Doing.REFUSED}


LAST: Final = frozenset({Word.FINISHED, Word.ASKS, Word.ERROR, Word.CUT})
"""After these nothing more comes over a connection."""


@dataclass(eq=False)
class Post:
    """One POST. `texts`: what was said over an open connection; `told_end`: the terminal event that went over it."""

    number: int
    sender: object
    thread_id: str
    correlation_id: str
    native_id: str
    way: "asyncio.Future[Way]"
    arrived: "asyncio.Future[None]"
    doing: Doing = Doing.HELD
    texts: list[str] = field(default_factory=list)
    told: set[Word] = field(default_factory=set)
    pieces: "asyncio.Queue[bytes]" = field(default_factory=asyncio.Queue)
    open: bool = False
    ignored: bool = False

    def begin(self) -> None:
        """It begins to be executed."""

    def ends(self, doing: Doing) -> None:
        """It is over; only one of the native profile waits."""
        self.doing = Doing.DONE if doing is Doing.ASKED else doing

    @property
    def truth(self) -> LookupStatus:
        """What an honest look-up says."""
        said = {Doing.DONE: LookupStatus.SUCCESS, Doing.ERRED: LookupStatus.ERROR, Doing.EXECUTING: LookupStatus.ACTIVE}
        return said.get(self.doing, LookupStatus.UNCLEAR)

    def say(self, word: Word) -> None:
        """Say `word`, and RUN_STARTED before it when it was not said; also when nobody listens any more."""
        frames: list[dict[str, object]] = []
        ids = {"threadId": self.thread_id, "runId": self.correlation_id}
        if word is not Word.CUT and Word.STARTED not in self.told:
            frames.append({"type": "RUN_STARTED", **ids})
        match word:
            case Word.NATIVE_ID:
                frames.append({"type": "CUSTOM", "name": "native_run", "value": {"run_id": self.native_id}})
            case Word.TEXT:
                text = f"text {len(self.texts) + 1} of POST {self.number}"
                of = {"messageId": f"m{len(self.texts)}"}
                frames += [
                    {"type": "TEXT_MESSAGE_START", **of, "role": "assistant"},
                    {"type": "TEXT_MESSAGE_CONTENT", **of, "delta": text},
                    {"type": "TEXT_MESSAGE_END", **of},
                ]
                self.texts.append(text)
            case Word.FINISHED:
                frames.append({"type": "RUN_FINISHED", **ids})
                self.doing = Doing.DONE
            case Word.ERROR:
                frames.append({"type": "RUN_ERROR", "message": "no"})
                self.doing = Doing.ERRED
            case Word.STARTED | Word.CUT | Word.ASKS:
                pass
        self.told |= {word} if word is Word.CUT else {word, Word.STARTED}
        if frames:
            self.pieces.put_nowait(b"".join(b"data: " + json.dumps(frame).encode() + b"\n\n" for frame in frames))
        if word in LAST:
            self.pieces.put_nowait(b"")
            self.open = False

    def may_say(self) -> list[Word]:
        """The words that make sense now."""
        if not self.open:
            return []
        return [word for word in Word if word is Word.TEXT or (word not in self.told and word is not Word.ASKS)]

    def end_as(self, end: "Word") -> "Word":
        """How a run ends that is to end so."""
        return Word.FINISHED if end is Word.ASKS else end

    @property
    def well(self) -> Doing:
        """Where a run ends that goes well."""
        return Doing.DONE

    async def stream(self) -> OpenStream:
        async def close() -> None:
            self.open = False

        self.open = True
        head = ResponseHead(200, (("content-type", "text/event-stream"),))
        return OpenStream(head, read=self.pieces.get, end=lambda: None, close=close)


@dataclass(eq=False)
class Question:
    """A look-up that waits for its answer. `live`: by whoever executes the run."""

    post: Post
    answer: "asyncio.Future[LookupStatus]"
    live: bool = False


@dataclass
class ModelUpstream:
    """The one service. `next_thread`: what POST /threads gives: "fresh", "used" (handed out before) or "none". `sent` is called when
    bytes of a POST have left, `arrives` when it is about to be executed. `asking`: what a task of a look-up asks about."""

    sent: Callable[[Post], None]
    arrives: Callable[[Post], None]
    posts: list[Post] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    asking: ContextVar[str] = field(default_factory=lambda: ContextVar("asking", default=""))
    next_thread: str = "fresh"
    threads: int = 0
    honest_answers: bool = False

    def end(self, post: Post, doing: Doing) -> None:
        """The run goes on to its end without anybody listening."""
        assert post.doing is Doing.EXECUTING
        post.ends(doing)

    def arrive(self, post: Post) -> None:
        """A POST that was under way is executed."""
        post.doing = Doing.EXECUTING
        self.arrives(post)
        post.begin()
        if not post.arrived.done():
            post.arrived.set_result(None)

    def lose(self, post: Post) -> None:
        """A POST that was under way never arrives, and nobody is told."""
        post.doing = Doing.LOST


@dataclass
class UpstreamOfReplica:
    """One replica's way to the upstream: an Upstream and a RunLookup. `survives`: what waits for a rule goes on only in a live replica."""

    service: ModelUpstream
    sender: object
    survives: Callable[[Awaitable[_Answer]], Awaitable[_Answer]]

    async def check_capabilities(self, endpoint: Endpoint, key: CapabilitiesKey) -> Capabilities | None:
        return Capabilities(endpoint.assistant_id)

    async def create_thread(self, endpoint: Endpoint, key: CapabilitiesKey) -> ThreadId | None:
        kind, self.service.next_thread = self.service.next_thread, "fresh"
        if kind == "none":
            return None
        if kind == "fresh" or self.service.threads == 0:
            self.service.threads += 1
        return ThreadId(f"thread-{self.service.threads}")

    async def generate(self, endpoint: Endpoint, key: CapabilitiesKey, request: GenerationRequest, gate: SendGate) -> OpenStream | PostFact:
        loop = asyncio.get_running_loop()
        number = len(self.service.posts) + 1
        correlation_id = str(request.correlation_id)
        post = Post(number, self.sender, request.thread_id, correlation_id, f"native-{number}", loop.create_future(), loop.create_future())
        return await self._sent(post, gate)

    async def _sent(self, post: Post, gate: SendGate) -> OpenStream | PostFact:
        self.service.posts.append(post)
        try:
            way = await self.survives(post.way)
        finally:
            post.doing = Doing.NEVER
        if way is Way.NO_CONNECTION or not gate.open():
            proof = gate.seal()
            assert proof is not None
            return NotSent(proof)
        self.service.sent(post)
        match way:
            case Way.LOST:
                post.doing = Doing.LOST
                return BadResponse(ResponseFault.WRITE_ERROR)
            case Way.REJECTED | Way.THREAD_GONE:
                post.doing = Doing.REFUSED
                return Rejected(404 if way is Way.THREAD_GONE else 422)
            case Way.BUSY:
                post.doing = Doing.REFUSED
                return Rejected(409, thread_busy=True)
            case Way.UNDER_WAY:
                post.doing = Doing.UNDER_WAY
                await self.survives(post.arrived)
            case Way.TAKEN | Way.IGNORED:
                post.ignored = way is Way.IGNORED
                self.service.arrive(post)
        return await post.stream()

    async def look_up(self, endpoint: Endpoint, thread_id: ThreadId, native_run_id: NativeRunId) -> LookedUp:
        post = next(post for post in self.service.posts if post.native_id == native_run_id)
        assert post.thread_id == thread_id
        if self.service.honest_answers:
            return LookedUp(post.truth)
        self.service.asking.set(f"the look-up of POST {post.number}")
        question = Question(post, asyncio.get_running_loop().create_future())
        self.service.questions.append(question)
        return LookedUp(await self.survives(question.answer))
