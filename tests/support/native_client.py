"""A plain client of the native interrupt profile for tests, with the calls and flags that the gateway uses. It judges nothing.

Its frames are split by a few lines of its own, which know what the three servers send: LF or CRLF, one data line, names and ids.
"""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx

from tests.support.native_servers import ASSISTANT, NativeServer

STREAM_MODES: Final = ["updates", "messages-tuple"]
_RUN: Final = re.compile(r"/threads/(?P<thread>[^/]+)/runs/(?P<run>[^/]+)")


@dataclass(frozen=True, slots=True)
class Streamed:
    """What a POST to runs/stream brought. `events`: (name, data) in order, comments left out."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    events: Sequence[tuple[str, Any]]

    @property
    def run_id(self) -> str:
        """The native run id, as the header tells it."""
        return run_of(self.headers)[1]

    @property
    def names(self) -> list[str]:
        """The names of the events, repetitions of one left out."""
        names = [name for name, _ in self.events]
        return [name for place, name in enumerate(names) if not place or names[place - 1] != name]

    @property
    def text(self) -> str:
        """What the assistant said, message after message, deltas put together."""
        said: dict[str, str] = {}
        for name, data in self.events:
            if name == "messages" and data[0]["type"] in ("ai", "AIMessageChunk"):
                said[data[0]["id"]] = said.get(data[0]["id"], "") + data[0]["content"]
        return "\n".join(said.values())


def run_of(headers: Mapping[str, str]) -> tuple[str, str]:
    """Thread and run that Content-Location names."""
    found = _RUN.fullmatch(headers["content-location"])
    assert found is not None, headers
    return found["thread"], found["run"]


def events_of(body: bytes) -> list[tuple[str, Any]]:
    """The frames of a whole stream."""
    events = []
    for block in body.decode("utf-8").replace("\r\n", "\n").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if line and not line.startswith(":"))
        if "data" in fields:
            events.append((fields.get("event", "message"), json.loads(fields["data"])))
    return events


@dataclass(frozen=True, slots=True)
class NativeClient:
    """Calls of one server, with its token."""

    http: httpx.AsyncClient

    @classmethod
    def of(cls, server: NativeServer) -> "NativeClient":
        """A client to be closed by `http.aclose()`."""
        headers = {"Authorization": f"Bearer {server.token}"}
        return cls(httpx.AsyncClient(base_url=server.base_url, headers=headers, trust_env=False, timeout=60))

    async def thread(self) -> str:
        """A new thread."""
        return str((await self.http.post("/threads", json={})).raise_for_status().json()["thread_id"])

    def body(self, **changes: Any) -> dict[str, Any]:
        """The body of a POST that executes."""
        flags = {"multitask_strategy": "reject", "on_disconnect": "continue", "metadata": {"gateway_run_id": "run-1"}}
        return {"assistant_id": ASSISTANT, "stream_mode": STREAM_MODES, **flags, **changes}

    async def begin(self, thread_id: str, text: str, **changes: Any) -> Streamed:
        """Send a message, and read the stream to its end."""
        said = {"messages": [{"role": "user", "content": text, "id": "message-1"}]}
        return await self._stream(thread_id, self.body(input=said, **changes))

    async def resume(self, thread_id: str, answers: Mapping[str, Any], **changes: Any) -> Streamed:
        """Answer interrupts by their ids, and read the stream to its end."""
        return await self._stream(thread_id, self.body(command={"resume": dict(answers)}, **changes))

    async def run(self, thread_id: str, run_id: str) -> dict[str, Any]:
        """A run look-up."""
        return dict((await self.http.get(f"/threads/{thread_id}/runs/{run_id}")).raise_for_status().json())

    async def ended(self, thread_id: str, run_id: str) -> str:
        """The status of a run once it is over. aegra ends a failed run's stream a little before it says so of the run."""
        async with asyncio.timeout(30):
            while (run_status := str((await self.run(thread_id, run_id))["status"])) in ("pending", "running"):
                await asyncio.sleep(0.02)
        return run_status

    async def runs(self, thread_id: str, **query: Any) -> list[dict[str, Any]]:
        """The run listing, newest first."""
        return list((await self.http.get(f"/threads/{thread_id}/runs", params=query)).raise_for_status().json())

    async def state(self, thread_id: str) -> dict[str, Any]:
        """The thread's state."""
        return dict((await self.http.get(f"/threads/{thread_id}/state")).raise_for_status().json())

    async def pending(self, thread_id: str) -> list[dict[str, Any]]:
        """The interrupts that the state shows."""
        return list((await self.state(thread_id))["interrupts"])

    async def _stream(self, thread_id: str, body: Mapping[str, Any]) -> Streamed:
        answer = await self.http.post(f"/threads/{thread_id}/runs/stream", json=body)
        is_stream = answer.headers["content-type"].startswith("text/event-stream")
        return Streamed(answer.status_code, answer.headers, answer.content, events_of(answer.content) if is_stream else [])
