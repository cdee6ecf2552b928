"""Somebody who chats as our client does, through whatever stands in front: one submission id a message, sent until it is answered."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from gateway.domain.ids import ApplicationId
from tests.support.stack import parse_events, token

READS_SECONDS: Final = 0.3
"""How long a person looks at an answer before writing again."""


@dataclass
class Person:
    """Chats in one conversation until told to stop; remembers what was said and heard."""

    subject: str
    http: httpx.AsyncClient
    application: ApplicationId
    stop: asyncio.Event
    conversation_id: str | None = None
    sent: list[str] = field(default_factory=list)
    refused: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def agent(self) -> str:
        return f"/api/internal/apps/{self.application}/agent"

    async def chat(self) -> None:
        """One message after another."""
        while not self.stop.is_set():
            submission = f"{self.subject}-{len(self.sent)}"
            self.sent.append(submission)
            try:
                await self._say(submission)
            except (httpx.HTTPError, AssertionError) as error:
                self.failures.append(f"{submission}: {type(error).__name__} {error}")
                return

    async def _say(self, submission: str) -> None:
        body: dict[str, Any] = {"submission_id": submission, "text": f"text of {submission}"}
        if self.conversation_id is not None:
            body["conversation_id"] = self.conversation_id
        while True:
            async with self.http.stream(
                "POST", f"{self.agent}/runs", json=body, headers={**self._headers, "Accept": "text/event-stream"}
            ) as answer:
                raw = await answer.aread()
            if answer.status_code != 503:
                break
            await self._refused(answer)
        assert answer.status_code == 200, raw
        events = parse_events(raw)
        self.conversation_id = str(events[0].data["threadId"])
        if events[-1].type != "RUN_FINISHED":
            await self._until_saved(str(events[0].data["runId"]))
        await asyncio.sleep(READS_SECONDS)

    async def _until_saved(self, run_id: str) -> None:
        """The stream ended without its last frame: its replica stops. The run goes on, and is asked about."""
        async with asyncio.timeout(60):
            while True:
                answer = await self.http.get(f"{self.agent}/runs/{run_id}", headers=self._headers)
                if answer.status_code == 503:
                    await self._refused(answer)
                    continue
                assert answer.status_code == 200, answer.text
                if answer.json()["persistence"] == "saved":
                    return
                await asyncio.sleep(0.2)

    async def _refused(self, answer: httpx.Response) -> None:
        """A clean 503 says that the same request may come again."""
        problem = answer.json()
        assert answer.headers["content-type"] == "application/problem+json"
        assert problem["retry"] in ("same-submission", "later"), problem
        self.refused += 1
        await asyncio.sleep(0.2)

    def expected(self, *answers: str) -> list[str]:
        """What the conversation must be when each message got `answers`, once."""
        return [text for submission in self.sent for text in (f"text of {submission}", *answers)]

    async def heard(self) -> list[str]:
        """All of the conversation, in order."""
        texts: list[str] = []
        cursor: str | None = None
        while True:
            query = {"limit": "200", **({"cursor": cursor} if cursor else {})}
            path = f"{self.agent}/conversations/{self.conversation_id}/items"
            page = (await self.http.get(path, params=query, headers=self._headers)).json()
            texts += [item["text"] for item in page["items"]]
            cursor = page["next"]
            if cursor is None:
                return texts

    @property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {token(self.subject)}"}
