"""The bytes of scripted answers: bodies, frames, framings, cuts and endings. Not here: routes, records' meaning, scripts."""

import asyncio
import base64
from collections.abc import Mapping, Sequence
from typing import assert_never

from tests.support.raw_http import Connection, chunk, json_bytes
from tests.support.upstream_records import Post
from tests.support.upstream_script import Answer, Frame, filled


class StreamBody:
    """Writes a stream's body piece by piece in the answer's framing, up to the cut."""

    def __init__(self, connection: Connection, answer: Answer, post: Post) -> None:
        self._connection = connection
        self._answer = answer
        self._post = post
        # Played, whether or not anybody is there to read it; the post records what was really written.
        self._frames = 0
        self._bytes = 0

    def is_cut(self) -> bool:
        """Whether the cut was reached."""
        limits = ((self._answer.cut_after_frame, self._frames), (self._answer.cut_after_bytes, self._bytes))
        return any(limit is not None and played >= limit for limit, played in limits)

    async def write(self, frame: bytes) -> None:
        """Write one frame, or what the cut leaves of it."""
        limit = self._answer.cut_after_bytes
        written = frame if limit is None else frame[: limit - self._bytes]
        size = self._answer.chunk_bytes or max(len(written), 1)
        reached = True
        for start in range(0, len(written), size):
            piece = written[start : start + size]
            reached = await self._connection.write(chunk(piece) if self._answer.framing == "chunked" else piece)
            self._post.bytes_written += len(piece) if reached else 0
            if self._answer.chunk_bytes:
                await asyncio.sleep(0)  # lets the piece leave on its own
        self._bytes += len(written)
        self._frames += 1
        self._post.frames_written += reached and len(written) == len(frame)

    async def end(self) -> bool:
        """Finish as the answer says; True when the connection may serve another request."""
        ending = self._answer.ending
        chunked = self._answer.framing == "chunked"
        match ending:
            case "clean":
                if chunked:
                    await self._connection.write(b"0\r\n\r\n")
                return self._answer.framing != "close" and (chunked or not self.is_cut())
            case "unfinished":
                return False
            case "mid_chunk":
                await self._connection.write(b"400\r\ndata: " if chunked else b"data: ")
                return False
            case "reset":
                # Without a moment in between the bytes before the reset could be dropped with it.
                await asyncio.sleep(0.01)
                self._connection.reset()
                return False
            case "stall":
                await hang(self._connection)
                return False
            case _:
                assert_never(ending)


async def hang(connection: Connection) -> None:
    """Wait until the other side leaves."""
    await connection.gone.wait()


def scripted_body(answer: Answer, ids: Mapping[str, str]) -> bytes:
    """The body of an answer that has one."""
    if answer.body_base64 is not None:
        return base64.b64decode(answer.body_base64)
    if answer.body is not None:
        return answer.body if isinstance(answer.body, bytes) else answer.body.encode()
    return json_bytes(filled(answer.json, ids))


def frame_bytes(frame: Frame, ids: Mapping[str, str], newline: str) -> bytes:
    """One frame as it goes over the wire; not for gates and pauses."""
    if "raw_base64" in frame:
        return base64.b64decode(str(frame["raw_base64"]))
    if "raw" in frame:
        return str(filled(str(frame["raw"]), ids)).encode()
    return b"data: " + json_bytes(filled(dict(frame), ids)) + (newline * 2).encode()


def framing_headers(answer: Answer, frames: Sequence[Frame], ids: Mapping[str, str]) -> dict[str, str]:
    """The header that announces the framing."""
    framing = answer.framing
    match framing:
        case "chunked":
            return {"transfer-encoding": "chunked"}
        case "close":
            return {"connection": "close"}
        case "length":
            written = [frame_bytes(frame, ids, answer.newline) for frame in frames if _is_written(frame)]
            return {"content-length": str(sum(map(len, written)))}
        case _:
            assert_never(framing)


def _is_written(frame: Frame) -> bool:
    return "gate" not in frame and "pause_seconds" not in frame
