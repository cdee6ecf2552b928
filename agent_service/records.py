"""What the service remembers of threads and runs, as values. Not here: how it is stored (`store.py`)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NewType

ThreadId = NewType("ThreadId", str)
"""Handed out by POST /threads, a UUID in text; also the checkpointer's `thread_id`."""
RunId = NewType("RunId", str)
"""The native run id, ours; what look-ups ask for."""
CorrelationId = NewType("CorrelationId", str)
"""The caller's AG-UI `runId`. Echoed in the stream; it is no idempotency key and never the native id. Empty in the native profile."""


class RunStatus(StrEnum):
    """The contract's statuses that this service uses: `pending` and `running` are active, the others are final."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    ERROR = "error"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, kw_only=True)
class Thread:
    """A thread as POST /threads tells it."""

    thread_id: ThreadId
    created_at: str


@dataclass(frozen=True, kw_only=True)
class NewRun:
    """What is recorded of a run when it is accepted. `metadata`: the caller's, a JSON object."""

    thread_id: ThreadId
    assistant: str
    correlation_id: CorrelationId = CorrelationId("")
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run as a look-up tells it. Times are ISO 8601 in UTC."""

    thread_id: ThreadId
    run_id: RunId
    run_status: RunStatus
    assistant: str
    metadata: Mapping[str, Any]
    created_at: str
    updated_at: str
