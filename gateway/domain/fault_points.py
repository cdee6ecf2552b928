"""Fault points: the moments before and after each commit and each upstream call of a run, where a test may inject a fault.

Product code passes them by: the default hook does nothing, and no setting reaches it; a hook is handed in by wiring
(`build_app(…, at=…)`), which only the tests' own replica does (tests/support/faulty_replica.py). docs/crash-matrix.md is made from here.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar

_Result = TypeVar("_Result")


class Kind(StrEnum):
    """What a step does to the world outside the process; it decides which faults make sense there."""

    COMMIT = "commit"
    CALL = "call"


class Step(StrEnum):
    """Each commit of a run and each call to upstream, in the order in which a run meets them; then what a reconciler does."""

    ADMISSION = "admission"
    DECISION = "decision"
    CAPABILITIES = "capabilities"
    THREAD = "thread"
    STATE = "state"
    FENCE = "fence"
    POST = "post"
    START = "start"
    CHECKPOINT = "checkpoint"
    VERDICT = "verdict"
    SETTLE = "settle"
    RELEASE = "release"
    HEARTBEAT = "heartbeat"
    RELEASE_EXPIRED = "release_expired"
    EXPIRE = "expire"
    SAVE_CLAIM = "save_claim"
    SAVE = "save"
    LOOKUP_CLAIM = "lookup_claim"
    LOOKUP = "lookup"
    LOOKUP_WRITE = "lookup_write"
    EXHAUST = "exhaust"

    @property
    def kind(self) -> Kind:
        return Kind.CALL if self in _CALLS else Kind.COMMIT


_CALLS: Final = frozenset({Step.CAPABILITIES, Step.THREAD, Step.STATE, Step.POST, Step.VERDICT, Step.LOOKUP})


class Moment(StrEnum):
    """AFTER: the step is known to be done; nothing else has happened yet."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class FaultPoint:
    """One moment of one step."""

    moment: Moment
    step: Step

    def __str__(self) -> str:
        return f"{self.moment.value} {self.step.value}"


FAULT_POINTS: Final = tuple(FaultPoint(moment, step) for step in Step for moment in Moment)
_AT: Final[Mapping[Step, tuple[FaultPoint, FaultPoint]]] = {
    step: (FaultPoint(Moment.BEFORE, step), FaultPoint(Moment.AFTER, step)) for step in Step
}

At = Callable[[FaultPoint], Awaitable[None]]
"""The hook. It may wait or end the process; it must not raise."""


async def pass_by(_: FaultPoint) -> None:
    """The hook of every replica that is not of a fault test."""


async def through(at: At, step: Step, work: Coroutine[Any, Any, _Result]) -> _Result:
    """Do `work`, which is `step`, with the hook before and after it. A `work` that fails has no after."""
    if at is pass_by:
        return await work
    before, after = _AT[step]
    try:
        await at(before)
        result = await work
    finally:
        work.close()  # a cancellation at the hook leaves nothing unawaited
    await at(after)
    return result
