"""POST /threads: a fresh native thread for a conversation (contract B3). Its id is upstream's, opaque, and never leaves the gateway."""

from typing import Final

from gateway.domain.ids import ThreadId, is_opaque_id
from gateway.domain.limits import MAX_REPLY_BODY_BYTES
from gateway.http_client import HttpClient
from gateway.upstream.endpoint import Endpoint
from gateway.upstream.faults import UpstreamFailed, UpstreamFault, json_object_of

_CREATED: Final = frozenset({200, 201})


async def create_thread(client: HttpClient, endpoint: Endpoint, *, deadline_seconds: float) -> ThreadId | UpstreamFailed:
    """Ask for one thread, once. A failure is before dispatch; at worst upstream keeps an empty thread that nobody uses."""
    reply = await client.post_json(
        endpoint.url("/threads"),
        headers={"Authorization": endpoint.authorization},
        body=b"{}",
        deadline_seconds=deadline_seconds,
        max_bytes=MAX_REPLY_BODY_BYTES,
    )
    told = json_object_of(reply, expected=_CREATED)
    if isinstance(told, UpstreamFailed):
        return told
    thread_id = told.get("thread_id")
    if not isinstance(thread_id, str) or not is_opaque_id(thread_id):
        return UpstreamFailed(UpstreamFault.UNEXPECTED_SHAPE)
    return ThreadId(thread_id)
