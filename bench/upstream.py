"""A cheap agent service over raw asyncio, so that upstream is never the bottleneck: `python -m bench.upstream [--delay-ms N]`.

It answers the whole contract (capabilities, threads, one run) with one run's worth of events: RUN_STARTED, native_run, 60 events of about
115 bytes, RUN_FINISHED. Each is its own HTTP chunk and its own write, one for each turn of the event loop, or one every N milliseconds.
Prints `listening PORT`. Checks nothing: what is checked here would be measured as ours.
"""

import argparse
import asyncio
import itertools
import json
from collections.abc import Mapping
from typing import Final, cast

import orjson

EVENTS: Final = 60
EVENT_BYTES: Final = 115
ASSISTANT: Final = "bench"

_STREAM_HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"


def frame(document: Mapping[str, object]) -> bytes:
    """One event as it is on the wire."""
    return b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"


def text_events() -> list[bytes]:
    """One message: its start, EVENTS - 2 pieces of text, its end."""
    first = {"type": "TEXT_MESSAGE_START", "messageId": "message-1", "role": "assistant"}
    last = {"type": "TEXT_MESSAGE_END", "messageId": "message-1"}
    bare = frame({"type": "TEXT_MESSAGE_CONTENT", "messageId": "message-1", "delta": ""})
    words = ("word " * 40)[: EVENT_BYTES - len(bare)]
    content = frame({"type": "TEXT_MESSAGE_CONTENT", "messageId": "message-1", "delta": words})
    return [frame(first), *[content] * (EVENTS - 2), frame(last)]


def run_events(thread_id: str, run_id: str, native_run_id: str) -> list[bytes]:
    """A whole run."""
    ids = {"threadId": thread_id, "runId": run_id}
    return [
        frame({"type": "RUN_STARTED", **ids}),
        frame({"type": "CUSTOM", "name": "native_run", "value": {"run_id": native_run_id}}),
        *text_events(),
        frame({"type": "RUN_FINISHED", **ids}),
    ]


def _chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)


_TEXT_CHUNKS: Final = [_chunk(event) for event in text_events()]


class _Server(asyncio.Protocol):
    def __init__(self, delay_seconds: float, numbers: "itertools.count[int]") -> None:
        self._delay_seconds = delay_seconds
        self._numbers = numbers
        self._buffer = b""
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, received: bytes) -> None:
        self._buffer += received
        head, separator, rest = self._buffer.partition(b"\r\n\r\n")
        if not separator:
            return
        lower = head.lower()
        length = 0
        if b"content-length:" in lower:
            length = int(lower.partition(b"content-length:")[2].partition(b"\r\n")[0])
            if len(rest) < length:
                return
        elif b"transfer-encoding: chunked" in lower:
            if not rest.endswith(b"0\r\n\r\n"):
                return
            length, rest = len(rest), rest[rest.index(b"{") :]
        body, self._buffer = rest[:length], rest[length:]
        self._answer(head.split(b" ", 2)[1], body)

    def _answer(self, target: bytes, body: bytes) -> None:
        if target.endswith(b"/capabilities"):
            self._json({"assistant_id": ASSISTANT})
        elif target.endswith(b"/threads"):
            self._json({"thread_id": f"thread-{next(self._numbers)}"})
        else:
            asked = orjson.loads(body.partition(b"\r\n0\r\n")[0])
            ids = {"threadId": asked["threadId"], "runId": asked["runId"]}
            native = {"type": "CUSTOM", "name": "native_run", "value": {"run_id": f"native-{next(self._numbers)}"}}
            chunks = [
                _chunk(frame({"type": "RUN_STARTED", **ids})),
                _chunk(frame(native)),
                *_TEXT_CHUNKS,
                _chunk(frame({"type": "RUN_FINISHED", **ids})),
                b"0\r\n\r\n",
            ]
            self._transport.write(_STREAM_HEAD)
            self._loop.call_soon(self._step, chunks, 0)

    def _json(self, document: dict[str, object]) -> None:
        body = orjson.dumps(document)
        self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))

    def _step(self, chunks: list[bytes], at: int) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(chunks[at])
        at += 1
        if at == len(chunks):
            return
        if self._delay_seconds and at < len(chunks) - 1:
            self._loop.call_later(self._delay_seconds, self._step, chunks, at)
        else:
            self._loop.call_soon(self._step, chunks, at)


async def _serve(delay_seconds: float) -> None:
    numbers = itertools.count(1)
    server = await asyncio.get_running_loop().create_server(lambda: _Server(delay_seconds, numbers), "127.0.0.1", 0, backlog=1024)
    print(f"listening {server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


def main() -> None:
    """Serve until SIGTERM."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--delay-ms", type=float, default=0.0)
    delay_seconds = arguments.parse_args().delay_ms / 1000
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(delay_seconds))


if __name__ == "__main__":
    main()
