"""The rules of people: users at their browsers, operators at their terminals, and what is changed around the runs."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from gateway.bindings import applications
from gateway.bindings.applications import ApplicationChange
from gateway.domain.audit import cli_actor
from gateway.domain.ids import ConversationId, RunId
from gateway.domain.resolution import ResolutionOutcome
from gateway.identity import people
from gateway.runs.submit import Submitted
from tests.faults.model_database import Fault
from tests.faults.model_fates import Fate, claims
from tests.faults.model_machine import Machine, apps, everybody, fates, lost, names, nothing, rarely, replicas, steps
from tests.faults.model_replica import ADMISSIONS, TOTAL, WINDOW, ModelReplica
from tests.faults.model_upstream import EXECUTED, Doing

_Result = TypeVar("_Result")
Call = Callable[[], Coroutine[Any, Any, _Result]]
ENDS: Final = ("commits", "dies", "commits and dies")
"""How the first of two ends that do the same at once."""


CHANGES: Final = ("rights", "switch", "move", "used thread", "no thread", "no state", "a stranger answers", "a stranger asks")


def unsettled(run: Mapping[str, Any]) -> bool:
    """Whether somebody may have to do something about it."""
    return run["execution"] == "unknown" or run["persistence"] in ("pending", "incomplete")


class PeopleRules(Machine):
    """Each rule is one thing that somebody does."""

    @rule(data=st.data(), name=replicas, who=everybody, app=apps, commit=lost, steps=steps, fate=fates, odd=rarely)
    def submits(self, data: st.DataObject, name: str, who: str, app: str, commit: Fault | None, steps: int, fate: Fate, odd: bool) -> None:
        """A new submission, in a new conversation or in an old one. `odd`: one deleted, or not theirs, or not here."""
        world = self.world
        places = [key for key, value in world.conversations.items() if odd or world.is_of(value, who, app)]
        place = data.draw(st.sampled_from(["a new conversation", *places]))
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
            self.forward(list(world.known.values())[-1].name, steps, fate)

    @precondition(names(lambda world: not any(replica.database.away for replica in world.replicas.values())))
    @rule(who=everybody, app=apps, first=replicas, end=st.sampled_from(ENDS))
    def submits_at_two_replicas(self, who: str, app: str, first: str, end: str) -> None:
        """The same submission at both, the second while the transaction of the first is open."""
        world = self.world
        submission_id, text = f"s{len(world.story)}", f"message {len(world.story)}"
        one, two = world.replicas[first], world.replicas["B" if first == "A" else "A"]
        expected = world.expected(one, who, app, submission_id, text, None)
        world.say(f"{who} submits {submission_id} to {app} on {one.name} and {two.name} at once; the first {end}")

        def call(replica: ModelReplica) -> Coroutine[Any, Any, Submitted | str]:
            return world.submit(replica, who, app, submission_id, text, None)

        async def act() -> None:
            got = await self.at_once(one, two, lambda: call(one), lambda: call(two), end)
            if expected != "admitted":
                world.expect(got == [expected], f"{got}, expected was {expected}")
                return
            runs = [one for one in got if isinstance(one, Submitted)]
            world.expect(len(runs) == len(got), f"refused: {got}")
            world.expect(len({run.view.run_id for run in runs}) == 1, "two runs of one submission")
            world.expect(sum(not run.replayed for run in runs) == 1, f"{[run.replayed for run in runs]} replayed")
            world.admitted(runs[0], who, app, submission_id, text)
            await self.dies_after(one, end)

        self.does(act())

    async def at_once(self, one: ModelReplica, two: ModelReplica, first: Call[_Result], second: Call[_Result], end: str) -> "list[_Result]":
        """What both get, the second called while the transaction of the first is open. Only what the first gets where that has none."""
        world, loop = self.world, asyncio.get_running_loop()
        one.pausing_admission = True
        earlier = loop.create_task(first())
        await world.calls.quiet()
        one.pausing_admission = False
        admissions = [paused for paused in one.paused if paused.point.step in ADMISSIONS]
        if not admissions:
            return [await earlier]
        later = loop.create_task(second())
        await self._blocked()
        if end == "dies":
            world.kill(one)
            await asyncio.wait({earlier})
        else:
            admissions[0].release(None)
            await world.calls.quiet()
        return [await answer for answer in (earlier, later) if not answer.cancelled()]

    async def dies_after(self, one: ModelReplica, end: str) -> None:
        """The first replica dies once it committed, if that is its end, and starts anew."""
        if end == "commits and dies":
            self.world.kill(one)
        if not one.alive:
            await self.world.start_replica(one.name)

    async def _blocked(self) -> None:
        """Until a statement waits for a lock."""
        query = "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        await self.world.calls.quiet(but=1)
        for _ in range(10_000):
            if self.world.eyes.rows(query):
                return
            await asyncio.sleep(0)
        raise AssertionError("the second admission does not wait for the first")

    @precondition(names(lambda world: world.known))
    @rule(
        data=st.data(),
        name=replicas,
        what=st.sampled_from(["submits again", "submits again", "refreshes", "acknowledges", "reads", "deletes"]),
    )
    def an_owner(self, data: st.DataObject, name: str, what: str) -> None:
        """What the owner of a run does about it, at any replica."""
        world = self.world
        waiting = world.runs(unsettled)
        match what:
            case "submits again":
                self._submits_again(data, name)
            case "refreshes" if waiting:
                self._owner_acts(data.draw(st.sampled_from(waiting)), what, name, lambda replica, *run: replica.refresh.now(*run))
            case "acknowledges":
                self._acknowledges(data, name)
            case "reads":
                self._reads_the_history(data, name)
            case "deletes":
                self._deletes(data, name)

    def _submits_again(self, data: st.DataObject, name: str) -> None:
        """The same submission id again, at any replica, with the same text or another."""
        world, same = self.world, data.draw(st.sampled_from([True, True, False]))
        run, row = world.run(data.draw(st.sampled_from(world.runs(lambda run: run["kind"] == "task"))))
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

    def _acknowledges(self, data: st.DataObject, name: str) -> None:
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

    def _reads_the_history(self, data: st.DataObject, name: str) -> None:
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
            expected = [text for row in runs for text in [*world.wrote(row["run_id"]), *world.shown(row["run_id"])]]
            world.expect(got == expected, f"{place} reads {got}, expected was {expected}")

    def _deletes(self, data: st.DataObject, name: str) -> None:
        world = self.world
        unsent = {row["conversation_id"] for row in world.seen.runs.values() if row["execution"] == "reserved"}
        places = sorted(key for key, value in world.conversations.items() if value in unsent) or sorted(world.conversations)
        place = data.draw(st.sampled_from(places))
        conversation_id = ConversationId(world.conversations[place])
        row = next(row for row in world.seen.runs.values() if row["conversation_id"] == conversation_id)
        run, replica = world.known[row["run_id"]], world.replicas[name]
        world.say(f"{run.who} deletes {place} on {name}")

        async def act() -> object:
            access = await replica.access.application(claims(run.who), world.apps[run.app])
            return await replica.history.remove(access, world.apps[run.app], conversation_id)

        self.does(world.refused(act()))

    @precondition(names(lambda world: world.runs(unsettled)))
    @rule(
        data=st.data(), name=replicas, what=st.sampled_from(["resolves", "resolves, patiently", "closes what waits", "looks up", "saves"])
    )
    def an_operator(self, data: st.DataObject, name: str, what: str) -> None:
        """What an operator does about a run that needs one, at any replica."""
        waiting = self.world.runs(lambda run: run["execution"] == "waiting")
        if what == "closes what waits" and waiting:
            self._resolves(data, name, data.draw(st.sampled_from(ResolutionOutcome)), patient=False, among=waiting)
        elif what in ("resolves", "resolves, patiently", "closes what waits"):
            self._resolves(data, name, data.draw(st.sampled_from(ResolutionOutcome)), patient=what == "resolves, patiently", among=())
        else:
            self._asks_for(data, name, what)

    def _resolves(self, data: st.DataObject, name: str, outcome: ResolutionOutcome, *, patient: bool, among: Sequence[str]) -> None:
        """An honest operator: says what upstream shows, and cannot see what is under way. The gateway refuses what is too early."""
        world = self.world
        if patient:
            self.passes(TOTAL + WINDOW + 1, (name,))
        run, row = world.run(data.draw(st.sampled_from(among or world.runs(unsettled) or world.runs(lambda _: True))))
        post = world.post_of(run)
        doing = Doing.NEVER if post is None else post.doing
        honest = {
            ResolutionOutcome.NOT_EXECUTED: doing not in EXECUTED,
            ResolutionOutcome.FAILED: doing not in (Doing.EXECUTING, Doing.DONE),
            ResolutionOutcome.SUCCEEDED: doing is Doing.DONE,
        }
        if not honest[outcome] and row["execution"] != "waiting":
            return
        world.say(f"an operator resolves {run.name} as {outcome} on {name}")
        act = world.replicas[name].operators.resolve(cli_actor("op"), RunId(run.run_id), outcome, "looked at it")
        got = self.does(world.refused(act))
        after = world.seen.runs[run.run_id]
        if after["execution"] == "closed" and row["execution"] == "unknown" and row["started_at"] is None and row["native_run_id"] is None:
            world.expect(
                after["fence_age"] >= TOTAL + WINDOW, f"resolved {after['fence_age']:.0f} s after the fence, its POST may be under way"
            )
        world.say(f"  {got if isinstance(got, str) else after['execution']}")
        if row["execution"] == "waiting" and not world.replicas[name].database.away:
            world.expect((got == "resolution_not_allowed") == (outcome is ResolutionOutcome.NOT_EXECUTED), f"it waits, {outcome}: {got}")
        if row["execution"] not in ("unknown", "succeeded", "failed", "waiting") and not world.replicas[name].database.away:
            world.expect(
                got in ("resolution_not_allowed", "already_resolved") or row["execution"] == "closed", f"{row['execution']}: {got}"
            )

    def _asks_for(self, data: st.DataObject, name: str, act: str) -> None:
        world = self.world
        run = data.draw(st.sampled_from(world.runs(unsettled)))
        world.say(f"an operator {act} {run} on {name}")
        operators, run_id = world.replicas[name].operators, RunId(world.run(run)[0].run_id)
        work = operators.look_up_now(cli_actor("op"), run_id) if act == "looks up" else operators.retry_save(cli_actor("op"), run_id)
        self.does(world.start(world.replicas[name], world.refused(work)))  # it waits for an answer that another rule gives

    @rule(who=everybody, app=apps, what=st.sampled_from(CHANGES))
    def something_is_changed(self, who: str, app: str, what: str) -> None:
        """What changes around the runs: an account, an application's switch or its assistant, the threads that upstream hands out, and
        what somebody else does at the service."""
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
            case "no state":
                world.say("a thread's state is not to be had once")
                world.threads.unreadable = True
                self.does(nothing())
            case "a stranger answers" | "a stranger asks":
                waits = [thread_id for thread_id, thread in world.threads.threads.items() if thread.pending is not None]
                self.strangers(what, *waits[:1])
            case _:
                world.upstream.next_thread = what.split()[0]
                world.say(f"upstream will hand out a {what}")
                self.does(nothing())

    def strangers(self, what: str, *thread_ids: str) -> None:
        """Somebody at the service itself answers what is pending on a thread, or takes its place with another question."""
        for thread_id in thread_ids:
            self.world.say(f"{what} on {thread_id}")
            self.world.threads.stranger(self.world.threads.of(thread_id), asks=what == "a stranger asks")
        self.does(nothing())

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
