"""The use case behind POST /runs: check, admit in a task that no browser can cancel, and start the run."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from gateway.admission.admitting import Admitted, Checked, Replayed
from gateway.admission.gate import Gate
from gateway.admission.run_agent_input import RunAgentInput
from gateway.domain.ids import ApplicationId, RunId
from gateway.domain.problems import Refused
from gateway.domain.quota import RuleState
from gateway.identity.accounts import Access
from gateway.identity.tokens import Claims
from gateway.metrics import ADMISSIONS, Metrics
from gateway.runs.live import LiveRun
from gateway.runs.read import Reads, RunView

_Result = TypeVar("_Result")


class Own(Protocol):
    """Runs a coroutine in a task of the replica's supervisor, which outlives the request."""

    def __call__(self, coroutine: Coroutine[Any, Any, _Result], name: str) -> "asyncio.Task[_Result]": ...


@dataclass(frozen=True, slots=True)
class Submitted:
    """The one run of a submission. `replayed`: it was admitted by an earlier request. `quota`: what this request was charged to."""

    access: Access
    application_id: ApplicationId
    view: RunView
    replayed: bool
    quota: tuple[RuleState, ...] = ()


@dataclass(frozen=True, slots=True)
class Submissions:
    """`begin` starts the execution of an admitted run under the supervisor."""

    gate: Gate
    reads: Reads
    begin: Callable[[Admitted], LiveRun]
    own: Own
    metrics: Metrics = field(default_factory=Metrics)

    async def submit(self, claims: Claims, application_id: ApplicationId, body: bytes) -> Submitted:
        """The run of the submission in `body`, admitted now or before. Raises Refused, or a store error when the database is away."""
        return await self._counted(self._run_of(application_id, self.gate.check(claims, application_id, body)))

    async def decide(self, claims: Claims, application_id: ApplicationId, run_id: RunId, body: bytes) -> Submitted:
        """The resume run of the decision in `body` about the question of `run_id`. Raises as `submit`."""
        return await self._counted(self._run_of(application_id, self.gate.check_decision(claims, application_id, run_id, body)))

    async def run_agent(self, claims: Claims, application_id: ApplicationId, body: bytes) -> tuple[RunAgentInput, Submitted]:
        """The run of an AG-UI client's RunAgentInput, and what it asked for. Raises as `submit`."""
        asked: list[RunAgentInput] = []

        async def check() -> Checked | Replayed:
            found, checked = await self.gate.check_run_agent(claims, application_id, body)
            asked.append(found)
            return checked

        submitted = await self._counted(self._run_of(application_id, check()))
        return asked[0], submitted

    async def _counted(self, submitting: Awaitable[Submitted]) -> Submitted:
        try:
            submitted = await submitting
        except Refused as refused:
            self.metrics.count(ADMISSIONS, refused.code.value)
            raise
        self.metrics.count(ADMISSIONS, "replayed" if submitted.replayed else "admitted")
        return submitted

    async def _run_of(self, application_id: ApplicationId, checking: Awaitable[Checked | Replayed]) -> Submitted:
        checked = await checking
        outcome: LiveRun | Replayed
        if isinstance(checked, Checked):
            # A browser that leaves now cancels no commit and leaves no admitted run that nobody executes.
            outcome = await asyncio.shield(self.own(self._admit_and_begin(checked), "admission"))
        else:
            outcome = checked
        if isinstance(outcome, LiveRun):
            return Submitted(outcome.admitted.access, application_id, outcome.view, replayed=False, quota=outcome.admitted.quota)
        view = await self.reads.run(outcome.access, application_id, outcome.run_id)
        return Submitted(outcome.access, application_id, view, replayed=True)

    async def _admit_and_begin(self, checked: Checked) -> LiveRun | Replayed:
        admitted = await self.gate.admit(checked)
        return self.begin(admitted) if isinstance(admitted, Admitted) else admitted
