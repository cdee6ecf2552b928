"""One replica of the model test: the real Gate, Execute, Heartbeat, LookUp, Save and Reconciler, wired as in gateway/app.py, which stop
at the fault points until a rule lets them go on.

A replica that is dead stays where it was: its tasks never go on, its database never answers. That is what SIGKILL looks like from outside.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from uuid import uuid4

from gateway.admission.admitting import Admitted
from gateway.admission.chains import SettingsChain
from gateway.admission.gate import Gate
from gateway.admission.moderation import Moderation
from gateway.bindings.resolve import Resolve
from gateway.bindings.vault import Vault
from gateway.domain.fault_points import FaultPoint, Moment, Step
from gateway.domain.ids import RunId
from gateway.domain.limits import ActiveLimits, StreamBounds
from gateway.identity.accounts import AccessCheck
from gateway.reconciler.loop import Reconciler
from gateway.runs.execute import Execute
from gateway.runs.heartbeat import Heartbeat
from gateway.runs.history import History
from gateway.runs.live import LiveRun
from gateway.runs.look_up import LookUp
from gateway.runs.means import Means
from gateway.runs.operator_reads import OperatorReads
from gateway.runs.read import Reads
from gateway.runs.refresh import Refresh
from gateway.runs.resolve import OperatorActs
from gateway.runs.save import Save
from gateway.runs.submit import Submissions
from gateway.runs.supervisor import Supervisor
from gateway.runs.tasks import Tasks
from tests.faults.model_database import Fault, ModelDatabase
from tests.faults.model_native import NativeOfReplica, NativeThreadsOfModel
from tests.faults.model_upstream import ModelUpstream, UpstreamOfReplica

LEASE: Final = 30.0
WINDOW: Final = 5.0
BEAT: Final = 5.0
TOTAL: Final = 900.0
LOOKUP_FIRST: Final = 20.0
"""The backoff's jitter (0.8 to 1.2) must not decide what is due: a moment is far shorter and a lease longer than this."""
LOOKUP_BUDGET: Final = 3
LIMITS: Final = ActiveLimits(per_user=2, per_application=3)

PAUSES: Final = frozenset(
    {
        FaultPoint(Moment.BEFORE, Step.FENCE),
        FaultPoint(Moment.BEFORE, Step.START),
        FaultPoint(Moment.BEFORE, Step.CHECKPOINT),
        FaultPoint(Moment.BEFORE, Step.SETTLE),
        FaultPoint(Moment.AFTER, Step.SETTLE),
        FaultPoint(Moment.BEFORE, Step.RELEASE),
        FaultPoint(Moment.BEFORE, Step.EXPIRE),
        FaultPoint(Moment.BEFORE, Step.SAVE),
        FaultPoint(Moment.BEFORE, Step.LOOKUP_WRITE),
    }
)
"""After a fence the task waits at its POST, and a look-up at its answer: ModelUpstream holds those."""
_STATEMENTS: Final = {
    Step.FENCE: "runs.fence",
    Step.START: "runs.start",
    Step.CHECKPOINT: "runs.checkpoint",
    Step.SETTLE: "runs.settle",
    Step.RELEASE: "runs.release",
}
"""The statements that a rule may let fail; the reconciler's are repeated by its next sweep."""

ADMISSIONS: Final = frozenset({Step.ADMISSION, Step.DECISION})

_Result = TypeVar("_Result")
THE_RECONCILER: Final = "the reconciler"
_doing: ContextVar[str] = ContextVar("doing", default=THE_RECONCILER)


@dataclass(eq=False)
class Paused:
    """A task that waits at a fault point. `whose`: the name of the run, the reconciler, or one of its look-ups."""

    name: str
    point: FaultPoint
    whose: str
    go: "asyncio.Future[None]"
    replica: "ModelReplica"

    def __str__(self) -> str:
        return f"{self.whose} on {self.name}, {self.point}"

    def faults(self) -> list[Fault]:
        """What may be made of the statement that is next."""
        if self.point.moment is Moment.AFTER or self.point.step not in _STATEMENTS:
            return []
        return [fault for fault in Fault if fault is not Fault.REFUSED or self.point.step is Step.SETTLE]

    def release(self, fault: Fault | None) -> None:
        self.replica.paused.remove(self)
        if fault is not None:
            self.replica.database.faults[_STATEMENTS[self.point.step]] = fault
        self.go.set_result(None)


@dataclass(eq=False)
class ModelReplica:
    """`name_of` gives a run its name in the story. `pausing`: whether it stops at PAUSES; `pausing_admission`: before that commit, once."""

    name: str
    database: ModelDatabase
    vault: Vault
    service: ModelUpstream
    threads: NativeThreadsOfModel
    name_of: Callable[[RunId], str]
    alive: bool = True
    gave_up: bool = False
    pausing: bool = True
    pausing_admission: bool = False
    paused: list[Paused] = field(default_factory=list)
    tasks: Tasks = field(default_factory=Tasks)
    live: dict[str, LiveRun] = field(default_factory=dict)
    sweeping: "asyncio.Task[None] | None" = None

    def __post_init__(self) -> None:
        clock = asyncio.get_running_loop().time
        resolve = Resolve(self.database, self.vault)
        upstream = UpstreamOfReplica(self.service, self.database, self.survives)
        native = NativeOfReplica(self.service, self.database, self.survives, self.threads, lambda: _doing.get() != THE_RECONCILER)
        means = Means(
            database=self.database,
            resolve=resolve,
            upstream=upstream,
            native=native,
            native_reads=native,
            bounds=StreamBounds(idle_seconds=2 * TOTAL, total_seconds=TOTAL),
            lease_seconds=LEASE,
            send_window_seconds=WINDOW,
            lookup_first_seconds=LOOKUP_FIRST,
            checkpoint_seconds=2.0,
            own=self.tasks.own,
            clock=clock,
            at=self.at,
        )
        self.supervisor = Supervisor(Execute(means), self.tasks)
        self.heartbeat = Heartbeat(
            self.database, uuid4(), self.supervisor.live_runs.held, (), period_seconds=BEAT, lease_seconds=LEASE, clock=clock, at=self.at
        )
        look_up = LookUp(self.database, resolve, upstream, native, LOOKUP_BUDGET, LOOKUP_FIRST, self.at)
        save = Save(self.database, self.at)
        self.reconciler = Reconciler(
            database=self.database,
            look_up=look_up,
            save=save,
            may_expire=self.heartbeat.may_expire,
            period_seconds=5.0,
            lookup_first_seconds=LOOKUP_FIRST,
            at=self.at,
        )
        self.reads = Reads(self.database)
        self.access = AccessCheck(self.database, create_unknown=False)
        gate = Gate(
            database=self.database,
            access_check=self.access,
            vault=self.vault,
            moderation=Moderation(self.database, SettingsChain(()).chain_of, 1.0, clock),
            limits=LIMITS,
            lease_seconds=LEASE,
            quota_zone="UTC",
            draining=lambda: False,
            at=self.at,
        )
        self.submissions = Submissions(gate, self.reads, self._begin, self.tasks.own)
        self.refresh = Refresh(self.reads, look_up, save, self.tasks.own)
        self.history = History(self.database)
        operator_reads = OperatorReads(self.database, WINDOW + TOTAL)
        self.operators = OperatorActs(self.database, operator_reads, look_up, save, self.tasks.own)

    def _begin(self, admitted: Admitted) -> LiveRun:
        name = self.name_of(admitted.run_id)
        token = _doing.set(name)  # inherited by every task of the run
        try:
            self.live[name] = self.supervisor.begin(admitted)
        finally:
            _doing.reset(token)
        return self.live[name]

    async def at(self, point: FaultPoint) -> None:
        """The hook of the fault points."""
        await self.survives(_nothing())
        pauses = point in PAUSES and self.pausing
        if point.moment is Moment.BEFORE and point.step in ADMISSIONS and self.pausing_admission:
            pauses, self.pausing_admission = True, False
        if pauses:
            whose = self.service.asking.get() or _doing.get()
            paused = Paused(self.name, point, whose, asyncio.get_running_loop().create_future(), self)
            self.paused.append(paused)
            try:
                await self.survives(paused.go)
            finally:  # a run that is given up waits no more
                if paused in self.paused:
                    self.paused.remove(paused)

    async def survives(self, awaited: Awaitable[_Result]) -> _Result:
        """What `awaited` gives, when this replica is alive by then."""
        result = await awaited
        if not self.alive:
            await asyncio.get_running_loop().create_future()
        return result

    def die(self) -> None:
        """SIGKILL. What it had open, its server rolls back."""
        self.alive = False
        self.database.gone = True
        self.paused.clear()
        self.tasks.cancel("admission")

    def give_up(self) -> None:
        """What a drain does when its budget is spent, once in a process: the runs are cancelled, and each settles itself."""
        if not self.gave_up:
            self.gave_up = True
            self.tasks.cancel("run")

    async def sweep(self) -> None:
        """Begin a round of the reconciler, unless one is under way."""
        if self.sweeping is None or self.sweeping.done():
            self.sweeping = asyncio.get_running_loop().create_task(self.reconciler.sweep())


async def _nothing() -> None:
    return None


Story = Callable[[str], Any]
