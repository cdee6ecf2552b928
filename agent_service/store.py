"""Threads and runs in SQLite, and the checkpointer's connection to the same file.

Here lives: opening the database for one process only, and every statement of `sql/`. Not here: what LangGraph keeps in its
own tables, and what the statuses mean (`records.py`).
"""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import aiosqlite
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata, CheckpointTuple
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from agent_service.records import NewRun, Run, RunId, RunStatus, Thread, ThreadId

_T = TypeVar("_T")
# Two connections of this one process write to the file; either may wait for the other's short transaction.
BUSY_SECONDS = 10.0


class DatabaseInUseError(Exception):
    """Another process serves this database. Two would take each other's running runs for abandoned ones."""


class DatabaseUnusableError(Exception):
    """The file cannot be opened or is no database of this service."""


class ThreadBusyError(Exception):
    """The thread has a run that is not over."""


def load_statements(text: str) -> dict[str, str]:
    """Statements by name. Each begins with a line `-- name: …` and a line that says what it is for."""
    statements: dict[str, str] = {}
    for block in text.split("-- name: ")[1:]:
        name, purpose, sql = block.split("\n", 2)
        if not purpose.startswith("-- "):
            raise ValueError(f"statement {name} does not say what it is for")
        statements[name.strip()] = sql.strip()
    return statements


def _sql(name: str) -> str:
    return (files("agent_service") / "sql" / name).read_text(encoding="utf-8")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, kw_only=True)
class Store:
    """Every statement about threads and runs. Each method is one transaction of one statement."""

    connection: aiosqlite.Connection
    statements: Mapping[str, str]

    async def create_thread(self) -> Thread:
        """A fresh thread; the id is ours."""
        thread = Thread(thread_id=ThreadId(str(uuid4())), created_at=_now())
        await self._write("insert_thread", {"thread_id": thread.thread_id, "now": thread.created_at})
        return thread

    async def has_thread(self, thread_id: str) -> bool:
        """Whether POST /threads handed this out."""
        return bool(await self._rows("find_thread", {"thread_id": thread_id}))

    async def begin_run(self, run: NewRun) -> RunId:
        """A pending run of an existing thread. Raises ThreadBusyError when one is not over there."""
        run_id = RunId(str(uuid4()))
        values = {
            "run_id": run_id,
            "thread_id": run.thread_id,
            "correlation_id": run.correlation_id,
            "assistant": run.assistant,
            "metadata": json.dumps(dict(run.metadata)),
            "now": _now(),
        }
        try:
            await self._write("insert_run", values)
        except sqlite3.IntegrityError as error:
            if error.sqlite_errorname != "SQLITE_CONSTRAINT_UNIQUE":
                raise
            raise ThreadBusyError from error
        return run_id

    async def discard_run(self, run_id: RunId) -> None:
        """A pending run that was refused after all leaves no trace."""
        await self._write("discard_run", {"run_id": run_id})

    async def mark_running(self, run_id: RunId) -> bool:
        """pending → running; False when it was not pending."""
        return bool(await self._write("mark_running", {"run_id": run_id, "now": _now()}))

    async def finish_run(self, run_id: RunId, run_status: RunStatus) -> bool:
        """pending or running → a final status; False when it was final already."""
        return bool(await self._write("finish_run", {"run_id": run_id, "run_status": run_status.value, "now": _now()}))

    async def fail_abandoned_runs(self) -> int:
        """Runs of a process that is gone become `error`; how many."""
        return await self._write("fail_abandoned_runs", {"now": _now()})

    async def find_run(self, *, thread_id: str, run_id: str) -> Run | None:
        """The run, if it is one of this thread."""
        return next(map(_run, await self._rows("find_run", {"thread_id": thread_id, "run_id": run_id})), None)

    async def list_runs(self, *, thread_id: str, run_status: RunStatus | None, limit: int, offset: int) -> list[Run]:
        """The runs of a thread, newest first."""
        wanted = run_status.value if run_status is not None else None
        values = {"thread_id": thread_id, "run_status": wanted, "limit": limit, "offset": offset}
        return [_run(row) for row in await self._rows("list_runs", values)]

    async def assistant_of(self, thread_id: str) -> str | None:
        """The assistant of a thread's first run. None before that, and for a run of a version that did not record it."""
        rows = await self._rows("first_assistant", {"thread_id": thread_id})
        return str(rows[0][0]) or None if rows else None

    async def _rows(self, name: str, values: Mapping[str, str | int | None]) -> list[tuple[object, ...]]:
        """The rows of one statement. The connection is in autocommit, so the statement is its own transaction.

        One call in the connection's thread: a caller that is cancelled in between could leave the transaction open.
        """
        return [tuple(row) for row in await self.connection.execute_fetchall(self.statements[name], values)]

    async def _write(self, name: str, values: Mapping[str, str | int | None]) -> int:
        """How many rows a statement with `returning` changed."""
        return len(await self._rows(name, values))


def _run(row: tuple[object, ...]) -> Run:
    thread_id, run_id, run_status, assistant, metadata, created_at, updated_at = map(str, row)
    return Run(
        thread_id=ThreadId(thread_id),
        run_id=RunId(run_id),
        run_status=RunStatus(run_status),
        assistant=assistant,
        metadata=json.loads(metadata),
        created_at=created_at,
        updated_at=updated_at,
    )


class UninterruptedSaver(AsyncSqliteSaver):
    """LangGraph's checkpointer, whose calls end what they began also when the run that made them is stopped.

    All runs share its connection. A call cut in half would leave a transaction open there, and the file locked for everybody.
    """

    def __init__(self, connection: aiosqlite.Connection) -> None:
        super().__init__(connection)
        self._going: set[asyncio.Task[Any]] = set()

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """As the base class."""
        return await self._uninterrupted(super().aget_tuple(config))

    async def aput(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        """As the base class."""
        return await self._uninterrupted(super().aput(config, checkpoint, metadata, new_versions))

    async def aput_writes(self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = "") -> None:
        """As the base class."""
        await self._uninterrupted(super().aput_writes(config, writes, task_id, task_path))

    async def settle(self) -> None:
        """Wait for what goes on; before the connection closes."""
        if self._going:
            await asyncio.wait(self._going)

    async def _uninterrupted(self, call: Coroutine[Any, Any, _T]) -> _T:
        task = asyncio.create_task(call)
        self._going.add(task)
        task.add_done_callback(self._going.discard)
        return await asyncio.shield(task)


@dataclass(frozen=True, kw_only=True)
class Database:
    """One SQLite file: our tables and the checkpointer's."""

    store: Store
    checkpointer: UninterruptedSaver


@asynccontextmanager
async def open_database(path: Path) -> AsyncIterator[Database]:
    """Open or create the file, alone: DatabaseInUseError when another process has it, DatabaseUnusableError when it is none.

    Abandoned runs are *not* touched here: see `Store.fail_abandoned_runs`.
    """
    try:
        async with _sole_owner(path), aiosqlite.connect(path, timeout=BUSY_SECONDS, isolation_level=None) as connection:
            await connection.execute("pragma journal_mode = wal")
            await connection.execute("pragma foreign_keys = on")
            await connection.executescript(_sql("schema.sql"))
            if "metadata" not in {row[1] for row in await connection.execute_fetchall("pragma table_info (runs)")}:
                await connection.executescript(_sql("add_to_runs.sql"))
            async with aiosqlite.connect(path, timeout=BUSY_SECONDS) as saving:
                checkpointer = UninterruptedSaver(saving)
                await checkpointer.setup()
                statements = load_statements(_sql("statements.sql"))
                try:
                    yield Database(store=Store(connection=connection, statements=statements), checkpointer=checkpointer)
                finally:
                    await checkpointer.settle()
    except sqlite3.DatabaseError as error:
        raise DatabaseUnusableError(f"{path}: {error}") from error


@asynccontextmanager
async def _sole_owner(path: Path) -> AsyncIterator[None]:
    """Hold an exclusive transaction on a side file for as long as we live: the operating system lets go when we die.

    SQLite's own lock rather than fcntl, because it works on every platform that Python's sqlite3 does.
    """
    lock = path.with_name(path.name + ".lock")
    async with aiosqlite.connect(lock, timeout=0, isolation_level=None) as held:
        try:
            await held.execute("begin exclusive")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname != "SQLITE_BUSY":
                raise
            raise DatabaseInUseError(f"{path} is served by another process") from error
        yield
