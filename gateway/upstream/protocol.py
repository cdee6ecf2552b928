"""What the rest of the gateway sees of an upstream: Protocols, because two profiles answer to them, bridge and native.

`RunLookup` and `NativeReads` are all that a reconciler gets; they cannot send a POST. Implementations: `bridge.Bridge`, `native.Native`,
`lookup.BridgeLookup`, `native_reads.NativeThreads`.
"""

from typing import Protocol

from gateway.domain.evidence import LookedUp, LookupStatus, PostFact
from gateway.domain.ids import CorrelationId, NativeRunId, ThreadId
from gateway.domain.native import ThreadState
from gateway.upstream.capabilities import Capabilities, CapabilitiesKey
from gateway.upstream.endpoint import Endpoint
from gateway.upstream.open_stream import OpenRun, OpenStream
from gateway.upstream.run_input import GenerationRequest, NativeRequest
from gateway.upstream.send_gate import SendGate

__all__ = [
    "Capabilities",
    "CapabilitiesKey",
    "Endpoint",
    "GenerationRequest",
    "NativeReads",
    "NativeRequest",
    "NativeUpstream",
    "OpenRun",
    "OpenStream",
    "Preflight",
    "RunLookup",
    "SendGate",
    "Upstream",
]


class Preflight(Protocol):
    """What both profiles do before a fence. `key` names the configuration and token behind `endpoint`."""

    async def check_capabilities(self, endpoint: Endpoint, key: CapabilitiesKey) -> Capabilities | None:
        """What the configured assistant can do; None, and the fault in the log, when that was not confirmed (contract B2)."""
        ...

    async def create_thread(self, endpoint: Endpoint, key: CapabilitiesKey) -> ThreadId | None:
        """A fresh thread; None, and the fault in the log, when there is none (contract B3)."""
        ...


class Upstream(Preflight, Protocol):
    """The bridge profile, as a run uses it."""

    async def generate(self, endpoint: Endpoint, key: CapabilitiesKey, request: GenerationRequest, gate: SendGate) -> OpenStream | PostFact:
        """The one POST: an open event stream, or the fact that moves the run. A cancelled caller asks `gate.seal()`."""
        ...


class NativeUpstream(Preflight, Protocol):
    """The native profile, as a run uses it; what is asked of it besides is NativeReads."""

    async def run(self, endpoint: Endpoint, key: CapabilitiesKey, request: NativeRequest, gate: SendGate) -> OpenRun | PostFact:
        """The one POST: an open event stream and the id of its run, or the fact that moves the run. As above."""
        ...


class RunLookup(Protocol):
    """Asks upstream about a run, and can do nothing else."""

    async def look_up(self, endpoint: Endpoint, thread_id: ThreadId, native_run_id: NativeRunId) -> LookedUp:
        """What upstream says; everything that proves nothing is UNCLEAR."""
        ...


class NativeReads(Protocol):
    """Asks a native upstream about threads and their runs, and can do nothing else. None and UNCLEAR prove nothing."""

    async def state(self, endpoint: Endpoint, thread_id: ThreadId) -> ThreadState | None:
        """What the thread's state shows; None, and the fault in the log, when it could not be read."""
        ...

    async def run_status(self, endpoint: Endpoint, thread_id: ThreadId, native_run_id: NativeRunId) -> LookupStatus:
        """What the run's look-up says."""
        ...

    async def find_run(
        self, endpoint: Endpoint, thread_id: ThreadId, mark: CorrelationId, known: frozenset[NativeRunId]
    ) -> NativeRunId | None:
        """The run with our mark; where a server tells no marks, the one run on the thread that is not `known`."""
        ...
