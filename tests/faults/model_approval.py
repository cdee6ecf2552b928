"""The rules of decisions: who may answer a question, what becomes of the answer, and two that answer at once (contract E6, E7)."""

import json
from collections.abc import Coroutine, Mapping
from typing import Any
from uuid import UUID, uuid4

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from gateway.domain.audit import cli_actor
from gateway.domain.confirmation import Action
from gateway.domain.ids import RunId
from gateway.domain.problems import Refused
from gateway.domain.resolution import ResolutionOutcome
from gateway.runs.submit import Submitted
from gateway.store.errors import StoreError
from tests.faults.model_checks import KnownRun, blocked_by
from tests.faults.model_database import Fault
from tests.faults.model_fates import ASKING, GOOD, Fate, claims, refused_for
from tests.faults.model_machine import Machine, everybody, fates, lost, names, replicas, steps
from tests.faults.model_native import TIME_TO_DECIDE
from tests.faults.model_people import ENDS, PeopleRules
from tests.faults.model_replica import ModelReplica
from tests.faults.model_upstream import Way
from tests.faults.model_world import PASS_QUESTIONS, World

MEANWHILE = ("closed", "closed", "over", "over", "a stranger answers", "a stranger asks", "not applied")
ON_THE_EDGE = 3.0
"""So near to its end, whether a question has expired is for the machine's speed to say."""


def open_to_all(run: Mapping[str, Any]) -> bool:
    """It waits, and nobody has claimed its question."""
    return run["execution"] == "waiting" and run["answered_by"] is None


def open_questions(world: World) -> list[str]:
    """Runs that wait for an answer."""
    return world.runs(open_to_all)


def by_time(world: World, *, over: bool) -> list[str]:
    """Runs that wait for an answer and whose time to be answered is over, or is not, if there are any; else any that wait."""
    expired = {run_id for run_id, question in world.seen.questions.items() if (question["seconds_left"] or 1.0) < 0}
    return world.runs(lambda run: open_to_all(run) and (run["run_id"] in expired) is over) or open_questions(world)


def questions(world: World) -> list[str]:
    """Runs that asked something."""
    return world.runs(lambda run: run["run_id"] in world.seen.questions)


class ApprovalRules(PeopleRules):
    """Decisions. What must hold of them after each step is in model_checks.py."""

    @initialize()
    def begin(self) -> None:
        """The world, and those whom an agent has already asked something: few schedules would come that far."""
        world = self.world
        self.runner.run(world.begin())
        for who in self.asked:
            world.say(f"{who} is asked something")

            async def act(who: str) -> None:
                submitted = await world.submit(world.replicas["A"], who, ASKING, f"s-{who}", f"message of {who}", None)
                assert isinstance(submitted, Submitted), submitted
                world.admitted(submitted, who, ASKING, f"s-{who}", f"message of {who}")

            self.does(act(who))
            self.forward(list(world.known.values())[-1].name, 20, GOOD)

    @precondition(names(open_questions))
    @rule(
        data=st.data(),
        name=replicas,
        who=everybody,
        action=st.sampled_from(Action),
        kind=st.sampled_from(["new", "new", "new", "late", "again", "odd"]),
        commit=lost,
        then=st.one_of(st.sampled_from(MEANWHILE), st.sampled_from(MEANWHILE), st.tuples(steps, fates)),
    )
    def decides(
        self, data: st.DataObject, name: str, who: str, action: Action, kind: str, commit: Fault | None, then: str | tuple[int, Fate]
    ) -> None:
        """A decision about a question, and what happens then. `kind`: "late" about one whose time is over, if there is one; "again" under
        the id of one that was made; "odd" by anybody, or about another question."""
        world, replica = self.world, self.world.replicas[name]
        asked, _ = world.run(
            data.draw(st.sampled_from(questions(world) if kind in ("again", "odd") else by_time(world, over=kind == "late")))
        )
        made = [run.submission_id for run in world.known.values() if run.decided is not None and run.decided[0] == asked.run_id]
        submission_id = data.draw(st.sampled_from(made)) if kind == "again" and made else f"d{len(world.story)}"
        person = who if kind == "odd" else asked.who
        interrupt_id = uuid4() if kind == "odd" and action is Action.REJECT else world.seen.questions[asked.run_id]["interrupt_id"]
        expected = self.expected_of(replica, person, asked, interrupt_id, submission_id, action)
        if commit is not None and expected == "admitted":
            replica.database.faults["commit"] = commit
        world.say(
            f"{person} decides {action} about {asked.name} on {name} as {submission_id}" + (f"; the commit {commit}" if commit else "")
        )

        async def act() -> Submitted | Refused | str:
            return await self._decision(replica, person, asked, interrupt_id, submission_id, action)

        got = self.does(self._noted(act(), person, asked, submission_id, action, expected))
        if isinstance(got, Submitted) and not got.replayed:
            run = list(world.known.values())[-1]
            if isinstance(then, str):
                self.meanwhile(run, asked, then)
            else:
                self.forward(run.name, *then)

    @precondition(names(lambda world: open_questions(world) and not any(one.database.away for one in world.replicas.values())))
    @rule(data=st.data(), first=replicas, action=st.sampled_from(Action), second=st.sampled_from(Action), end=st.sampled_from(ENDS))
    def decides_at_two_replicas(self, data: st.DataObject, first: str, action: Action, second: Action, end: str) -> None:
        """Two decisions about one question, the second while the transaction of the first is open."""
        world = self.world
        asked, _ = world.run(data.draw(st.sampled_from(open_questions(world))))
        one, two = world.replicas[first], world.replicas["B" if first == "A" else "A"]
        interrupt_id, ids = world.seen.questions[asked.run_id]["interrupt_id"], (f"d{len(world.story)}", f"e{len(world.story)}")
        expected = self.expected_of(one, asked.who, asked, interrupt_id, ids[0], action)
        world.say(f"{asked.who} decides {action} about {asked.name} on {one.name}, and {second} on {two.name} at once; the first {end}")

        async def act() -> None:
            got = await self.at_once(
                one,
                two,
                lambda: self._decision(one, asked.who, asked, interrupt_id, ids[0], action),
                lambda: self._decision(two, asked.who, asked, interrupt_id, ids[1], second),
                end,
            )
            won = [one for one in got if isinstance(one, Submitted)]
            if expected is None or expected != "admitted":
                world.expect(len(won) == (expected is None and len(won) == 1), f"{got}, expected was {expected}")
            elif end == "dies":
                world.expect(len(got) == len(won) == 1, f"{got}: the first was never committed")
            else:
                lost = [one for one in got if isinstance(one, Refused)]
                world.expect((len(won), len(lost), len(got)) == (1, 1, 2) and got[0] is won[0], f"two decisions gave {got}")
                told = (lost[0].code.value, lost[0].run_id)
                world.expect(told == ("interrupt_not_pending", won[0].view.run_id), f"the loser is told {told}")
            if won:
                made = (ids[1], second) if end == "dies" else (ids[0], action)
                world.admitted(won[0], asked.who, asked.app, made[0], "", (asked.run_id, made[1].value))
                Machine.reached["decision", "won"] += 1
            await self.dies_after(one, end)

        self.does(act())

    def meanwhile(self, run: KnownRun, asked: KnownRun, what: str) -> None:
        """Before a decision is fenced an operator closes its question, or its time is over, or somebody at the service itself answers it
        or asks in its place; or the service takes the decision and does nothing."""
        world = self.world
        match what:
            case "closed":
                world.say(f"an operator closes {asked.name}")
                operators = world.replicas["A"].operators
                self.does(world.refused(operators.resolve(cli_actor("op"), RunId(asked.run_id), ResolutionOutcome.FAILED, "too late")))
            case "over":
                world.say("the time to decide is over")  # inside the send window: nobody's clock but the question's goes on
                world.eyes.connection.execute(PASS_QUESTIONS, [TIME_TO_DECIDE + 1])
            case "a stranger answers" | "a stranger asks":
                self.strangers(what, world.seen.bindings[world.seen.runs[run.run_id]["conversation_id"]]["thread_id"])
            case _:
                pass
        self.forward(run.name, 8, Fate(way=Way.IGNORED) if what == "not applied" else GOOD)
        Machine.reached[what, str(world.seen.runs[run.run_id]["reason"])] += 1

    def expected_of(
        self, replica: ModelReplica, who: str, asked: KnownRun, interrupt_id: UUID, submission_id: str, action: Action
    ) -> str | None:
        """What becomes of a decision now: "admitted", "replayed", or the code of the refusal; None when only the clock knows."""
        world, row, question = self.world, self.world.seen.runs[asked.run_id], self.world.seen.questions[asked.run_id]
        if replica.database.away:
            return "DatabaseUnavailable"
        if who in world.suspended:
            return "account_inactive"
        mine = who == asked.who and world.seen.conversations[row["conversation_id"]]["deleted_at"] is None
        original = next((run for run in world.known.values() if run.submission_id == submission_id), None)
        if original is not None and who == original.who:
            same = original.decided == (asked.run_id, action.value) and interrupt_id == question["interrupt_id"]
            return "submission_conflict" if not same else "replayed" if mine else "not_found"
        if asked.app in world.disabled:
            return "app_disabled"
        if not mine:
            return "not_found"
        if row["execution"] != "waiting" or row["answered_by"] is not None or interrupt_id != question["interrupt_id"]:
            return "interrupt_not_pending"
        left = question["seconds_left"]
        if left is not None and left < ON_THE_EDGE:
            return "interrupt_expired" if left < -ON_THE_EDGE else None
        blocked = blocked_by(world.seen, row["conversation_id"])
        if blocked != "waiting_for_decision":
            return refused_for(blocked or "")
        return world.busy((world.people[who], world.apps[asked.app])) or "admitted"

    async def _decision(
        self, replica: ModelReplica, who: str, asked: KnownRun, interrupt_id: UUID, submission_id: str, action: Action
    ) -> Submitted | Refused | str:
        """The resume run, or the refusal, or the name of the database's error."""
        body = json.dumps({"submission_id": submission_id, "interrupt_id": str(interrupt_id), "decision": action.value}).encode()
        try:
            return await replica.submissions.decide(claims(who), self.world.apps[asked.app], RunId(asked.run_id), body)
        except Refused as refused:
            return refused
        except StoreError as error:
            return type(error).__name__

    async def _noted(
        self, act: Coroutine[Any, Any, Submitted | Refused | str], who: str, asked: KnownRun, submission_id: str, action: Action,
        expected: str | None,
    ) -> Submitted | Refused | str:  # fmt: skip
        world, row = self.world, self.world.seen.runs[asked.run_id]
        answer = await act
        if isinstance(answer, Submitted):
            got = "replayed" if answer.replayed else "admitted"
        else:
            got = answer.code.value if isinstance(answer, Refused) else answer
        world.say(f"  {got}")
        Machine.reached["decision", got] += 1
        world.expect(got == expected or (expected is None and got in ("admitted", "interrupt_expired")), f"{got}, expected was {expected}")
        if isinstance(answer, Refused) and got == "interrupt_not_pending":
            in_the_way = row["answered_by"] or asked.run_id
            world.expect(answer.run_id == in_the_way, f"told of {answer.run_id}, in the way is {in_the_way}")
        if isinstance(answer, Submitted) and not answer.replayed:
            world.admitted(answer, who, asked.app, submission_id, "", (asked.run_id, action.value))
        return answer
