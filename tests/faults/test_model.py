"""The model test: random schedules of everything that can happen to runs, on real Postgres with the real code, judged after each step.

What is real: admission, execution, heartbeat, reconciler, look-ups, saves, operators' acts, SQL, parser. What is not: sockets (the
Upstream Protocol is the seam: model_upstream.py), time (model_world.py), chance (each task stops at the fault points of design.md until a
rule lets it go on: model_replica.py). What must hold is in model_checks.py.

That it can fail: each of these changes, made alone, failed the short run. A reserved run's expiry takes dispatched ones too; expiry or the
fence does not ask for the lease; the send window never passes; a release returns no charge; a charge is returned twice; late text of the
token holder is thrown away; what is given up while its POST is out counts as never sent. Of decisions: the fence does not ask whose the
question is, or whether its time is over; two have one question; a release keeps the claim; the claim of what is unknown, or of what an
operator closed as executed, is let go; thread state is not compared before an answer is sent.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import pytest
import structlog
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from gateway.domain.evidence import LookupStatus
from gateway.store.database import Database
from tests.faults.model_approval import ApprovalRules
from tests.faults.model_checks import NO_CHANCE, WITNESS, open_eyes
from tests.faults.model_fates import PEOPLE, Fate
from tests.faults.model_loop import ModelLoop
from tests.faults.model_machine import Machine, beating, fates, names, nothing, replicas, spans, steps
from tests.faults.model_replica import LEASE
from tests.faults.model_upstream import Doing, Question, Way

STEPS_IN_CI: Final = 2000
REPLICAS: Final = ("beats", "dies", "loses the database", "sweeps", "sweeps", "sweeps, living")
"""What a replica does, by weight."""
REACHED: Final = frozenset(
    {
        ("reserved", "dispatched"),
        ("reserved", "released"),
        ("dispatched", "running"),
        ("dispatched", "unknown"),
        ("dispatched", "failed"),
        ("dispatched", "released"),
        ("running", "succeeded"),
        ("running", "unknown"),
        ("unknown", "succeeded"),
        ("unknown", "closed"),
        ("none", "partial"),
        ("none", "pending"),
        ("none", "saved"),
        ("pending", "saved"),
        ("running", "waiting"),
        ("waiting", "closed"),
        ("decision", "admitted"),
        ("decision", "won"),
        ("decision", "interrupt_expired"),
        ("decision", "interrupt_not_pending"),
        ("decision", "replayed"),
        ("gives up", "EXECUTING"),
    }
)
BROKEN: Final = frozenset({"task_failed", "run_broken", "sweep_step_broken", "snapshot_hash_differs", "save_failed", "lookup_failed"})


class Runs(ApprovalRules):
    """The rules of processes, of time and of upstream; those of people are in model_people.py and model_approval.py."""

    @precondition(names(lambda world: world.paused()))
    @rule(data=st.data(), well=st.sampled_from([True, True, True, False]))
    def goes_on(self, data: st.DataObject, well: bool) -> None:
        """A task that waits at a fault point goes on, and what it does next may fail in any way."""
        paused = data.draw(st.sampled_from(sorted(self.world.paused())))
        waiting = self.world.paused()[paused]
        faults = [] if well else waiting.faults()
        self.world.release(waiting, data.draw(st.sampled_from(faults)) if faults else None)
        self.does(nothing())

    @precondition(names(lambda world: world.posts(Doing.HELD)))
    @rule(data=st.data(), way=st.sampled_from([*Way, Way.TAKEN, Way.TAKEN, Way.TAKEN]))
    def is_sent(self, data: st.DataObject, way: Way) -> None:
        """The transport has its connection, or not, reads the clock, and sends, or not."""
        held = self.world.posts(Doing.HELD)
        name = data.draw(st.sampled_from(sorted(held)))
        self.world.say(f"{name}: {way}")
        held[name].way.set_result(way)
        self.does(nothing())

    @precondition(names(lambda world: world.posts(Doing.UNDER_WAY)))
    @rule(data=st.data(), arrives=st.booleans())
    def arrives_late(self, data: st.DataObject, arrives: bool) -> None:
        """A POST that was under way arrives, or never will."""
        under_way = self.world.posts(Doing.UNDER_WAY)
        name = data.draw(st.sampled_from(sorted(under_way)))
        self.world.say(f"{name} {'arrives' if arrives else 'is lost'}")
        (self.world.upstream.arrive if arrives else self.world.upstream.lose)(under_way[name])
        self.does(nothing())

    @precondition(names(lambda world: world.moving()))
    @rule(data=st.data(), steps=steps, fate=fates)
    def goes_on_for_long(self, data: st.DataObject, steps: int, fate: Fate) -> None:
        """One run goes some steps forward, and nothing happens to it but its fate."""
        self.forward(data.draw(st.sampled_from(self.world.moving())), steps, fate)

    @precondition(names(lambda world: world.late))
    @rule(data=st.data())
    def a_late_statement_is_done(self, data: st.DataObject) -> None:
        """A statement that its task gave up reaches the database after all."""
        world = self.world
        number = data.draw(st.integers(0, len(world.late) - 1))
        name, statement = world.late.pop(number)
        world.say(f"{name}, given up before, is done now")

        async def act() -> None:
            with world.calls.one():
                await statement()

        self.does(world.refused(act()))

    @rule(name=replicas, what=st.sampled_from(REPLICAS))
    def a_replica(self, name: str, what: str) -> None:
        """What one process does, or what is done to it. A database that was lost is there again at the next beat."""
        world = self.world
        match what:
            case "beats":
                self._beats(name)
            case "sweeps":
                self._sweeps(name)
            case "sweeps, living":
                self.passes(LEASE + 1, (name,))  # the other one is frozen meanwhile
                self._sweeps(name)
            case "dies":
                world.say(f"{name} dies and starts anew")
                world.kill(world.replicas[name])
                self.does(world.start_replica(name))
            case _:
                world.say(f"{name} loses the database")
                world.replicas[name].database.away = True
                self.does(nothing())

    @precondition(names(lambda world: world.open_posts() or world.posts(Doing.HELD)))
    @rule(data=st.data())
    def gives_up(self, data: st.DataObject) -> None:
        """A drain's budget is spent while a POST is out or about to be: what may have been sent is not released, what was not is."""
        posts = self.world.open_posts() or self.world.posts(Doing.HELD)
        name = data.draw(st.sampled_from(sorted(posts)))
        replica = next(one for one in self.world.replicas.values() if one.database is posts[name].sender)
        self.world.say(f"{replica.name} gives up its runs: {name} is {posts[name].doing}")
        Machine.reached["gives up", posts[name].doing.name] += not replica.gave_up
        replica.give_up()
        self.does(nothing())

    @rule(seconds=spans, beats=beating)
    def time_passes(self, seconds: float, beats: tuple[str, ...]) -> None:
        """Everybody's clock; who beats lived meanwhile, who does not was frozen. Accounts and applications are as they were."""
        self.passes(seconds, beats)
        self.does(self.world.restore())

    def _beats(self, name: str) -> None:
        world = self.world
        world.say(f"{name} beats")
        replica = world.replicas[name]
        replica.database.away = False
        held = {run_id for run_id, _ in replica.supervisor.live_runs.held()}
        before = {run_id: row["lease_until"] for run_id, row in world.seen.runs.items()}
        good = self.does(replica.heartbeat.beat())
        for run_id, row in world.seen.runs.items():
            if run_id not in held:
                world.expect(row["lease_until"] == before[run_id], f"{name} renewed {world.known[run_id].name}, which it does not hold")
            elif good and row["user_slot"] is not None and before[run_id] is not None:
                world.expect(row["lease_live"], f"{name} beat, and {world.known[run_id].name} has no lease")

    def _sweeps(self, name: str) -> None:
        self.world.say(f"{name} sweeps")
        self.does(self.world.replicas[name].sweep())

    @precondition(names(lambda world: world.runs(lambda run: run["user_slot"] is not None)))
    @rule(name=replicas, ends=st.booleans())
    def sweeps_to_the_end(self, name: str, ends: bool) -> None:
        """That replica lives, the other is frozen: what can be known is looked up and written. `ends`: upstream is done first."""
        world = self.world
        for post in world.posts(Doing.EXECUTING).values() if ends else ():
            if not post.open:
                world.upstream.end(post, post.well)
                world.say(f"POST {post.number} is {post.doing}, and nobody listens")
        for _ in range(2):
            self.passes(LEASE + 1, (name,))
            self._sweeps(name)
            for question in [*world.upstream.questions]:
                world.answer(question, question.post.truth)
            self.does(nothing())
            runs = world.runs(lambda _: True)
            while waiting := [paused for paused in world.replicas[name].paused if paused.whose not in runs]:
                world.release(waiting[0], None)
                self.does(nothing())

    @precondition(names(lambda world: world.open_posts()))
    @rule(data=st.data())
    def says(self, data: st.DataObject) -> None:
        """A run that executes says something to whoever listens."""
        posts = self.world.open_posts()
        name = data.draw(st.sampled_from(sorted(posts)))
        words = data.draw(st.lists(st.sampled_from(posts[name].may_say()), min_size=1, max_size=3, unique=True))
        for word in words:
            if posts[name].open:
                self.world.say(f"{name} says {word}")
                posts[name].say(word)
                self.does(nothing())

    @precondition(names(lambda world: world.posts(Doing.EXECUTING)))
    @rule(data=st.data(), doing=st.sampled_from([Doing.DONE, Doing.ASKED, Doing.ERRED]))
    def ends_unseen(self, data: st.DataObject, doing: Doing) -> None:
        """A run that nobody listens to any more ends upstream."""
        posts = {name: post for name, post in self.world.posts(Doing.EXECUTING).items() if not post.open}
        if posts:
            name = data.draw(st.sampled_from(sorted(posts)))
            self.world.upstream.end(posts[name], doing)
            self.world.say(f"{name} is {posts[name].doing}, and nobody listens")
            self.does(nothing())

    @precondition(names(lambda world: world.upstream.questions))
    @rule(data=st.data(), honest=st.sampled_from([True, True, False]))
    def is_looked_up(self, data: st.DataObject, honest: bool) -> None:
        """An answer to a look-up: the truth, or nothing that proves anything (404, an error, other ids)."""
        world = self.world
        asked: dict[str, Question] = {}
        for it in world.upstream.questions:
            asked[f"POST {it.post.number}" if f"POST {it.post.number}" not in asked else f"POST {it.post.number}, {len(asked)}"] = it
        question = asked[data.draw(st.sampled_from(sorted(asked)))]
        world.answer(question, question.post.truth if honest else LookupStatus.UNCLEAR)
        self.does(nothing())


@contextmanager
def quiet_logs(logged: list[str]) -> Iterator[None]:
    """Keeps what the program itself calls broken: no schedule may bring that about."""

    def keep(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        for_no_database = event.get("error") in ("DatabaseUnavailable", "AnswerLost") and event.get("task") not in ("run", "settle")
        # a rule lets the items of a settlement be refused; nothing else of it may be
        settlement = event["event"] == "settle_refused" and event["persistence"] != "saved"
        if settlement or (event["event"] in BROKEN and not for_no_database):
            logged.append(f"the log says {event}")
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[keep])
    try:
        yield
    finally:
        structlog.configure(**before)


def explore(database_url: str, chosen: settings, *, seeds: Iterable[int]) -> None:
    """Run the machine on this database, one event loop and one pool for all its examples."""
    eyes = open_eyes(database_url)
    eyes.connection.execute(WITNESS)
    eyes.connection.execute(NO_CHANCE)
    logged: list[str] = []
    with asyncio.Runner(loop_factory=ModelLoop) as runner, quiet_logs(logged):
        shared = runner.run(Database.open(database_url, pool_min=6, pool_max=6))

        try:
            for number in seeds:
                asked = PEOPLE if number % 2 else ()

                def machine(asked: Sequence[str] = asked) -> Runs:
                    return Runs(runner, shared, eyes, logged, asked)

                # any maker of machines will do, whatever its annotation says
                run_state_machine_as_test(seed(number)(machine), settings=chosen)  # type: ignore[arg-type]
        finally:
            runner.run(shared.close())
            eyes.connection.close()


COMMON: Final = settings(
    deadline=None,
    database=None,
    print_blob=False,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate, Phase.shrink],
    max_examples=9,
    stateful_step_count=50,
)
"""Few examples for each of many seeds: Hypothesis spends the later examples of one seed on changing earlier ones a little."""


@pytest.mark.timeout(600)
def test_no_schedule_breaks_an_invariant(database_url: str, record_property: Callable[[str, object], None]) -> None:
    """The same schedules each time: at least STEPS_IN_CI steps."""
    Machine.steps = 0
    Machine.reached.clear()
    explore(database_url, COMMON, seeds=range(8))
    record_property("steps", Machine.steps)
    assert Machine.steps >= STEPS_IN_CI
    assert Machine.reached.keys() >= REACHED, "schedules that never get there prove nothing about it"


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_no_long_schedule_breaks_an_invariant(database_url: str) -> None:
    """Other schedules each time, and longer ones; what fails is told with its seed's whole story."""
    longer = settings(COMMON, max_examples=20, stateful_step_count=100)
    explore(database_url, longer, seeds=[secrets.randbelow(2**32) for _ in range(40)])
