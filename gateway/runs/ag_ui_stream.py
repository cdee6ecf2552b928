"""A run's stream as an AG-UI client needs it: under the two ids that it sent, and never without an end, which it would take for success."""

from typing import Final

import orjson

from gateway.domain.ids import ClientThread, SubmissionId
from gateway.domain.reasons import Reason
from gateway.runs.frames import Frames
from gateway.runs.read import RunView
from gateway.runs.streams import Stream

_ENDS: Final = (b'data: {"type":"RUN_FINISHED"', b'data: {"type":"RUN_ERROR"')
"""How a terminal frame begins. In no frame's text: quotes are escaped there."""


class AgUiStream:
    """`inner` with the client's ids in RUN_STARTED and RUN_FINISHED. Messages and steps keep ours."""

    def __init__(self, inner: Stream, view: RunView, client_thread: ClientThread, submission_id: SubmissionId) -> None:
        self._inner = inner
        self._frames = Frames(view.run_id, view.conversation_id)
        self._ours = _ids(str(view.conversation_id), str(view.run_id))
        self._theirs = _ids(client_thread, submission_id)
        self._ended = False

    async def read(self, timeout_seconds: float) -> bytes | None:
        """As Stream.read."""
        piece = await self._inner.read(timeout_seconds)
        if not piece:
            return piece
        self._ended = self._ended or any(end in piece for end in _ENDS)
        return piece.replace(self._ours, self._theirs)

    def close(self) -> None:
        """As Stream.close."""
        self._inner.close()

    def farewell(self) -> bytes:
        """What is left to say when the stream is over: RUN_ERROR `detached` where the run did not end before this client's eyes."""
        return b"" if self._ended else self._frames.failed(Reason.DETACHED)


def _ids(thread: str, run: str) -> bytes:
    # As `Frames` writes them. The quotes make it whole values, and no text of a frame can hold it: there quotes are escaped.
    return b'"threadId":%b,"runId":%b' % (orjson.dumps(thread), orjson.dumps(run))
