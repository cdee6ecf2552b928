"""What all rules of the model test share: one step of the world, and the look after it."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from gateway.store.database import Database
from tests.faults.model_checks import Eyes
from tests.faults.model_database import Fault
from tests.faults.model_fates import APPS, FATES, GOOD, PEOPLE, Fate
from tests.faults.model_loop import ModelLoop
from tests.faults.model_replica import LEASE, TOTAL, WINDOW
from tests.faults.model_world import World

_Result = TypeVar("_Result")

replicas = st.sampled_from(["A", "B"])
everybody = st.sampled_from(PEOPLE)
apps = st.sampled_from(APPS)
fates = st.sampled_from([*[GOOD] * 6, *FATES])
lost = st.sampled_from([None, None, None, None, Fault.ANSWER_LOST, Fault.NOT_DONE])
steps = st.sampled_from([0, 1, 2, 3, 5, 7, 10, 10, 10, 10])
rarely = st.sampled_from([False, False, False, False, True])
spans = st.sampled_from([1.0, WINDOW + 1, LEASE + 1, LEASE + 1, TOTAL + WINDOW + 1, 90_000.0])
beating = st.sampled_from([("A", "B"), ("A", "B"), ("A", "B"), ("A",), ("B",), ()])


def names(of: Callable[[World], Any]) -> Callable[[Any], bool]:
    """The precondition that `of` gives something."""
    return lambda machine: bool(of(machine.world))


async def nothing() -> None:
    """A step in which only the waiting tasks go on."""


class Machine(RuleBasedStateMachine):
    """The world of one example. `asked`: who has a question to answer from the beginning. `steps` counts those of all examples, `reached`
    the changes of runs in them."""

    steps = 0
    reached: ClassVar[Counter[tuple[str, str]]] = Counter()

    def __init__(self, runner: asyncio.Runner, shared: Database, eyes: Eyes, logged: list[str], asked: Sequence[str]) -> None:
        super().__init__()
        loop = runner.get_loop()
        assert isinstance(loop, ModelLoop)
        self.runner = runner
        self.logged = logged
        self.asked = asked
        self.world = World(loop, shared, eyes)

    def does(self, act: Coroutine[Any, Any, _Result]) -> _Result:
        """Do one step, let everybody go on as far as they can, and look."""
        Machine.steps += 1

        async def step() -> _Result:
            result = await act
            await self.world.quiet()
            return result

        self.logged.clear()
        result = self.runner.run(step())
        self.world.broken += self.logged
        self.world.check()
        for change in self.world.seen.changes:
            Machine.reached[change["old_execution"], change["new_execution"]] += 1
            Machine.reached[change["old_persistence"], change["new_persistence"]] += 1
        return result

    def teardown(self) -> None:
        try:
            if not self.world.broken and self.world.replicas:
                self.runner.run(self.world.settle_everything())
        finally:
            self.runner.run(self.world.end())

    def forward(self, name: str, steps: int, fate: Fate) -> None:
        """The run goes on for some steps, and nothing happens to it but its fate."""
        for _ in range(steps):
            if not self.world.forward(name, fate):
                return
            self.does(nothing())

    def passes(self, seconds: float, beats: tuple[str, ...]) -> None:
        self.world.say(f"{seconds:g} s pass, {' and '.join(beats) or 'nobody'} beating")
        self.does(self.world.pass_time(seconds, beats))
