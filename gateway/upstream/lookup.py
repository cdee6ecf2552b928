"""GET /threads/{thread}/runs/{run}: what upstream says of a run (contract B6). All that a reconciler may do.

This module and what it imports can send no POST that executes; the import contracts hold it to that. Only ids and status are read: real
servers echo what users wrote in the other fields.
"""

from collections.abc import Mapping
from typing import Final

from gateway.domain.evidence import LookedUp, LookupStatus
from gateway.domain.ids import NativeRunId, ThreadId
from gateway.domain.limits import MAX_REPLY_BODY_BYTES
from gateway.domain.strict_json import Json
from gateway.http_client import CallFault, HttpClient
from gateway.upstream.endpoint import Endpoint, path_segment
from gateway.upstream.faults import CALL_SECONDS, UpstreamFailed, UpstreamFault, json_object_of

_MEANS: Final[Mapping[str, LookupStatus]] = {
    "success": LookupStatus.SUCCESS,
    "error": LookupStatus.ERROR,
    "timeout": LookupStatus.ERROR,
    "interrupted": LookupStatus.INTERRUPTED,
    "pending": LookupStatus.ACTIVE,
    "running": LookupStatus.ACTIVE,
}
"""The statuses of interface.md; any other proves nothing."""


async def fetch_run_status(
    client: HttpClient,
    endpoint: Endpoint,
    thread_id: ThreadId,
    native_run_id: NativeRunId,
    *,
    deadline_seconds: float,
    max_bytes: int = MAX_REPLY_BODY_BYTES,
) -> LookupStatus | UpstreamFailed:
    """Ask once: what the run's status means, UNCLEAR for one that is not known here; a reply that is not about this run is a failure."""
    thread, run = path_segment(thread_id), path_segment(native_run_id)
    if thread is None or run is None:
        return UpstreamFailed(UpstreamFault.NO_REPLY, call=CallFault.UNSENDABLE)
    reply = await client.get_json(
        endpoint.url(f"/threads/{thread}/runs/{run}"),
        headers={"Authorization": endpoint.authorization},
        deadline_seconds=deadline_seconds,
        max_bytes=max_bytes,
    )
    told = json_object_of(reply, expected=frozenset({200}))
    return told if isinstance(told, UpstreamFailed) else run_status(told, thread_id, native_run_id)


def run_status(told: Mapping[str, Json], thread_id: str, native_run_id: str) -> LookupStatus | UpstreamFailed:
    """What a run's JSON says, when its ids are those that were asked for."""
    if told.get("thread_id") != thread_id or told.get("run_id") != native_run_id:
        return UpstreamFailed(UpstreamFault.OTHER_IDS, status=200)
    status = told.get("status")
    return _MEANS.get(status, LookupStatus.UNCLEAR) if isinstance(status, str) else LookupStatus.UNCLEAR


class BridgeLookup:
    """The RunLookup of the bridge profile."""

    def __init__(self, client: HttpClient, *, deadline_seconds: float = CALL_SECONDS) -> None:
        self._client = client
        self._deadline_seconds = deadline_seconds

    async def look_up(self, endpoint: Endpoint, thread_id: ThreadId, native_run_id: NativeRunId) -> LookedUp:
        """One question, one answer; whatever goes wrong, 404 included, is UNCLEAR and keeps the slot."""
        told = await fetch_run_status(self._client, endpoint, thread_id, native_run_id, deadline_seconds=self._deadline_seconds)
        return LookedUp(LookupStatus.UNCLEAR if isinstance(told, UpstreamFailed) else told)
