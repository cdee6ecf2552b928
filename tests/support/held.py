"""A replica that stops at one fault point until a test lets it go on."""

import asyncio
import time
from dataclasses import dataclass, field

from gateway.domain.fault_points import FaultPoint


@dataclass
class Held:
    """A replica that holds where a test says, and whose clock the test moves."""

    point: FaultPoint
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    later: float = 0.0

    async def at(self, point: FaultPoint) -> None:
        if point == self.point and not self.reached.is_set():
            self.reached.set()
            await self.go_on.wait()

    def clock(self) -> float:
        return time.monotonic() + self.later
