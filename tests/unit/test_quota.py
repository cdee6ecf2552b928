"""Windows and states of quota rules as values: parsing, names, what is left, and which of several rules speaks."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from gateway.domain.quota import CalendarWindow, RuleState, Scope, Window, rule_states, tightest, tightest_first

DAY = 86_400


@pytest.mark.parametrize(
    ("text", "seconds", "nearest"),
    [
        ("hour", 3600, "hour"),
        ("day", DAY, "day"),
        ("month", 31 * DAY, "month"),
        ("1h", 3600, "hour"),
        ("2h", 7200, "day"),
        ("1d", DAY, "day"),
        ("30d", 30 * DAY, "month"),
        ("366d", 366 * DAY, "month"),
    ],
)
def test_a_window_is_what_it_says(text: str, seconds: int, nearest: str) -> None:
    window = Window.parse(text)
    assert window is not None
    assert (str(window), window.seconds, window.nearest_calendar) == (text, seconds, CalendarWindow(nearest))
    assert Window.of(window.calendar, window.sliding_seconds) == window


@pytest.mark.parametrize("text", ["", "week", "0h", "h", "1m", "367d", "99999d", " 1h", "1h\n", "-1d", "1.5h"])
def test_anything_else_is_no_window(text: str) -> None:
    assert Window.parse(text) is None


def test_a_window_of_odd_seconds_is_named_by_them() -> None:
    assert str(Window.of(None, 90)) == "90s"
    assert str(Window.of(None, 25 * 3600)) == "25h"


def row(
    limit: int = 3, used: int = 1, *, has_room: bool = True, wait: float | None = 10.2, scope: str = "user", app: bool = False
) -> RuleState:
    (state,) = rule_states(
        [
            {
                "quota_rule_id": "0123456789abcdef0123456789abcdef",
                "scope": scope,
                "group_name": None,
                "of_application": app,
                "calendar_window": "day",
                "sliding_seconds": None,
                "task_limit": limit,
                "used": used,
                "has_room": has_room,
                "more_at": None if wait is None else "2026-01-02T00:00:00+00:00",
                "more_in_seconds": wait,
            }
        ]
    )
    return state


def test_what_is_left_and_for_how_long() -> None:
    state = row()
    assert state.quota_rule_id == UUID("01234567-89ab-cdef-0123-456789abcdef")
    assert (state.remaining, state.wait_seconds, state.more_at) == (2, 11, datetime(2026, 1, 2, tzinfo=UTC))
    assert (row(limit=1, used=5).remaining, row(wait=0.0).wait_seconds, row(wait=None).wait_seconds) == (0, 1, None)
    assert row(wait=None).more_at is None


def test_a_policy_is_named_by_whose_tasks_it_counts() -> None:
    assert row().policy == "user-day-01234567"
    assert row(app=True).policy == "user-in-app-day-01234567"
    assert row(scope=Scope.APP, app=True).policy == "app-day-01234567"


def test_the_rule_that_is_full_for_longest_speaks_else_the_one_with_the_least_left() -> None:
    assert tightest(rule_states(None)) is None
    wide, narrow, full, fuller = row(limit=9), row(limit=2), row(has_room=False, wait=5.0), row(has_room=False, wait=50.0)
    assert tightest([wide, narrow]) == narrow
    assert tightest([narrow, full, fuller, wide]) == fuller
    slower = row(limit=2, wait=99.0)
    assert tightest([narrow, slower]) == slower
    assert tightest([row(has_room=False, wait=None), full]) == full
    assert tightest_first([wide, full, narrow, fuller]) == (fuller, full, narrow, wide)
