"""The model test: random schedules of everything that can happen to runs, on real Postgres with the real code, judged after each step.

What is real: admission, execution, heartbeat, reconciler, look-ups, saves, operators' acts, SQL, parser. What is not: sockets (the
Upstream Protocol is the seam: model_upstream.py), time (model_world.py), chance (each task stops at the fault points of design.md until a
rule lets it go on: model_replica.py). What must hold is in model_checks.py.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import pytest
import structlog
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from gateway.bindings import applications
from gateway.bindings.applications import ApplicationChange
from gateway.domain.audit import cli_actor
from gateway.domain.evidence import LookupStatus
from gateway.domain.fault_points import Step
from gateway.domain.ids import ConversationId, RunId
from gateway.domain.resolution import ResolutionOutcome
from gateway.identity import people
from gateway.runs.submit import Submitted
from gateway.store.database import Database
from tests.faults.model_checks import WITNESS, Eyes, open_eyes
from tests.faults.model_database import Fault
from tests.faults.model_loop import ModelLoop
from tests.faults.model_replica import LEASE, THE_RECONCILER, TOTAL, WINDOW
from tests.faults.model_upstream import EXECUTED, Doing, Way
from tests.faults.model_world import APPS, FATES, GOOD, PEOPLE, Fate, World, claims

STEPS_IN_CI: Final = 2000
BROKEN: Final = frozenset({"task_failed", "run_broken", "sweep_step_broken", "snapshot_hash_differs", "save_failed", "lookup_failed"})
_Result = TypeVar("_Result")

replicas = st.sampled_from(["A", "B"])
everybody = st.sampled_from(PEOPLE)
apps = st.sampled_from(APPS)
fates = st.sampled_from([GOOD, GOOD, GOOD, *FATES])
lost = st.sampled_from([None, None, None, None, Fault.ANSWER_LOST, Fault.NOT_DONE])
spans = st.sampled_from([1.0, WINDOW + 1, LEASE + 1, LEASE + 1, TOTAL + WINDOW + 1, 90_000.0])
beating = st.sampled_from([(), ("A",), ("B",), ("A", "B")])


def names(of: Callable[[World], Any]) -> Callable[[Any], bool]:
    """The precondition that `of` gives something."""
    return lambda machine: bool(of(machine.world))


class Runs(RuleBasedStateMachine):
    """Each rule is one thing that can happen next."""

    steps = 0

    def __init__(self, runner: asyncio.Runner, shared: Database, eyes: Eyes, logged: list[str]) -> None:
        super().__init__()
        loop = runner.get_loop()
        assert isinstance(loop, ModelLoop)
        self.runner = runner
        self.logged = logged
        self.world = World(loop, shared, eyes)

    def does(self, act: Coroutine[Any, Any, _Result]) -> _Result:
        """Do one step, let everybody go on as far as they can, and look."""
        Runs.steps += 1

        async def step() -> _Result:
            result = await act
            await self.world.quiet()
            return result

        self.logged.clear()
        result = self.runner.run(step())
        self.world.broken += self.logged
        self.world.check()
        return result

    @initialize()
    def begin(self) -> None:
        self.runner.run(self.world.begin())

    def teardown(self) -> None:
        try:
            if not self.world.broken and self.world.replicas:
                self.runner.run(self.world.settle_everything())
        finally:
            self.runner.run(self.world.end())

    # --- people -----------------------------------------------------------------------------------------------------------------------

    @rule(data=st.data(), name=replicas, who=everybody, app=apps, commit=lost, steps=st.integers(0, 10), fate=fates)
    def submits(self, data: st.DataObject, name: str, who: str, app: str, commit: Fault | None, steps: int, fate: Fate) -> None:
        """A new submission, in a new conversation or in an old one."""
        world = self.world
        mine = [key for key, value in world.conversations.items() if world.seen.conversations[value]["account_id"] == world.people[who]]
        place = data.draw(st.sampled_from(["a new conversation", *mine]))
        target = world.conversations.get(place)
        submission_id, text = f"s{len(world.story)}", f"message {len(world.story)}"
        replica = world.replicas[name]
        expected = world.expected(replica, who, app, submission_id, text, target)
        if commit is not None and expected == "admitted":
            replica.database.faults["commit"] = commit
        world.say(f"{who} submits {submission_id} to {app} in {place} on {name}" + (f"; the commit {commit}" if commit else ""))

        async def act() -> None:
            submitted = await world.submit(replica, who, app, submission_id, text, target)
            got = submitted if isinstance(submitted, str) else "replayed" if submitted.replayed else "admitted"
            world.expect(got == expected, f"{got}, expected was {expected}")
            world.say(f"  {got}")
            if isinstance(submitted, Submitted):
                world.admitted(submitted, who, app, submission_id, text)

        self.does(act())
        if expected == "admitted":
            self._forward(list(world.known.values())[-1].name, steps, fate)

    def _forward(self, name: str, steps: int, fate: Fate) -> None:
        """The run goes on for some steps, and nothing happens to it but its fate."""
        for _ in range(steps):
            if not self.world.forward(name, fate):
                return
            self.does(_nothing())

    @precondition(names(lambda world: world.known))
    @rule(data=st.data(), name=replicas, same=st.sampled_from([True, True, False]))
    def submits_again(self, data: st.DataObject, name: str, same: bool) -> None:
        """The same submission id again, at any replica, with the same text or another."""
        world = self.world
        run, row = world.run(data.draw(st.sampled_from(world.runs(lambda _: True))))
        created = world.seen.submissions[run.submission_id]["created_conversation"]
        target = None if created else row["conversation_id"]
        text = run.text if same else "another text"
        expected = world.expected(world.replicas[name], run.who, run.app, run.submission_id, text, target)
        world.say(f"{run.who} submits {run.submission_id} again on {name}, with {'the same' if same else 'another'} text")

        async def act() -> None:
            submitted = await world.submit(world.replicas[name], run.who, run.app, run.submission_id, text, target)
            got = submitted if isinstance(submitted, str) else "replayed" if submitted.replayed else "admitted"
            world.expect(got == expected, f"{got}, expected was {expected}")
            if isinstance(submitted, Submitted):
                world.expect(submitted.view.run_id == run.run_id, "the replay gives another run")

        self.does(act())

    @precondition(names(lambda world: not any(replica.database.away for replica in world.replicas.values())))
    @rule(who=everybody, app=apps, first=replicas, end=st.sampled_from(["commits", "dies", "commits and dies"]))
    def submits_at_two_replicas(self, who: str, app: str, first: str, end: str) -> None:
        """The same submission at both, the second while the transaction of the first is open."""
        world = self.world
        submission_id, text = f"s{len(world.story)}", f"message {len(world.story)}"
        one, two = world.replicas[first], world.replicas["B" if first == "A" else "A"]
        expected = world.expected(one, who, app, submission_id, text, None)
        world.say(f"{who} submits {submission_id} to {app} on {one.name} and {two.name} at once; the first {end}")

        async def act() -> None:
            loop = asyncio.get_running_loop()
            one.pausing_admission = True
            earlier = loop.create_task(world.submit(one, who, app, submission_id, text, None))
            await world.calls.quiet()
            one.pausing_admission = False
            if expected != "admitted":
                world.expect(await earlier == expected, f"{earlier.result()}, expected was {expected}")
                return
            later = loop.create_task(world.submit(two, who, app, submission_id, text, None))
            await self._blocked()
            admission = next(paused for paused in one.paused if paused.point.step is Step.ADMISSION)
            if end == "dies":
                world.kill(one)
                await asyncio.wait({earlier})
            else:
                admission.release(None)
                await world.calls.quiet()
            answers = [answer for answer in (earlier, later) if not answer.cancelled()]
            got = [await answer for answer in answers]
            runs = [one for one in got if isinstance(one, Submitted)]
            world.expect(len(runs) == len(got), f"refused: {got}")
            world.expect(len({run.view.run_id for run in runs}) == 1, "two runs of one submission")
            world.expect(sum(not run.replayed for run in runs) == 1, f"{[run.replayed for run in runs]} replayed")
            world.admitted(runs[0], who, app, submission_id, text)
            if end == "commits and dies":
                world.kill(one)
            if not one.alive:
                await world.start_replica(one.name)

        self.does(act())

    async def _blocked(self) -> None:
        """Until a statement waits for a lock."""
        query = "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        await self.world.calls.quiet(but=1)
        for _ in range(10_000):
            if self.world.eyes.rows(query):
                return
            await asyncio.sleep(0)
        raise AssertionError("the second admission does not wait for the first")

    @precondition(names(lambda world: world.runs(lambda run: run["execution"] == "unknown" or run["persistence"] == "pending")))
    @rule(data=st.data(), name=replicas)
    def refreshes(self, data: st.DataObject, name: str) -> None:
        """The owner asks for a look-up, or for the save."""
        world = self.world
        run = data.draw(st.sampled_from(world.runs(lambda run: run["execution"] == "unknown" or run["persistence"] == "pending")))
        self._owner_acts(run, "refreshes", name, lambda replica, access, app, run_id: replica.refresh.now(access, app, run_id))

    @precondition(names(lambda world: world.known))
    @rule(data=st.data(), name=replicas)
    def acknowledges(self, data: st.DataObject, name: str) -> None:
        """The owner accepts an incomplete answer; for any other run that is refused."""
        world = self.world
        incomplete = world.runs(lambda run: run["execution"] == "succeeded" and run["persistence"] == "incomplete")
        name_of_run = data.draw(st.sampled_from(incomplete or world.runs(lambda _: True)))
        got = self._owner_acts(
            name_of_run, "acknowledges", name, lambda replica, access, app, run_id: replica.refresh.acknowledge(access, app, run_id)
        )
        run, row = world.run(name_of_run)
        deleted = world.seen.conversations[row["conversation_id"]]["deleted_at"] is not None
        if run.who not in world.suspended and not deleted and not world.replicas[name].database.away:
            expected = name_of_run in incomplete
            world.expect((got != "nothing_to_acknowledge") == expected, f"acknowledging gave {got}")
            world.expect((row["acknowledged_at"] is not None) or not expected, "it is not acknowledged")

    def _owner_acts(self, name_of_run: str, what: str, name: str, act: Callable[..., Coroutine[Any, Any, object]]) -> object:
        world = self.world
        run, _ = world.run(name_of_run)
        replica = world.replicas[name]
        world.say(f"{run.who} {what} {name_of_run} on {name}")

        async def as_owner() -> object:
            access = await replica.access.application(claims(run.who), world.apps[run.app])
            return await act(replica, access, world.apps[run.app], RunId(run.run_id))

        return self.does(world.refused(as_owner()))

    @precondition(names(lambda world: world.conversations))
    @rule(data=st.data(), name=replicas)
    def reads_the_history(self, data: st.DataObject, name: str) -> None:
        """Every accepted message once and in order, each answer as far as it is known (design.md, invariant 4)."""
        world = self.world
        place = data.draw(st.sampled_from(sorted(world.conversations)))
        conversation_id = world.conversations[place]
        runs = sorted(
            (row for row in world.seen.runs.values() if row["conversation_id"] == conversation_id), key=lambda row: int(row["sequence"])
        )
        run = world.known[runs[0]["run_id"]]
        replica = world.replicas[name]

        async def act() -> object:
            access = await replica.access.application(claims(run.who), world.apps[run.app])
            page = await replica.history.items(access, world.apps[run.app], ConversationId(conversation_id), limit=200, cursor=None)
            return [getattr(item, "text", None) for _, item in page.items]

        got = self.does(world.refused(act()))
        if replica.database.away:
            world.expect(got == "DatabaseUnavailable", f"{got}")
        elif run.who in world.suspended:
            world.expect(got == "account_inactive", f"{got}")
        elif world.seen.conversations[conversation_id]["deleted_at"] is not None:
            world.expect(got == "not_found", f"{got}")
        else:
            expected = [text for row in runs for text in [world.known[row["run_id"]].text, *world.shown(row["run_id"])]]
            world.expect(got == expected, f"{place} reads {got}, expected was {expected}")

    @precondition(names(lambda world: world.conversations))
    @rule(data=st.data(), name=replicas)
    def deletes(self, data: st.DataObject, name: str) -> None:
        world = self.world
        place = data.draw(st.sampled_from(sorted(world.conversations)))
        conversation_id = ConversationId(world.conversations[place])
        row = next(row for row in world.seen.runs.values() if row["conversation_id"] == conversation_id)
        run, replica = world.known[row["run_id"]], world.replicas[name]
        world.say(f"{run.who} deletes {place} on {name}")

        async def act() -> object:
            access = await replica.access.application(claims(run.who), world.apps[run.app])
            return await replica.history.remove(access, world.apps[run.app], conversation_id)

        self.does(world.refused(act()))

    # --- operators --------------------------------------------------------------------------------------------------------------------

    @rule(who=everybody, app=apps, what=st.sampled_from(["rights", "switch", "move", "used thread", "no thread"]))
    def something_is_changed(self, who: str, app: str, what: str) -> None:
        """What changes around the runs: an account, an application's switch or its assistant, the threads that upstream hands out."""
        world = self.world
        match what:
            case "rights":
                world.suspended ^= {who}
                world.say(f"{who} is {'suspended' if who in world.suspended else 'active again'}")
                self.does(people.suspend(world.shared, who) if who in world.suspended else people.activate(world.shared, who))
            case "switch":
                world.disabled ^= {app}
                world.say(f"{app} is switched {'off' if app in world.disabled else 'on'}")
                self.does(applications.set_enabled(world.shared, app, enabled=app not in world.disabled))
            case "move":
                self._moves(app)
            case _:
                world.upstream.next_thread = what.split()[0]
                world.say(f"upstream will hand out a {what}")
                self.does(_nothing())

    def _moves(self, app: str) -> None:
        """Another assistant: refused while a run is active or not saved, and the end of all bindings else."""
        world = self.world
        mine = [row for row in world.seen.runs.values() if row["application_id"] == world.apps[app]]
        in_the_way = any(row["user_slot"] is not None or row["persistence"] == "pending" for row in mine)
        world.assistants += 1
        world.say(f"{app} gets assistant {world.assistants}" + (", which is refused" if in_the_way else ""))
        wanted = ApplicationChange(assistant_id=f"assistant-{world.assistants}")
        got = self.does(world.refused(applications.change(world.shared, app, wanted)))
        world.expect((got == "change_blocked") == in_the_way, f"{got}")

    @precondition(names(lambda world: world.known))
    @rule(data=st.data(), name=replicas, outcome=st.sampled_from(ResolutionOutcome), patient=st.booleans())
    def operator_resolves(self, data: st.DataObject, name: str, outcome: ResolutionOutcome, patient: bool) -> None:
        """An honest operator: says what upstream shows, and cannot see what is under way. The gateway refuses what is too early."""
        world = self.world
        if patient:
            self._passes(TOTAL + WINDOW + 1, (name,))
        waiting = world.runs(lambda run: run["execution"] == "unknown" or run["persistence"] in ("pending", "incomplete"))
        run, row = world.run(data.draw(st.sampled_from(waiting or world.runs(lambda _: True))))
        post = world.post_of(run)
        doing = Doing.NEVER if post is None else post.doing
        honest = {
            ResolutionOutcome.NOT_EXECUTED: doing not in EXECUTED,
            ResolutionOutcome.FAILED: doing not in (Doing.EXECUTING, Doing.DONE),
            ResolutionOutcome.SUCCEEDED: doing is Doing.DONE,
        }
        if not honest[outcome]:
            return
        world.say(f"an operator resolves {run.name} as {outcome} on {name}")
        act = world.replicas[name].operators.resolve(cli_actor("op"), RunId(run.run_id), outcome, "looked at it")
        got = self.does(world.refused(act))
        after = world.seen.runs[run.run_id]
        world.say(f"  {got if isinstance(got, str) else after['execution']}")
        if row["execution"] not in ("unknown", "succeeded", "failed") and not world.replicas[name].database.away:
            world.expect(
                got in ("resolution_not_allowed", "already_resolved") or row["execution"] == "closed", f"{row['execution']}: {got}"
            )

    @precondition(names(lambda world: world.runs(lambda run: run["execution"] == "unknown" or run["persistence"] == "pending")))
    @rule(data=st.data(), name=replicas, act=st.sampled_from(["look-up", "save"]))
    def operator_asks_for(self, data: st.DataObject, name: str, act: str) -> None:
        world = self.world
        run = data.draw(st.sampled_from(world.runs(lambda run: run["execution"] == "unknown" or run["persistence"] == "pending")))
        world.say(f"an operator asks for a {act} of {run} on {name}")
        operators, run_id = world.replicas[name].operators, RunId(world.run(run)[0].run_id)
        work = operators.look_up_now(cli_actor("op"), run_id) if act == "look-up" else operators.retry_save(cli_actor("op"), run_id)
        self.does(world.start(world.replicas[name], world.refused(work)))  # it waits for an answer that another rule gives

    # --- processes --------------------------------------------------------------------------------------------------------------------

    @precondition(names(lambda world: world.paused()))
    @rule(data=st.data(), well=st.sampled_from([True, True, True, False]))
    def goes_on(self, data: st.DataObject, well: bool) -> None:
        """A task that waits at a fault point goes on, and what it does next may fail in any way."""
        paused = data.draw(st.sampled_from(sorted(self.world.paused())))
        waiting = self.world.paused()[paused]
        faults = [] if well else waiting.faults()
        self.world.release(waiting, data.draw(st.sampled_from(faults)) if faults else None)
        self.does(_nothing())

    @precondition(names(lambda world: world.posts(Doing.HELD)))
    @rule(data=st.data(), way=st.sampled_from([*Way, Way.TAKEN, Way.TAKEN, Way.TAKEN]))
    def is_sent(self, data: st.DataObject, way: Way) -> None:
        """The transport has its connection, or not, reads the clock, and sends, or not."""
        held = self.world.posts(Doing.HELD)
        name = data.draw(st.sampled_from(sorted(held)))
        self.world.say(f"{name}: {way}")
        held[name].way.set_result(way)
        self.does(_nothing())

    @precondition(names(lambda world: world.posts(Doing.UNDER_WAY)))
    @rule(data=st.data(), arrives=st.booleans())
    def arrives_late(self, data: st.DataObject, arrives: bool) -> None:
        """A POST that was under way arrives, or never will."""
        under_way = self.world.posts(Doing.UNDER_WAY)
        name = data.draw(st.sampled_from(sorted(under_way)))
        self.world.say(f"{name} {'arrives' if arrives else 'is lost'}")
        (self.world.upstream.arrive if arrives else self.world.upstream.lose)(under_way[name])
        self.does(_nothing())

    @precondition(names(lambda world: world.moving()))
    @rule(data=st.data(), steps=st.integers(1, 6), fate=fates)
    def goes_on_for_long(self, data: st.DataObject, steps: int, fate: Fate) -> None:
        """One run goes some steps forward, and nothing happens to it but its fate."""
        self._forward(data.draw(st.sampled_from(self.world.moving())), steps, fate)

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

    @rule(name=replicas, what=st.sampled_from(["dies", "dies", "loses the database"]))
    def is_in_trouble(self, name: str, what: str) -> None:
        """SIGKILL, and a new process under the same name; or no database until that replica's next beat."""
        world = self.world
        world.say(f"{name} {what}")
        if what == "dies":
            world.kill(world.replicas[name])
            self.does(world.start_replica(name))
        else:
            world.replicas[name].database.away = True
            self.does(_nothing())

    @rule(seconds=spans, beats=beating)
    def time_passes(self, seconds: float, beats: tuple[str, ...]) -> None:
        """Everybody's clock; who beats lived meanwhile, who does not was frozen. Accounts and applications are as they were."""
        self._passes(seconds, beats)
        self.does(self.world.restore())

    def _passes(self, seconds: float, beats: tuple[str, ...]) -> None:
        self.world.say(f"{seconds:g} s pass, {' and '.join(beats) or 'nobody'} beating")
        self.does(self.world.pass_time(seconds, beats))

    @rule(name=replicas)
    def beats(self, name: str) -> None:
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

    @rule(name=replicas, long=st.sampled_from([False, False, True]))
    def sweeps(self, name: str, long: bool) -> None:
        """A round of the reconciler. `long`: after time in which that replica lived and the other did not."""
        world = self.world
        if long:
            self._passes(LEASE + 1, (name,))
        world.say(f"{name} sweeps")
        self.does(world.replicas[name].sweep())

    @precondition(names(lambda world: world.runs(lambda run: run["user_slot"] is not None)))
    @rule(name=replicas)
    def sweeps_to_the_end(self, name: str) -> None:
        """That replica lives, the other is frozen: what can be known of its runs is looked up and written."""
        world = self.world
        for _ in range(2):
            self.sweeps(name, long=True)
            for question in world.upstream.questions:
                world.say(f"the look-up of {world.run_of(question.post)} says {question.post.truth}")
                question.answer.set_result(question.post.truth)
            world.upstream.questions.clear()
            self.does(_nothing())
            while waiting := [paused for paused in world.replicas[name].paused if paused.whose == THE_RECONCILER]:
                world.release(waiting[0], None)
                self.does(_nothing())

    # --- upstream ---------------------------------------------------------------------------------------------------------------------

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
                self.does(_nothing())

    @precondition(names(lambda world: world.posts(Doing.EXECUTING)))
    @rule(data=st.data(), doing=st.sampled_from([Doing.DONE, Doing.ERRED]))
    def ends_unseen(self, data: st.DataObject, doing: Doing) -> None:
        """A run that nobody listens to any more ends upstream."""
        posts = {name: post for name, post in self.world.posts(Doing.EXECUTING).items() if not post.open}
        if posts:
            name = data.draw(st.sampled_from(sorted(posts)))
            self.world.say(f"{name} is {doing}, and nobody listens")
            self.world.upstream.end(posts[name], doing)
            self.does(_nothing())

    @precondition(names(lambda world: world.upstream.questions))
    @rule(data=st.data(), honest=st.sampled_from([True, True, False]))
    def is_looked_up(self, data: st.DataObject, honest: bool) -> None:
        """An answer to a look-up: the truth, or nothing that proves anything (404, an error, other ids)."""
        world = self.world
        number = data.draw(st.integers(0, len(world.upstream.questions) - 1))
        question = world.upstream.questions.pop(number)
        answer = question.post.truth if honest else LookupStatus.UNCLEAR
        world.say(f"the look-up of {world.run_of(question.post)} says {answer}")
        question.answer.set_result(answer)
        self.does(_nothing())


async def _nothing() -> None:
    return None


@contextmanager
def quiet_logs(logged: list[str]) -> Iterator[None]:
    """Keeps what the program itself calls broken: no schedule may bring that about."""

    def keep(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        for_no_database = event.get("error") in ("DatabaseUnavailable", "AnswerLost") and event.get("task") not in ("run", "settle")
        if event["event"] in BROKEN and not for_no_database:
            logged.append(f"the log says {event}")
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[keep])
    try:
        yield
    finally:
        structlog.configure(**before)


def explore(database_url: str, chosen: settings) -> None:
    """Run the machine on this database, one event loop and one pool for all its examples."""
    eyes = open_eyes(database_url)
    eyes.connection.execute(WITNESS)
    logged: list[str] = []
    with asyncio.Runner(loop_factory=ModelLoop) as runner, quiet_logs(logged):
        shared = runner.run(Database.open(database_url, pool_min=6, pool_max=6))
        try:
            # any maker of machines will do, whatever its annotation says
            run_state_machine_as_test(lambda: Runs(runner, shared, eyes, logged), settings=chosen)  # type: ignore[arg-type]
        finally:
            runner.run(shared.close())
            eyes.connection.close()


COMMON: Final = settings(
    deadline=None, database=None, print_blob=False, suppress_health_check=list(HealthCheck), stateful_step_count=50, max_examples=80
)


@pytest.mark.timeout(300)
def test_no_schedule_breaks_an_invariant(database_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The same schedules each time: at least STEPS_IN_CI steps."""
    Runs.steps = 0
    explore(database_url, settings(COMMON, derandomize=True))
    with capsys.disabled():
        print(f"\n{Runs.steps} steps")
    assert Runs.steps >= STEPS_IN_CI


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_long_schedule_breaks_an_invariant(database_url: str) -> None:
    """Other schedules each time, and longer ones."""
    explore(database_url, settings(COMMON, max_examples=500, stateful_step_count=100, phases=[Phase.generate, Phase.shrink]))
