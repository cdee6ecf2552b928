"""Request bodies: the right media type, bounded before and while they are read. What is in them is `json_shapes`."""

import asyncio
import re
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Receive

from gateway.domain.problems import Code, Refused

_JSON: Final = re.compile(r'application/json[ \t]*(?:;[ \t]*charset[ \t]*=[ \t]*"?utf-8"?[ \t]*)?', re.IGNORECASE)
_DIGITS: Final = re.compile(r"[0-9]{1,15}")
BODY_SECONDS: Final = 30.0
"""How long a body may take: 256 KiB at 10 KB/s. A slower sender would hold a connection for nothing."""


class SenderLeft(Exception):
    """The client went away before its body was complete: nobody is there to answer."""


async def read_body(headers: Headers, receive: Receive, max_bytes: int) -> bytes:
    """The whole body. Raises Refused(unsupported_media_type, request_too_large, malformed_request when it is too slow) or SenderLeft."""
    content_types = headers.getlist("content-type")
    if len(content_types) != 1 or _JSON.fullmatch(content_types[0].strip()) is None:
        raise Refused(Code.UNSUPPORTED_MEDIA_TYPE)
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise Refused(Code.UNSUPPORTED_MEDIA_TYPE)
    declared = headers.get("content-length")
    if declared is not None and (_DIGITS.fullmatch(declared) is None or int(declared) > max_bytes):
        raise Refused(Code.REQUEST_TOO_LARGE)
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await _bounded(receive, max_bytes)
    except TimeoutError:
        raise Refused(Code.MALFORMED_REQUEST) from None


async def _bounded(receive: Receive, max_bytes: int) -> bytes:
    pieces: list[bytes] = []
    size_bytes = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise SenderLeft
        piece: bytes = message.get("body", b"")
        size_bytes += len(piece)
        if size_bytes > max_bytes:
            raise Refused(Code.REQUEST_TOO_LARGE)
        pieces.append(piece)
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
