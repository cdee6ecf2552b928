"""The native profile (human input), asked question by question: a task, what became of it by run and state, and the answer to its question.

The answer is "reject", so that whatever the agent asked for is not done.
"""

from collections.abc import Callable
from functools import partial
from typing import Final
from uuid import uuid4

from gateway.domain.confirmation import Action, Answer
from gateway.domain.evidence import LookupStatus, NativeOutcome, NativeRead, StreamBroken
from gateway.domain.ids import CorrelationId, NativeRunId, ThreadId
from gateway.domain.limits import MAX_THREAD_BODY_BYTES, StreamBounds
from gateway.domain.native import Answered, ThreadState, native_verdict, verified
from gateway.probe.asking import Asking
from gateway.probe.clauses import NATIVE, Clause
from gateway.probe.findings import Finding, Ledger, Report
from gateway.probe.judge import judge_head
from gateway.probe.shared import DuringRun, ask_capabilities, ask_of_nothing, ask_refusals, judge_during, make_threads
from gateway.probe.watched import Body, Target, Watched
from gateway.probe.words import in_words, of_stream
from gateway.sse_parser.faults import Detail
from gateway.sse_parser.native import NativeParser
from gateway.upstream.capabilities import Capabilities
from gateway.upstream.endpoint import path_segment
from gateway.upstream.faults import UpstreamFailed
from gateway.upstream.native import told_run_id
from gateway.upstream.native_reads import NativeThreads
from gateway.upstream.response_decoder import BodyEnd, ResponseHead
from gateway.upstream.run_input import NativeRequest, ResumeCommand, UserInput

MOST_RUNS: Final = 2
"""How often the agent is run: for a message, and to hear that its question was answered."""

_STATE: Final = "GET /threads/…/state"
_HERE: Final = {Clause.TERMINAL: Clause.ANSWER_VERIFIED, Clause.NATIVE_RUN: Clause.RUN_LOCATION}
"""Clauses of the bridge profile as they are called here."""
_OUTCOMES: Final = {
    NativeOutcome.FAILED: "the look-up says error or timeout: the agent failed",
    NativeOutcome.ACTIVE: "the look-up still says pending or running",
    NativeOutcome.UNCLEAR: "the look-up proves nothing, the state cannot be read, or another run wrote it",
    NativeOutcome.CANCELLED: "interrupted, and nothing is pending",
    NativeOutcome.UNSUPPORTED: "several interrupts, one of another form, or a breakpoint",
    NativeOutcome.NOT_APPLIED: "the question is still pending",
    NativeOutcome.COMPLETED: "the run is over",
    NativeOutcome.WAITING: "a question is pending",
}


async def probe_native(target: Target, *, once: bool, tell: Callable[[Finding], None]) -> Report:
    """Ask everything; `tell` hears of each finding as it is made. `once`: the question, if there is one, is left pending."""
    asking = Asking(target, Ledger(NATIVE, tell), reply_bytes=MAX_THREAD_BODY_BYTES)
    answer = await ask_capabilities(asking)
    if isinstance(answer, Capabilities):
        if answer.serves_approval:
            asking.ledger.ok(Clause.CAPABLE)
        else:
            asking.ledger.broken(Clause.CAPABLE, "GET /capabilities: one of them is missing")
    threads = None if answer is None else await make_threads(asking)
    if threads is not None:
        await _Native(asking, *threads).ask(once=once)
    return asking.ledger.report()


class _Native:
    """One thread's task and decision. `other_thread_id` stays empty."""

    def __init__(self, asking: Asking, thread_id: ThreadId, other_thread_id: ThreadId) -> None:
        self._asking = asking
        self._ledger = asking.ledger
        self._thread_id = thread_id
        self._other_thread_id = other_thread_id
        self._threads = NativeThreads(asking.target.client, deadline_seconds=asking.target.call_seconds)

    async def ask(self, *, once: bool) -> None:
        """Everything, each step with what the steps before brought."""
        asking, thread_id = self._asking, self._thread_id
        before = await self._fresh_state()
        # Some servers make up a thread that they do not know. Here it would be noticed before: the state is read first.
        await ask_refusals(asking, thread_id, self._task, {Clause.NO_JSON_REFUSED: b"{"}, unknown_thread_is_noticed=True)
        during, mark = DuringRun(asking, thread_id), CorrelationId(uuid4())
        task = self._request(thread_id, mark, UserInput(str(uuid4()), asking.target.text))
        seen = await asking.message(task, on_native=during.ask)
        if not _judge_stream(self._ledger, seen) or seen.native_run_id is None:
            return
        await judge_during(asking, seen, during)
        read, state = await self._verdict(seen.native_run_id, None)
        self._judge_task(read)
        if read.outcome in (NativeOutcome.COMPLETED, NativeOutcome.WAITING):
            _judge_answer(self._ledger, seen, state, before)
        if await self._threads.find_run(asking.target.endpoint, thread_id, mark, frozenset()) == seen.native_run_id:
            self._ledger.ok(Clause.RUN_LISTED)
        else:
            self._ledger.broken(Clause.RUN_LISTED, "GET /threads/…/runs: not found, or not the only one")
        await ask_of_nothing(asking, thread_id, self._other_thread_id, seen.native_run_id)
        if read.question is not None and not once:
            question, first = read.question, seen.native_run_id
            await self._decide(Answered(question.native_id, question.prompt.digest(), frozenset({first})), first)
        asking.conclude()

    async def _fresh_state(self) -> ThreadState | None:
        state = await self._threads.state(self._asking.target.endpoint, self._thread_id)
        if state is None:
            self._ledger.broken(Clause.STATE, f"{_STATE}: not 200, or not of the known form")
        elif state.interrupts:
            self._ledger.broken(Clause.STATE, f"{_STATE}: something is pending on a fresh thread")
        else:
            self._ledger.ok(Clause.STATE)
        if await self._threads.state(self._asking.target.endpoint, ThreadId(str(uuid4()))) is None:
            self._ledger.ok(Clause.STATE_UNKNOWN)
        else:
            self._ledger.broken(Clause.STATE_UNKNOWN, f"{_STATE}: status 200 and a state")
        await self._asking.get_refused(Clause.STATE_NEEDS_TOKEN, f"/threads/{path_segment(self._thread_id)}/state")
        return state

    async def _decide(self, answered: Answered, first_run_id: NativeRunId) -> None:
        """Reject: the one POST of a decision, and what became of the question."""
        ledger = self._ledger
        decision = ResumeCommand(answered.native_id, Answer(Action.REJECT))
        seen = await self._asking.message(self._request(self._thread_id, CorrelationId(uuid4()), decision))
        if seen.native_run_id is None:
            ledger.broken(Clause.DECISION_TAKEN, in_words(seen.fact, seen.status))
            return
        ledger.ok(Clause.DECISION_TAKEN)
        if not _judge_stream(ledger, seen):
            return
        if seen.native_run_id == first_run_id:
            ledger.broken(Clause.NATIVE_FRESH, "one run id for the task and the decision")
        else:
            ledger.ok(Clause.NATIVE_FRESH)
        read, _ = await self._verdict(seen.native_run_id, answered)
        if read.outcome in (NativeOutcome.COMPLETED, NativeOutcome.WAITING):
            ledger.ok(Clause.DECISION_APPLIED)
        else:
            ledger.broken(Clause.DECISION_APPLIED, _OUTCOMES[read.outcome])

    async def _verdict(self, native_run_id: NativeRunId, answered: Answered | None) -> tuple[NativeRead, ThreadState | None]:
        told, _ = await self._asking.look_up_settled(self._thread_id, native_run_id)
        state = await self._threads.state(self._asking.target.endpoint, self._thread_id)
        status = LookupStatus.UNCLEAR if isinstance(told, UpstreamFailed) else told
        return native_verdict(status, state, native_run_id, answered), state

    def _judge_task(self, read: NativeRead) -> None:
        ledger, told = self._ledger, _OUTCOMES[read.outcome]
        match read.outcome:
            case NativeOutcome.WAITING:
                ledger.ok(Clause.VERDICT)
                ledger.ok(Clause.PROMPT)
            case NativeOutcome.COMPLETED:
                ledger.ok(Clause.VERDICT)
                ledger.advise(Clause.PROMPT, "the agent asked nothing: give a --text at which it does")
            case NativeOutcome.UNSUPPORTED:
                ledger.ok(Clause.VERDICT)
                ledger.broken(Clause.PROMPT, told)
            case _:
                ledger.broken(Clause.VERDICT, told)

    def _task(self, thread_id: ThreadId, text: str) -> Body:
        return self._request(thread_id, CorrelationId(uuid4()), UserInput(str(uuid4()), text))

    def _request(self, thread_id: ThreadId, mark: CorrelationId, content: UserInput | ResumeCommand) -> Body:
        request = NativeRequest(thread_id, self._asking.target.endpoint.assistant_id, mark, content)
        return Body(request.body(), request.path, partial(_parser_of, thread_id))


def _parser_of(thread_id: ThreadId, head: ResponseHead, bounds: StreamBounds) -> NativeParser | None:
    native_run_id = told_run_id(head, thread_id)
    return None if native_run_id is None else NativeParser(native_run_id=native_run_id, bounds=bounds)


def _judge_stream(ledger: Ledger, seen: Watched) -> bool:
    """The findings of a stream that had to come; True when it was read to an end that proves nothing, as it has to be."""
    if not judge_head(ledger, seen):
        return False
    ledger.ok(Clause.RUN_LOCATION)
    fact = seen.fact
    assert isinstance(fact, StreamBroken), "no stream of this profile says how a run ended"
    if fact.detail != Detail.NO_TERMINAL_EVENT:
        clause, told = of_stream(fact)
        assert clause is not None, "it broke"
        ledger.broken(_HERE.get(clause, clause), told if seen.broke_at is None else f"{told} ({seen.broke_at})")
        return False
    ledger.ok(Clause.FRAMES)
    ledger.ok(Clause.BOUNDS)
    return True


def _judge_answer(ledger: Ledger, seen: Watched, state: ThreadState | None, before: ThreadState | None) -> None:
    parser = seen.parser
    assert isinstance(parser, NativeParser), "of this profile"
    known = frozenset(message.native_id for message in before.messages) if before is not None else frozenset()
    if seen.body_end is not BodyEnd.COMPLETE:
        ledger.broken(Clause.ANSWER_VERIFIED, "the body did not end by its own framing")
    elif state is None or not verified(parser.shown(), state, known):
        ledger.broken(Clause.ANSWER_VERIFIED, f"{_STATE}: other messages than the {len(parser.shown())} that were streamed")
    else:
        ledger.ok(Clause.ANSWER_VERIFIED)
