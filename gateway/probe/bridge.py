"""The bridge profile, asked question by question: what runs no agent first, then the runs, each with what the steps before brought."""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Final
from uuid import uuid4

from gateway.domain.evidence import LookupStatus, Outcome, Rejected, RunErrored, RunFinished, StreamBroken
from gateway.domain.ids import CorrelationId, NativeRunId, ThreadId
from gateway.probe.asking import Asking
from gateway.probe.clauses import BRIDGE, Clause
from gateway.probe.findings import Finding, Ledger, Report
from gateway.probe.judge import judge_run
from gateway.probe.shared import LOOKUP, DuringRun, ask_capabilities, ask_of_nothing, ask_refusals, judge_during, make_threads
from gateway.probe.watched import Body, Target, Watched
from gateway.probe.words import LOOKED_UP, in_words
from gateway.sse_parser.parser import StreamParser
from gateway.upstream.faults import UpstreamFailed
from gateway.upstream.run_input import GenerationRequest

MOST_RUNS: Final = 3
"""How often the agent of a service that keeps the contract is run: once, and then by two messages at once, of which one may be refused."""


async def probe_bridge(target: Target, *, once: bool, tell: Callable[[Finding], None]) -> Report:
    """Ask everything; `tell` hears of each finding as it is made. `once`: no second message, so the agent is run once."""
    asking = Asking(target, Ledger(BRIDGE, tell))
    if await ask_capabilities(asking) is not None:
        threads = await make_threads(asking)
        if threads is not None:
            await _messages(asking, *threads, once=once)
    return asking.ledger.report()


async def _messages(asking: Asking, thread_id: ThreadId, other_thread_id: ThreadId, *, once: bool) -> None:
    text = asking.target.text
    nothing_said = {**json.loads(_message(thread_id, text).sent), "messages": []}
    unfit = {Clause.NO_JSON_REFUSED: b"{", Clause.NO_MESSAGE_REFUSED: json.dumps(nothing_said).encode()}
    await ask_refusals(asking, thread_id, _message, unfit)
    during = DuringRun(asking, thread_id)
    seen = await asking.message(_message(thread_id, text), on_native=during.ask)
    judge_run(asking.ledger, seen)
    if seen.native_run_id is not None:
        await judge_during(asking, seen, during)
        await _lookup_after(asking, thread_id, seen.native_run_id, seen)
        await ask_of_nothing(asking, thread_id, other_thread_id, seen.native_run_id)
    if _succeeded(seen) and not once:
        await _two_at_once(asking, thread_id, seen)
    asking.conclude()


async def _lookup_after(asking: Asking, thread_id: ThreadId, native_run_id: NativeRunId, seen: Watched) -> None:
    """A state may lag behind the terminal event for a moment: that is advice."""
    expected = _expected(seen)
    if expected is None:
        return
    ledger = asking.ledger
    answer, asked = await asking.look_up_settled(thread_id, native_run_id)
    if isinstance(answer, UpstreamFailed):
        asking.told(Clause.LOOKUP_AFTER, LOOKUP, answer)
    elif answer is not expected:
        ledger.broken(Clause.LOOKUP_AFTER, f"{LOOKUP}: {LOOKED_UP[answer]}, where the stream said {LOOKED_UP[expected]}")
    elif asked > 1:
        ledger.advise(Clause.LOOKUP_AFTER, f"{LOOKUP}: pending or running when the stream was over, and right only later")
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


# More messages


async def _two_at_once(asking: Asking, thread_id: ThreadId, first: Watched) -> None:
    """The next message of the thread, and another at the same moment."""
    ledger = asking.ledger
    pair = await asyncio.gather(*(asking.message(_message(thread_id, asking.target.text)) for _ in range(2)))
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


def _message(thread_id: ThreadId, text: str) -> Body:
    correlation_id = CorrelationId(uuid4())
    request = GenerationRequest(thread_id, correlation_id, str(uuid4()), text)
    parser = partial(StreamParser, thread_id=thread_id, correlation_id=str(correlation_id))
    return Body(request.body(), request.path, lambda _, bounds: parser(bounds=bounds))
