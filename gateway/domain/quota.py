"""Quota as people are told of it: the rules that count a task, what is used, which of them is the tightest. charge_quota_v1 charges."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Self
from uuid import UUID


class Scope(StrEnum):
    """Whose tasks a rule counts together: one user's, a group's members', or all of an application."""

    USER = "user"
    GROUP = "group"
    APP = "app"


class CalendarWindow(StrEnum):
    """Windows of the calendar, in the zone of the deployment (GATEWAY_QUOTA_ZONE)."""

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"


_LONGEST_SECONDS: Final = {CalendarWindow.HOUR: 3600, CalendarWindow.DAY: 86_400, CalendarWindow.MONTH: 31 * 86_400}
_SLIDING: Final = re.compile(r"([1-9][0-9]{0,4})([hd])")
_UNIT_SECONDS: Final = {"h": 3600, "d": 86_400}
_MAX_SLIDING_SECONDS: Final = 366 * 86_400


@dataclass(frozen=True, slots=True)
class Window:
    """A window of the calendar, or one that slides: exactly one of the two is set."""

    calendar: CalendarWindow | None
    sliding_seconds: int | None

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """`hour`, `day`, `month`; or hours and days that slide: `1h`, `30d`, up to 366 days. None for any other text."""
        if text in frozenset(CalendarWindow):
            return cls(CalendarWindow(text), None)
        if (sliding := _SLIDING.fullmatch(text)) is None:
            return None
        seconds = int(sliding[1]) * _UNIT_SECONDS[sliding[2]]
        return cls(None, seconds) if seconds <= _MAX_SLIDING_SECONDS else None

    @classmethod
    def of(cls, calendar_window: str | None, sliding_seconds: int | None) -> Self:
        """The window of a row."""
        return cls(CalendarWindow(calendar_window) if calendar_window else None, sliding_seconds)

    @property
    def seconds(self) -> int:
        """How long it is; of windows of the calendar the longest there are."""
        if self.calendar is not None:
            return _LONGEST_SECONDS[self.calendar]
        assert self.sliding_seconds is not None
        return self.sliding_seconds

    @property
    def nearest_calendar(self) -> CalendarWindow:
        """Itself, or the shortest window of the calendar that is as long, if any: what replicas count in that know no sliding windows."""
        as_long = (one for one in CalendarWindow if _LONGEST_SECONDS[one] >= self.seconds)
        return self.calendar or next(as_long, CalendarWindow.MONTH)

    def __str__(self) -> str:
        if self.calendar is not None:
            return self.calendar.value
        unit = "h" if self.seconds % _UNIT_SECONDS["d"] else "d"
        whole, rest = divmod(self.seconds, _UNIT_SECONDS[unit])
        return f"{self.seconds}s" if rest else f"{whole}{unit}"


@dataclass(frozen=True, slots=True)
class RuleState:
    """One rule that counts a caller's task, with what is used of it.

    `has_room`: it would take one task more, or of a charge: it took it. `more_at`: when more may be used than now, by the database's clock,
    `more_in_seconds` from then; both None while nothing is used.
    """

    quota_rule_id: UUID
    scope: Scope
    group_name: str | None
    of_application: bool
    window: Window
    task_limit: int
    used: int
    has_room: bool
    more_at: datetime | None
    more_in_seconds: float | None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """From one element of the JSON that charge_quota_v1 and quotas.usage make."""
        return cls(
            quota_rule_id=UUID(row["quota_rule_id"]),
            scope=Scope(row["scope"]),
            group_name=row["group_name"],
            of_application=row["of_application"],
            window=Window.of(row["calendar_window"], row["sliding_seconds"]),
            task_limit=row["task_limit"],
            used=row["used"],
            has_room=row["has_room"],
            more_at=datetime.fromisoformat(row["more_at"]) if row["more_at"] else None,
            more_in_seconds=row["more_in_seconds"],
        )

    @property
    def policy(self) -> str:
        """A name for it in ASCII that stays the same: whose tasks, in which window, and the beginning of the rule's id."""
        where = "-in-app" if self.of_application and self.scope is not Scope.APP else ""
        return f"{self.scope}{where}-{self.window}-{str(self.quota_rule_id)[:8]}"

    @property
    def remaining(self) -> int:
        """Tasks that are left; none where a limit was lowered below what is used."""
        return max(self.task_limit - self.used, 0)

    @property
    def wait_seconds(self) -> int | None:
        """Whole seconds until there is more, one at least; None while nothing is used."""
        return None if self.more_in_seconds is None else max(math.ceil(self.more_in_seconds), 1)


def rule_states(rows: Iterable[Mapping[str, Any]] | None) -> tuple[RuleState, ...]:
    """The rules of a charge or a reading; None and no row: no rule counts the task, so it is not limited."""
    return tuple(RuleState.of(row) for row in rows or ())


def tightest_first(states: Sequence[RuleState]) -> tuple[RuleState, ...]:
    """In the order in which they speak: those without room, the one that is full for longest first; then by the least that is left."""

    def key(state: RuleState) -> tuple[bool, int, int]:
        return state.has_room, state.remaining if state.has_room else 0, -(state.wait_seconds or 0)

    return tuple(sorted(states, key=key))


def tightest(states: Sequence[RuleState]) -> RuleState | None:
    """The rule that speaks for all; None where no rule counts."""
    return next(iter(tightest_first(states)), None)
