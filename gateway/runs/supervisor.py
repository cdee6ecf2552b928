"""The supervisor of a replica: starts admitted runs in tasks of its own, knows which are live, and drains them."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from gateway.admission.admitting import Admitted
from gateway.runs.live import LiveRun, LiveRuns
from gateway.runs.tasks import Tasks

_RUN = "run"
_SETTLE_SECONDS = 5.0
"""What is left for writing down how runs stand once the drain's budget is spent."""


@dataclass(slots=True)
class Supervisor:
    """`draining`: admits nothing new. Runs go on, whether anybody watches or not (contract D2, D3)."""

    execute: Callable[[LiveRun], Coroutine[Any, Any, None]]
    tasks: Tasks
    live_runs: LiveRuns = field(default_factory=LiveRuns)
    draining: bool = False

    def begin(self, admitted: Admitted) -> LiveRun:
        """Execute an admitted run in a task that no request owns."""
        live = LiveRun(admitted)
        self.live_runs.add(live)
        self.tasks.own(self.execute(live), _RUN).add_done_callback(lambda _: self._over(live))
        return live

    def _over(self, live: LiveRun) -> None:
        self.live_runs.remove(live.admitted.run_id)
        live.channel.close()  # however it ended: nobody waits for a run that nobody executes

    def end_streams(self) -> None:
        """End the browsers' streams with a last status and no terminal frame; the runs go on."""
        for live in self.live_runs.all():
            live.detach()

    async def finish(self, budget_seconds: float) -> None:
        """Let runs end within the budget; what is left is settled by what is known then."""
        if await self.tasks.finish(budget_seconds):
            return
        self.tasks.cancel(_RUN)
        await self.tasks.finish(_SETTLE_SECONDS)
