"""The bridge profile: an AG-UI agent service behind GET /capabilities, POST /threads, POST /ag-ui. Wiring only.

Imports `generate`, so only who may execute may import it; the look-up is apart, in `lookup`.
"""

import ssl
from dataclasses import dataclass

from gateway.domain.evidence import BadResponse, PostFact, Rejected
from gateway.domain.ids import ThreadId
from gateway.http_client import HttpClient
from gateway.upstream.capabilities import Capabilities, CapabilitiesCache, capabilities_key, fetch_capabilities
from gateway.upstream.endpoint import Endpoint
from gateway.upstream.faults import UpstreamFailed
from gateway.upstream.generate import OpenStream, PostDeadlines, open_generation
from gateway.upstream.run_input import GenerationRequest
from gateway.upstream.send_gate import SendGate
from gateway.upstream.threads import open_thread


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeUpstream:
    """The Upstream of the bridge profile. `call_seconds` bounds one small call as a whole."""

    client: HttpClient
    tls: ssl.SSLContext
    cache: CapabilitiesCache
    deadlines: PostDeadlines
    call_seconds: float

    async def check(self, endpoint: Endpoint) -> Capabilities | UpstreamFailed:
        """Whether the configured assistant is there: remembered for a while, see CapabilitiesCache."""
        return await self.cache.get(
            capabilities_key(endpoint), lambda: fetch_capabilities(self.client, endpoint, deadline_seconds=self.call_seconds)
        )

    async def open_thread(self, endpoint: Endpoint) -> ThreadId | UpstreamFailed:
        """A fresh thread."""
        opened = await open_thread(self.client, endpoint, deadline_seconds=self.call_seconds)
        if isinstance(opened, UpstreamFailed):
            self._forget_after(endpoint, opened.status)
        return opened

    async def open_generation(self, endpoint: Endpoint, request: GenerationRequest, *, gate: SendGate) -> OpenStream | PostFact:
        """The one POST; see `generate.open_generation`."""
        opened = await open_generation(endpoint, request, gate=gate, tls=self.tls, deadlines=self.deadlines)
        if isinstance(opened, Rejected | BadResponse):
            self._forget_after(endpoint, opened.status)
        return opened

    def _forget_after(self, endpoint: Endpoint, status: int | None) -> None:
        if status is not None and status >= 400:
            self.cache.drop(capabilities_key(endpoint))
