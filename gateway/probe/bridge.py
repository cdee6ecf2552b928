"""The bridge profile, asked question by question: what runs no agent first, then the runs, each with what the steps before brought."""

import asyncio
import json
from collections.abc import Callable
from typing import Final
from uuid import uuid4

from gateway.domain.evidence import LookupStatus, Outcome, Rejected, RunErrored, RunFinished, StreamBroken
from gateway.domain.ids import CorrelationId, NativeRunId, ThreadId
from gateway.domain.limits import MAX_TEXT_CHARACTERS
from gateway.probe.asking import Asking
from gateway.probe.clauses import Clause
from gateway.probe.findings import Finding, Ledger, Report
from gateway.probe.judge import judge_refusal, judge_run
from gateway.probe.watched import Body, Target, Watched
from gateway.probe.words import REPLY_FAULTS, in_words, of_failed
from gateway.upstream.capabilities import fetch_capabilities
from gateway.upstream.endpoint import path_segment
from gateway.upstream.faults import UpstreamFailed, UpstreamFault
from gateway.upstream.run_input import GenerationRequest
from gateway.upstream.threads import create_thread

MOST_RUNS: Final = 3
"""How often the agent of a service that keeps the contract is run: once, and then by two messages at once, of which one may be refused."""

_LOOKUP: Final = "GET /threads/…/runs/…"
_LOOKUP_PAUSE_SECONDS: Final = 0.2
_TOKEN_REFUSED: Final = frozenset({401, 403})
_INVALID: Final = frozenset({400, 413, 415, 422})
_NOT_FOUND: Final = frozenset({404})
_FOUR_BYTES: Final = "\N{SMILING FACE WITH OPEN MOUTH}"
_LOOKED_UP: Final = {
    LookupStatus.SUCCESS: "success",
    LookupStatus.ERROR: "error or timeout",
    LookupStatus.INTERRUPTED: "interrupted",
    LookupStatus.ACTIVE: "pending or running",
    LookupStatus.UNCLEAR: "no status, or one that is not known here",
}


async def probe_bridge(target: Target, *, once: bool, tell: Callable[[Finding], None]) -> Report:
    """Ask everything; `tell` hears of each finding as it is made. `once`: no second message, so the agent is run once."""
    asking = Asking(target, Ledger(tuple(Clause), tell))
    if await _capabilities(asking):
        threads = await _threads(asking)
        if threads is not None:
            await _messages(asking, *threads, once=once)
    return asking.ledger.report()


async def _messages(asking: Asking, thread_id: ThreadId, other_thread_id: ThreadId, *, once: bool) -> None:
    await _refusals(asking, thread_id)
    during = _DuringRun(asking, thread_id)
    seen = await asking.message(_message(asking, thread_id), on_native=during.ask)
    judge_run(asking.ledger, seen)
    if seen.native_run_id is not None:
        await _lookup_during(asking, seen, during)
        await _lookup_after(asking, thread_id, seen.native_run_id, seen)
        await _lookups_of_nothing(asking, thread_id, other_thread_id, seen.native_run_id)
    if _succeeded(seen) and not once:
        await _two_at_once(asking, thread_id, seen)
    for clause in (Clause.NO_REDIRECT, Clause.REPLIES, Clause.TOKEN_HIDDEN):
        asking.ledger.ok(clause)


async def _capabilities(asking: Asking) -> bool:
    """Whether anything can be asked at all."""
    target, ledger, call = asking.target, asking.ledger, "GET /capabilities"
    answer = await fetch_capabilities(target.client, target.endpoint, deadline_seconds=target.call_seconds)
    if isinstance(answer, UpstreamFailed) and answer.call is not None and answer.call not in REPLY_FAULTS:
        ledger.broken(Clause.REACHABLE, of_failed(call, answer))
        return False
    ledger.ok(Clause.REACHABLE)
    if isinstance(answer, UpstreamFailed) and answer.fault is UpstreamFault.UNAUTHORIZED:
        ledger.broken(Clause.TOKEN_TAKEN, of_failed(call, answer))
        return False
    ledger.ok(Clause.TOKEN_TAKEN)
    asking.told(Clause.CAPABILITIES, call, answer)
    await asking.get_refused(Clause.TOKEN_REQUIRED, "/capabilities")
    await asking.get_refused(Clause.TOKEN_COMPARED, "/capabilities", wrong_token=True)
    return True


async def _threads(asking: Asking) -> tuple[ThreadId, ThreadId] | None:
    """Two threads, each for itself; None: there is nowhere to send a message."""
    target, ledger = asking.target, asking.ledger
    made: list[ThreadId] = []
    for _ in range(2):
        answer = await create_thread(target.client, target.endpoint, deadline_seconds=target.call_seconds)
        if not isinstance(answer, UpstreamFailed) and path_segment(answer) is None:
            answer = UpstreamFailed(UpstreamFault.UNEXPECTED_SHAPE)
        asking.told(Clause.THREAD, "POST /threads", answer)
        if isinstance(answer, UpstreamFailed):
            return None
        made.append(answer)
    if made[0] == made[1]:
        ledger.broken(Clause.THREAD_FRESH, "POST /threads: the same id twice")
    else:
        ledger.ok(Clause.THREAD_FRESH)
    await asking.post_refused(Clause.THREAD_NEEDS_TOKEN, "/threads", b"{}")
    return made[0], made[1]


# Messages that must be refused


async def _refusals(asking: Asking, thread_id: ThreadId) -> None:
    """A service that keeps the contract runs none of them."""
    ledger = asking.ledger
    message = _message(asking, thread_id)
    stranger = await asking.message(message, endpoint=asking.stranger(), to_be_refused=True)
    judge_refusal(ledger, Clause.POST_NEEDS_TOKEN, stranger, statuses=_TOKEN_REFUSED)
    no_json = await asking.message(Body(b"{"), to_be_refused=True)
    judge_refusal(ledger, Clause.NO_JSON_REFUSED, no_json, statuses=_INVALID)
    nothing_said = json.dumps({**json.loads(message.sent), "messages": []}).encode()
    no_message = await asking.message(Body(nothing_said, message.thread_id, message.correlation_id), to_be_refused=True)
    judge_refusal(ledger, Clause.NO_MESSAGE_REFUSED, no_message, statuses=_INVALID)
    nowhere = ThreadId(str(uuid4()))
    small = await asking.message(_message(asking, nowhere), to_be_refused=True)
    judge_refusal(ledger, Clause.UNKNOWN_THREAD_REFUSED, small, statuses=_NOT_FOUND)
    if small.executed:
        return  # a larger one would run as well, and cost more
    large = await asking.message(_message(asking, nowhere, _FOUR_BYTES * MAX_TEXT_CHARACTERS), to_be_refused=True)
    if large.fact == small.fact:
        ledger.ok(Clause.LARGEST_BODY)
    else:
        ledger.broken(Clause.LARGEST_BODY, f"{in_words(large.fact, large.status)}; a small one: {in_words(small.fact, small.status)}")


# Look-ups


class _DuringRun:
    """The look-up that is sent the moment the native run id is known, while the stream goes on."""

    def __init__(self, asking: Asking, thread_id: ThreadId) -> None:
        self._asking = asking
        self._thread_id = thread_id
        self._answer: asyncio.Task[LookupStatus | UpstreamFailed] | None = None
        self._answered_at = 0.0

    def ask(self, native_run_id: NativeRunId) -> None:
        """Begin; the stream is read meanwhile."""
        self._answer = asyncio.create_task(self._ask(native_run_id))

    async def answer(self) -> LookupStatus | UpstreamFailed:
        """What it brought; `ask` came before."""
        assert self._answer is not None, "there is a native run id"
        return await self._answer

    def was_early(self, seen: Watched) -> bool:
        """Whether the run still spoke after this answer, too long after it to have been merely on the way."""
        return seen.last_visible_at is not None and seen.last_visible_at > self._answered_at + self._asking.target.settle_seconds

    async def _ask(self, native_run_id: NativeRunId) -> LookupStatus | UpstreamFailed:
        answer = await self._asking.look_up(self._thread_id, native_run_id)
        self._answered_at = asyncio.get_running_loop().time()
        return answer


async def _lookup_during(asking: Asking, seen: Watched, during: _DuringRun) -> None:
    answer = await during.answer()
    if answer is LookupStatus.UNCLEAR:
        asking.ledger.broken(Clause.LOOKUP_DURING, f"{_LOOKUP}: {_LOOKED_UP[answer]}")
    elif isinstance(answer, LookupStatus) and answer is not LookupStatus.ACTIVE and during.was_early(seen):
        asking.ledger.broken(Clause.LOOKUP_DURING, f"{_LOOKUP}: {_LOOKED_UP[answer]}, while the run went on")
    else:
        asking.told(Clause.LOOKUP_DURING, _LOOKUP, answer)


async def _lookup_after(asking: Asking, thread_id: ThreadId, native_run_id: NativeRunId, seen: Watched) -> None:
    """A state may lag behind the terminal event for a moment: that is advice."""
    expected = _expected(seen)
    if expected is None:
        return
    ledger, loop = asking.ledger, asyncio.get_running_loop()
    until, asked = loop.time() + asking.target.settle_seconds, 1
    while (answer := await asking.look_up(thread_id, native_run_id)) is LookupStatus.ACTIVE and loop.time() < until:
        await asyncio.sleep(_LOOKUP_PAUSE_SECONDS)
        asked += 1
    if isinstance(answer, UpstreamFailed):
        asking.told(Clause.LOOKUP_AFTER, _LOOKUP, answer)
    elif answer is not expected:
        ledger.broken(Clause.LOOKUP_AFTER, f"{_LOOKUP}: {_LOOKED_UP[answer]}, where the stream said {_LOOKED_UP[expected]}")
    elif asked > 1:
        ledger.advise(Clause.LOOKUP_AFTER, f"{_LOOKUP}: pending or running when the stream was over, and right only later")
    else:
        ledger.ok(Clause.LOOKUP_AFTER)


def _expected(seen: Watched) -> LookupStatus | None:
    match seen.fact:
        case RunErrored():
            return LookupStatus.ERROR
        case RunFinished(outcome=Outcome.SUCCESS):
            return LookupStatus.SUCCESS
        case RunFinished(outcome=Outcome.INTERRUPT):
            return LookupStatus.INTERRUPTED
    return None


async def _lookups_of_nothing(asking: Asking, thread_id: ThreadId, other_thread_id: ThreadId, native_run_id: NativeRunId) -> None:
    await _not_found(asking, Clause.LOOKUP_UNKNOWN, thread_id, NativeRunId(str(uuid4())))
    if other_thread_id != thread_id:
        await _not_found(asking, Clause.LOOKUP_OTHER_THREAD, other_thread_id, native_run_id)
    await asking.get_refused(Clause.LOOKUP_NEEDS_TOKEN, f"/threads/{path_segment(thread_id)}/runs/{path_segment(native_run_id)}")


async def _not_found(asking: Asking, clause: Clause, thread_id: ThreadId, native_run_id: NativeRunId) -> None:
    answer = await asking.look_up(thread_id, native_run_id)
    if isinstance(answer, LookupStatus):
        asking.ledger.broken(clause, f"{_LOOKUP}: status 200 and {_LOOKED_UP[answer]}")
    elif answer.status == 404:
        asking.ledger.ok(clause)
    elif answer.status == 200 or answer.fault is UpstreamFault.REDIRECT:
        asking.told(clause, _LOOKUP, answer)
    else:
        asking.ledger.advise(clause, of_failed(_LOOKUP, answer))


# More messages


async def _two_at_once(asking: Asking, thread_id: ThreadId, first: Watched) -> None:
    """The next message of the thread, and another at the same moment."""
    ledger = asking.ledger
    pair = await asyncio.gather(*(asking.message(_message(asking, thread_id)) for _ in range(2)))
    for seen in pair:
        if isinstance(seen.fact, StreamBroken) or _succeeded(seen):
            judge_run(ledger, seen)
    if any(isinstance(seen.fact, StreamBroken) for seen in pair):
        return
    good = [seen for seen in pair if _succeeded(seen)]
    if not good:
        ledger.broken(Clause.NEXT_MESSAGE, in_words(pair[0].fact, pair[0].status))
        return
    ledger.ok(Clause.NEXT_MESSAGE)
    natives = [seen.native_run_id for seen in (first, *good) if seen.native_run_id is not None]
    if len(set(natives)) < len(natives):
        ledger.broken(Clause.NATIVE_FRESH, "one native run id for two runs")
    else:
        ledger.ok(Clause.NATIVE_FRESH)
    _judge_pair(ledger, pair)


def _judge_pair(ledger: Ledger, pair: list[Watched]) -> None:
    for seen in pair:
        if _succeeded(seen):
            continue
        if isinstance(seen.fact, Rejected) and seen.fact.thread_busy:
            ledger.ok(Clause.TWO_AT_ONCE)
        else:
            ledger.broken(Clause.TWO_AT_ONCE, f"one of them: {in_words(seen.fact, seen.status)}")
        return
    if _overlap(*pair):
        ledger.broken(Clause.TWO_AT_ONCE, "both ran at the same time")
    else:
        ledger.ok(Clause.TWO_AT_ONCE)


def _overlap(one: Watched, other: Watched) -> bool:
    def spoke_before_the_end_of(seen: Watched, rival: Watched) -> bool:
        first = seen.first_visible_at or seen.started_at
        return first is not None and rival.ended_at is not None and first < rival.ended_at

    return spoke_before_the_end_of(one, other) and spoke_before_the_end_of(other, one)


def _succeeded(seen: Watched) -> bool:
    return isinstance(seen.fact, RunFinished) and seen.fact.outcome is Outcome.SUCCESS


def _message(asking: Asking, thread_id: ThreadId, text: str | None = None) -> Body:
    correlation_id = CorrelationId(uuid4())
    request = GenerationRequest(thread_id, correlation_id, str(uuid4()), asking.target.text if text is None else text)
    return Body(request.body(), thread_id, str(correlation_id))
