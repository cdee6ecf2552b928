"""What can be asked of a native upstream: a thread's state, a run, the runs on a thread. All that a reconciler may do.

This module and what it imports can send no POST that executes; the import contracts hold it to that. What real servers echo there, users'
messages and the texts of errors, is passed over unread and never logged.
"""

from typing import Final

import structlog

from gateway.domain.evidence import LookupStatus
from gateway.domain.ids import CorrelationId, NativeRunId, ThreadId, is_opaque_id
from gateway.domain.limits import MAX_THREAD_BODY_BYTES
from gateway.domain.native import ThreadState
from gateway.domain.strict_json import Json, NotStrictJson, loads
from gateway.domain.thread_state import parse_state
from gateway.http_client import HttpClient, Reply
from gateway.upstream.endpoint import Endpoint, path_segment
from gateway.upstream.faults import CALL_SECONDS, UpstreamFailed, UpstreamFault, json_object_of
from gateway.upstream.lookup import fetch_run_status
from gateway.upstream.run_input import MARK_KEY

MAX_RUNS: Final = 100
"""How many runs of a thread are looked through; ours have one for the task and one a decision."""

_log: Final[structlog.stdlib.BoundLogger] = structlog.get_logger("gateway.upstream.native_reads")


class NativeThreads:
    """The NativeReads over HTTP. `deadline_seconds` bounds each call as a whole."""

    def __init__(self, client: HttpClient, *, deadline_seconds: float = CALL_SECONDS) -> None:
        self._client = client
        self._deadline_seconds = deadline_seconds

    async def state(self, endpoint: Endpoint, thread_id: ThreadId) -> ThreadState | None:
        """GET /threads/{thread}/state, once."""
        reply = await self._get(endpoint, thread_id, "/state")
        told = reply if isinstance(reply, UpstreamFailed) else json_object_of(reply, expected=frozenset({200}))
        state = None if isinstance(told, UpstreamFailed) else parse_state(told)
        if state is None:
            failed = told if isinstance(told, UpstreamFailed) else UpstreamFailed(UpstreamFault.UNEXPECTED_SHAPE, status=200)
            _log.warning("state_unreadable", fault=failed.fault.value, upstream_status=failed.status)
        return state

    async def run_status(self, endpoint: Endpoint, thread_id: ThreadId, native_run_id: NativeRunId) -> LookupStatus:
        """GET /threads/{thread}/runs/{run}, once; whatever goes wrong, 404 included, is UNCLEAR."""
        told = await fetch_run_status(
            self._client, endpoint, thread_id, native_run_id, deadline_seconds=self._deadline_seconds, max_bytes=MAX_THREAD_BODY_BYTES
        )
        return LookupStatus.UNCLEAR if isinstance(told, UpstreamFailed) else told

    async def find_run(
        self, endpoint: Endpoint, thread_id: ThreadId, mark: CorrelationId, known: frozenset[NativeRunId]
    ) -> NativeRunId | None:
        """GET /threads/{thread}/runs, once. None: no such run, more than one, or nothing that could be read."""
        reply = await self._get(endpoint, thread_id, f"/runs?limit={MAX_RUNS}")
        if isinstance(reply, UpstreamFailed) or not isinstance(reply, Reply) or reply.status != 200:
            return None
        try:
            told = loads(reply.body)
        except NotStrictJson:
            return None
        return found_run(told, thread_id, str(mark), known) if isinstance(told, list) else None

    async def _get(self, endpoint: Endpoint, thread_id: ThreadId, rest: str) -> "Reply | UpstreamFailed":
        thread = path_segment(thread_id)
        if thread is None:
            return UpstreamFailed(UpstreamFault.UNEXPECTED_SHAPE)
        reply = await self._client.get_json(
            endpoint.url(f"/threads/{thread}{rest}"),
            headers={"Authorization": endpoint.authorization},
            deadline_seconds=self._deadline_seconds,
            max_bytes=MAX_THREAD_BODY_BYTES,
        )
        return reply if isinstance(reply, Reply) else UpstreamFailed(UpstreamFault.NO_REPLY, call=reply)


def found_run(told: list[Json], thread_id: str, mark: str, known: frozenset[NativeRunId]) -> NativeRunId | None:
    """Our run in a list of a thread's runs: the one with our mark, else the one that we did not know, among those that tell no marks."""
    marked: set[str] = set()
    unmarked: set[str] = set()
    for run in told:
        run_id = run.get("run_id") if isinstance(run, dict) else None
        if not isinstance(run, dict) or not isinstance(run_id, str) or not is_opaque_id(run_id) or run_id in known:
            continue
        if run.get("thread_id", thread_id) != thread_id:
            continue
        metadata = run.get("metadata")
        if not isinstance(metadata, dict):
            unmarked.add(run_id)
        elif metadata.get(MARK_KEY) == mark:
            marked.add(run_id)
    candidates = marked or unmarked
    return NativeRunId(candidates.pop()) if len(candidates) == 1 else None
