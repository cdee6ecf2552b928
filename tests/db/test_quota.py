"""Quota in SQL: which rules count a task, windows of the calendar and those that slide, what is told, and that the text was moderated."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.rows import dict_row

from gateway.domain.ids import AccountId, ApplicationId, RunId
from gateway.domain.quota import CalendarWindow, Scope, Window, rule_states, tightest
from gateway.domain.snapshot import item_id
from gateway.store import admission, quotas
from gateway.store.admission import AdmitRow
from gateway.store.database import Database
from gateway.store.errors import ConstraintViolated
from tests.db.world import World, world_on
from tests.support.moderated import passed

pytestmark = pytest.mark.anyio

HOUR, DAY, MONTH = (Window(window, None) for window in CalendarWindow)
SLIDING_HOUR = Window(None, 3600)


@dataclass
class Desk:
    """Admissions past all checks before them, and the clock of charges set back."""

    world: World
    url: str
    apps: dict[str, ApplicationId] = field(default_factory=dict)
    people: dict[str, AccountId] = field(default_factory=dict)

    async def rule(self, scope: Scope, limit: int, window: Window, *, app: str | None = None, group: str | None = None) -> UUID:
        application_id = self.apps[app] if app else None
        return await quotas.set_rule(
            self.world.database, scope=scope, window=window, task_limit=limit, application_id=application_id, group_name=group
        )

    async def ask(self, who: str = "ada", app: str = "notes", groups: Sequence[str] = (), *, keep: bool = True, **changes: Any) -> AdmitRow:
        """One admission; committed when it is admitted and to be kept."""
        run_id = RunId(uuid4())
        params: Mapping[str, object] = {
            "account_id": self.people[who],
            "subject": who,
            "claimed_groups": list(groups),
            "application_id": self.apps[app],
            "submission_id": str(uuid4()),
            "fingerprint": bytes(32),
            "conversation_id": None,
            "client_thread": None,
            "new_conversation_id": uuid4(),
            "title": "hi",
            "run_id": run_id,
            "attempt_token": uuid4(),
            "correlation_id": uuid4(),
            "item_id": item_id(run_id, 0),
            "text": "hi",
            "groups": list(groups),
            "max_per_user": 999,
            "max_per_application": 999,
            "lease_seconds": 30.0,
            "quota_zone": "UTC",
            **passed("hi").params(),
            **changes,
        }
        async with self.world.database.transaction() as tx:
            row = await admission.admit(tx, params)
            if row.verdict == "admitted" and keep:
                await tx.commit()
        return row

    async def verdicts(self, number: int, who: str = "ada", app: str = "notes", groups: Sequence[str] = ()) -> list[str]:
        return [(await self.ask(who, app, groups)).verdict for _ in range(number)]

    def sql(self, statement: str, *parameters: Any) -> list[dict[str, Any]]:
        with psycopg.connect(self.url, autocommit=True, row_factory=dict_row) as connection:
            cursor = connection.execute(statement.encode(), parameters)
            return cursor.fetchall() if cursor.description else []

    def used(self) -> int:
        return int(self.sql("select coalesce(sum(used), 0)::int as n from quota_usage")[0]["n"])


@pytest.fixture
async def desk(database: Database, database_url: str) -> Desk:
    desk = Desk(world_on(database, database_url), database_url)
    # the window of a charge is a foreign key; these tests move both ends of it
    desk.sql("alter table quota_charge drop constraint quota_charge_has_usage")
    await desk.world.provider()
    for app in ("notes", "mail"):
        desk.apps[app] = await desk.world.application(app)
    for who in ("ada", "ben"):
        desk.people[who] = await desk.world.account(who)
    return desk


ADMITTED, EXHAUSTED = "admitted", "quota_exhausted"


@pytest.mark.parametrize("group", [None, "staff"])
@pytest.mark.parametrize("app", [None, "notes"])
@pytest.mark.parametrize("scope", list(Scope))
async def test_scopes_and_their_combinations(desk: Desk, scope: Scope, app: str | None, group: str | None) -> None:
    """Ada's task in notes, as one of the staff, uses the rule up; who is refused now says what counts together with it."""
    if (scope is Scope.APP and (app is None or group)) or (scope is Scope.GROUP and group is None):
        with pytest.raises(ConstraintViolated):
            await desk.rule(scope, 1, DAY, app=app, group=group)
        return
    await desk.rule(scope, 1, DAY, app=app, group=group)
    assert (await desk.ask("ada", "notes", ["staff", "all"])).verdict == ADMITTED
    refused = [
        (who, where, of)
        for who in ("ada", "ben")
        for where in ("notes", "mail")
        for of in ("staff", "guests")
        if (await desk.ask(who, where, [of], keep=False)).verdict == EXHAUSTED
    ]
    assert refused == [
        (who, where, of)
        for who in ("ada", "ben")
        for where in ("notes", "mail")
        for of in ("staff", "guests")
        if (scope is not Scope.USER or who == "ada") and app in (None, where) and group in (None, of)
    ]


async def test_the_tightest_rule_speaks_and_its_wait_is_true_of_all(desk: Desk) -> None:
    short = await desk.rule(Scope.USER, 2, HOUR)
    long = await desk.rule(Scope.GROUP, 2, MONTH, group="staff")
    await desk.rule(Scope.APP, 9, DAY, app="notes")
    first = await desk.ask(groups=["staff"])
    states = rule_states(first.quota)
    assert [(state.used, state.task_limit, state.has_room) for state in sorted(states, key=lambda one: (one.task_limit, one.used))] == [
        (1, 2, True),
        (1, 2, True),
        (1, 9, True),
    ]
    assert (await desk.ask(groups=["staff"])).verdict == ADMITTED
    refused = await desk.ask(groups=["staff"])
    assert refused.verdict == EXHAUSTED
    states = rule_states(refused.quota)
    assert {state.quota_rule_id for state in states if not state.has_room} == {short, long}
    speaker = tightest(states)
    assert speaker is not None
    assert speaker.quota_rule_id == max(states, key=lambda one: one.wait_seconds or 0 if not one.has_room else 0).quota_rule_id
    now = datetime.now(UTC)
    of_the_hour = next(state for state in states if state.quota_rule_id == short)
    assert of_the_hour.more_at == (now + timedelta(hours=1)).replace(minute=0, second=0, microsecond=0)
    assert 0 < (of_the_hour.wait_seconds or 0) <= 3600
    assert desk.used() == 6


async def test_a_limit_that_was_lowered_below_what_is_used(desk: Desk) -> None:
    await desk.rule(Scope.USER, 3, DAY)
    assert await desk.verdicts(3) == [ADMITTED] * 3
    await desk.rule(Scope.USER, 1, DAY)
    refused = await desk.ask()
    [state] = rule_states(refused.quota)
    assert (refused.verdict, state.used, state.remaining, state.task_limit) == (EXHAUSTED, 3, 0, 1)


async def test_a_window_that_slides(desk: Desk) -> None:
    """Three an hour: what was used in the last hour counts, and no more of it comes back than leaves."""
    await desk.rule(Scope.USER, 3, SLIDING_HOUR)
    assert await desk.verdicts(4) == [ADMITTED] * 3 + [EXHAUSTED]
    move = "update quota_usage set window_start = window_start - make_interval(secs => %s)"
    desk.sql(move, 3000)
    [state] = rule_states((await desk.ask()).quota)
    assert not state.has_room
    # a slice of a minute counts until all of it is an hour old
    assert 540 <= (state.wait_seconds or 0) <= 660
    desk.sql(move, 661)
    assert await desk.verdicts(2) == [ADMITTED] * 2
    desk.sql(move, 1800)
    assert await desk.verdicts(2) == [ADMITTED, EXHAUSTED]
    desk.sql(move, 1861)
    last = await desk.ask()
    [state] = rule_states(last.quota)
    assert (last.verdict, state.used) == (ADMITTED, 2)


async def test_when_a_window_that_slides_has_more(desk: Desk) -> None:
    """With the limit lowered, more than one slice has to leave before there is room: the wait is until the last of them."""
    await desk.rule(Scope.USER, 9, SLIDING_HOUR)
    for _ in range(3):
        assert await desk.verdicts(1) == [ADMITTED]
        desk.sql("update quota_usage set window_start = window_start - interval '10 min'")
    await desk.rule(Scope.USER, 2, SLIDING_HOUR)
    [state] = rule_states((await desk.ask()).quota)
    # charged 30, 20 and 10 minutes ago: one is left when the second has gone, in 40 minutes
    assert state.used == 3
    assert 39 * 60 <= (state.wait_seconds or 0) <= 42 * 60


async def test_in_no_window_of_that_length_are_more_than_the_limit(desk: Desk) -> None:
    """At a slice's border as well: what is charged in its last moment still counts when nearly an hour has passed."""
    await desk.rule(Scope.USER, 2, SLIDING_HOUR)
    assert await desk.verdicts(2) == [ADMITTED] * 2
    border = desk.sql("select quota_reach_v1(3600) as reach")[0]["reach"]
    assert border == timedelta(seconds=3660)
    desk.sql("update quota_usage set window_start = clock_timestamp() - interval '3659 s'")
    assert await desk.verdicts(1) == [EXHAUSTED]
    desk.sql("update quota_usage set window_start = clock_timestamp() - interval '3661 s'")
    assert await desk.verdicts(1) == [ADMITTED]


async def test_many_at_once_share_a_window_that_slides(desk: Desk) -> None:
    """Also where their slices differ: the bucket has one lock."""
    await desk.rule(Scope.GROUP, 7, SLIDING_HOUR, group="staff")
    rows = await asyncio.gather(*(desk.ask(who, app, ["staff"]) for _ in range(8) for who in ("ada", "ben") for app in ("notes", "mail")))
    assert [row.verdict for row in rows].count(ADMITTED) == 7
    assert desk.used() == 7


async def test_two_slices_of_one_bucket_wait_for_each_other(desk: Desk) -> None:
    """One admission is charged and not committed; the next, in another slice, must wait for it and then see it."""
    await desk.rule(Scope.USER, 1, SLIDING_HOUR)
    with psycopg.connect(desk.url) as other:
        charged = other.execute("select charged from charge_quota_v1(%s, %s, '{}', 'UTC')", (desk.people["ada"], desk.apps["notes"]))
        assert charged.fetchone() == (True,)
        other.execute("update quota_usage set window_start = window_start - interval '10 min'")
        waiting = asyncio.create_task(desk.ask())
        while not desk.sql("select pid from pg_stat_activity where wait_event = 'advisory'"):
            assert not waiting.done()
            await asyncio.sleep(0.01)
        other.commit()
    assert (await waiting).verdict == EXHAUSTED


@pytest.mark.parametrize(
    ("window", "at", "zone", "start", "end"),
    [
        ("day", "2026-03-29 12:00Z", "Europe/Berlin", "2026-03-28 23:00Z", "2026-03-29 22:00Z"),
        ("day", "2026-10-25 12:00Z", "Europe/Berlin", "2026-10-24 22:00Z", "2026-10-25 23:00Z"),
        ("hour", "2026-10-25 00:30Z", "Europe/Berlin", "2026-10-25 00:00Z", "2026-10-25 01:00Z"),
        ("hour", "2026-10-25 01:30Z", "Europe/Berlin", "2026-10-25 01:00Z", "2026-10-25 02:00Z"),
        ("hour", "2026-06-01 10:20Z", "Asia/Kolkata", "2026-06-01 09:30Z", "2026-06-01 10:30Z"),
        # there, days begin at one o'clock when the clock goes forward
        ("day", "2026-04-24 12:00Z", "Africa/Cairo", "2026-04-23 22:00Z", "2026-04-24 21:00Z"),
        ("day", "2026-04-23 12:00Z", "Africa/Cairo", "2026-04-22 22:00Z", "2026-04-23 22:00Z"),
        ("month", "2026-03-01 00:30Z", "America/New_York", "2026-02-01 05:00Z", "2026-03-01 05:00Z"),
        ("month", "2026-01-31 23:59:59.999999Z", "UTC", "2026-01-01 00:00Z", "2026-02-01 00:00Z"),
    ],
)
async def test_windows_of_the_calendar_over_changes_of_the_clock(desk: Desk, window: str, at: str, zone: str, start: str, end: str) -> None:
    [row] = desk.sql(
        "select w.window_start = %s::timestamptz as starts, w.leaves_at = %s::timestamptz as ends, w.window_start, w.leaves_at"
        " from quota_window_v1(%s, null, %s, %s) w",
        start, end, window, at, zone,
    )  # fmt: skip
    assert (row["starts"], row["ends"]) == (True, True), row


async def test_old_and_new_replicas_count_in_the_same_window(desk: Desk) -> None:
    """A replica of the version before admits with admit_v1 on this schema: what it charges counts here, and the other way round."""
    await desk.rule(Scope.USER, 2, DAY)
    assert await desk.verdicts(1) == [ADMITTED]
    old = "select verdict from admit_v1(%s, %s, %s, %s, null, %s, 't', %s, %s, %s, %s, 'x', '{}', 99, 99, 30, 'UTC')"

    def by_the_old(submission_id: str) -> str:
        with psycopg.connect(desk.url) as connection:
            ids = [uuid4() for _ in range(5)]
            row = connection.execute(old.encode(), (desk.people["ada"], desk.apps["notes"], submission_id, bytes(32), *ids)).fetchone()
            assert row is not None
            if row[0] == ADMITTED:
                connection.commit()
            return str(row[0])

    assert by_the_old("s1") == ADMITTED
    assert (await desk.ask()).verdict == EXHAUSTED
    assert by_the_old("s2") == EXHAUSTED


@pytest.mark.parametrize(
    "changes",
    [
        {"text": "something else"},
        {"text_sha256": bytes(32)},
        {"text_sha256": None},
        {"providers": [], "versions": [], "durations": []},
    ],
    ids=["other text", "other digest", "no digest", "nobody asked"],
)
async def test_c3_nothing_is_admitted_that_was_not_shown_to_moderation(desk: Desk, changes: dict[str, Any]) -> None:
    with pytest.raises(ConstraintViolated) as refused:
        await desk.ask(**changes)
    assert refused.value.constraint == "admit_moderated_text"
    assert desk.sql("select run_id from run union all select run_id from submission") == []


async def test_a_refused_text_cannot_have_a_run(desk: Desk) -> None:
    run = (await desk.ask()).run_id
    for outcome, categories, fault in (("refused", "{secret}", None), ("unavailable", "{}", "timed_out")):
        with pytest.raises(psycopg.errors.CheckViolation, match="verdict_of_a_run_allows"):
            desk.sql(
                "select note_verdicts_v1(%s, %s, 's', %s, 'message', %s, null, '{local}', '{null}', '{0}', %s, %s, %s)",
                desk.people["ada"], desk.apps["notes"], run, bytes(32), outcome, categories, fault,
            )  # fmt: skip
