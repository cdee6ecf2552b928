"""Bytes in, complete SSE frames out: framing, strict UTF-8 and the bounds on bytes and events. No JSON here.

Framing is the WHATWG event stream: lines end in LF, CRLF or CR, one leading BOM is dropped, comments and the fields event, id and retry
are ignored, several data lines are joined by LF, a block without its blank line is no frame. What comes out does not depend on how the
bytes were cut. Every byte is looked at by C code only, and a partial frame is never scanned twice.

Memory: whatever comes, all that is held at any moment (the unfinished frame, the read that is being taken in, what is made of both) stays
under twice `frame_bytes`; a test measures it. Hence a frame that came in pieces is collected once, reduced to its payload in place and
handed on as the buffer that it was collected in, and UTF-8 is judged piece by piece: a decoded copy can be four times as large.
"""

import codecs
import re
from collections.abc import Sequence
from typing import Final

from gateway.domain.evidence import StreamBroken
from gateway.domain.limits import StreamBounds
from gateway.sse_parser.faults import Detail, broken

_BOM: Final = b"\xef\xbb\xbf"
_LF: Final = 0x0A
_NEWLINES: Final = re.compile(rb"\n+")
_DATA_LINE: Final = re.compile(rb"^data(?::\x20?(.*))?$", re.MULTILINE)
_UTF8_PIECE_BYTES: Final = 8 * 1024
_LINES_PIECE_BYTES: Final = 2 * 1024

MAX_EVENT_NAME_BYTES: Final = 64
"""Real ones have up to nine, and a subgraph's path behind them."""
Payload = bytes | bytearray
"""The data of one frame. A bytearray is handed over: nobody else holds it."""


class Guard:
    """Collects bytes until a frame is complete. After a fault it stays in that state and takes nothing more.

    Frame size: the bytes of a block's lines with their ends (CRLF counts once), without the blank line; comments and unknown fields
    count too. Each block that has a line counts as one event, comment blocks included, so that no flood is free.
    At most `frame_bytes` are kept from one call to the next, and an eighth of that is taken in at a time.
    """

    __slots__ = (
        "_after_cr",
        "_at_start",
        "_bounds",
        "_left",
        "_pending",
        "_refused_bytes",
        "_step",
        "comments",
        "empty",
        "events",
        "fault",
    )

    def __init__(self, bounds: StreamBounds) -> None:
        self._bounds = bounds
        self._pending = bytearray()
        self._step = max(1, bounds.frame_bytes // 8)
        self._at_start = True
        self._after_cr = False
        self._left = bounds.stream_bytes
        self._refused_bytes = 0
        self.events = 0
        self.comments = 0
        self.empty = 0
        self.fault: StreamBroken | None = None

    @property
    def fed_bytes(self) -> int:
        """Wire bytes that were fed, also after a fault."""
        return self._bounds.stream_bytes - self._left + self._refused_bytes

    @property
    def buffered(self) -> int:
        """Bytes kept for an unfinished frame."""
        return len(self._pending)

    @property
    def in_frame(self) -> bool:
        """Whether an end of the stream now would cut a frame."""
        return bool(self._pending) and not self._at_start

    def count_frame(self, size: int) -> bool:
        """Take a read of `size` bytes that the caller knows to be one whole frame in valid UTF-8. False: it must be fed."""
        if self._pending or self._after_cr or size > self._step or size > self._left or self.events == self._bounds.events:
            return False
        if self.fault is not None:
            return False
        self._at_start = False
        self._left -= size
        self.events += 1
        return True

    def feed(self, data: bytes) -> Sequence[Payload]:
        """The payloads of the frames that `data` completes, in order; look at `fault` after them. Never raises for what it is fed."""
        size = len(data)
        step = self._step
        if (
            # Nearly every read: whole frames of one data line with an object, and nothing else. Everything else takes the long way.
            size <= step
            and data.startswith(b"data: {")
            and data.endswith(b"\n\n")
            and not (self._pending or self._after_cr)
            and size <= self._left
            and self.fault is None
        ):
            payloads = data[6:-2].split(b"\n\ndata: ")
            count = len(payloads)
            if (
                data.count(b"\n") == 2 * count
                and (count == 1 or data.count(b"\n\ndata: {") == count - 1)
                and data.find(b"\r") < 0
                and self.events + count <= self._bounds.events
                and _is_utf8(data)
            ):
                self._at_start = False
                self._left -= size
                self.events += count
                return payloads
        frames: list[Payload] = []
        if size <= step:
            self._take(data, frames)
            return frames
        for start in range(0, size, step):
            self._take(data[start : start + step], frames)
        return frames

    def _take(self, data: bytes, frames: list[Payload]) -> None:
        if self.fault is not None:
            self._refused_bytes += len(data)
            return
        left = self._left
        over = len(data) > left
        if over:
            self._refused_bytes += len(data) - left
            data = data[:left]
        self._left = left - len(data)
        if self._at_start:
            data = self._strip_bom(data)
        if self._after_cr or data.find(b"\r") >= 0:
            data = self._normalised(data)
        if data:
            self._split(data, frames)
        if over and self.fault is None:
            self.fault = broken(Detail.STREAM_BYTES)

    def _strip_bom(self, data: bytes) -> bytes:
        data = bytes(self._pending) + data
        self._pending.clear()
        if len(data) < len(_BOM) and _BOM.startswith(data):
            self._pending += data
            return b""
        self._at_start = False
        return data.removeprefix(_BOM)

    def _normalised(self, data: bytes) -> bytes:
        # A CR ends its line at once; an LF right after it, also in the next read, belongs to it (field case O-44).
        if self._after_cr and data:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        if data.endswith(b"\r"):
            self._after_cr = True
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _split(self, data: bytes, frames: list[Payload]) -> None:
        position = 0
        if self._pending:
            position = self._complete_pending(data, frames)
            if position < 0 or self.fault is not None:
                return
        ascii_only = data.isascii()
        size = len(data)
        while position < size:
            line_end = data.find(b"\n", position)
            if line_end == position:
                # Blank lines between frames; a run of them is skipped in one step.
                found = _NEWLINES.match(data, position)
                position = found.end() if found is not None else size
                continue
            if line_end < 0 or line_end + 1 == size:
                break
            if data[line_end + 1] == _LF and data.startswith(b"data: {", position):
                # Nearly every frame: one data line with an object.
                if self.events == self._bounds.events:
                    self.fault = broken(Detail.EVENTS)
                    return
                self.events += 1
                payload = data[position + 6 : line_end]
                if not (ascii_only or _is_utf8(payload)):
                    self.fault = broken(Detail.UTF8)
                    return
                frames.append(payload)
                position = line_end + 2
                continue
            end = data.find(b"\n\n", line_end)
            if end < 0:
                break
            self._block(bytearray(data[position:end]), frames)
            if self.fault is not None:
                return
            position = end + 2
        if size - position > self._bounds.frame_bytes:
            self.fault = broken(Detail.FRAME_BYTES)
        elif position < size:
            self._pending += data[position:] if position else data

    def _complete_pending(self, data: bytes, frames: list[Payload]) -> int:
        """End the pending block inside `data`: the position after it, or -1 when it goes on."""
        pending = self._pending
        if pending[-1] == _LF and data[0] == _LF:
            del pending[-1:]
            position = 1
        else:
            end = data.find(b"\n\n")
            rest = data if end < 0 else data[:end]
            # The last line end counts, too.
            if len(pending) + len(rest) + (end >= 0) > self._bounds.frame_bytes:
                self.fault = broken(Detail.FRAME_BYTES)
                pending.clear()
                return -1
            pending += rest
            if end < 0:
                return -1
            position = end + 2
        self._pending = bytearray()
        self._block(pending, frames)
        return position

    def _block(self, block: bytearray, frames: list[Payload]) -> None:
        """One block of lines within the bound, without its last line end and its blank line."""
        if self.events == self._bounds.events:
            self.fault = broken(Detail.EVENTS)
            return
        self.events += 1
        if not _is_utf8(block):
            self.fault = broken(Detail.UTF8)
        elif not self._keep(block):
            self.comments += 1
        elif not block or block.isspace():
            self.empty += 1
        else:
            frames.append(block)

    def _keep(self, block: bytearray) -> bool:
        """Leave in `block` what its frame is made of. False: it has no data."""
        return _keep_data(block)


class NamedGuard(Guard):
    """The same for a protocol that names its events: a frame is the event's name, an LF, and the payload.

    A frame of one data line and no name may come as the payload alone (`Guard`'s short ways): no name that anybody looks for.
    """

    __slots__ = ()

    def _keep(self, block: bytearray) -> bool:
        name = _event_name(block)
        if not _keep_data(block):
            return False
        if block and not block.isspace():
            block[:0] = name + b"\n"
        return True


def _event_name(block: bytearray) -> bytes:
    """The value of the block's last event line; empty where there is none, or one that is no name."""
    start = block.rfind(b"\nevent:") + 1
    if start == 0 and not block.startswith(b"event:"):
        return b""
    start += len(b"event:")
    end = block.find(b"\n", start)
    name = bytes(block[start : start + MAX_EVENT_NAME_BYTES + 2] if end < 0 else block[start : min(end, start + MAX_EVENT_NAME_BYTES + 2)])
    name = name.removeprefix(b" ")
    return name if len(name) <= MAX_EVENT_NAME_BYTES else b""


def _is_utf8(text: Payload) -> bool:
    if text.isascii():
        return True
    position, size = 0, len(text)
    try:
        while position < size:
            end = position + _UTF8_PIECE_BYTES
            # What the end of a piece cuts in two is left to the next one.
            position += codecs.utf_8_decode(text[position:end], "strict", end >= size)[1]
    except UnicodeDecodeError:
        return False
    return True


def _keep_data(block: bytearray) -> bool:
    """Leave in `block` the values of its data lines, joined by LF. False: it has none.

    Short lines are read by the piece, for a frame may have a million of them; what a piece gives needs a few times its bytes for a moment.
    A long line moves to where all before it end, and never by way of a copy.
    """
    size, start, length = -1, 0, len(block)  # -1: no value yet, so no LF before the first
    with memoryview(block) as view:
        while start <= length:
            end = length if length - start <= _LINES_PIECE_BYTES else block.rfind(b"\n", start, start + _LINES_PIECE_BYTES)
            values: Payload | memoryview | None = None
            if end >= 0:
                found = _DATA_LINE.findall(block, start, end)
                values = b"\n".join(found) if found else None
            else:
                end = block.find(b"\n", start + _LINES_PIECE_BYTES)
                end = length if end < 0 else end
                line = _DATA_LINE.match(block, start, end)
                values = None if line is None else view[slice(*line.span(1))]
            if values is not None:
                # Its lines began at least a `data` behind what was kept: nothing is overwritten before it is read.
                if size >= 0:
                    block[size] = _LF
                size += 1
                view[size : size + len(values)] = values
                size += len(values)
                if isinstance(values, memoryview):
                    values.release()
            start = end + 1
    del block[max(size, 0) :]
    return size >= 0
