"""The gateway before one native server, and a person who uses it. What a test does with them is its own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psycopg

from gateway.domain.ids import ApplicationId
from tests.support.native_servers import NativeServer
from tests.support.stack import Client, Replica, Stack


@dataclass(frozen=True, slots=True)
class Scene:
    """One replica before one native server, and a person."""

    server: NativeServer
    stack: Stack
    replica: Replica
    application: ApplicationId
    ada: Client

    async def ask(self, text: str, submission_id: str = "s1") -> dict[str, Any]:
        """A task, as far as it goes."""
        answer = await self.ada.submit(self.application, submission_id, text)
        assert answer.status_code == 202, answer.text
        return await self.ada.until_over(self.application, answer.json()["run_id"])

    async def decide(
        self,
        run: Mapping[str, Any],
        decision: str,
        comment: str | None = None,
        submission_id: str = "d1",
        *,
        by: Client | None = None,
    ) -> dict[str, Any]:
        """A decision about a waiting run, as far as it goes."""
        person = by or self.ada
        answer = await person.decide(self.application, run["run_id"], run["interrupt"]["interrupt_id"], submission_id, decision, comment)
        assert answer.status_code == 202, answer.text
        return await person.until_over(self.application, answer.json()["run_id"])

    async def sql(self, query: str) -> list[tuple[Any, ...]]:
        """Look into the gateway's database, or behind its back change it."""
        async with await psycopg.AsyncConnection.connect(self.stack.database_url, autocommit=True) as connection:
            cursor = await connection.execute(query.encode())
            return await cursor.fetchall() if cursor.description else []

    async def on_time(self, seconds: float) -> str:
        """When so much time has passed on the database's clock, as a prompt's `expires_at`."""
        moment = f"(clock_timestamp() + make_interval(secs => {seconds})) at time zone 'UTC'"
        [(text,)] = await self.sql(f"""select to_char({moment}, 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')""")
        return str(text)

    async def native_ids(self) -> list[str]:
        """Every id of the server's that the gateway holds."""
        rows = await self.sql("select thread_id from binding union select native_run_id from run union select native_id from interrupt")
        return [native_id for (native_id,) in rows if native_id is not None]

    async def acts(self) -> list[Any]:
        """What the agent did on the conversations' threads."""
        threads = await self.sql("select thread_id from binding")
        return [act["answer"] for (thread_id,) in threads for act in self.server.acts(thread_id)]

    async def said(self, run: Mapping[str, Any]) -> list[str]:
        """The history, as texts."""
        items = await self.ada.items(self.application, run["conversation_id"])
        return [item["text"] if item["type"] == "message" else item["name"] for item in items]
