"""What the tests of accounts, applications and the command line start from: a provider, applications, people, runs in any state.

Rows are made by the program's own functions (admit_v3, fence_v2), but for states that only a whole execution would bring.
"""

import asyncio
from dataclasses import dataclass
from typing import Final
from uuid import UUID, uuid4

import psycopg

from gateway.bindings import applications, providers
from gateway.bindings.applications import Audience, NewApplication
from gateway.bindings.config import ApplicationConfig, langchain_config
from gateway.bindings.resolve import Resolve
from gateway.bindings.vault import KeyRing, Vault
from gateway.domain.ids import AccountId, ApplicationId, AttemptToken, RunId
from gateway.domain.snapshot import item_id
from gateway.store import accounts, admission, runs
from gateway.store.database import Database
from tests.support.moderated import passed

KEY: Final = b"k" * 32
BASE_URL: Final = "https://agent.example"
PROVIDER: Final = "provider"
_OVER: Final = frozenset({"succeeded", "failed", "released", "closed"})
_HOLDS: Final = frozenset({"reserved", "dispatched", "running", "unknown"})


@dataclass(frozen=True)
class AdmittedRun:
    run_id: RunId
    conversation_id: UUID
    application_id: ApplicationId
    attempt_token: AttemptToken


@dataclass(frozen=True)
class World:
    database: Database
    url: str
    vault: Vault

    @property
    def resolve(self) -> Resolve:
        return Resolve(self.database, self.vault)

    async def provider(self, name: str = PROVIDER, base_url: str = BASE_URL) -> None:
        await providers.create(self.database, name=name, base_url=base_url, trusted_hosts=("127.0.0.1",))

    async def application(
        self,
        name: str = "app",
        *,
        provider: str = PROVIDER,
        config: ApplicationConfig | None = None,
        audience: Audience | None = None,
        token: str | None = "tok_X",
    ) -> ApplicationId:
        wanted = NewApplication(name, provider, config or langchain_config("agent"), audience or Audience(), token)
        return await applications.create(self.database, self.vault, wanted)

    async def account(self, subject: str = "alice") -> AccountId:
        await accounts.create(self.database, subject)
        found = await accounts.find(self.database, subject)
        assert found is not None
        return AccountId(found.account_id)

    async def admit(self, application_id: ApplicationId, *, subject: str = "alice", conversation_id: UUID | None = None) -> AdmittedRun:
        """A reserved run, by admit_v3."""
        account_id, run_id, attempt_token, new_conversation_id = await self.account(subject), RunId(uuid4()), AttemptToken(uuid4()), uuid4()
        params = {
            "account_id": account_id,
            "subject": subject,
            "claimed_groups": [],
            "application_id": application_id,
            "submission_id": str(uuid4()),
            "fingerprint": bytes(32),
            "conversation_id": conversation_id,
            "client_thread": None,
            "new_conversation_id": new_conversation_id,
            "title": "hi",
            "run_id": run_id,
            "attempt_token": attempt_token,
            "correlation_id": uuid4(),
            "item_id": item_id(run_id, 0),
            "text": "hi",
            "groups": [],
            "max_per_user": 99,
            "max_per_application": 99,
            "lease_seconds": 30.0,
            "quota_zone": "UTC",
            **passed("hi").params(),
        }
        async with self.database.transaction() as tx:
            row = await admission.admit(tx, params)
            assert row.verdict == "admitted", row.verdict
            await tx.commit()
        return AdmittedRun(run_id, conversation_id or new_conversation_id, application_id, attempt_token)

    async def fence(self, run: AdmittedRun, thread_id: str | None = None) -> str:
        """The verdict of fence_v2 with what the application resolves to now."""
        usable = await self.resolve.usable(run.application_id)
        assert usable is not None
        row = await runs.fence(
            self.database,
            run_id=run.run_id,
            attempt_token=run.attempt_token,
            thread_id=thread_id or str(run.conversation_id),
            endpoint_fingerprint=usable.endpoint_fingerprint,
            fingerprint=usable.fingerprint,
            lease_seconds=30.0,
            deadline_seconds=5.0,
        )
        return row.verdict

    async def run_in(
        self, application_id: ApplicationId, execution: str, persistence: str = "none", *, subject: str = "alice"
    ) -> AdmittedRun:
        """A run that was admitted and, but for reserved and released, fenced, and is now in the given states."""
        run = await self.admit(application_id, subject=subject)
        if execution not in ("reserved", "released"):
            assert await self.fence(run) == "dispatched"
        self.put(run, execution, persistence)
        return run

    def put(self, run: AdmittedRun, execution: str, persistence: str = "none") -> None:
        """Write the states past all guards but the schema's own."""
        closed = execution == "closed"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(
                """
                update run set execution = %(execution)s, persistence = %(persistence)s,
                    user_slot = case when %(holds)s then user_slot end, application_slot = case when %(holds)s then application_slot end,
                    finished_at = case when %(over)s then now() end,
                    resolution_outcome = case when %(closed)s then 'failed' end,
                    resolution_reason = case when %(closed)s then 'test' end, resolved_at = case when %(closed)s then now() end
                where run_id = %(run_id)s
                """,
                {
                    "execution": execution,
                    "persistence": persistence,
                    "holds": execution in _HOLDS,
                    "over": execution in _OVER,
                    "closed": closed,
                    "run_id": run.run_id,
                },
            )


def world_on(database: Database, url: str, key: bytes = KEY) -> World:
    return World(database, url, Vault(KeyRing([key])))


def everything_in(url: str) -> str:
    """Every row of every table as text: what a search for a secret searches."""
    with psycopg.connect(url) as connection:
        tables = connection.execute("select table_name from information_schema.tables where table_schema = 'public'").fetchall()
        return "\n".join(
            str(row) for (table,) in tables for row in connection.execute(f'select t::text from "{table}" t'.encode()).fetchall()
        )


async def until_waiting(url: str) -> None:
    """Return when some statement waits for a lock: the database says so."""
    with psycopg.connect(url, autocommit=True) as connection:
        async with asyncio.timeout(10):
            while not connection.execute("select 1 from pg_stat_activity where wait_event_type = 'Lock'").fetchone():
                await asyncio.sleep(0.01)
