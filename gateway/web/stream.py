"""The writer of an event stream: pieces from `runs.streams` to one browser, and nothing that could reach the run.

Own and small because sse-starlette cuts streams at SIGTERM. Pieces are whole frames already, so no work is done for each event. The
stream ends when it is over, when the browser leaves or reads too slowly, and when the caller's rights are gone; execution and saving
go on in any case (contract D2, field cases O-02, O-25).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final

import structlog
from starlette.types import Receive, Scope, Send

from gateway.domain.problems import Refused
from gateway.runs.streams import Stream
from gateway.store.errors import DatabaseTrouble

HEADERS: Final[Mapping[str, str]] = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store, no-transform",
    "X-Accel-Buffering": "no",
}
HEARTBEAT: Final = b": keep-alive\n\n"
"""A comment, which every reader of event streams skips."""
_UNCHECKED_MAX: Final = 4
"""Checks of the caller's rights in a row without an answer (database away) after which the stream ends: a minute at 15 s each."""
_GLANCE_SECONDS: Final = 0.5
"""How often a quiet stream looks whether a check has come back."""

_log: Final[structlog.stdlib.BoundLogger] = structlog.get_logger("gateway.web.stream")


class EventStream:
    """An ASGI response that owns `pieces` and closes it however it ends. `check_rights` raises Refused when the caller's are gone.

    Heartbeats come every `heartbeat_seconds`, whatever upstream does; at each the rights are asked for, beside the writing and not in
    its way. `farewell` gives the last bytes of a stream that is over on our side, however that came about.
    """

    def __init__(
        self,
        pieces: Stream,
        *,
        heartbeat_seconds: float,
        check_rights: Callable[[], Awaitable[None]],
        headers: Mapping[str, str] | None = None,
        farewell: Callable[[], bytes] = bytes,
    ) -> None:
        self._pieces = pieces
        self._farewell = farewell
        self._heartbeat_seconds = heartbeat_seconds
        self._rights = _Rights(check_rights)
        self._writing = False
        self._writes = 0
        self._headers = [
            (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in {**HEADERS, **(headers or {})}.items()
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        writer = asyncio.create_task(self._write(send))
        listener = asyncio.create_task(_until_gone(receive))
        try:
            await self._until_over(writer, listener)
        finally:
            self._pieces.close()
            self._rights.close()
            writer.cancel()
            listener.cancel()
            outcomes = await asyncio.gather(writer, listener, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                _log.error("stream_failed", error=type(outcome).__name__)

    async def _until_over(self, writer: asyncio.Task[None], listener: asyncio.Task[None]) -> None:
        """Wait for the end, for the browser to leave, or for a whole heartbeat in which one write did not get through.

        The last closes the connection without a last chunk, so the browser knows. Watched from here because a deadline around each
        write costs more (7 µs) than the write's own part in this module.
        """
        while True:
            writes = self._writes
            over, _ = await asyncio.wait((writer, listener), timeout=self._heartbeat_seconds, return_when=asyncio.FIRST_COMPLETED)
            if over:
                return
            if self._writing and self._writes == writes:
                _log.info("stream_reader_too_slow")
                return

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self._headers})
        # A stored run that can no longer be read: the stream ends without a terminal frame.
        with suppress(Refused, DatabaseTrouble):
            await self._write_pieces(send)
        await self._send(send, self._farewell(), more=False)

    async def _write_pieces(self, send: Send) -> None:
        now = asyncio.get_running_loop().time
        read, rights = self._pieces.read, self._rights
        beat_at = now() + self._heartbeat_seconds
        while not rights.lost:
            left = beat_at - now()
            if left <= 0:
                beat_at = now() + self._heartbeat_seconds
                await self._send(send, HEARTBEAT)
                rights.ask()
                continue
            piece = await read(min(left, _GLANCE_SECONDS) if rights.asking else left)
            if piece is None or rights.lost:
                return
            if piece:
                await self._send(send, piece)

    async def _send(self, send: Send, piece: bytes, *, more: bool = True) -> None:
        self._writing = True
        await send({"type": "http.response.body", "body": piece, "more_body": more})  # waits while the browser's buffers are full
        self._writing = False
        self._writes += 1


class _Rights:
    """Asks for the caller's rights in a task of its own, one question at a time."""

    def __init__(self, check: Callable[[], Awaitable[None]]) -> None:
        self._check = check
        self._task: asyncio.Task[None] | None = None
        self._unanswered = 0
        self.lost = False

    @property
    def asking(self) -> bool:
        return self._task is not None

    def ask(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._ask())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _ask(self) -> None:
        try:
            await self._check()
            self._unanswered = 0
        except Refused:
            self.lost = True
        except DatabaseTrouble:
            self._unanswered += 1
            self.lost = self._unanswered >= _UNCHECKED_MAX
        except Exception as error:  # noqa: BLE001 - a question that cannot be asked is no yes
            _log.error("rights_check_failed", error=type(error).__name__)
            self.lost = True
        finally:
            self._task = None


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
