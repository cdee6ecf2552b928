"""The event loop of the model test: time passes only when the test says so. No sleeping, and the same schedule each time.

The clock of the loop is a number. Whatever waits for a time (the pause between two fence statements, a backoff, a checkpoint's period, the
total deadline of a stream) goes on when `advance` lets that time pass, at once. Whatever waits for a socket is not touched: the database is
real and answers when it answers, so time must not pass while a statement is under way (`Calls`).
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import Any

example: ContextVar[set["asyncio.Task[Any]"]] = ContextVar("example")
"""The tasks that one example made, those of its dead processes too; the tasks of the pool are none of them."""


class ModelLoop(asyncio.SelectorEventLoop):
    """A loop whose `time()` stands still between two calls of `advance`."""

    def __init__(self) -> None:
        self._model_time = 1000.0
        super().__init__()
        self.set_task_factory(_noted)

    def time(self) -> float:
        return self._model_time

    def advance(self, seconds: float) -> None:
        self._model_time += seconds

    def is_idle(self) -> bool:
        """Whether nothing but the caller is ready to run."""
        return not self._ready  # type: ignore[attr-defined]


def _noted(loop: asyncio.AbstractEventLoop, coro: Any, /, context: Context | None = None) -> "asyncio.Task[Any]":
    task = asyncio.Task(coro, loop=loop, context=context)
    mine = example.get(None)
    if mine is not None:
        mine.add(task)
    return task


class Calls:
    """Counts the database calls that are under way, of all replicas."""

    def __init__(self) -> None:
        self.under_way = 0
        self._changed = asyncio.Event()

    @contextmanager
    def one(self) -> Iterator[None]:
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1
            self._changed.set()

    async def quiet(self, *, but: int = 0) -> None:
        """Wait until every task waits for something that only the test can give. `but`: calls that may go on (they wait for a lock)."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ModelLoop)
        while True:
            await asyncio.sleep(0)
            if self.under_way > but:
                self._changed.clear()
                await self._changed.wait()
            elif loop.is_idle():
                return
