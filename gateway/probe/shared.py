"""What is asked of a service in every profile: capabilities, threads, messages that must be refused, look-ups."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final
from uuid import uuid4

from gateway.domain.evidence import LookupStatus
from gateway.domain.ids import NativeRunId, ThreadId
from gateway.domain.limits import MAX_TEXT_CHARACTERS
from gateway.probe.asking import Asking
from gateway.probe.clauses import Clause
from gateway.probe.judge import judge_refusal
from gateway.probe.watched import Body, Watched
from gateway.probe.words import LOOKED_UP, REPLY_FAULTS, in_words, of_failed
from gateway.upstream.capabilities import Capabilities, fetch_capabilities
from gateway.upstream.endpoint import path_segment
from gateway.upstream.faults import UpstreamFailed, UpstreamFault
from gateway.upstream.threads import create_thread

LOOKUP: Final = "GET /threads/…/runs/…"
_TOKEN_REFUSED: Final = frozenset({401, 403})
_INVALID: Final = frozenset({400, 413, 415, 422})
_NOT_FOUND: Final = frozenset({404})
_FOUR_BYTES: Final = "\N{SMILING FACE WITH OPEN MOUTH}"

Message = Callable[[ThreadId, str], Body]
"""A message of the profile: a thread and a text, with ids of its own each time."""


async def ask_capabilities(asking: Asking) -> Capabilities | UpstreamFailed | None:
    """What the assistant says of itself; None: nothing can be asked at all."""
    target, ledger, call = asking.target, asking.ledger, "GET /capabilities"
    answer = await fetch_capabilities(target.client, target.endpoint, deadline_seconds=target.call_seconds)
    if isinstance(answer, UpstreamFailed) and answer.call is not None and answer.call not in REPLY_FAULTS:
        ledger.broken(Clause.REACHABLE, of_failed(call, answer))
        return None
    ledger.ok(Clause.REACHABLE)
    if isinstance(answer, UpstreamFailed) and answer.fault is UpstreamFault.UNAUTHORIZED:
        ledger.broken(Clause.TOKEN_TAKEN, of_failed(call, answer))
        return None
    ledger.ok(Clause.TOKEN_TAKEN)
    asking.told(Clause.CAPABILITIES, call, answer)
    await asking.get_refused(Clause.TOKEN_REQUIRED, "/capabilities")
    await asking.get_refused(Clause.TOKEN_COMPARED, "/capabilities", wrong_token=True)
    return answer


async def make_threads(asking: Asking) -> tuple[ThreadId, ThreadId] | None:
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


async def ask_refusals(
    asking: Asking, thread_id: ThreadId, new: Message, unfit: Mapping[Clause, bytes], *, unknown_thread_is_noticed: bool = False
) -> None:
    """A service that keeps the contract runs none of them. `unfit`: bodies that are no message, each with its clause.

    `unknown_thread_is_noticed`: in this profile before anything is sent, so that a service that runs a message there is only advised.
    """
    ledger = asking.ledger
    message = new(thread_id, asking.target.text)
    stranger = await asking.message(message, endpoint=asking.stranger(), to_be_refused=True)
    judge_refusal(ledger, Clause.POST_NEEDS_TOKEN, stranger, statuses=_TOKEN_REFUSED)
    for clause, sent in unfit.items():
        seen = await asking.message(replace(message, sent=sent), to_be_refused=True)
        judge_refusal(ledger, clause, seen, statuses=_INVALID)
    nowhere = ThreadId(str(uuid4()))
    small = await asking.message(new(nowhere, asking.target.text), to_be_refused=True)
    if small.executed and unknown_thread_is_noticed:
        ledger.advise(Clause.UNKNOWN_THREAD_REFUSED, "status 200 and an event stream, as if it ran")
    else:
        judge_refusal(ledger, Clause.UNKNOWN_THREAD_REFUSED, small, statuses=_NOT_FOUND)
    if small.executed:
        return  # a larger one would run as well, and cost more
    large = await asking.message(new(nowhere, _FOUR_BYTES * MAX_TEXT_CHARACTERS), to_be_refused=True)
    if large.fact == small.fact:
        ledger.ok(Clause.LARGEST_BODY)
    else:
        ledger.broken(Clause.LARGEST_BODY, f"{in_words(large.fact, large.status)}; a small one: {in_words(small.fact, small.status)}")


# Look-ups


class DuringRun:
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


async def judge_during(asking: Asking, seen: Watched, during: DuringRun) -> None:
    answer = await during.answer()
    if answer is LookupStatus.UNCLEAR:
        asking.ledger.broken(Clause.LOOKUP_DURING, f"{LOOKUP}: {LOOKED_UP[answer]}")
    elif isinstance(answer, LookupStatus) and answer is not LookupStatus.ACTIVE and during.was_early(seen):
        asking.ledger.broken(Clause.LOOKUP_DURING, f"{LOOKUP}: {LOOKED_UP[answer]}, while the run went on")
    else:
        asking.told(Clause.LOOKUP_DURING, LOOKUP, answer)


async def ask_of_nothing(asking: Asking, thread_id: ThreadId, other_thread_id: ThreadId, native_run_id: NativeRunId) -> None:
    await _not_found(asking, Clause.LOOKUP_UNKNOWN, thread_id, NativeRunId(str(uuid4())))
    if other_thread_id != thread_id:
        await _not_found(asking, Clause.LOOKUP_OTHER_THREAD, other_thread_id, native_run_id)
    await asking.get_refused(Clause.LOOKUP_NEEDS_TOKEN, f"/threads/{path_segment(thread_id)}/runs/{path_segment(native_run_id)}")


async def _not_found(asking: Asking, clause: Clause, thread_id: ThreadId, native_run_id: NativeRunId) -> None:
    answer = await asking.look_up(thread_id, native_run_id)
    if isinstance(answer, LookupStatus):
        asking.ledger.broken(clause, f"{LOOKUP}: status 200 and {LOOKED_UP[answer]}")
    elif answer.status == 404:
        asking.ledger.ok(clause)
    elif answer.status == 200 or answer.fault is UpstreamFault.REDIRECT:
        asking.told(clause, LOOKUP, answer)
    else:
        asking.ledger.advise(clause, of_failed(LOOKUP, answer))
