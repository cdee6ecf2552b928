"""A trace as the current one, for as long as a test means it: tests of one worker share the context that their loop began with."""

from collections.abc import Iterator
from contextlib import contextmanager

from gateway.domain.trace_context import TraceContext, current_trace


@contextmanager
def in_trace(trace: TraceContext) -> Iterator[None]:
    """Calls that go out inside belong to `trace`."""
    token = current_trace.set(trace)
    try:
        yield
    finally:
        current_trace.reset(token)
