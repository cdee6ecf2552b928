"""The exact bytes of the body of POST /ag-ui (contract B4, B5): one user message, everything else empty.

Also whether a text fits at all, which admission asks before there is a thread. Sends nothing.
"""

import json
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from gateway.domain.ids import CorrelationId, ThreadId
from gateway.domain.limits import MAX_UPSTREAM_BODY_BYTES

_LONGEST_THREAD_ID: Final = ThreadId('"' * 200)
"""200 visible ASCII characters, each of which JSON has to escape."""


class UnsendableRunInput(ValueError):
    """The text is larger than MAX_UPSTREAM_BODY_BYTES allows, or holds lone surrogates. Carries none of it."""


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What the one POST says. `correlation_id` is the AG-UI runId, fresh for each run; `text` has passed validation."""

    thread_id: ThreadId
    correlation_id: CorrelationId
    message_id: str
    text: str

    def body(self) -> bytes:
        """The request body: compact UTF-8 JSON in which nothing is escaped without need. Raises UnsendableRunInput."""
        run_input = {
            "threadId": self.thread_id,
            "runId": str(self.correlation_id),
            "messages": [{"id": self.message_id, "role": "user", "content": self.text}],
            "state": {},
            "tools": [],
            "context": [],
            "forwardedProps": {},
        }
        try:
            body = json.dumps(run_input, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
        except UnicodeEncodeError:
            raise UnsendableRunInput("lone surrogate") from None
        if len(body) > MAX_UPSTREAM_BODY_BYTES:
            raise UnsendableRunInput("too large")
        return body


def text_fits_upstream(text: str) -> bool:
    """True when a run input with `text` can be sent on whatever thread upstream hands out."""
    nil = UUID(int=0)
    try:
        GenerationRequest(_LONGEST_THREAD_ID, CorrelationId(nil), str(nil), text).body()
    except UnsendableRunInput:
        return False
    return True
