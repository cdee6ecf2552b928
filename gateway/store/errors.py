"""What the store raises. Nothing of the driver leaves it: neither its exceptions nor their texts, which can hold values of rows.

StoreError
├── DatabaseTrouble           no answer from the database; HTTP: 503 database_unavailable
│   ├── DatabaseUnavailable   nothing was committed
│   └── AnswerLost            it may or may not be committed: look before deciding (design.md, "A commit whose answer is lost")
├── ConstraintViolated        nothing was committed; `constraint` says which rule
├── DeadlockOrSerialization   nothing was committed; the same transaction may run again
└── StatementFailed           nothing was committed; a programming mistake, or a schema that is too old
"""

from typing import Final

# SQLSTATEs: https://www.postgresql.org/docs/18/errcodes-appendix.html
UNDEFINED_TABLE: Final = "42P01"


class StoreError(Exception):
    """Any refusal of the store. The text is safe to log."""


class DatabaseTrouble(StoreError):
    """The database gave no answer; see the two cases below."""


class DatabaseUnavailable(DatabaseTrouble):
    """Nothing was committed: no connection in time, the connection or the deadline went before COMMIT was sent, or a read failed."""


class AnswerLost(DatabaseTrouble):
    """A COMMIT, or a writing statement of its own, was sent and its answer never came: committed or not, both are possible."""


class ConstraintViolated(StoreError):
    """A constraint refused the row. `constraint` is its name in the schema, or "" where PostgreSQL names none (NOT NULL)."""

    def __init__(self, constraint: str) -> None:
        super().__init__(f"constraint {constraint or 'without a name'} violated")
        self.constraint = constraint


class DeadlockOrSerialization(StoreError):
    """PostgreSQL rolled this transaction back in favour of another one; it is safe to run it again from its start."""


class StatementFailed(StoreError):
    """PostgreSQL refused the statement for another reason. `sqlstate` is its code, "" when the driver refused before sending."""

    def __init__(self, statement: str, sqlstate: str) -> None:
        super().__init__(f"statement {statement} failed with SQLSTATE {sqlstate or 'none'}")
        self.statement = statement
        self.sqlstate = sqlstate
