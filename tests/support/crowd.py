"""People who chat at once, each in a conversation, by the published client (gateway-client.js) in one node, through whatever stands before.

The client repeats what it may repeat, with the same submission id; what it had to overlook on the way is told here, line by line.
"""

import asyncio
import json
import os
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from gateway.domain.ids import ApplicationId
from tests.support.require import missing
from tests.support.stack import token

CLIENT: Final = Path(__file__).resolve().parents[2] / "gateway" / "web" / "static" / "gateway-client.js"
LONG_QUESTION: Final = "a long question"
"""The text of every so manieth message; give it an answer that takes its time."""
PATIENCE_SECONDS: Final = 180.0
Line = dict[str, Any]


class Crowd:
    """Chats until `stopped`. `lines`: everything that was told so far; see crowd.mjs."""

    def __init__(self, process: asyncio.subprocess.Process, base_url: str, application: ApplicationId, subjects: Sequence[str]) -> None:
        self.lines: list[Line] = []
        self._process = process
        self._base_url = base_url
        self._application = application
        self._subjects = subjects
        self._changed = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    @property
    def answered(self) -> list[Line]:
        """Every message that was answered and saved, in the order of the answers."""
        return self._told("answered")

    @property
    def failed(self) -> list[Line]:
        """Every message that the client gave up."""
        return self._told("failed")

    @property
    def broken(self) -> list[Line]:
        """Every request that got no answer, and every stream that broke."""
        return self._told("broken")

    @property
    def unclean(self) -> list[Line]:
        """Every refusal that is not a 503 which says: again, with the same submission."""
        return [line for line in self._told("refused") if not _is_clean(line)]

    async def until_answered(self, more: int) -> None:
        """Wait until each person got `more` answers more, or somebody gave up."""
        wanted = Counter(dict.fromkeys(self._subjects, more)) + self._answers()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not self.failed and not self._answers() >= wanted:
                assert not self._reading.done(), await self._errors()
                self._changed.clear()
                await self._changed.wait()

    async def stopped(self) -> None:
        """Let everybody finish what was said."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"stop\n")
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._reading
            assert await self._process.wait() == 0, await self._errors()

    async def check_history(self, *answers: str) -> None:
        """Each conversation is, in order and once, what was said, with `answers` to each message."""
        limits = httpx.Limits(max_connections=8)
        async with httpx.AsyncClient(base_url=self._base_url, timeout=60.0, trust_env=False, limits=limits) as http:
            for subject in self._subjects:
                said = [line for line in self.answered if line["subject"] == subject]
                conversations = {line["run"]["conversation_id"] for line in said}
                assert len(conversations) == 1, subject
                assert len({line["run"]["run_id"] for line in said}) == len(said), subject
                expected = [text for line in said for text in (line["text"], *answers)]
                assert await self._heard(http, subject, conversations.pop()) == expected, subject

    async def close(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reading

    async def _heard(self, http: httpx.AsyncClient, subject: str, conversation_id: str) -> list[str]:
        path = f"/api/internal/apps/{self._application}/agent/conversations/{conversation_id}/items"
        texts: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            query = {"limit": "200", **({"cursor": cursor} if cursor else {})}
            answer = await http.get(path, params=query, headers={"Authorization": f"Bearer {token(subject)}"})
            assert answer.status_code == 200, answer.text
            page = answer.json()
            texts += [item["text"] for item in page["items"]]
            cursor = page["next"]
        return texts

    def _answers(self) -> Counter[str]:
        return Counter(line["subject"] for line in self.answered)

    def _told(self, kind: str) -> list[Line]:
        return [line for line in self.lines if kind in line]

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.lines.append(json.loads(line))
            self._changed.set()
        self._changed.set()

    async def _errors(self) -> str:
        assert self._process.stderr is not None
        return (await self._process.stderr.read()).decode()


def _is_clean(refused: Line) -> bool:
    if refused["refused"] != 503 or refused["type"] != "application/problem+json":
        return False
    return bool(json.loads(refused["text"])["retry"] == "same-submission")


@asynccontextmanager
async def crowd(
    base_url: str,
    application: ApplicationId,
    people: int,
    *,
    reading_seconds: float,
    long_every: int = 10**9,
    patient: bool = False,
) -> AsyncIterator[Crowd]:
    """So many people, each reading an answer for about `reading_seconds`. `patient`: who is told to try again does."""
    node = shutil.which("node")
    if node is None:
        missing("node", "people chat by the published client, which node runs")
        raise AssertionError
    subjects = [f"person-{number}" for number in range(people)]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        node,
        str(Path(__file__).with_name("crowd.mjs")),
        env={"PATH": os.environ["PATH"]},  # no proxy, no options of somebody's node
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        limit=2**20,
    )
    assert process.stdin is not None
    told = {
        "client": str(CLIENT),
        "base": base_url,
        "app": str(application),
        "people": [{"subject": subject, "token": token(subject)} for subject in subjects],
        "readingSeconds": reading_seconds,
        "longEvery": long_every,
        "patient": patient,
    }
    process.stdin.write(json.dumps(told).encode() + b"\n")
    chatting = Crowd(process, base_url, application, subjects)
    try:
        yield chatting
    finally:
        await chatting.close()
