"""G3 and G5: streams through one process on a core of its own, in turns with a peer."""

import asyncio
import itertools
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import uvloop

from bench import nginx
from bench.load import Load, Outcome, generate, post
from bench.report import Better, Finding, Row, Skipped
from bench.world import TEXT, World, gateway, governed, served, tokens, upstream

PACE_MS: Final = 20
_PACED_AT_ONCE: Final = 200
UNPACED_AT_ONCE: Final = 50
APPLICATIONS: Final = 20
"""Admissions of one application wait for one another (its row is locked through the commit): that is goal G9, measured apart."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of two that are compared: a running process and how to ask it for a run."""

    pid: int
    port: int
    request: Callable[[int, int], bytes]


def in_turns(sides: Sequence[Side], *, at_once: int, runs: int, rounds: int) -> list[list[Outcome]]:
    """Each side's outcomes, round by round, each after a warm-up. Raises RuntimeError when a run failed: its figures would be void."""
    outcomes: list[list[Outcome]] = [[] for _ in sides]

    async def all_rounds() -> None:
        for side in sides:
            await generate(Load(side.port, at_once, max(at_once, 50), side.request), side.pid)
        for round_number in range(rounds):
            # The order changes, so that what a neighbour leaves behind does not always hit the same side.
            order = list(enumerate(sides)) if round_number % 2 == 0 else list(enumerate(sides))[::-1]
            for number, side in order:
                outcome = await generate(Load(side.port, at_once, runs, side.request), side.pid)
                if outcome.failed:
                    raise RuntimeError(f"{outcome.failed} of {runs} runs failed, the first: {outcome.first_fault}")
                outcomes[number].append(outcome)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(all_rounds())
    return outcomes


def _bare_side(found: tuple[int, int]) -> Side:
    """A run input for what passes it on, and a `text` for our relay, which makes its own."""
    pid, port = found
    run_input = {"threadId": "thread-1", "runId": "run-1", "state": {}, "tools": [], "context": [], "forwardedProps": {}}
    body = json.dumps({**run_input, "messages": [{"id": "u1", "role": "user", "content": TEXT}], "text": TEXT}).encode()
    request = post("/ag-ui", body, port=port)
    return Side(pid, port, lambda _, __: request)


def relay_alone(world: World, *, rounds: int, runs: int = 1000) -> list[Finding]:
    """G3."""
    with upstream(world) as up, served(world, "relay", up) as relay, served(world, "passthrough", up) as passthrough:
        ours, peer = in_turns([_bare_side(relay), _bare_side(passthrough)], at_once=UNPACED_AT_ONCE, runs=runs, rounds=rounds)
    row = Row(
        goal="G3",
        what=f"relay and parse alone, {UNPACED_AT_ONCE} at once, against starlette + httpx that parses nothing",
        unit="CPU s per 1000 runs",
        ours=[outcome.cpu_seconds_per_1000 for outcome in ours],
        peer=[outcome.cpu_seconds_per_1000 for outcome in peer],
        peer_name="pass-through",
        better=Better.LOWER,
        must=0.30,
        aim=0.22,
        notes=_latencies(ours, peer, "pass-through"),
    )
    return [row]


def full_against_nginx(world: World, *, rounds: int, runs: int = 1000) -> list[Finding]:
    """G5, and what a full run costs when nothing is paced."""
    findings: list[Finding] = []
    with upstream(world, delay_ms=PACE_MS) as up:
        through = governed(world, "paced", up, applications=APPLICATIONS)
        with gateway(world, through) as found:
            full = full_side(found, through.request, _PACED_AT_ONCE)
            if nginx.version() is None:
                findings.append(Skipped("G5", "there is no nginx here (Debian: apt-get install nginx-light)"))
            else:
                with nginx.nginx(world, up) as proxy:
                    ours, peer = in_turns([full, _bare_side(proxy)], at_once=_PACED_AT_ONCE, runs=runs, rounds=rounds)
                findings.append(_paced_row(ours, peer))
    return findings


def full_unpaced(world: World, *, rounds: int, runs: int = 500) -> list[Finding]:
    """No goal of its own (G1 and G2 compare it with other gateways): a full run beside a pass-through that governs nothing."""
    with upstream(world) as up:
        through = governed(world, "unpaced", up, applications=APPLICATIONS)
        with gateway(world, through) as found, served(world, "passthrough", up) as passthrough:
            full = full_side(found, through.request, UNPACED_AT_ONCE)
            ours, peer = in_turns([full, _bare_side(passthrough)], at_once=UNPACED_AT_ONCE, runs=runs, rounds=rounds)
    row = Row(
        goal="full",
        what=f"full runs, {UNPACED_AT_ONCE} at once, against the pass-through of G3",
        unit="CPU s per 1000 runs",
        ours=[outcome.cpu_seconds_per_1000 for outcome in ours],
        peer=[outcome.cpu_seconds_per_1000 for outcome in peer],
        peer_name="pass-through",
        better=Better.LOWER,
        notes=_latencies(ours, peer, "pass-through"),
    )
    return [row]


def full_cpu(world: World, *, rounds: int, runs: int = 500) -> list[float]:
    """CPU seconds of the gateway for 1000 full runs, round by round: what a part of a run is a share of."""
    with upstream(world) as up:
        through = governed(world, "share", up, applications=APPLICATIONS)
        with gateway(world, through) as found:
            [outcomes] = in_turns([full_side(found, through.request, UNPACED_AT_ONCE)], at_once=UNPACED_AT_ONCE, runs=runs, rounds=rounds)
    return [outcome.cpu_seconds_per_1000 for outcome in outcomes]


def full_side(found: tuple[int, int], request: Callable[[int, int, str, str], bytes], users: int) -> Side:
    """Many users with one run each: a worker of the load is a user."""
    pid, port = found
    of_user = tokens(users)
    numbers = itertools.count(1)
    return Side(pid, port, lambda worker, _: request(port, worker, of_user[worker], f"submission-{next(numbers)}"))


def _paced_row(ours: Sequence[Outcome], peer: Sequence[Outcome]) -> Row:
    return Row(
        goal="G5",
        what=f"{_PACED_AT_ONCE} streams, an event every {PACE_MS} ms, full runs against nginx as a bare proxy",
        unit="runs/s",
        ours=[outcome.runs_per_second for outcome in ours],
        peer=[outcome.runs_per_second for outcome in peer],
        peer_name="nginx",
        better=Better.HIGHER,
        must=0.80,
        aim=0.93,
        notes=[
            *_latencies(ours, peer, "nginx"),
            f"CPU s per 1000 runs: ours {_median(ours, 'cpu_seconds_per_1000'):.2f}, nginx {_median(peer, 'cpu_seconds_per_1000'):.2f}; "
            f"core used by ours: {_median(ours, 'cpu_seconds_per_1000') * _median(ours, 'runs_per_second') / 10:.0f} %",
            f"resident memory at {_PACED_AT_ONCE} streams: ours {_median(ours, 'rss_mb'):.0f} MB",
        ],
    )


def _latencies(ours: Sequence[Outcome], peer: Sequence[Outcome], peer_name: str) -> list[str]:
    return [
        f"first event p50/p99 ms: ours {_median(ours, 'first_p50') * 1000:.1f}/{_median(ours, 'first_p99') * 1000:.1f}, "
        f"{peer_name} {_median(peer, 'first_p50') * 1000:.1f}/{_median(peer, 'first_p99') * 1000:.1f}"
    ]


def _median(outcomes: Sequence[Outcome], name: str) -> float:
    return float(statistics.median(getattr(outcome, name) for outcome in outcomes))
