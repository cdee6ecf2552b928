"""The crash matrix: which fault is injected at which fault point, which cases are run every time, and its page docs/crash-matrix.md.

Generated from gateway.domain.fault_points: a new step joins by itself with the faults of its kind. What a case does is in
tests/faults/test_crash_matrix.py. `python -m tests.support.crash_matrix` writes the page; a test compares it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from gateway.domain.fault_points import FAULT_POINTS, FaultPoint, Kind, Moment, Step

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "crash-matrix.md"


class Fault(StrEnum):
    """What happens at a fault point."""

    KILL = "kill"
    CUT_BEFORE = "cut before"
    CUT_AFTER = "cut after"
    CLOSES = "upstream closes"
    HANGS = "upstream hangs"


FAULT_DOCS: Final = {
    Fault.KILL: "kill -9 of the replica",
    Fault.CUT_BEFORE: "the database connection is reset, and the statement does not arrive",
    Fault.CUT_AFTER: "the statement arrives, is committed, and the connection is reset instead of its answer",
    Fault.CLOSES: "the connection to upstream is closed in order",
    Fault.HANGS: "the connection to upstream stays open, and nothing comes any more",
}
FAULTS: Final = {
    Kind.COMMIT: (Fault.KILL, Fault.CUT_BEFORE, Fault.CUT_AFTER),
    Kind.CALL: (Fault.KILL, Fault.CLOSES, Fault.HANGS),
}


@dataclass(frozen=True, slots=True)
class Case:
    """One fault at one point."""

    point: FaultPoint
    fault: Fault

    def __str__(self) -> str:
        return f"{self.point}: {self.fault.value}"


_OF_APPROVAL: Final = frozenset({Step.DECISION, Step.STATE, Step.VERDICT})
STEPS: Final = tuple(step for step in Step if step not in _OF_APPROVAL)
"""Those of runs without human approval, and of what a reconciler does about them: tests/faults/test_crash_matrix.py."""
RESUME_STEPS: Final = (
    Step.DECISION,
    Step.CAPABILITIES,
    Step.STATE,
    Step.FENCE,
    Step.POST,
    Step.START,
    Step.VERDICT,
    Step.SETTLE,
    Step.RELEASE,
)
"""Those of a resume run on its way from a decision to its end: tests/faults/test_crash_approval.py."""
CASES: Final = tuple(Case(point, fault) for point in FAULT_POINTS if point.step in STEPS for fault in FAULTS[point.step.kind])
_LAST_CALL: Final = Step.VERDICT
"""What a run last asks of upstream: no connection to it is left to be closed after that."""
RESUME_CASES: Final = tuple(
    Case(point, fault)
    for point in FAULT_POINTS
    if point.step in RESUME_STEPS
    for fault in FAULTS[point.step.kind]
    if fault is Fault.KILL or point != FaultPoint(Moment.AFTER, _LAST_CALL)
)


def in_covering_set(case: Case) -> bool:
    """Whether CI runs the case. A pairwise choice over (step, fault, before/after): each step has each of its faults once, at moments that
    alternate, so that each point, each fault, and each pair of a step and a fault, a step and a moment, a fault and a moment is run.
    """
    steps, faults = list(Step), FAULTS[case.point.step.kind]
    if case.point.step is _LAST_CALL and case.fault is not Fault.KILL:
        return case.point.moment is Moment.BEFORE
    moment = tuple(Moment)[(steps.index(case.point.step) + faults.index(case.fault)) % 2]
    return case.point.moment is moment


def page() -> str:
    """docs/crash-matrix.md."""
    lines = [
        "<!-- Made from gateway/domain/fault_points.py; `python -m tests.support.crash_matrix` writes it anew. -->",
        "# Crash matrix",
        "",
        "Before and after each commit of a run and each call to upstream, each fault that makes sense there is injected into one of two",
        "replicas while it has runs of every kind; the other replica, and a client that repeats its submissions, do the rest. Then the",
        "invariants of `tests/support/invariants.py` must hold. A fault before a step meets that step; one after it meets whatever the",
        "replica sends or gets next. **CI**: run every time; *all*: run by `make test-all`.",
        "",
        *(f"- {fault.value}: {FAULT_DOCS[fault]}" for fault in Fault),
    ]
    for kind in Kind:
        lines += _table(f"## Each {kind.value}", kind, STEPS)
    lines += [
        "",
        "## Of a decision",
        "",
        "The same for the run that delivers a person's decision, before an agent that counts what took effect: at most one does, the",
        "question is free again exactly where its decision was proven never sent, and then it can be decided anew.",
    ]
    for kind in Kind:
        lines += _table(None, kind, RESUME_STEPS)
    cases = (*CASES, *RESUME_CASES)
    covering = sum(in_covering_set(case) for case in cases)
    return "\n".join([*lines, "", f"{len(cases)} cases, {covering} of them in CI.", ""])


def _table(title: str | None, kind: Kind, steps: Sequence[Step]) -> list[str]:
    faults = FAULTS[kind]
    heads = [f"{moment.value}: {fault.value}" for moment in Moment for fault in faults]
    lines = ["", *([title, ""] if title else []), f"| step | {' | '.join(heads)} |", f"|{' --- |' * (len(heads) + 1)}"]
    for step in (step for step in steps if step.kind is kind):
        cases = [Case(FaultPoint(moment, step), fault) for moment in Moment for fault in faults]
        lines.append(f"| `{step.value}` | {' | '.join(map(_mark, cases))} |")
    return lines


def _mark(case: Case) -> str:
    if case not in CASES and case not in RESUME_CASES:
        return "-"
    return "**CI**" if in_covering_set(case) else "*all*"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
