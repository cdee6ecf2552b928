"""The exact bytes of the one POST's body: of POST /ag-ui (contract B4, B5), one user message and everything else empty, and of the native
profile's POST /threads/{thread}/runs/stream (contract E1, E2), the new input or the answer to the saved question.

Also whether a text fits at all, which admission asks before there is a thread. Sends nothing.
"""

import json
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import UUID

from gateway.domain.confirmation import Answer
from gateway.domain.ids import CorrelationId, ThreadId
from gateway.domain.limits import MAX_UPSTREAM_BODY_BYTES
from gateway.upstream.endpoint import path_segment

_LONGEST_THREAD_ID: Final = ThreadId('"' * 200)
"""200 visible ASCII characters, each of which JSON has to escape."""
_LONGEST_ASSISTANT_ID: Final = '"' * 200
MARK_KEY: Final = "gateway_mark"
"""Under which a native run's metadata has the mark, and nothing else of ours."""


class UnsendableRunInput(ValueError):
    """The text is larger than MAX_UPSTREAM_BODY_BYTES allows, or holds lone surrogates. Carries none of it."""


class Dispatch(Protocol):
    """What the one POST says, and where to."""

    @property
    def path(self) -> str:
        """Behind the endpoint's base path. Raises UnsendableRunInput."""
        ...

    def body(self) -> bytes:
        """JSON in UTF-8. Raises UnsendableRunInput."""
        ...


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What the one POST says. `correlation_id` is the AG-UI runId, fresh for each run; `text` has passed validation."""

    thread_id: ThreadId
    correlation_id: CorrelationId
    message_id: str
    text: str

    @property
    def path(self) -> str:
        """The same for every run."""
        return "/ag-ui"

    def body(self) -> bytes:
        """The request body: compact UTF-8 JSON in which nothing is escaped without need. Raises UnsendableRunInput."""
        run_input: dict[str, object] = {
            "threadId": self.thread_id,
            "runId": str(self.correlation_id),
            "messages": [{"id": self.message_id, "role": "user", "content": self.text}],
            "state": {},
            "tools": [],
            "context": [],
            "forwardedProps": {},
        }
        return _encoded(run_input)


@dataclass(frozen=True, slots=True)
class UserInput:
    """A task of the native profile: one new message of the user's. `text` has passed validation."""

    message_id: str
    text: str

    def as_json(self) -> dict[str, object]:
        return {"input": {"messages": [{"role": "user", "content": self.text, "id": self.message_id}]}}


@dataclass(frozen=True, slots=True)
class ResumeCommand:
    """A decision: the map keyed by upstream's id of the saved question, the one form of which a wrong id does nothing."""

    native_interrupt_id: str
    answer: Answer

    def as_json(self) -> dict[str, object]:
        return {"command": {"resume": {self.native_interrupt_id: self.answer.resume_value()}}}


@dataclass(frozen=True, slots=True)
class NativeRequest:
    """What the one POST of the native profile says. `mark` is random, fresh for each run, and what the run can be found by afterwards."""

    thread_id: ThreadId
    assistant_id: str
    mark: CorrelationId
    content: UserInput | ResumeCommand

    @property
    def path(self) -> str:
        """Of the conversation's own thread. Raises UnsendableRunInput."""
        thread = path_segment(self.thread_id)
        if thread is None:
            raise UnsendableRunInput("thread id")
        return f"/threads/{thread}/runs/stream"

    def body(self) -> bytes:
        """The request body. Never a checkpoint or history (contract E2); both flags, because servers' defaults differ. As above."""
        return _encoded(
            {
                "assistant_id": self.assistant_id,
                **self.content.as_json(),
                "stream_mode": ["updates", "messages-tuple"],
                "multitask_strategy": "reject",
                "on_disconnect": "continue",
                "metadata": {MARK_KEY: str(self.mark)},
            }
        )


def _encoded(document: dict[str, object]) -> bytes:
    try:
        body = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    except UnicodeEncodeError:
        raise UnsendableRunInput("lone surrogate") from None
    if len(body) > MAX_UPSTREAM_BODY_BYTES:
        raise UnsendableRunInput("too large")
    return body


def text_fits_upstream(text: str) -> bool:
    """True when a run input with `text` can be sent on whatever thread upstream hands out, in either profile."""
    nil = UUID(int=0)
    task = UserInput(str(nil), text)
    try:
        GenerationRequest(_LONGEST_THREAD_ID, CorrelationId(nil), str(nil), text).body()
        NativeRequest(_LONGEST_THREAD_ID, _LONGEST_ASSISTANT_ID, CorrelationId(nil), task).body()
    except UnsendableRunInput:
        return False
    return True
