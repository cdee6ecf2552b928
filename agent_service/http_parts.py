"""What the routes of both profiles share: the service they serve, bounded bodies, headers of streams."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request

from agent_service.records import ThreadId
from agent_service.runs import Runner
from agent_service.store import Store

# The contract's own limits (B5): characters of text, bytes of the whole body.
MAX_TEXT_CHARS: Final = 16_000
MAX_BODY_BYTES: Final = 64 * 1024
STREAM_HEADERS: Final[Mapping[str, str]] = {"Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no"}
BUSY: Final = "Thread is already running a task"


@dataclass(frozen=True, kw_only=True)
class Service:
    """What the routes need. `assistant`: the one that the bridge profile serves."""

    assistant: str
    token: str
    store: Store
    runner: Runner

    async def require_own_thread(self, thread_id: str, assistant: str) -> ThreadId:
        """The thread, for that assistant's use; 404 where it was never made, 422 where it is another assistant's."""
        owner = await self.owner_of(thread_id)
        if owner not in (None, assistant):
            raise HTTPException(422, "The thread belongs to another assistant")
        return ThreadId(thread_id)

    async def owner_of(self, thread_id: str) -> str | None:
        """The assistant of a thread that was made, of those that are served; 404 where it was never made."""
        if not await self.store.has_thread(thread_id):
            raise HTTPException(404, "Thread not found")
        first = await self.store.assistant_of(thread_id)
        # One that was renamed is not served any more; its threads go on under the new name.
        return first if first in self.runner.graphs else None


async def read_body(request: Request) -> bytes:
    """The body, at most MAX_BODY_BYTES of it; 413 beyond."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BODY_BYTES:
            raise HTTPException(413, f"The body may have {MAX_BODY_BYTES} bytes")
    return bytes(body)


def check_text(text: str) -> str:
    """A message's text as it may be; 422 else."""
    if not text.strip() or len(text) > MAX_TEXT_CHARS:
        raise HTTPException(422, f"The message must have 1 to {MAX_TEXT_CHARS} characters")
    return text
