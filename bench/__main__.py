"""`python -m bench [GOAL …] [--runs N] [--results FOLDER]`: the measurements of docs/performance.md, as ratios.

Takes minutes, and wants a quiet machine.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bench import admitting, capacity, growing, moderating, nginx, parsing, reading, relaying
from bench.machine import choose_cores, describe, find_tool, pin_this_process, version_of
from bench.report import Finding, as_json, as_text
from bench.world import World, world

MEASUREMENTS: Final[dict[str, Callable[[World, int], list[Finding]]]] = {
    "G3": lambda place, rounds: relaying.relay_alone(place, rounds=rounds),
    "G5": lambda place, rounds: relaying.full_against_nginx(place, rounds=rounds),
    "G8": lambda place, rounds: admitting.admissions(place, rounds=rounds),
    "G9": lambda place, rounds: admitting.one_hot_application(place, rounds=rounds),
    "G10": lambda place, _: growing.memory(place),
    "G11": lambda place, rounds: admitting.two_replicas(place, rounds=rounds),
    "G12": lambda place, rounds: reading.reads(place, rounds=rounds),
    "capacity": lambda place, _: capacity.capacity(place),
    "full": lambda place, rounds: relaying.full_unpaced(place, rounds=rounds),
    "moderation": lambda place, rounds: moderating.moderation(place, rounds=rounds),
    "parser": lambda _, rounds: parsing.parser_alone(rounds=rounds),
}
_FEWEST_ROUNDS: Final = 3


def _arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("goals", nargs="*", metavar="GOAL", help=f"of {', '.join(MEASUREMENTS)}; all of them when none is named")
    parser.add_argument("--runs", type=int, default=_FEWEST_ROUNDS, help="rounds of each comparison; the median counts (at least 3)")
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="write each goal to FOLDER/GOAL.json, too, with every round")
    found = parser.parse_args(given)
    if unknown := [goal for goal in found.goals if goal not in MEASUREMENTS]:
        parser.error(f"unknown: {', '.join(unknown)}")
    if found.runs < _FEWEST_ROUNDS:
        parser.error(f"a median of fewer than {_FEWEST_ROUNDS} is none")
    return found


def _machine(place: World) -> dict[str, str]:
    pgbench, cores = find_tool("pgbench"), place.cores
    return {
        **describe(),
        "postgres": f"{place.postgres.version}, embedded, fsync on",
        "pgbench": version_of([pgbench, "--version"]) if pgbench else "none",
        "nginx": nginx.version() or "none",
        "pinning": "none: one core, or a system that cannot"
        if cores.subject is None
        else f"what is measured on core {cores.subject} alone; upstream, load generator and Postgres on core {cores.rest}",
    }


def main(given: Sequence[str]) -> int:
    """Exit status 0 also where a goal was missed: a shared machine decides too much of it to fail a build by."""
    arguments = _arguments(given)
    cores = choose_cores()
    pin_this_process(cores.rest)
    with world(cores) as place:
        for goal in arguments.goals or MEASUREMENTS:
            machine = _machine(place)
            findings = MEASUREMENTS[goal](place, arguments.runs)
            print(as_text(machine, findings) + "\n", flush=True)
            if arguments.results is not None:
                (arguments.results / f"{goal}.json").write_text(as_json(machine, findings) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
