"""Providers: rows and statements. What a change of base URL means for applications is in `bindings.providers`."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from gateway.domain.ids import ProviderId
from gateway.store.database import Database, Transaction
from gateway.store.statements import statement

_CREATE: Final = statement("providers.create")
_BY_NAME: Final = statement("providers.by_name")
_LIST: Final = statement("providers.list")
_LOCK: Final = statement("providers.lock")
_HOLD: Final = statement("providers.hold")
_SET_BASE_URL: Final = statement("providers.set_base_url")
_ENABLE: Final = statement("providers.enable")
_DISABLE: Final = statement("providers.disable")


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


async def find(db: Database, name: str) -> ProviderRow | None:
    """The provider of that name."""
    return await db.one(_BY_NAME, ProviderRow, {"name": name}, reading=True)


async def list_all(db: Database) -> list[ProviderRow]:
    """All of them, by name."""
    return await db.all(_LIST, ProviderRow, reading=True)


async def lock(tx: Transaction, name: str) -> ProviderRow | None:
    """The provider, locked against every change and every new application. Locks of providers come before those of applications."""
    return await tx.one(_LOCK, ProviderRow, {"name": name})


async def hold(tx: Transaction, name: str) -> ProviderRow | None:
    """The provider, held as it is until the transaction ends, by as many as like."""
    return await tx.one(_HOLD, ProviderRow, {"name": name})


async def set_base_url(tx: Transaction, provider_id: UUID, base_url: str) -> None:
    """Write the new base URL of a locked provider."""
    await tx.execute(_SET_BASE_URL, {"provider_id": provider_id, "base_url": base_url})


async def set_enabled(tx: Transaction, name: str, *, enabled: bool) -> bool:
    """False: it was so already, or there is no such provider."""
    return await tx.execute(_ENABLE if enabled else _DISABLE, {"name": name}) == 1
