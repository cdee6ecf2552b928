"""What `gateway check --through URL` asks of a replica behind its real edge: an echo, a slow stream, a silence, a refusal, a cut.

For operators only. It executes nothing, admits nothing and costs one small row that is gone after an hour.
"""

import asyncio
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field
from starlette.types import ASGIApp, Receive, Scope, Send
from typing_extensions import TypedDict

from gateway.domain.problems import Code, Refused
from gateway.identity.accounts import Access
from gateway.json_shapes import Body, Id
from gateway.web.call import JSON_OR_STREAM, OPERATOR, Call, Group, Method, Operator, RouteSpec, json_response
from gateway.web.middleware import TRANSPORT
from gateway.web.stream import HEADERS

FRAMES: Final = 6
FRAME_SECONDS: Final = 0.3
MAX_SECONDS: Final = 120.0
PROOF_HEADERS: Final = {"Idempotent-Replayed": "true", "Retry-After": "7", "RateLimit": '"edge";r=1;t=60'}
"""Headers of ours that a proxy might drop, with values to compare."""
_ECHOED: Final = ("accept", "content-type", "traceparent", "x-request-id", "last-event-id")


class EdgeMode(StrEnum):
    """What the replica does at the first arrival of a request. A second arrival is always told at once."""

    ECHO = "echo"
    """Tell what arrived."""
    LATE = "late"
    """Answer after `seconds`."""
    STREAM = "stream"
    """Send a frame every FRAME_SECONDS."""
    QUIET = "quiet"
    """Send a frame, nothing for `seconds`, and a last frame."""
    REFUSE = "refuse"
    """503, which some proxies try again elsewhere."""
    CUT = "cut"
    """Read the request and close the connection without a byte."""


class EdgeBody(Body):
    """One question; `check_id` is made anew for each."""

    check_id: Id
    mode: Annotated[EdgeMode, Field(strict=False)]
    seconds: Annotated[float, Field(ge=0, le=MAX_SECONDS)] = 0.0


class EdgeJson(TypedDict):
    """`seen`: how often this very request arrived. `headers`: some of those that came with it."""

    seen: int
    headers: dict[str, str]


async def check_edge(call: Call, _: Access) -> ASGIApp:
    """POST /edge-checks."""
    asked = await call.body_of(EdgeBody)
    seen = await call.services.arrived(asked.check_id)
    if seen == 1:
        match asked.mode:
            case EdgeMode.STREAM:
                return _Frames(FRAMES, FRAME_SECONDS)
            case EdgeMode.QUIET:
                return _Frames(2, asked.seconds)
            case EdgeMode.REFUSE:
                raise Refused(Code.ADMISSION_UNAVAILABLE)
            case EdgeMode.CUT:
                return _cut
            case EdgeMode.LATE:
                await asyncio.sleep(asked.seconds)
            case EdgeMode.ECHO:
                pass
    told: EdgeJson = {"seen": seen, "headers": {name: call.headers[name] for name in _ECHOED if name in call.headers}}
    return json_response(told, headers=PROOF_HEADERS)


class _Frames:
    """An event stream of numbered frames as small as a run's, with a pause before each but the first."""

    def __init__(self, frames: int, pause_seconds: float) -> None:
        self._frames = frames
        self._pause_seconds = pause_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for number in range(self._frames):
            if number:
                await asyncio.sleep(self._pause_seconds)
            frame = b'data: {"type":"CUSTOM","name":"gateway.edge","value":%d}\n\n' % number
            await send({"type": "http.response.body", "body": frame, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _cut(scope: Scope, receive: Receive, send: Send) -> None:
    transport = scope.get(TRANSPORT)
    if transport is None:
        raise Refused(Code.ADMISSION_UNAVAILABLE)
    transport.abort()
    while (await receive())["type"] != "http.disconnect":
        pass


ROUTES: Final = (
    RouteSpec(
        path=f"{OPERATOR}/edge-checks",
        method=Method.POST,
        name="operator_check_edge",
        group=Group.OPERATORS,
        caller=Operator(check_edge),
        answers=JSON_OR_STREAM,
        about="What `gateway check --through` asks: echoes, streams, keeps silent, refuses or cuts. It executes nothing.",
        returns={200: EdgeJson},
        takes=EdgeBody,
        refuses=(Code.ADMISSION_UNAVAILABLE,),
    ),
)
