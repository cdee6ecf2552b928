"""The HTTP rows of the failure table (design.md): what a response to the one POST means before any stream byte. Pure.

Every function here errs towards unknown: a run that is wrongly unknown costs somebody a look, one that is wrongly failed may execute twice.
"""

import re
from typing import Final

from gateway.domain.evidence import BadResponse, Rejected, ResponseFault
from gateway.upstream.response_decoder import ResponseHead

REFUSALS: Final = frozenset({400, 401, 403, 404, 405, 413, 415, 422, 429})
"""The documented refusals: the request was not accepted, whoever on the way says so, in JSON or in HTML."""

BUSY_BODY_BYTES: Final = 64 * 1024
"""How much of a refusal is read to learn whether the thread is busy; servers say it in the first sentence."""

_UTF_8: Final = frozenset({"utf-8", "utf8"})
"""The name, and how many servers misspell it; both are labels of the one encoding."""
_SEPARATORS: Final = re.compile(r"[\s_\-]+")
_BUSY: Final = re.compile(
    r"\bbusy\b"
    r"|\balready (?:\w+ ){0,3}(?:running|active|processing|executing|in progress|in use|locked)\b"
    r"|\balready (?:has|have|had) (?:an?|another) (?:\w+ )?(?:run|task|request)\b"
    r"|\b(?:is|are|being|still|currently) (?:still |currently |being )*(?:running|active|processing|executing|in progress|locked)\b"
    r"|\b(?:concurrent|active|another|ongoing|in progress) (?:run|task|execution)\b"
    r"|\bmultitask"
)
"""What servers say of a thread on which something runs: LangGraph "Thread is already running a task … different multitask strategy", others
"thread_busy", "thread already has an active run", "while a run … is active". Words of the user's that a 422 echoes may match too."""


def event_stream_fault(head: ResponseHead) -> ResponseFault | None:
    """Why a 200 is no event stream of ours: exact media type, charset absent or utf-8, no content encoding. None: it is one (M2, M6)."""
    content_types = head.values("content-type")
    if len(content_types) != 1:
        return ResponseFault.CONTENT_TYPE
    media_type, *parameters = content_types[0].split(";")
    if media_type.strip().lower() != "text/event-stream":
        return ResponseFault.CONTENT_TYPE
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset" and value.strip().strip('"').lower() not in _UTF_8:
            return ResponseFault.CHARSET
    return ResponseFault.CONTENT_ENCODING if is_encoded(head) else None


def is_encoded(head: ResponseHead) -> bool:
    """True when the body has a content encoding, though we accept only identity."""
    return any(coding.strip().lower() not in {"", "identity"} for value in head.values("content-encoding") for coding in value.split(","))


def refusal_fact(head: ResponseHead, body: bytes) -> Rejected | BadResponse:
    """What a response that is no 200 means. `body`: what could be read of it, at most BUSY_BODY_BYTES; it is read for 4xx only.

    A busy thread is looked for in any 4xx, listed or not; one whose body is encoded cannot be read, and so is not believed.
    """
    status = head.status
    if 300 <= status < 400:
        return Rejected(status)
    if not 400 <= status < 500:
        return BadResponse(ResponseFault.STATUS, status)
    if status == 409 or (not is_encoded(head) and says_busy(body)):
        return Rejected(status, thread_busy=True)
    if status not in REFUSALS:
        return BadResponse(ResponseFault.STATUS, status)
    return BadResponse(ResponseFault.CONTENT_ENCODING, status) if is_encoded(head) else Rejected(status)


def says_busy(body: bytes) -> bool:
    """True when the body of a 4xx says that something runs on the thread; a wrong yes costs an unknown run, so it is generous."""
    return _BUSY.search(_SEPARATORS.sub(" ", body.decode("utf-8", "replace")).lower()) is not None
