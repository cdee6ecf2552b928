"""The real database as one replica of the model test sees it: the shared pool, with answers that get lost when a rule says so."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import TypeVar

from gateway.store.database import NO_PARAMS, Database, Params, Row, Transaction
from gateway.store.errors import AnswerLost, ConstraintViolated, DatabaseUnavailable
from gateway.store.statements import Statement
from tests.faults.model_loop import Calls

_Result = TypeVar("_Result")


class Fault(StrEnum):
    """What happens to one writing statement."""

    ANSWER_LOST = "is done, its answer lost"
    NOT_DONE = "never arrives, its answer lost"
    LATER = "is given up, and done later"
    REFUSED = "is refused, for its items cannot be written"


class ModelDatabase(Database):
    """`faults`: by the name of a statement, what happens to the next one of that name. `gone`: the process is dead, nothing returns."""

    def __init__(self, shared: Database, calls: Calls, late: list[tuple[str, Callable[[], Awaitable[object]]]]) -> None:
        super().__init__(shared._pool, call_seconds=5.0)
        self._calls = calls
        self._late = late
        self.faults: dict[str, Fault] = {}
        self.gone = False
        self.away = False

    async def execute(self, statement: Statement, params: Params = NO_PARAMS, *, deadline_seconds: float | None = None) -> int:
        def really() -> Awaitable[int]:
            return Database.execute(self, statement, params, deadline_seconds=deadline_seconds)

        return await self._pass(statement, params, really, writing=True)

    async def _run(
        self, statement: Statement, row_type: Callable[..., Row], params: Params, *, reading: bool, deadline_seconds: float | None
    ) -> list[Row]:
        def really() -> Awaitable[list[Row]]:
            return Database._run(self, statement, row_type, params, reading=reading, deadline_seconds=deadline_seconds)

        return await self._pass(statement, params, really, writing=not reading)

    @asynccontextmanager
    async def transaction(self, *, deadline_seconds: float | None = None) -> AsyncIterator[Transaction]:
        await self.answers()
        inner = super().transaction(deadline_seconds=deadline_seconds)
        with self._calls.one():
            tx = await inner.__aenter__()
        try:
            yield _ModelTransaction(tx, self)
        except BaseException as error:
            with self._calls.one():
                await inner.__aexit__(type(error), error, error.__traceback__)
            raise
        else:
            with self._calls.one():
                await inner.__aexit__(None, None, None)

    async def answers(self) -> None:
        """Nothing comes back to a dead process; a database that is away refuses."""
        if self.gone:
            await asyncio.get_running_loop().create_future()
        if self.away:
            raise DatabaseUnavailable("away")

    async def _pass(self, statement: Statement, params: Params, really: Callable[[], Awaitable[_Result]], *, writing: bool) -> _Result:
        await self.answers()
        fault = self.faults.pop(statement.name, None) if writing else None
        if fault is Fault.REFUSED:
            if params.get("persistence") == "saved":
                raise ConstraintViolated("item_is_message_or_tool")
            fault = None
        if fault is Fault.LATER:
            self._late.append((statement.name, really))
        if fault in (Fault.LATER, Fault.NOT_DONE):
            raise AnswerLost(statement.name)
        with self._calls.one():
            result = await really()
        if fault is Fault.ANSWER_LOST:
            raise AnswerLost(statement.name)
        return result

    def counted(self) -> Calls:
        return self._calls


class _ModelTransaction(Transaction):
    """The same open transaction, counted, with a commit whose answer may get lost."""

    def __init__(self, real: Transaction, database: ModelDatabase) -> None:
        super().__init__(real._connection, real._deadline)
        self._database = database

    async def commit(self) -> None:
        await self._database.answers()
        fault = self._database.faults.pop("commit", None)
        if fault in (Fault.LATER, Fault.NOT_DONE):
            raise AnswerLost("commit")
        with self._database.counted().one():
            await super().commit()
        if fault is not None:
            raise AnswerLost("commit")

    async def _run(self, statement: Statement, row_type: Callable[..., Row] | None, params: Params) -> tuple[int, list[Row]]:
        await self._database.answers()
        with self._database.counted().one():
            return await super()._run(statement, row_type, params)
