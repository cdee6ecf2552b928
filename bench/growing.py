"""G10's second half: whether a gateway that has served ten times as many runs is larger. One process, so one round."""

import asyncio
from typing import Final

import uvloop

from bench.load import Load, generate
from bench.machine import usage
from bench.relaying import APPLICATIONS, UNPACED_AT_ONCE, full_side
from bench.report import Better, Finding, Row
from bench.world import World, gateway, governed, upstream

_EARLY: Final = 1_000
_LATE: Final = 10_000
"""Half of what the goal says, for the sake of time: as much of a factor, and the slope is told."""
_STEP: Final = 1_000
_MAY_FAIL: Final = 0.01
"""Of the runs: an overloaded machine refuses some, and they are a part of what may leave something behind."""


def memory(world: World, *, early: int = _EARLY, late: int = _LATE, step: int = _STEP) -> list[Finding]:
    """Resident memory after run `late` against that after run `early`, under the same load without a pause."""
    with upstream(world) as up:
        through = governed(world, "growing", up, applications=APPLICATIONS)
        with gateway(world, through) as found:
            side = full_side(found, through.request, UNPACED_AT_ONCE)
            sizes: dict[int, float] = {}
            failed = 0
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                for runs in range(step, late + 1, step):
                    outcome = runner.run(generate(Load(side.port, UNPACED_AT_ONCE, step, side.request), side.pid))
                    failed += outcome.failed
                    if outcome.failed > step * _MAY_FAIL:
                        raise RuntimeError(f"{outcome.failed} of {step} runs failed, the first: {outcome.first_fault}")
                    sizes[runs] = usage(side.pid).rss_mb
    row = Row(
        goal="G10",
        what=f"resident memory after {late:,} full runs, {UNPACED_AT_ONCE} at once, against that after {early:,}",
        unit="MB",
        ours=[sizes[late]],
        peer=[sizes[early]],
        peer_name=f"after {early:,}",
        better=Better.LOWER,
        must=1.10,
        aim=1.03,
        notes=["by runs: " + ", ".join(f"{runs:,}: {size:.1f}" for runs, size in sizes.items()), f"runs that failed: {failed}"],
    )
    return [row]
