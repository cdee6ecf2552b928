"""What the rest of the gateway sees of an upstream: two Protocols, because two profiles answer to them (bridge, later native).

`RunLookup` is all that a reconciler gets; it cannot send a POST. Implementations: `bridge.Bridge`, `lookup.BridgeLookup`.
"""

from typing import Protocol

from gateway.domain.evidence import LookedUp, PostFact
from gateway.domain.ids import NativeRunId, ThreadId
from gateway.upstream.capabilities import Capabilities, CapabilitiesKey
from gateway.upstream.endpoint import Endpoint
from gateway.upstream.open_stream import OpenStream
from gateway.upstream.run_input import GenerationRequest
from gateway.upstream.send_gate import SendGate

__all__ = ["Capabilities", "CapabilitiesKey", "Endpoint", "GenerationRequest", "OpenStream", "RunLookup", "SendGate", "Upstream"]


class Upstream(Protocol):
    """One profile of the upstream contract, as a run uses it, in this order. `key` names the configuration and token behind `endpoint`."""

    async def check_capabilities(self, endpoint: Endpoint, key: CapabilitiesKey) -> Capabilities | None:
        """What the configured assistant can do; None, and the fault in the log, when that was not confirmed (contract B2)."""
        ...

    async def create_thread(self, endpoint: Endpoint, key: CapabilitiesKey) -> ThreadId | None:
        """A fresh thread; None, and the fault in the log, when there is none (contract B3)."""
        ...

    async def generate(self, endpoint: Endpoint, key: CapabilitiesKey, request: GenerationRequest, gate: SendGate) -> OpenStream | PostFact:
        """The one POST: an open event stream, or the fact that moves the run. A cancelled caller asks `gate.seal()`."""
        ...


class RunLookup(Protocol):
    """Asks upstream about a run, and can do nothing else."""

    async def look_up(self, endpoint: Endpoint, thread_id: ThreadId, native_run_id: NativeRunId) -> LookedUp:
        """What upstream says; everything that proves nothing is UNCLEAR."""
        ...
