"""Repeat a write until the database confirmed it: what a process holds in memory is not lost because the database is away."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from gateway.store.errors import DatabaseTrouble, DeadlockOrSerialization

_FIRST_SECONDS: Final = 0.1
_LONGEST_SECONDS: Final = 5.0
"""No longer than a heartbeat: a database that is back is used soon."""

_Result = TypeVar("_Result")


async def until_committed(write: Callable[[], Awaitable[_Result]]) -> _Result:
    """Call `write`, which must be guarded so that repeating it is harmless, until it is answered. Backs off with jitter."""
    pause = _FIRST_SECONDS
    while True:
        try:
            return await write()
        except (DatabaseTrouble, DeadlockOrSerialization):
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load, guards nothing
            pause = min(pause * 2, _LONGEST_SECONDS)
