"""The database: a pool of connections, single statements, explicit transactions, a deadline on everything.

What lives here: checkout, deadlines, cancellation, and turning the driver's faults into `errors`. What does not: SQL (`statements`),
aggregates (their own modules), schema (`migrate`). No session state, because a transaction pooler may stand between: no prepared
statements, no SET outside a transaction, no LISTEN, no session lock.

Choices, with what was measured on PostgreSQL 18 over a Unix socket (two shared cores):
- Liveness at checkout: one poll(2) of the idle socket, 1 µs. A server that went away has left an EOF or a farewell there, and only
  then, or after IDLE_SECONDS, a round trip asks (100 µs wall and CPU each, a third of a small statement).
- BEGIN travels with a transaction's first statement in one pipeline batch with one Sync: 450 instead of 525 µs for
  BEGIN, select, ROLLBACK, and one network round trip less. A pooler sees one answer, "in transaction", and keeps the server.
"""

import asyncio
import select
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, NoReturn, Self, TypeVar

import psycopg
from psycopg import waiting
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus
from psycopg.rows import kwargs_row
from psycopg_pool import AsyncConnectionPool

from gateway.domain.in_transaction import forbid_inside_transaction, inside_transaction
from gateway.store.errors import (
    AnswerLost,
    ConstraintViolated,
    DatabaseUnavailable,
    DeadlockOrSerialization,
    StatementFailed,
    StoreError,
)
from gateway.store.statements import Statement

Row = TypeVar("Row")
_Result = TypeVar("_Result")

CALL_SECONDS: Final = 5.0
# After this long a NAT or a firewall may have forgotten the connection without telling us: ask before trusting it.
IDLE_SECONDS: Final = 30.0
# How long a call whose deadline passed, or whose task was cancelled, may go on to stop its statement on the server.
CANCEL_SECONDS: Final = 0.5
CONNECT_SECONDS: Final = 3
# The pool doubles its pause between failed attempts; giving up early lets the next caller try at once when the server is back.
RECONNECT_SECONDS: Final = 2.0
CLOSE_SECONDS: Final = 2.0

Params = Mapping[str, object]
NO_PARAMS: Final[Params] = {}


class _Connection(psycopg.AsyncConnection[tuple[object, ...]]):
    """A pooled connection that knows when it was last used, and whose interrupted statement ends within CANCEL_SECONDS."""

    used_at: float = 0.0
    _poll: "select.poll | None" = None

    def has_news(self) -> bool:
        """Whether an idle socket is readable: an EOF, a farewell, or a harmless notice. No round trip."""
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(self.pgconn.socket, select.POLLIN)
        return bool(self._poll.poll(0))

    async def wait(self, gen: "PQGen[_Result]", interval: float = 0.1, timeout: float | None = None) -> _Result:
        """As the driver's, which on cancellation waits up to ten seconds for a silent server; this one half a second.

        The statement is cancelled on the server, so that it gives up its locks. A connection that does not come to rest is closed.
        """
        try:
            return await waiting.wait_async(gen, self.pgconn.socket, interval=interval, timeout=timeout)
        except asyncio.CancelledError:
            # A batch is never at rest half-way, whatever its status says.
            if self._pipeline is not None or self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                await self._come_to_rest(gen)
            raise

    async def _come_to_rest(self, gen: "PQGen[_Result]") -> None:
        at_rest = False
        try:
            async with asyncio.timeout(CANCEL_SECONDS):
                await self.cancel_safe(timeout=CANCEL_SECONDS)
                if self._pipeline is None:  # the answers of a batch are not worth the wait
                    await waiting.wait_async(gen, self.pgconn.socket, interval=0.1)
                    at_rest = True
        except psycopg.errors.QueryCanceled:
            at_rest = True
        except (psycopg.Error, TimeoutError):
            pass
        finally:
            if not at_rest:
                self.pgconn.finish()
                # Here rather than by the garbage collector: a batch's generator flushes when it is closed, on a connection that is gone.
                with suppress(psycopg.Error, RuntimeError):
                    gen.close()


@dataclass(frozen=True, slots=True)
class PoolNumbers:
    """Connections now; then requests for one since the start, how many of them waited and how long together, how many got none."""

    idle: int
    used: int
    waiting: int
    requests: int
    queued: int
    wait_seconds: float
    errors: int


class Database:
    """The pool of one process. Every call raises DatabaseUnavailable, or AnswerLost when a commit may have happened, in time."""

    def __init__(self, pool: "AsyncConnectionPool[_Connection]", *, call_seconds: float) -> None:
        self._pool = pool
        self._call_seconds = call_seconds
        self._returning: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(cls, url: str, *, pool_min: int = 2, pool_max: int = 10, call_seconds: float = CALL_SECONDS) -> Self:
        """Open the pool without waiting for the server: a gateway starts, and says that it is not ready, while the database is away."""
        pool: AsyncConnectionPool[_Connection] = AsyncConnectionPool(
            url,
            connection_class=_Connection,
            kwargs={"autocommit": True, "prepare_threshold": None, "connect_timeout": CONNECT_SECONDS},
            min_size=min(pool_min, pool_max),
            max_size=pool_max,
            open=False,
            configure=_note_use,
            check=_check,
            reconnect_timeout=RECONNECT_SECONDS,
            name="gateway",
        )
        await pool.open(wait=False)
        return cls(pool, call_seconds=call_seconds)

    def pool_numbers(self) -> "PoolNumbers":
        """How the pool is doing, without asking anybody."""
        told = self._pool.get_stats()
        return PoolNumbers(
            idle=(idle := told.get("pool_available", 0)),
            used=told.get("pool_size", 0) - idle,
            waiting=told.get("requests_waiting", 0),
            requests=told.get("requests_num", 0),
            queued=told.get("requests_queued", 0),
            wait_seconds=told.get("requests_wait_ms", 0) / 1000,
            errors=told.get("requests_errors", 0),
        )

    async def close(self) -> None:
        """Wait for connections on their way back, then close the pool."""
        if self._returning:
            await asyncio.wait(self._returning)
        await self._pool.close(timeout=CLOSE_SECONDS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def one(
        self,
        statement: Statement,
        row_type: Callable[..., Row],
        params: Params = NO_PARAMS,
        *,
        reading: bool = False,
        deadline_seconds: float | None = None,
    ) -> Row | None:
        """Run one statement as its own transaction in one round trip and return its only row, if any. `row_type` takes columns by name.

        `reading` promises that it writes nothing: a lost answer is then repeated once, and is DatabaseUnavailable, not AnswerLost.
        """
        rows = await self._run(statement, row_type, params, reading=reading, deadline_seconds=deadline_seconds)
        return _only(statement, rows)

    async def all(
        self,
        statement: Statement,
        row_type: Callable[..., Row],
        params: Params = NO_PARAMS,
        *,
        reading: bool = False,
        deadline_seconds: float | None = None,
    ) -> list[Row]:
        """As `one`, for any number of rows."""
        return await self._run(statement, row_type, params, reading=reading, deadline_seconds=deadline_seconds)

    async def execute(self, statement: Statement, params: Params = NO_PARAMS, *, deadline_seconds: float | None = None) -> int:
        """Run one writing statement as its own transaction in one round trip; returns the number of rows it changed."""
        deadline = self._deadline(deadline_seconds)
        connection = await self._checkout(deadline)
        try:
            return (await _statement(connection, statement, None, params, deadline, may_commit=True))[0]
        finally:
            await self._give_back(connection)

    @asynccontextmanager
    async def transaction(self, *, deadline_seconds: float | None = None) -> AsyncIterator["Transaction"]:
        """A transaction that ends with `await tx.commit()`; leaving in any other way rolls it back. The deadline is for the whole block.

        While inside, a network call or a second connection raises NetworkCallInsideTransaction.
        """
        deadline = self._deadline(deadline_seconds)
        connection = await self._checkout(deadline)
        tx = Transaction(connection, deadline)
        try:
            with inside_transaction():
                yield tx
        finally:
            tx.leave()
            await self._give_back(connection)

    async def _run(
        self, statement: Statement, row_type: Callable[..., Row], params: Params, *, reading: bool, deadline_seconds: float | None
    ) -> list[Row]:
        deadline = self._deadline(deadline_seconds)
        repeat = reading
        while True:
            connection = await self._checkout(deadline)
            try:
                return (await _statement(connection, statement, row_type, params, deadline, may_commit=not reading))[1]
            except DatabaseUnavailable:
                if not repeat or _now() >= deadline:
                    raise
                repeat = False
            finally:
                await self._give_back(connection)

    def _deadline(self, deadline_seconds: float | None) -> float:
        return _now() + (self._call_seconds if deadline_seconds is None else deadline_seconds)

    async def _checkout(self, deadline: float) -> _Connection:
        # Also for a second connection: ten tasks that hold one each and want another would starve each other.
        forbid_inside_transaction()
        try:
            async with asyncio.timeout_at(deadline):
                return await self._pool.getconn(timeout=max(deadline - _now(), 0.0))
        except (psycopg.Error, TimeoutError):
            raise DatabaseUnavailable("no connection to the database in time") from None

    async def _give_back(self, connection: _Connection) -> None:
        """Return a connection, by a task of its own: the pool's putconn can suspend, and a cancellation there would lose a connection."""
        task = asyncio.create_task(self._return(connection))
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)
        await asyncio.shield(task)

    async def _return(self, connection: _Connection) -> None:
        if connection.pgconn.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
            try:
                async with asyncio.timeout(CANCEL_SECONDS):
                    await connection.rollback()
            except (psycopg.Error, TimeoutError):
                await connection.close()
        connection.used_at = _now()
        await self._pool.putconn(connection)


class Transaction:
    """An open transaction. After any error inside it only leaving is possible. Not for use by two tasks at once."""

    def __init__(self, connection: _Connection, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline
        self._begun = False
        self._over = False

    async def one(self, statement: Statement, row_type: Callable[..., Row], params: Params = NO_PARAMS) -> Row | None:
        """The only row of the statement, if any."""
        return _only(statement, (await self._run(statement, row_type, params))[1])

    async def all(self, statement: Statement, row_type: Callable[..., Row], params: Params = NO_PARAMS) -> list[Row]:
        return (await self._run(statement, row_type, params))[1]

    async def execute(self, statement: Statement, params: Params = NO_PARAMS) -> int:
        """The number of rows that the statement changed."""
        return (await self._run(statement, None, params))[0]

    async def commit(self) -> None:
        """Commit. Raises AnswerLost when it was sent and no answer came; nothing is committed after any other error."""
        self._check_usable()
        self._over = True
        if not self._begun:
            return
        if self._connection.closed or _now() >= self._deadline:
            raise DatabaseUnavailable("the transaction ended before COMMIT was sent")
        await _statement(self._connection, _COMMIT, None, NO_PARAMS, self._deadline, may_commit=True)

    def leave(self) -> None:
        """The block is over: nothing more may be sent."""
        self._over = True

    async def _run(self, statement: Statement, row_type: Callable[..., Row] | None, params: Params) -> tuple[int, list[Row]]:
        self._check_usable()
        begin, self._begun = not self._begun, True
        try:
            if self._connection.closed or _now() >= self._deadline:
                raise DatabaseUnavailable("the transaction's connection or time is over")
            return await _statement(self._connection, statement, row_type, params, self._deadline, may_commit=False, begin=begin)
        except BaseException:
            self._over = True
            raise

    def _check_usable(self) -> None:
        if self._over:
            raise RuntimeError("this transaction is over")


_COMMIT: Final = Statement(name="commit", purpose="Ends a transaction.", text="COMMIT")


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _note_use(connection: _Connection) -> None:
    connection.used_at = _now()


async def _check(connection: _Connection) -> None:
    """The pool's checkout test: see the module's text. A connection that fails is replaced by the pool."""
    if connection.has_news() or _now() - connection.used_at > IDLE_SECONDS:
        await AsyncConnectionPool.check_connection(connection)


def _no_rows(_: object) -> Callable[[Sequence[object]], NoReturn]:
    """The row factory of a statement whose rows nobody reads."""

    def make(_: Sequence[object]) -> NoReturn:
        raise AssertionError

    return make


def _only(statement: Statement, rows: list[Row]) -> Row | None:
    if len(rows) > 1:
        raise RuntimeError(f"statement {statement.name} gave {len(rows)} rows where at most one was expected")
    return rows[0] if rows else None


async def _statement(
    connection: _Connection,
    statement: Statement,
    row_type: Callable[..., Row] | None,
    params: Params,
    deadline: float,
    *,
    may_commit: bool,
    begin: bool = False,
) -> tuple[int, list[Row]]:
    """Send one statement and return its row count and, where `row_type` is given, its rows.

    `may_commit`: whether a server that got it may commit by it, so that a lost answer is AnswerLost. `begin`: BEGIN goes with it.
    """
    lost: StoreError = AnswerLost(statement.name) if may_commit else DatabaseUnavailable(statement.name)
    rows: list[Row] = []
    try:
        async with asyncio.timeout_at(deadline):
            cursor = connection.cursor(row_factory=kwargs_row(row_type) if row_type else _no_rows)
            if begin:
                async with connection.pipeline():
                    await connection.execute("BEGIN")
                    await cursor.execute(statement.text, params)
            else:
                await cursor.execute(statement.text, params)
            if row_type is not None:
                rows = await cursor.fetchall()
    except TimeoutError:
        raise lost from None
    except psycopg.Error as error:
        raise _translated(error, statement.name, lost) from None
    if statement is _COMMIT and cursor.statusmessage != "COMMIT":
        raise StatementFailed(statement.name, "25P02")  # PostgreSQL answers ROLLBACK to the COMMIT of a failed transaction
    return cursor.rowcount, rows


def _translated(error: psycopg.Error, name: str, lost: StoreError) -> StoreError:
    """What the driver's error means. Its text is dropped: it can hold values."""
    sqlstate = error.sqlstate or ""
    severity = error.diag.severity_nonlocalized or error.diag.severity
    # FATAL and PANIC end the connection, and can come instead of the answer to a commit that happened (57P01 on a restart). Class 08
    # and 40003 say that the outcome is not known. Without a SQLSTATE the connection broke, or the driver refused to send.
    if severity in ("FATAL", "PANIC") or sqlstate[:2] == "08" or sqlstate == "40003":
        return lost
    if not sqlstate:
        return lost if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)) else StatementFailed(name, "")
    if sqlstate in ("40001", "40P01"):
        return DeadlockOrSerialization(name)
    if sqlstate[:2] == "23":
        return ConstraintViolated(error.diag.constraint_name or "")
    # Out of something, stopped by an operator or a limit, a system fault, a standby that cannot write, a lock not had in time.
    if sqlstate[:2] in ("53", "57", "58") or sqlstate in ("25006", "55P03"):
        return DatabaseUnavailable(name)
    return StatementFailed(name, sqlstate)
