"""What a probe found: one finding for each clause, told as it is found, and the whole at the end. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gateway.probe.clauses import WORDINGS, Clause


class Result(StrEnum):
    """What became of a clause."""

    OK = "ok"
    BROKEN = "broken"
    ADVICE = "advice"
    """Not as it should be, and not asked for by the contract."""
    SKIPPED = "skipped"
    """Not seen, because of what was broken before or what was left out."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One clause. `seen` is made of fixed phrases, numbers and names of events: never text that the service wrote."""

    clause: Clause
    result: Result
    seen: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """The whole, in the order in which it was found. `agent_runs`: how often the agent was run for it."""

    findings: tuple[Finding, ...]
    agent_runs: int

    @property
    def first_broken(self) -> Finding | None:
        """The clause to mend first; None: the contract is kept as far as a probe sees."""
        return next((finding for finding in self.findings if finding.result is Result.BROKEN), None)

    def of(self, result: Result) -> tuple[Finding, ...]:
        """The findings with one result."""
        return tuple(finding for finding in self.findings if finding.result is result)


class Ledger:
    """Takes findings, tells each once. A clause that was told is not told again, unless it turns out broken after all."""

    def __init__(self, clauses: Sequence[Clause], tell: Callable[[Finding], None]) -> None:
        self._clauses = clauses
        self._tell = tell
        self._found: dict[Clause, Finding] = {}
        self.agent_runs = 0

    def ok(self, clause: Clause) -> None:
        """The clause is kept, as far as was seen."""
        self._add(Finding(clause, Result.OK))

    def broken(self, clause: Clause, seen: str) -> None:
        """The clause is broken; of a clause that is advice only, this is advice."""
        self._add(Finding(clause, Result.ADVICE if WORDINGS[clause].advice else Result.BROKEN, seen))

    def advise(self, clause: Clause, seen: str) -> None:
        """The clause is kept in a way that costs something."""
        self._add(Finding(clause, Result.ADVICE, seen))

    def has(self, clause: Clause) -> bool:
        """Whether the clause was told, whatever was found."""
        return clause in self._found

    def is_broken(self, clause: Clause) -> bool:
        """Whether the clause was found broken."""
        return clause in self._found and self._found[clause].result is Result.BROKEN

    def report(self) -> Report:
        """The end: what was not told is skipped."""
        skipped = tuple(Finding(clause, Result.SKIPPED) for clause in self._clauses if clause not in self._found)
        return Report((*self._found.values(), *skipped), self.agent_runs)

    def _add(self, finding: Finding) -> None:
        known = self._found.get(finding.clause)
        if known is not None and (known.result is Result.BROKEN or finding.result is not Result.BROKEN):
            return
        # At its new place: the first broken clause is the one that was found first.
        self._found.pop(finding.clause, None)
        self._found[finding.clause] = finding
        self._tell(finding)
