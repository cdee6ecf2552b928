"""Three replicas over one database, killed and started again at random under load: nothing twice, nothing beyond a limit, nothing leaked.

People submit at whichever replica is up and repeat the same submission id until they get an answer that is neither a broken connection nor
a 503; an operator settles what nothing else can. The scripted upstream counts what arrived, and is the judge of it. Who is killed and when,
and who says what, comes from a seed; what the machine makes of it does not.
"""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
import psycopg
import pytest
from psycopg.rows import dict_row

from gateway.domain.ids import ApplicationId
from gateway.domain.quota import CalendarWindow, Scope, Window
from gateway.store.quotas import set_rule
from tests.support.faulty_replica import QUICK
from tests.support.invariants import Acknowledged, assert_hold, at_rest, watch
from tests.support.processes import ReplicaProcess, replica_process
from tests.support.scripted_upstream import Answer, Frame, Script, event, failed, finished, message, pause, started
from tests.support.stack import Client, Stack

pytestmark = pytest.mark.anyio

REPLICAS: Final = 3
PEOPLE: Final = 12
PER_USER: Final = 2
PER_APPLICATION: Final = 6
SETTINGS: Final = {
    **QUICK,
    "AGENT_MAX_ACTIVE_PER_USER": str(PER_USER),
    "AGENT_MAX_ACTIVE_PER_APP": str(PER_APPLICATION),
    # an operator may say "not executed" when a POST that left must have arrived: soon, here
    "GATEWAY_STREAM_IDLE_SECONDS": "3",
    "GATEWAY_STREAM_TOTAL_SECONDS": "3",
}
REST_SECONDS: Final = 60.0
"""For everything to come to rest: a lease, four look-ups with their pauses, an operator's wait, and a machine that is busy."""
_OVERSHOOT: Final = """
select coalesce(max(n) filter (where what = 'user'), 0) as per_user, coalesce(max(n) filter (where what = 'application'), 0) as per_app,
    coalesce(max(n) filter (where what = 'conversation'), 0) as per_conversation
from (
    select 'user' as what, count(*) as n from run where execution = any (%(active)s) group by account_id
    union all select 'application', count(*) from run where execution = any (%(active)s) group by application_id
    union all select 'conversation', count(*) from run where execution = any (%(active)s) group by conversation_id
) counted
"""
_OVERSPENT: Final = """
select count(*) as n
from (
    select 1 from quota_usage u join quota_rule q on q.quota_rule_id = u.quota_rule_id
    group by q.quota_rule_id, u.bucket having sum(u.used) > q.task_limit
) over_the_limit
"""
QUOTA: Final = (
    (Scope.USER, Window(CalendarWindow.MONTH, None), 1000, None),
    (Scope.USER, Window(None, 3600), 25, 1),
    (Scope.APP, Window(None, 86_400), 60, 0),
)
"""The last two are soon used up, and get room again by what is returned."""
_ACTIVE: Final = ["reserved", "dispatched", "running", "unknown"]


def answers(choose: random.Random) -> list[Answer]:
    """What upstream does with the POSTs, one after the other: most runs take a while, some end in an error, some break off."""

    def frames(end: list[Frame]) -> list[Frame]:
        words = [event("TEXT_MESSAGE_CONTENT", messageId="m", delta=f"word {n} ") for n in range(choose.randint(1, 4))]
        spoken = list(itertools.chain.from_iterable((pause(choose.choice([0.02, 0.1, 0.4])), word) for word in words))
        opened = event("TEXT_MESSAGE_START", messageId="m", role="assistant")
        return [*started(), opened, *spoken, event("TEXT_MESSAGE_END", messageId="m"), *message("last", "done"), *end]

    kinds = [
        lambda: Answer(frames=frames([finished()])),
        lambda: Answer(frames=frames([finished()])),
        lambda: Answer(frames=frames([finished()])),
        lambda: Answer(frames=frames([failed()])),
        lambda: Answer(frames=frames([finished()]), cut_after_frame=choose.randint(0, 4), ending="reset", ends_as="success"),
    ]
    return [choose.choice(kinds)() for _ in range(400)]


Ask = Callable[[Client], Awaitable[httpx.Response]]
"""What is asked, of whichever replica."""


@dataclass
class Fleet:
    """The replicas that are up, by place. One that is killed leaves its place empty until the next one listens."""

    database_url: str
    exits: AsyncExitStack
    places: list[ReplicaProcess | None] = field(default_factory=lambda: [None] * REPLICAS)
    kills: int = 0

    async def fill(self, place: int) -> None:
        self.places[place] = await self.exits.enter_async_context(replica_process(self.database_url, changes=SETTINGS))

    async def kill(self, place: int) -> None:
        replica, self.places[place] = self.places[place], None
        if replica is not None:
            replica.kill()
            self.kills += 1
            await replica.ended()

    def any(self, choose: random.Random) -> ReplicaProcess | None:
        up = [replica for replica in self.places if replica is not None]
        return choose.choice(up) if up else None


@dataclass
class Storm:
    """One run of the test."""

    stack: Stack
    fleet: Fleet
    applications: list[ApplicationId]
    seed: int
    over: asyncio.Event = field(default_factory=asyncio.Event)
    acknowledged: set[Acknowledged] = field(default_factory=set)
    refused: Counter[str] = field(default_factory=Counter)
    repeated: int = 0

    async def insist(self, choose: random.Random, person: str, ask: Ask) -> httpx.Response:
        """Ask some replica until it answers; the same request each time."""
        while True:
            replica = self.fleet.any(choose)
            if replica is not None:
                try:
                    response = await ask(replica.client(person, roles=("operator",) if person == "operator" else ()))
                    if response.status_code != 503:
                        return response
                except httpx.TransportError:
                    pass
                self.repeated += 1
            await asyncio.sleep(0.05)  # the pause of a polite client

    async def person(self, number: int) -> None:
        """Somebody who asks, waits for the end, asks on in the same conversation or in another, and sometimes repeats what was answered."""
        choose = random.Random(f"{self.seed}/{number}")
        name = f"person-{number}"
        conversations: dict[ApplicationId, str] = {}
        for count in itertools.count():
            if self.over.is_set():
                return
            application = choose.choice(self.applications)
            target = conversations.get(application) if choose.random() < 0.6 else None
            submission_id, text = f"{name}-{count}", f"question {count} of {name}"
            response = await self.insist(choose, name, _submit(application, submission_id, text, target))
            if response.status_code not in (200, 202):
                self.refused[response.json()["code"]] += 1
                conversations.pop(application, None)
                await asyncio.sleep(0.1)  # the pause of a polite client
                continue
            run = response.json()
            known = Acknowledged(name, submission_id, text, run["run_id"])
            self.acknowledged.add(known)
            conversations[application] = run["conversation_id"]
            if choose.random() < 0.3:
                again = await self.insist(choose, name, _submit(application, submission_id, text, target))
                assert (again.status_code in (200, 202), again.json()["run_id"]) == (True, run["run_id"])
            await self.wait(choose, name, application, run["run_id"])

    async def wait(self, choose: random.Random, name: str, application: ApplicationId, run_id: str) -> None:
        """Until the run is over or needs somebody; an incomplete answer is accepted."""
        path = f"/api/internal/apps/{application}/agent/runs/{run_id}"
        while not self.over.is_set():
            run = (await self.insist(choose, name, lambda client: client.get(path))).json()
            if run["attention"] == "user":
                await self.insist(choose, name, lambda client: client.http.post(f"{path}/acknowledge", headers=client.headers))
            if run["execution"] not in _ACTIVE or run["attention"] == "operator":
                return
            await asyncio.sleep(0.1)  # a poll

    async def operator(self) -> None:
        """Settles what nothing else can, by what the service shows: its count of executions."""
        choose = random.Random(f"{self.seed}/operator")
        async with await connected(self.stack.database_url) as connection:
            while True:
                query = "select run_id, correlation_id from run where execution = 'unknown' and attention = 'operator'"
                for row in await (await connection.execute(query)).fetchall():
                    shown = self.stack.upstream.run_status(str(row["correlation_id"]))
                    outcome = {None: "not_executed", "success": "succeeded", "error": "failed"}.get(shown)
                    if outcome is not None:
                        body = {"outcome": outcome, "reason": "the service was asked"}
                        path = f"/api/operator/runs/{row['run_id']}/resolve"
                        response = await self.insist(choose, "operator", _post(path, body))
                        assert response.status_code in (200, 409), response.text
                await asyncio.sleep(0.3)  # a poll

    async def killer(self, seconds: float) -> None:
        """SIGKILL for one or two of them at a time, and new ones in their places."""
        choose = random.Random(f"{self.seed}/killer")
        until = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < until:
            await asyncio.sleep(choose.uniform(0.5, 2.0))  # chance is what is tested here
            chosen = choose.sample(range(REPLICAS), choose.choice([1, 1, 2]))
            await asyncio.gather(*(self.fleet.kill(place) for place in chosen))
            await asyncio.sleep(choose.uniform(0.0, 0.5))
            await asyncio.gather(*(self.fleet.fill(place) for place in chosen))
        self.over.set()

    async def watch_limits(self) -> None:
        """No limit is overshot at any moment that is looked at."""
        allowed = {"per_user": PER_USER, "per_app": PER_APPLICATION, "per_conversation": 1}
        async with await connected(self.stack.database_url) as connection:
            while True:
                row = await (await connection.execute(_OVERSHOOT, {"active": _ACTIVE})).fetchone()
                assert row is not None
                assert all(row[what] <= limit for what, limit in allowed.items()), row
                assert await (await connection.execute(_OVERSPENT)).fetchall() == [{"n": 0}]
                await asyncio.sleep(0.02)  # a sample

    async def come_to_rest(self) -> list[dict[str, Any]]:
        """The runs, once nothing is left to be done by itself or by the operator."""
        async with await connected(self.stack.database_url) as connection, asyncio.timeout(REST_SECONDS):
            while True:
                runs = await (await connection.execute("select * from run order by created_at")).fetchall()
                if all(at_rest(run) and run["execution"] != "unknown" for run in runs):
                    return runs
                await asyncio.sleep(0.1)  # a poll


def _submit(application: ApplicationId, submission_id: str, text: str, target: str | None) -> Ask:
    return lambda client: client.submit(application, submission_id, text, target)


def _post(path: str, body: dict[str, str]) -> Ask:
    async def ask(client: Client) -> httpx.Response:
        return await client.http.post(path, json=body, headers=client.headers)

    return ask


async def connected(database_url: str) -> "psycopg.AsyncConnection[dict[str, Any]]":
    return await psycopg.AsyncConnection.connect(database_url, autocommit=True, row_factory=dict_row)


async def storm(database_url: str, *, seconds: float, seed: int) -> str:
    """The test; what it gives is a line about what happened."""
    async with Stack.over(database_url) as stack, AsyncExitStack() as exits:
        # no thread, so nothing is sent and the charge comes back
        threads = [Answer(http_status=500) if random.Random(f"{seed}/{number}").random() < 0.15 else Answer() for number in range(400)]
        stack.upstream.use(Script(ag_ui=answers(random.Random(seed)), threads=threads))
        await watch(database_url)
        applications = [await stack.application() for _ in range(2)]
        for scope, window, limit, of in QUOTA:
            application_id = None if of is None else applications[of]
            await set_rule(stack.database, scope=scope, window=window, task_limit=limit, application_id=application_id, group_name=None)
        fleet = Fleet(database_url, exits)
        await asyncio.gather(*(fleet.fill(place) for place in range(REPLICAS)))
        it = Storm(stack, fleet, applications, seed)
        async with asyncio.TaskGroup() as group:
            for_good = [group.create_task(it.operator()), group.create_task(it.watch_limits())]
            asking: list[Coroutine[Any, Any, None]] = [it.person(number) for number in range(PEOPLE)]
            async with asyncio.TaskGroup() as load:
                for coroutine in [*asking, it.killer(seconds)]:
                    load.create_task(coroutine)
            runs = await it.come_to_rest()
            for task in for_good:
                task.cancel()
        await assert_hold(database_url, applications, [stack.upstream], it.acknowledged)
        return account(it, runs)


def account(it: Storm, runs: list[dict[str, Any]]) -> str:
    """Executions are the accepted submissions without those proven never sent, and without those that the count shows as never arrived."""
    counts = it.stack.upstream.counts()
    executed = counts.executions_by_run_id
    ended = Counter(f"closed {run['resolution_outcome']}" if run["execution"] == "closed" else run["execution"] for run in runs)
    told = f"{len(runs)} accepted, {counts.executions} executions, {dict(ended)}, {it.fleet.kills} kills, {it.repeated} requests repeated"
    assert max(executed.values(), default=0) <= 1, told
    assert counts.ag_ui == counts.executions, told
    assert not [run for run in runs if run["user_slot"] is not None], told
    never_sent = ended["released"]
    # unknown until the operator, who was shown nothing of them, closed them
    never_arrived = sum(run["execution"] == "closed" and str(run["correlation_id"]) not in executed for run in runs)
    assert counts.executions == len(runs) - never_sent - never_arrived, told
    assert it.fleet.kills > 0, told
    assert counts.executions > 0, told
    print(told)
    return f"{told}, refused {dict(it.refused)}"


@pytest.mark.timeout(240)
async def test_replicas_that_die_under_load(database_url: str, record_property: Any) -> None:
    record_property("storm", await storm(database_url, seconds=15.0, seed=1))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [2, 3])
async def test_replicas_that_die_for_a_minute_under_load(database_url: str, seed: int, record_property: Any) -> None:
    record_property("storm", await storm(database_url, seconds=60.0, seed=seed))
