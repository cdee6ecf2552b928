"""A run's stream as an AG-UI client needs it: under the two ids that it sent, and with nothing missing that it would read something into.

A stream without an end it would take for success; a tool call without a result, in a run that finished, for one that waits for an answer of
the application's own. No tool of a run is the application's here, so such a step is said to be over right before the end.
"""

import re
from typing import Final

import orjson

from gateway.domain.ids import ClientThread, SubmissionId
from gateway.domain.reasons import Reason
from gateway.runs.frames import Frames, tool_result
from gateway.runs.read import RunView
from gateway.runs.streams import Stream

_FINISHED: Final = b'data: {"type":"RUN_FINISHED"'
_ENDS: Final = (_FINISHED, b'data: {"type":"RUN_ERROR"')
"""How a terminal frame begins. In no frame's text: quotes are escaped there."""
_WAITING: Final = b'"outcome":{"type":"interrupt"'
_TOOL_CALL: Final = re.compile(rb'data: \{"type":"TOOL_CALL_(START|RESULT)",(?:"messageId":"[^"]*",)?"toolCallId":"([^"]*)"')


class AgUiStream:
    """`inner` with the client's ids in RUN_STARTED and RUN_FINISHED. Messages and steps keep ours."""

    def __init__(self, inner: Stream, view: RunView, client_thread: ClientThread, submission_id: SubmissionId) -> None:
        self._inner = inner
        self._frames = Frames(view.run_id, view.conversation_id)
        self._ours = _ids(str(view.conversation_id), str(view.run_id))
        self._theirs = _ids(client_thread, submission_id)
        self._ended = False
        self._without_result: dict[str, None] = {}

    async def read(self, timeout_seconds: float) -> bytes | None:
        """As Stream.read."""
        piece = await self._inner.read(timeout_seconds)
        if not piece:
            return piece
        for kind, tool_id in _TOOL_CALL.findall(piece):
            if kind == b"START":
                self._without_result[tool_id.decode()] = None
            else:
                self._without_result.pop(tool_id.decode(), None)
        if any(end in piece for end in _ENDS):
            self._ended = True
            piece = self._with_results(piece)
        return piece.replace(self._ours, self._theirs)

    def _with_results(self, piece: bytes) -> bytes:
        before, finished, after = piece.partition(_FINISHED)
        if not finished or _WAITING in after:
            return piece
        return before + b"".join(map(tool_result, self._without_result)) + finished + after

    def close(self) -> None:
        """As Stream.close."""
        self._inner.close()

    def farewell(self) -> bytes:
        """What is left to say when the stream is over: RUN_ERROR `detached` where the run did not end before this client's eyes."""
        return b"" if self._ended else self._frames.failed(Reason.DETACHED)


def _ids(thread: str, run: str) -> bytes:
    # As `Frames` writes them. The quotes make it whole values, and no text of a frame can hold it: there quotes are escaped.
    return b'"threadId":%b,"runId":%b' % (orjson.dumps(thread), orjson.dumps(run))
