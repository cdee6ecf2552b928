"""The native side of the model test's upstream: threads that have a state, questions, answers that take effect once, strangers.

It behaves as the real servers do (wire-contract.md 5): no stream says what a run came to, a run that waits is called `success` or
`interrupted`, a step that is resumed and asks again writes no state of its own and gives its question the same id, an answer to what is
not pending is taken and does nothing.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from gateway.domain.confirmation import Prompt, Question
from gateway.domain.evidence import LookupStatus, PostFact
from gateway.domain.ids import CorrelationId, NativeRunId, ThreadId
from gateway.domain.native import AssistantMessage, PendingInterrupt, ThreadState
from gateway.upstream.open_stream import OpenRun, OpenStream
from gateway.upstream.protocol import CapabilitiesKey, Endpoint, NativeRequest, SendGate
from gateway.upstream.response_decoder import BodyEnd
from gateway.upstream.run_input import ResumeCommand
from tests.faults import model_upstream
from tests.faults.model_upstream import EXECUTED, LAST, Doing, Post, UpstreamOfReplica, Word

TIME_TO_DECIDE: Final = 100.0
"""Seconds that every second question leaves."""


@dataclass
class ModelThread:
    """What a thread's state shows. `written_by`: the run whose state it is."""

    pending: Question | None = None
    written_by: str | None = None
    messages: list[AssistantMessage] = field(default_factory=list)


@dataclass(eq=False)
class NativePost(Post):
    """One POST of the native profile. `answers`: upstream's id of the question that it answers, and how; `saw`: what its sender had last
    seen pending; `applied`: that it took effect, and on which question; `asked`: its own question."""

    thread: ModelThread = field(default_factory=ModelThread)
    answers: tuple[str, str] | None = None
    saw: Question | None = None
    applied: Question | None = None
    asked: Question | None = None
    body_end: BodyEnd | None = None

    @property
    def truth(self) -> LookupStatus:
        if self.doing is Doing.ASKED:
            return LookupStatus.SUCCESS if self.number // 2 % 2 else LookupStatus.INTERRUPTED
        return super().truth

    def begin(self) -> None:
        if self.answers is None:
            return
        pending = self.thread.pending
        if pending is not None and pending.native_id == self.answers[0] and not self.ignored:
            self.applied, self.thread.pending = pending, None
        else:
            self.doing = Doing.DONE
            self._hang_up(BodyEnd.COMPLETE)

    def ends(self, doing: Doing) -> None:
        self.doing = doing
        if doing is Doing.ASKED:
            native_id = f"question-{self.number}" if self.applied is None else self.applied.native_id
            expires_at = datetime.now(UTC) + timedelta(seconds=TIME_TO_DECIDE) if self.number % 2 == 0 else None
            self.asked = self.thread.pending = Question(native_id, Prompt(f"Question {self.number}?", "", 10, expires_at))
        if doing is Doing.DONE or (doing is Doing.ASKED and self.applied is None):
            self.thread.written_by = self.native_id

    def say(self, word: Word) -> None:
        self.told |= {word}
        match word:
            case Word.STARTED:
                self._event("metadata", {"run_id": self.native_id, "attempt": 1})
            case Word.TEXT:
                text = f"text {len(self.texts) + 1} of POST {self.number}"
                message = AssistantMessage(f"m{len(self.texts)}-{self.native_id}", text)
                self._event("messages", [{"type": "ai", "id": message.native_id, "content": text}, {}])
                self.texts.append(text)
                self.thread.messages.append(message)
            case Word.FINISHED:
                self.ends(Doing.DONE)
            case Word.ASKS:
                self.ends(Doing.ASKED)
            case Word.ERROR:
                self._event("error", {"error": "RuntimeError", "message": "no"})
                self.ends(Doing.ERRED)
            case Word.CUT:
                self.pieces.put_nowait(b"event: messages\r\n")
            case Word.NATIVE_ID:
                raise AssertionError("the head of the response told it")
        if word in LAST:
            self._hang_up(None if word is Word.CUT else BodyEnd.COMPLETE)

    def may_say(self) -> list[Word]:
        return [word for word in Word if word is Word.TEXT or word not in self.told | {Word.NATIVE_ID}] if self.open else []

    def end_as(self, end: Word) -> Word:
        """A task that ends well asks first."""
        return Word.ASKS if end is Word.FINISHED and self.answers is None else end

    @property
    def well(self) -> Doing:
        return Doing.ASKED if self.answers is None else Doing.DONE

    async def stream(self) -> OpenStream:
        opened = await super().stream()
        self.open = self.doing is Doing.EXECUTING
        return OpenStream(opened.head, read=opened.read, end=lambda: self.body_end, close=opened.aclose)

    def _event(self, name: str, document: object) -> None:
        self.pieces.put_nowait(f"event: {name}\r\ndata: {json.dumps(document)}\r\n\r\n".encode())

    def _hang_up(self, end: BodyEnd | None) -> None:
        self.body_end = end
        self.pieces.put_nowait(b"")
        self.open = False


@dataclass
class NativeThreadsOfModel:
    """The threads of the native side, by id. `strangers`: runs that somebody else began at the service."""

    threads: dict[str, ModelThread] = field(default_factory=dict)
    strangers: int = 0
    unreadable: bool = False

    def of(self, thread_id: str) -> ModelThread:
        return self.threads.setdefault(thread_id, ModelThread())

    def stranger(self, thread: ModelThread, *, asks: bool) -> None:
        """Somebody answers what is pending at the service itself, or takes its place with another question."""
        if thread.pending is None:
            return
        self.strangers += 1
        thread.written_by = f"stranger-{self.strangers}"
        again = Question(thread.written_by, replace(thread.pending.prompt, title="A stranger's?"))
        thread.pending = again if asks else None


@dataclass
class NativeOfReplica(UpstreamOfReplica):
    """One replica's way to the native side: a NativeUpstream and NativeReads. `executes`: whether a run's own task asks."""

    native: NativeThreadsOfModel = field(default_factory=NativeThreadsOfModel)
    executes: Callable[[], bool] = lambda: False
    seen: dict[str, Question | None] = field(default_factory=dict)

    async def run(self, endpoint: Endpoint, key: CapabilitiesKey, request: NativeRequest, gate: SendGate) -> OpenRun | PostFact:
        loop, number, mark = asyncio.get_running_loop(), len(self.service.posts) + 1, str(request.mark)
        native_id = f"native-{number}"
        post = NativePost(number, self.sender, request.thread_id, mark, native_id, loop.create_future(), loop.create_future())
        post.thread = self.native.of(request.thread_id)
        post.saw = self.seen.get(request.thread_id)
        if isinstance(request.content, ResumeCommand):
            post.answers = (request.content.native_interrupt_id, request.content.answer.action.value)
        opened = await self._sent(post, gate)
        return OpenRun(opened, NativeRunId(native_id)) if isinstance(opened, OpenStream) else opened

    async def state(self, endpoint: Endpoint, thread_id: ThreadId) -> ThreadState | None:
        thread = self.native.of(thread_id)
        if self.native.unreadable:
            self.native.unreadable = False
            return None
        self.seen[thread_id] = thread.pending
        pending = () if thread.pending is None else (PendingInterrupt(thread.pending.native_id, thread.pending.prompt),)
        return ThreadState(thread.written_by, pending, bool(pending), tuple(thread.messages))

    async def run_status(self, endpoint: Endpoint, thread_id: ThreadId, native_run_id: NativeRunId) -> LookupStatus:
        post = next(post for post in self.service.posts if post.native_id == native_run_id)
        assert post.thread_id == thread_id
        if self.service.honest_answers:
            return post.truth
        live = self.executes()
        if not live:
            self.service.asking.set(f"the look-up of POST {post.number}")
        question = model_upstream.Question(post, asyncio.get_running_loop().create_future(), live)
        self.service.questions.append(question)
        try:
            return await self.survives(question.answer)
        finally:
            if question in self.service.questions:  # a run that is given up asks no more
                self.service.questions.remove(question)

    async def find_run(
        self, endpoint: Endpoint, thread_id: ThreadId, mark: CorrelationId, known: frozenset[NativeRunId]
    ) -> NativeRunId | None:
        marked = [post for post in self.service.posts if post.correlation_id == str(mark) and post.doing in EXECUTED]
        return NativeRunId(marked[0].native_id) if len(marked) == 1 else None
