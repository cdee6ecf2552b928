"""An open response of the one POST, as a run reads it. Apart from `generate`, so that naming the type gives no way to send."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from gateway.domain.ids import NativeRunId
from gateway.upstream.response_decoder import BodyEnd, ResponseHead


class OpenStream:
    """Pieces as they arrive, one for what came since the last, whatever the HTTP chunks were. Close it always.

    Deadlines are the caller's: a read may be cancelled at any time and loses nothing.
    """

    __slots__ = ("_close", "_end", "_read", "head")

    def __init__(
        self,
        head: ResponseHead,
        *,
        read: Callable[[], Awaitable[bytes]],
        end: Callable[[], BodyEnd | None],
        close: Callable[[], Awaitable[None]],
    ) -> None:
        self.head = head
        self._read = read
        self._end = end
        self._close = close

    @property
    def end(self) -> BodyEnd | None:
        """How the body ended, once every piece was read; None before. For the evidence: the verdict is the parser's."""
        return self._end()

    async def read(self) -> bytes:
        """The next piece; b"" at the end, however it came. What arrived before a cut is handed on first."""
        return await self._read()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        piece = await self._read()
        if not piece:
            raise StopAsyncIteration
        return piece

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection now. Where upstream watches its client this may stop the run: read to the end first."""
        await self._close()


@dataclass(frozen=True, slots=True)
class OpenRun:
    """An open response of the native profile's POST: its head names the run."""

    stream: OpenStream
    native_run_id: NativeRunId
