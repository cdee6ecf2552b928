"""The bridge profile: an AG-UI agent service behind GET /capabilities, POST /threads, POST /ag-ui. Wiring, and what is logged of failures.

Imports `generate`, so only who may execute may import it; the look-up is apart, in `lookup`.
"""

from collections.abc import Callable
from typing import Final

import structlog

from gateway.domain.evidence import BadResponse, PostFact, Rejected
from gateway.domain.ids import ThreadId
from gateway.domain.limits import StreamBounds
from gateway.http_client import HttpClient
from gateway.upstream.capabilities import Capabilities, CapabilitiesCache, CapabilitiesKey, fetch_capabilities
from gateway.upstream.endpoint import Endpoint
from gateway.upstream.faults import CALL_SECONDS, UpstreamFailed
from gateway.upstream.generate import PostDeadlines, open_generation
from gateway.upstream.open_stream import OpenStream
from gateway.upstream.run_input import Dispatch
from gateway.upstream.send_gate import SendGate
from gateway.upstream.threads import create_thread

_log: Final[structlog.stdlib.BoundLogger] = structlog.get_logger("gateway.upstream.bridge")


class Bridge:
    """The Upstream of the bridge profile. `clock` is monotonic, in seconds; `call_seconds` bounds one small call as a whole.

    The head of the POST's response is waited for as long as a stream may be idle; the caller's own clocks end it sooner.
    """

    def __init__(self, client: HttpClient, *, bounds: StreamBounds, clock: Callable[[], float], call_seconds: float = CALL_SECONDS) -> None:
        self._client = client
        self._call_seconds = call_seconds
        self._deadlines = PostDeadlines(connect_seconds=bounds.connect_seconds, response_seconds=bounds.idle_seconds)
        self._cache = CapabilitiesCache(now=clock)

    async def check_capabilities(self, endpoint: Endpoint, key: CapabilitiesKey) -> Capabilities | None:
        """What the configured assistant can do, remembered for a while (CapabilitiesCache); None when that was not confirmed."""
        answer = await self._cache.get(key, lambda: fetch_capabilities(self._client, endpoint, deadline_seconds=self._call_seconds))
        if isinstance(answer, UpstreamFailed):
            _log_failed("capabilities_failed", key, answer)
            return None
        return answer

    async def create_thread(self, endpoint: Endpoint, key: CapabilitiesKey) -> ThreadId | None:
        """A fresh thread, or None."""
        created = await create_thread(self._client, endpoint, deadline_seconds=self._call_seconds)
        if isinstance(created, UpstreamFailed):
            self._forget_after(key, created.status)
            _log_failed("thread_failed", key, created)
            return None
        return created

    async def generate(self, endpoint: Endpoint, key: CapabilitiesKey, request: Dispatch, gate: SendGate) -> OpenStream | PostFact:
        """The one POST; see `generate.open_generation`."""
        opened = await open_generation(
            endpoint, request, gate=gate, tls=self._client.tls, trusted_hosts=self._client.trusted_hosts, deadlines=self._deadlines
        )
        if isinstance(opened, Rejected | BadResponse):
            self._forget_after(key, opened.status)
        return opened

    def drop(self, key: CapabilitiesKey) -> None:
        """Forget what was confirmed of a configuration: it changed."""
        self._cache.drop(key)

    def _forget_after(self, key: CapabilitiesKey, status: int | None) -> None:
        if status is not None and status >= 400:
            self._cache.drop(key)


def _log_failed(event: str, key: CapabilitiesKey, failed: UpstreamFailed) -> None:
    _log.warning(
        event,
        application_id=str(key.application_id),
        fault=failed.fault.value,
        upstream_status=failed.status,
        call=failed.call.value if failed.call else None,
    )
