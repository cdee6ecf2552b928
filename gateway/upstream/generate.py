"""The one request that executes: POST /ag-ui, or the native profile's POST …/runs/stream. Sent at most once; what its response means is
here too (contract B4, E1, failure table of design.md).

Only `runs.execute` and the supervisor may import this module, and the probe, which has no run; import contracts hold everybody else, the
reconciler first, away from it. Runs come by `open_generation`, the probe by its two steps (decision 0014).
"""

import asyncio
import ssl
from dataclasses import dataclass
from typing import assert_never

from gateway.domain.evidence import BadResponse, NotSent, NotSentProof, PostFact, ResponseFault
from gateway.domain.trace_context import TRACEPARENT, outgoing
from gateway.upstream.endpoint import Endpoint
from gateway.upstream.one_post import send_one_post
from gateway.upstream.open_stream import OpenStream
from gateway.upstream.response_class import BUSY_BODY_BYTES, event_stream_fault, refusal_fact
from gateway.upstream.run_input import Dispatch, UnsendableRunInput
from gateway.upstream.send_gate import SendGate


@dataclass(frozen=True, slots=True)
class PostDeadlines:
    """Seconds for one POST: name, connection and TLS; then the response's head; then the body of a refusal."""

    connect_seconds: float
    response_seconds: float
    refusal_seconds: float = 5.0


async def open_generation(
    endpoint: Endpoint,
    request: Dispatch,
    *,
    gate: SendGate,
    tls: ssl.SSLContext,
    trusted_hosts: frozenset[str],
    deadlines: PostDeadlines,
) -> OpenStream | PostFact:
    """Send the one POST: an open event stream, or the fact that moves the run.

    A cancelled caller gets no fact; `gate.seal()` tells it whether bytes may have left.
    """
    try:
        path, body = request.path, request.body()
    except UnsendableRunInput:
        # Admission refuses such a text; no connection was tried, and sealing makes that last.
        proof = gate.seal()
        return BadResponse(ResponseFault.NO_RESPONSE) if proof is None else NotSent(proof)
    response = await post_run_input(endpoint, body, path=path, gate=gate, tls=tls, trusted_hosts=trusted_hosts, deadlines=deadlines)
    match response:
        case NotSentProof():
            return NotSent(response)
        case ResponseFault():
            return BadResponse(response)
        case OpenStream():
            return await classified(response, deadlines.refusal_seconds)
        case _:
            assert_never(response)


async def post_run_input(
    endpoint: Endpoint,
    body: bytes,
    *,
    path: str = "/ag-ui",
    gate: SendGate,
    tls: ssl.SSLContext,
    trusted_hosts: frozenset[str],
    deadlines: PostDeadlines,
) -> OpenStream | NotSentProof | ResponseFault:
    """The first step: `body` is sent, and a response's head came, or not. Its meaning is `classified`'s."""
    return await send_one_post(
        endpoint.origin,
        endpoint.base_path + path,
        headers=[
            (b"Authorization", endpoint.authorization.encode("ascii")),
            (b"Content-Type", b"application/json"),
            (b"Accept", b"text/event-stream"),
            (b"Accept-Encoding", b"identity"),
            (b"User-Agent", b"agent-governance-gateway"),
            (TRACEPARENT.encode("ascii"), outgoing().encode("ascii")),
        ],
        body=body,
        gate=gate,
        tls=tls,
        trusted_hosts=trusted_hosts,
        connect_seconds=deadlines.connect_seconds,
        response_seconds=deadlines.response_seconds,
    )


async def classified(response: OpenStream, refusal_seconds: float) -> OpenStream | PostFact:
    """The second step: the same stream when it is an event stream of ours; else it is closed, and the fact that it is."""
    head = response.head
    fault = event_stream_fault(head) if head.status == 200 else None
    if head.status == 200 and fault is None:
        return response
    async with response:
        if fault is not None:
            return BadResponse(fault, head.status)
        body = await _refusal_body(response, refusal_seconds) if 400 <= head.status < 500 else b""
        return refusal_fact(head, body)


async def _refusal_body(response: OpenStream, refusal_seconds: float) -> bytes:
    """What can be read of a refusal within its bounds; a slow, cut or endless one is judged by what came."""
    body = bytearray()
    try:
        async with asyncio.timeout(refusal_seconds):
            while len(body) < BUSY_BODY_BYTES and (piece := await response.read()):
                body += piece
    except TimeoutError:
        pass
    return bytes(body[:BUSY_BODY_BYTES])
