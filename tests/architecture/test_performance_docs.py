"""What the documentation says of speed and capacity is what `make bench` wrote to bench/results, with the machine described there."""

import re
from pathlib import Path
from typing import Any, Final

import pytest

from bench.__main__ import MEASUREMENTS
from bench.tables import handbook_table, measured_table, read_results

ROOT: Final = Path(__file__).parents[2]
HANDBOOK: Final = (ROOT / "docs" / "handbook.md").read_text(encoding="utf-8")
PERFORMANCE: Final = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
RESULTS: Final = read_results()


def goals() -> dict[str, str]:
    """What each goal's row says was measured."""
    rows = re.findall(r"^\| (G\d+|moderation) \|.*\| ([^|]+) \|$", PERFORMANCE, re.MULTILINE)
    return {goal: measured.strip() for goal, measured in rows}


def worst(findings: list[dict[str, Any]]) -> tuple[float, str]:
    """Ratio and verdict of what is nearest to missing its goal."""
    rows = [row for row in findings if row.get("must") is not None]
    by_distance = max(rows, key=lambda row: row["ratio"] if row["better"] == "lower" else -row["ratio"])
    return by_distance["ratio"], by_distance["verdict"]


def test_the_capacity_of_the_handbook_is_what_was_measured() -> None:
    assert handbook_table(RESULTS["capacity"]) in HANDBOOK, "put what `python -m bench.tables` prints into docs/handbook.md"


def test_what_was_measured_is_what_the_page_says() -> None:
    assert measured_table(RESULTS) in PERFORMANCE, "put what `python -m bench.tables` prints into docs/performance.md"


@pytest.mark.parametrize("goal", RESULTS)
def test_a_result_says_on_what_it_was_measured(goal: str) -> None:
    assert goal in MEASUREMENTS
    machine = RESULTS[goal]["machine"]
    assert set(machine) == {"cpu", "cores", "system", "python", "load", "postgres", "pgbench", "nginx", "pinning"}
    assert all(machine.values())
    assert RESULTS[goal]["findings"]


@pytest.mark.parametrize("goal", sorted(set(RESULTS) & set(goals())))
def test_a_goal_says_what_was_measured(goal: str) -> None:
    ratio, verdict = worst(RESULTS[goal]["findings"])
    assert goals()[goal].startswith(f"{ratio:.3f}: {verdict}")


def test_every_goal_says_what_was_measured_or_why_nothing_was() -> None:
    named = goals()
    assert len(named) == 12
    assert all(goal in RESULTS or text.startswith("no: ") for goal, text in named.items()), named
