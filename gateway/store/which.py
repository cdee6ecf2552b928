"""How operators name a provider, an application or an account: by its id, as paths of the API do, or by its name, as people type it."""

from collections.abc import Awaitable, Callable
from typing import TypeVar
from uuid import UUID

from gateway.store.database import Params

Row = TypeVar("Row")
Which = UUID | str


def which_params(which: Which) -> Params:
    """The parameters `id` and `name` of a statement; one of them is null, and so names nothing."""
    return {"id": which, "name": None} if isinstance(which, UUID) else {"id": None, "name": which}


async def all_pages(page: Callable[[UUID | None], Awaitable[list[Row]]], id_of: Callable[[Row], UUID]) -> list[Row]:
    """The rows of all pages; `page` gives those after an id, None begins."""
    rows: list[Row] = []
    while following := await page(id_of(rows[-1]) if rows else None):
        rows += following
    return rows
