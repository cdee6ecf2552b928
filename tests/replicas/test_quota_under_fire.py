"""Quota cannot be overspent: many at once, over replicas whose clocks are an hour apart; the ledger is what the runs are."""

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack
from typing import Final

import httpx
import psycopg
import pytest

from gateway.domain.ids import ApplicationId
from gateway.domain.quota import Scope, Window
from gateway.identity.tokens import sign_token
from gateway.store.quotas import set_rule
from tests.support.invariants import assert_hold
from tests.support.processes import ReplicaProcess, replica_process
from tests.support.skewed_replica import CLOCK
from tests.support.stack import JWT_KEY, Client, Stack, token

pytestmark = pytest.mark.anyio

LIMIT: Final = 37
CLOCKS: Final = (-3600, 0, 3600)
SETTINGS: Final = {"AGENT_MAX_ACTIVE_PER_APP": "1000", "GATEWAY_DATABASE_POOL_MAX": "5"}


def person(replica: ReplicaProcess, number: int) -> Client:
    """Signed in an hour and more ago, so that it is in the past for every replica."""
    of_person = sign_token(JWT_KEY.encode(), subject=f"person-{number}", groups=("staff",), now=time.time() - 4000)
    return Client(replica.http, {"Authorization": f"Bearer {of_person}"})


async def submitted(client: Client, application: ApplicationId) -> httpx.Response:
    """One person's one message, sent again while the answer is that it could not be taken now."""
    while True:
        try:
            response = await client.submit(application, "s1", "hello")
        except httpx.TransportError:
            continue
        if response.status_code != 503:
            return response
        await asyncio.sleep(0.1)  # the pause of a polite client


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("window", "people"), [("hour", 500), ("1h", 90), pytest.param("1h", 500, marks=pytest.mark.slow)], ids=str)
async def test_o08_five_hundred_at_once_over_three_replicas_are_admitted_as_often_as_a_rule_says(
    database_url: str, window: str, people: int
) -> None:
    """37, where the clocks of the replicas are in three different hours."""
    parsed = Window.parse(window)
    assert parsed is not None
    async with Stack.over(database_url) as stack, AsyncExitStack() as exits:
        application = await stack.application()
        rule = await set_rule(stack.database, scope=Scope.GROUP, window=parsed, task_limit=LIMIT, application_id=None, group_name="staff")
        replicas = await asyncio.gather(
            *(
                exits.enter_async_context(
                    replica_process(database_url, changes={**SETTINGS, CLOCK: str(clock)}, module=["tests.support.skewed_replica"])
                )
                for clock in CLOCKS
            )
        )
        fresh = {"Authorization": f"Bearer {token('early')}"}
        seen = [(await replica.http.get("/api/internal/me", headers=fresh)).status_code for replica in replicas]
        assert seen == [401, 200, 200], "a token of now is not valid yet for the replica that is an hour behind"
        hours = set()
        with psycopg.connect(database_url, autocommit=True) as connection:

            def hour() -> object:
                row = connection.execute("select date_trunc('hour', clock_timestamp())").fetchone()
                assert row is not None
                return row[0]

            hours.add(hour())
            answers = await asyncio.gather(*(submitted(person(replicas[number % 3], number), application) for number in range(people)))
            hours.add(hour())
            # the database's own hour may end meanwhile, and then a calendar's rule begins anew
            windows = len(hours) if parsed.calendar else 1
            told = Counter((answer.status_code, answer.json().get("code")) for answer in answers)
            assert told[202, None] == LIMIT if windows == 1 else LIMIT <= told[202, None] <= 2 * LIMIT, told
            assert told[202, None] + told[429, "quota_exhausted"] == people, told
            charged = "select count(*), count(distinct (bucket, window_start)) from quota_charge where refunded_at is null"
            used = connection.execute("select sum(used)::int from quota_usage where quota_rule_id = %s", (rule,)).fetchone()
            ledger = connection.execute(charged.encode()).fetchone()
            runs = connection.execute("select count(*) from run where execution <> 'released'").fetchone()
        assert used == (told[202, None],)
        assert ledger is not None
        assert ledger[0] == told[202, None]
        assert runs == (told[202, None],)
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert refused.json()["quota"]["limit"] == LIMIT
        assert 0 < int(refused.headers["retry-after"]) <= parsed.seconds + 60
        for number, answer in enumerate(answers):
            if answer.status_code == 202:
                await person(replicas[number % 3], number).until_over(application, answer.json()["run_id"])
        await assert_hold(database_url, [application], [stack.upstream], ())
