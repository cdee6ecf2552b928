"""Our side of G3: the gateway's own transport, parser, frames, fan-out and stream writer, without identity, database or any rule."""

import asyncio
import ssl
from uuid import uuid4

import orjson
from starlette.types import ASGIApp, Receive, Scope, Send

from bench.upstream import ASSISTANT
from gateway.domain.ids import ConversationId, CorrelationId, RunId, ThreadId
from gateway.domain.limits import StreamBounds
from gateway.http_client import verified_tls
from gateway.runs.fanout import Channel
from gateway.runs.frames import Frames
from gateway.sse_parser.parser import StreamParser
from gateway.upstream.endpoint import Endpoint, EndpointFault, endpoint_of
from gateway.upstream.generate import PostDeadlines, open_generation
from gateway.upstream.open_stream import OpenStream
from gateway.upstream.run_input import GenerationRequest
from gateway.upstream.send_gate import SendGate
from gateway.upstream.stream_clock import StreamClock
from gateway.web.stream import EventStream

_DEADLINES = PostDeadlines(connect_seconds=5.0, response_seconds=30.0)
_BOUNDS = StreamBounds()
_TRUSTED_HOSTS = frozenset({"127.0.0.1"})


def relay(upstream_port: int) -> ASGIApp:
    """The application: one run for each request."""
    endpoint = endpoint_of(base_url=f"http://127.0.0.1:{upstream_port}", assistant_id=ASSISTANT, token="bench")
    assert not isinstance(endpoint, EndpointFault)
    tls = verified_tls()
    running: set[asyncio.Task[None]] = set()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        channel = Channel()
        task = asyncio.create_task(_execute(endpoint, tls, orjson.loads(body)["text"], channel))
        running.add(task)
        task.add_done_callback(running.discard)
        await EventStream(channel.subscribe(), heartbeat_seconds=15.0, check_rights=_unchecked)(scope, receive, send)

    return app


async def _unchecked() -> None:
    """Nobody's rights: there is no identity here."""


async def _execute(endpoint: Endpoint, tls: ssl.SSLContext, text: str, channel: Channel) -> None:
    frames = Frames(RunId(uuid4()), ConversationId(uuid4()))
    channel.publish(frames.started())
    request = GenerationRequest(ThreadId(str(uuid4())), CorrelationId(uuid4()), str(uuid4()), text)
    async with asyncio.timeout(None) as scope:
        clock = StreamClock(_BOUNDS, scope)
        opened = await open_generation(
            endpoint, request, gate=SendGate(lambda: True), tls=tls, trusted_hosts=_TRUSTED_HOSTS, deadlines=_DEADLINES
        )
        assert isinstance(opened, OpenStream), opened
        parser = StreamParser(thread_id=request.thread_id, correlation_id=str(request.correlation_id), bounds=_BOUNDS)
        async for piece in opened:
            batch = parser.feed(piece)
            if batch.activity:
                clock.touch()
            if batch.changes:
                channel.publish(frames.changes(batch.changes))
            if batch.end is not None:
                break
        clock.stop()
        await opened.aclose()
    channel.publish(frames.finished())
    channel.close()
