"""The "inside a transaction" flag: the store sets it, the HTTP client refuses to work while it is set.

No connection and no transaction is held while calling out (field case O-18); a flag makes the slip impossible instead of unlikely.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_inside: ContextVar[bool] = ContextVar("inside_transaction", default=False)


class NetworkCallInsideTransaction(RuntimeError):
    """A network call was tried while a database transaction was open: a programming mistake, never a remote fault."""


@contextmanager
def inside_transaction() -> Iterator[None]:
    """Mark the current task as being inside a database transaction."""
    token = _inside.set(True)
    try:
        yield
    finally:
        _inside.reset(token)


def forbid_inside_transaction() -> None:
    """Raise NetworkCallInsideTransaction when the current task holds a transaction open."""
    if _inside.get():
        raise NetworkCallInsideTransaction
