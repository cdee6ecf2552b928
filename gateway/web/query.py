"""Query parameters, strictly: each at most once. What else a query holds is ignored."""

import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Final, TypeVar
from uuid import UUID

from pydantic import Field
from typing_extensions import TypedDict

from gateway.domain.limits import PAGE_DEFAULT, PAGE_MAX
from gateway.domain.problems import Code, Refused
from gateway.runs.cursors import opened, sealed
from gateway.web.call import Call

Row = TypeVar("Row")

_ID_BYTES: Final = 16
_YES_OR_NO: Final = {None: False, "false": False, "true": True}
_LIMIT: Final = re.compile(r"[0-9]{1,4}")
_SECONDS: Final = re.compile(r"[0-9]{1,9}")
MAX_SECONDS: Final = 10 * 366 * 24 * 3600
"""Ten years: further back than any run, and within what intervals of the database hold."""
CURSOR_CHARACTERS: Final = 200
"""Ours have fewer than 50."""


class PageQuery(TypedDict, total=False):
    """Which page of a list."""

    limit: Annotated[int, Field(ge=1, le=PAGE_MAX, description=f"Entries of the page; {PAGE_DEFAULT} where it is not given.")]
    cursor: Annotated[
        str, Field(min_length=1, max_length=CURSOR_CHARACTERS, description="`next` of the page before, of the same list. Opaque.")
    ]


def one(call: Call, name: str) -> str | None:
    """The parameter of that name, if it is there. Raises Refused(malformed_request) when it is there twice."""
    found = call.query.getlist(name)
    if len(found) > 1:
        raise Refused(Code.MALFORMED_REQUEST)
    return found[0] if found else None


def yes(call: Call, name: str) -> bool:
    """Whether the query says `true`; it does not where it says nothing. Raises Refused(malformed_request)."""
    wanted = one(call, name)
    if wanted not in _YES_OR_NO:
        raise Refused(Code.MALFORMED_REQUEST)
    return _YES_OR_NO[wanted]


def seconds(call: Call, name: str) -> int | None:
    """A whole number of seconds, if it is there. Raises Refused(malformed_request) for anything else, and beyond MAX_SECONDS."""
    text = one(call, name)
    if text is None:
        return None
    if _SECONDS.fullmatch(text) is None or int(text) > MAX_SECONDS:
        raise Refused(Code.MALFORMED_REQUEST)
    return int(text)


def page_of(call: Call) -> tuple[int, str | None]:
    """The query's limit and cursor. Raises Refused(malformed_request) for a limit outside 1 to 200, and for either given twice."""
    wanted, cursor = one(call, "limit"), one(call, "cursor")
    if cursor is not None and not 0 < len(cursor) <= CURSOR_CHARACTERS:
        raise Refused(Code.MALFORMED_REQUEST)
    if wanted is None:
        return PAGE_DEFAULT, cursor
    if _LIMIT.fullmatch(wanted) is None or not 1 <= int(wanted) <= PAGE_MAX:
        raise Refused(Code.MALFORMED_REQUEST)
    return int(wanted), cursor


async def read_page(
    call: Call, scope: str, read: Callable[[UUID | None, int], Awaitable[list[Row]]], id_of: Callable[[Row], UUID]
) -> tuple[list[Row], str | None]:
    """The page that the query asks for of a list in one order, and the cursor of the next. `read` gives the rows after an id, None begins.

    `scope` names the list. Raises Refused(malformed_request), also for a cursor of another list.
    """
    limit, cursor = page_of(call)
    after = None if cursor is None else UUID(bytes=opened(cursor, scope, _ID_BYTES))
    rows = await read(after, limit + 1)
    shown = rows[:limit]
    return shown, sealed(id_of(shown[-1]).bytes, scope) if len(rows) > limit else None
