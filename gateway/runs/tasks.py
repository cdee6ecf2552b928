"""Tasks of the replica that outlive any request: nobody but the drain cancels them, and none fails unseen."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

import structlog

from gateway.domain.problems import Refused
from gateway.domain.raised_at import raised_at

_Result = TypeVar("_Result")
_log: Final[structlog.stdlib.BoundLogger] = structlog.get_logger("gateway.runs.tasks")


class Tasks:
    """Owns what must go on when a browser leaves: admissions, runs, records, saves."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def own(self, coroutine: Coroutine[Any, Any, _Result], name: str) -> "asyncio.Task[_Result]":
        """Start `coroutine`. An exception of it that nobody waits for is logged by its type; a refusal is an answer, not a fault."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def finish(self, seconds: float) -> bool:
        """Wait until no task is left, at most `seconds`. True when none is."""
        deadline = asyncio.get_running_loop().time() + seconds
        while self._tasks and (left := deadline - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait(self._tasks, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        return not self._tasks

    def cancel(self, name: str) -> None:
        """Cancel the tasks of that name."""
        for task in self._tasks:
            if task.get_name() == name:
                task.cancel()

    def __len__(self) -> int:
        return len(self._tasks)

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not isinstance(error, Refused):
            _log.error("task_failed", task=task.get_name(), error=type(error).__name__, raised_at=raised_at(error))
