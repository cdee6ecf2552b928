"""GET /threads/{thread}/runs/{run}: what upstream says of a run (contract B6). All that a reconciler may do.

This module and what it imports can send no POST that executes; the import contracts hold it to that. Only ids and status are read: real
servers echo what users wrote in the other fields.
"""

from collections.abc import Mapping
from typing import Final

from gateway.domain.evidence import LookedUp, LookupStatus
from gateway.domain.ids import NativeRunId, ThreadId
from gateway.domain.limits import MAX_REPLY_BODY_BYTES
from gateway.http_client import HttpClient
from gateway.upstream.endpoint import Endpoint, path_segment
from gateway.upstream.faults import CALL_SECONDS, UpstreamFailed, json_object_of

_MEANS: Final[Mapping[str, LookupStatus]] = {
    "success": LookupStatus.SUCCESS,
    "error": LookupStatus.ERROR,
    "timeout": LookupStatus.ERROR,
    "interrupted": LookupStatus.INTERRUPTED,
    "pending": LookupStatus.ACTIVE,
    "running": LookupStatus.ACTIVE,
}
"""The statuses of interface.md; any other proves nothing."""


class BridgeLookup:
    """The RunLookup of the bridge profile."""

    def __init__(self, client: HttpClient, *, deadline_seconds: float = CALL_SECONDS) -> None:
        self._client = client
        self._deadline_seconds = deadline_seconds

    async def look_up(self, endpoint: Endpoint, thread_id: ThreadId, native_run_id: NativeRunId) -> LookedUp:
        """One question, one answer; whatever goes wrong, 404 included, is UNCLEAR and keeps the slot."""
        thread, run = path_segment(thread_id), path_segment(native_run_id)
        if thread is None or run is None:
            return LookedUp(LookupStatus.UNCLEAR)
        reply = await self._client.get_json(
            endpoint.url(f"/threads/{thread}/runs/{run}"),
            headers={"Authorization": endpoint.authorization},
            deadline_seconds=self._deadline_seconds,
            max_bytes=MAX_REPLY_BODY_BYTES,
        )
        told = json_object_of(reply, expected=frozenset({200}))
        if isinstance(told, UpstreamFailed) or told.get("thread_id") != thread_id or told.get("run_id") != native_run_id:
            return LookedUp(LookupStatus.UNCLEAR)
        status = told.get("status")
        return LookedUp(_MEANS.get(status, LookupStatus.UNCLEAR) if isinstance(status, str) else LookupStatus.UNCLEAR)
