"""The native profile: LangGraph's own routes, for applications with `human_input` (contract E1). Wiring, like `bridge`.

Imports `generate`, so only who may execute may import it; what can only ask is `native_reads`.
"""

import re
from typing import Final
from urllib.parse import unquote

import structlog

from gateway.domain.evidence import BadResponse, PostFact, ResponseFault
from gateway.domain.ids import NativeRunId, ThreadId, is_opaque_id
from gateway.upstream.bridge import Bridge
from gateway.upstream.capabilities import NOT_CAPABLE, Capabilities, CapabilitiesKey
from gateway.upstream.endpoint import Endpoint, path_segment
from gateway.upstream.open_stream import OpenRun, OpenStream
from gateway.upstream.response_decoder import ResponseHead
from gateway.upstream.run_input import NativeRequest
from gateway.upstream.send_gate import SendGate

_log: Final[structlog.stdlib.BoundLogger] = structlog.get_logger("gateway.upstream.native")

_RUN_PATH: Final = re.compile(r"(?:.*/)?threads/([^/?#]+)/runs/([^/?#]+)")


class Native(Bridge):
    """The Upstream of the native profile: the bridge's transport and memory, other routes, and more to be capable of."""

    async def check_capabilities(self, endpoint: Endpoint, key: CapabilitiesKey) -> Capabilities | None:
        """As the bridge's; None also for an assistant that cannot ask, be answered and keep to one task a thread."""
        capabilities = await super().check_capabilities(endpoint, key)
        if capabilities is not None and not capabilities.serves_approval:
            _log.warning("capabilities_failed", application_id=str(key.application_id), fault=NOT_CAPABLE)
            return None
        return capabilities

    async def run(self, endpoint: Endpoint, key: CapabilitiesKey, request: NativeRequest, gate: SendGate) -> OpenRun | PostFact:
        """The one POST. A stream whose head names no run of our thread is not read: its outcome is unknown."""
        opened = await self.generate(endpoint, key, request, gate)
        if not isinstance(opened, OpenStream):
            return opened
        native_run_id = told_run_id(opened.head, request.thread_id)
        if native_run_id is None:
            await opened.aclose()
            return BadResponse(ResponseFault.RUN_ID, opened.head.status)
        return OpenRun(opened, native_run_id)


def told_run_id(head: ResponseHead, thread_id: ThreadId) -> NativeRunId | None:
    """The run that a response's Content-Location names, when it is one of our thread."""
    locations = set(head.values("content-location"))
    named = _RUN_PATH.fullmatch(locations.pop()) if len(locations) == 1 else None
    if named is None or path_segment(thread_id) is None or unquote(named[1]) != thread_id:
        return None
    native_run_id = unquote(named[2])
    return NativeRunId(native_run_id) if is_opaque_id(native_run_id) and path_segment(native_run_id) is not None else None
