"""What the service remembers of threads and runs, as values. Not here: how it is stored (`store.py`)."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

ThreadId = NewType("ThreadId", str)
"""Handed out by POST /threads, a UUID in text; also the checkpointer's `thread_id`."""
RunId = NewType("RunId", str)
"""The native run id, ours; what look-ups ask for."""
CorrelationId = NewType("CorrelationId", str)
"""The caller's AG-UI `runId`. Echoed in the stream; it is no idempotency key and never the native id."""


class RunStatus(StrEnum):
    """The contract's statuses that this service uses: `pending` and `running` are active, the others are final."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    ERROR = "error"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run as a look-up tells it."""

    thread_id: ThreadId
    run_id: RunId
    run_status: RunStatus
