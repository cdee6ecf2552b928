"""Providers: rows and statements. What a change of base URL means for applications is in `bindings.providers`."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from gateway.domain.ids import ProviderId
from gateway.domain.limits import PAGE_MAX
from gateway.store.database import Database, Transaction
from gateway.store.statements import statement
from gateway.store.which import Which, all_pages, which_params

_CREATE: Final = statement("providers.create")
_ONE: Final = statement("providers.one")
_PAGE: Final = statement("providers.page")
_LOCK: Final = statement("providers.lock")
_HOLD: Final = statement("providers.hold")
_SAVE: Final = statement("providers.save")


@dataclass(frozen=True, slots=True)
class ProviderRow:
    """One provider. `base_url` is normalised (bindings.urls)."""

    provider_id: UUID
    name: str
    base_url: str
    enabled: bool
    created_at: datetime
    updated_at: datetime


async def create(tx: Transaction, provider_id: ProviderId, *, name: str, base_url: str) -> None:
    """Raises ConstraintViolated: provider_name_unique, or a form."""
    await tx.execute(_CREATE, {"provider_id": provider_id, "name": name, "base_url": base_url})


async def find(db: Database, which: Which) -> ProviderRow | None:
    """The provider of that id or name."""
    return await db.one(_ONE, ProviderRow, which_params(which), reading=True)


async def page(db: Database, *, after: UUID | None, page_size: int) -> list[ProviderRow]:
    """The next providers in the order of names; `after` None begins."""
    return await db.all(_PAGE, ProviderRow, {"after": after, "page_size": page_size}, reading=True)


async def list_all(db: Database) -> list[ProviderRow]:
    """All of them, by name."""
    return await all_pages(lambda after: page(db, after=after, page_size=PAGE_MAX), lambda row: row.provider_id)


async def lock(tx: Transaction, which: Which) -> ProviderRow | None:
    """The provider, locked against every change and every new application. Locks of providers come before those of applications."""
    return await tx.one(_LOCK, ProviderRow, which_params(which))


async def hold(tx: Transaction, which: Which) -> ProviderRow | None:
    """The provider, held as it is until the transaction ends, by as many as like."""
    return await tx.one(_HOLD, ProviderRow, which_params(which))


async def save(tx: Transaction, provider_id: UUID, *, name: str, base_url: str, enabled: bool) -> None:
    """Write a locked provider as it shall be. Raises ConstraintViolated: provider_name_unique, or a form."""
    await tx.execute(_SAVE, {"provider_id": provider_id, "name": name, "base_url": base_url, "enabled": enabled})
