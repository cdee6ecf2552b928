"""After a native stream: what became of the run, by its look-up and its thread's state (wire-contract.md 5.2). Nothing is sent.

The stream has shown text; it proves nothing. What proves nothing here either leaves the run unknown, for the reason that the stream gave.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from gateway.domain.evidence import NativeOutcome, NativeRead, StreamBroken
from gateway.domain.fault_points import Step, through
from gateway.domain.ids import NativeRunId
from gateway.domain.native import ThreadState, native_verdict, verified
from gateway.domain.reasons import Reason
from gateway.runs.means import Means
from gateway.runs.prepare import Prepared
from gateway.sse_parser.native import NativeParser
from gateway.upstream.response_decoder import BodyEnd

_PATIENCE_SECONDS: Final = 10.0
"""How long a run that ended its stream may still say that it runs: servers write its status when the stream is over."""
_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What ended the execution. `complete`: state has, message for message, what was shown, and nothing more."""

    fact: NativeRead | StreamBroken
    complete: bool = False


async def verdict(means: Means, prepared: Prepared, parser: NativeParser, broken: StreamBroken, end: BodyEnd | None) -> Verdict:
    """Ask until the run is seen to be over, or patience is. `end`: how the body of the response ended."""
    if broken.reason is Reason.ID_MISMATCH:
        return Verdict(broken)  # two runs for one dispatch: neither of them is the run
    deadline = means.clock() + (_PATIENCE_SECONDS if parser.whole else 0.0)
    pause = _FIRST_PAUSE_SECONDS
    while True:
        read, state = await through(means.at, Step.VERDICT, _ask(means, prepared, parser.native_run_id))
        if read.outcome is not NativeOutcome.ACTIVE or means.clock() + pause > deadline:
            break
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
    if read.outcome in (NativeOutcome.ACTIVE, NativeOutcome.UNCLEAR):
        return Verdict(broken)
    known = parser.whole and end is BodyEnd.COMPLETE and state is not None
    return Verdict(read, complete=known and state is not None and verified(parser.shown(), state, prepared.known_messages))


async def _ask(means: Means, prepared: Prepared, native_run_id: NativeRunId) -> tuple[NativeRead, ThreadState | None]:
    endpoint, thread_id = prepared.application.endpoint, prepared.thread_id
    status = await means.native_reads.run_status(endpoint, thread_id, native_run_id)
    state = await means.native_reads.state(endpoint, thread_id)
    return native_verdict(status, state, native_run_id, prepared.answered), state
