"""What a measurement says: rows of ratios with their goals, as text and as JSON. Nothing here measures."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import assert_never


class Better(StrEnum):
    """Which way a ratio should go."""

    LOWER = "lower"
    HIGHER = "higher"


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison: `ours` and `peer` in `unit`, one value for each round, measured in turns."""

    goal: str
    what: str
    unit: str
    ours: Sequence[float]
    peer: Sequence[float]
    peer_name: str
    better: Better
    must: float | None = None
    aim: float | None = None
    notes: Sequence[str] = field(default_factory=tuple)

    @property
    def ratio(self) -> float:
        """Of the medians."""
        return statistics.median(self.ours) / statistics.median(self.peer)

    @property
    def rounds(self) -> list[float]:
        """The ratio of each round, in order of size: how far to trust the median."""
        return sorted(mine / theirs for mine, theirs in zip(self.ours, self.peer, strict=True))

    @property
    def verdict(self) -> str:
        """Against the goal, where there is one."""
        if self.must is None or self.aim is None:
            return "no goal"
        match self.better:
            case Better.LOWER:
                return "aim met" if self.ratio <= self.aim else "must met" if self.ratio <= self.must else "MISSED"
            case Better.HIGHER:
                return "aim met" if self.ratio >= self.aim else "must met" if self.ratio >= self.must else "MISSED"
            case _:
                assert_never(self.better)

    def lines(self) -> list[str]:
        """For people."""
        sign = "<=" if self.better is Better.LOWER else ">="
        goal = f"must {sign} {self.must:.2f}, aim {sign} {self.aim:.2f}: {self.verdict}" if self.must and self.aim else "for information"
        low, high = self.rounds[0], self.rounds[-1]
        return [
            f"{self.goal}  {self.what}",
            f"    ratio {self.ratio:.3f} (rounds {low:.3f} to {high:.3f}, n={len(self.ours)})   {goal}",
            f"    ours {statistics.median(self.ours):.4g}, {self.peer_name} {statistics.median(self.peer):.4g} {self.unit}",
            *[f"    {note}" for note in self.notes],
        ]


@dataclass(frozen=True, slots=True)
class Skipped:
    """A comparison that this machine cannot make, and what would change that."""

    goal: str
    why: str


@dataclass(frozen=True, slots=True)
class Figure:
    """A number with no peer: what it is of, in words that a reader of the handbook knows."""

    name: str
    what: str
    value: float
    unit: str

    @property
    def shown(self) -> str:
        """Three figures are as much as anybody should believe."""
        digits = 0 if self.value >= 100 else 1 if self.value >= 10 else 2
        return f"{self.value:,.{digits}f} {self.unit}".rstrip()


@dataclass(frozen=True, slots=True)
class Figures:
    """What something costs here, for whoever plans."""

    goal: str
    figures: Sequence[Figure]

    def lines(self) -> list[str]:
        """For people."""
        return [self.goal, *[f"    {figure.what}: {figure.shown}" for figure in self.figures]]


Finding = Row | Figures | Skipped


def as_text(machine: dict[str, str], findings: Sequence[Finding]) -> str:
    """The report."""
    lines = [f"{name}: {value}" for name, value in machine.items()]
    for finding in findings:
        lines.append("")
        lines += [f"{finding.goal}  SKIPPED: {finding.why}"] if isinstance(finding, Skipped) else finding.lines()
    return "\n".join(lines)


def as_json(machine: dict[str, str], findings: Sequence[Finding]) -> str:
    """The same, with every round."""
    rows = [
        {**asdict(finding), "ratio": finding.ratio, "verdict": finding.verdict} if isinstance(finding, Row) else asdict(finding)
        for finding in findings
    ]
    return json.dumps({"machine": machine, "findings": rows}, indent=2)
