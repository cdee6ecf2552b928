"""What executing a run needs, as one frozen value that its steps share. No decisions here."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gateway.bindings.resolve import Resolve
from gateway.domain.fault_points import At, Step, pass_by, through
from gateway.domain.ids import RunId
from gateway.domain.limits import StreamBounds
from gateway.metrics import Metrics
from gateway.runs.submit import Own
from gateway.runs.until_committed import until_committed
from gateway.store.database import Database
from gateway.upstream.protocol import NativeReads, NativeUpstream, Upstream

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Means:
    """`clock` is monotonic, in seconds. `own` starts a task that outlives every request. `reading`: the runs whose streams are read now."""

    database: Database
    resolve: Resolve
    upstream: Upstream
    native: NativeUpstream
    native_reads: NativeReads
    bounds: StreamBounds
    lease_seconds: float
    send_window_seconds: float
    lookup_first_seconds: float
    checkpoint_seconds: float
    own: Own
    clock: Callable[[], float]
    at: At = pass_by
    reading: set[RunId] = field(default_factory=set)
    metrics: Metrics = field(default_factory=Metrics)

    async def committed(self, step: Step, write: Callable[[], Coroutine[Any, Any, _Result]]) -> _Result:
        """Repeat `write`, which is `step` and is guarded, until the database confirmed it."""
        return await until_committed(lambda: through(self.at, step, write()))
