"""What the rest of the gateway sees of an upstream: two Protocols, because two profiles answer to them (bridge, later native).

`RunLookup` is all that a reconciler gets; it cannot send a POST. Implementations: `bridge`, `lookup`.
"""

from collections.abc import AsyncIterator
from typing import Protocol

from gateway.domain.evidence import LookedUp, PostFact
from gateway.domain.ids import NativeRunId, ThreadId
from gateway.upstream.capabilities import Capabilities
from gateway.upstream.endpoint import Endpoint
from gateway.upstream.faults import UpstreamFailed
from gateway.upstream.response_decoder import BodyEnd
from gateway.upstream.run_input import GenerationRequest
from gateway.upstream.send_gate import SendGate


class EventStream(Protocol):
    """The open body of a 200: pieces as they arrive, b"" at the end, then `end` says how it ended. Close it always."""

    @property
    def end(self) -> BodyEnd | None: ...

    async def read(self) -> bytes: ...

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def aclose(self) -> None: ...


class Upstream(Protocol):
    """One profile of the upstream contract, as a run uses it, in this order."""

    async def check(self, endpoint: Endpoint) -> Capabilities | UpstreamFailed: ...

    async def open_thread(self, endpoint: Endpoint) -> ThreadId | UpstreamFailed: ...

    async def open_generation(self, endpoint: Endpoint, request: GenerationRequest, *, gate: SendGate) -> EventStream | PostFact: ...


class RunLookup(Protocol):
    """Asks upstream about a run, and can do nothing else."""

    async def look_up(self, endpoint: Endpoint, thread_id: ThreadId, native_run_id: NativeRunId) -> LookedUp: ...
