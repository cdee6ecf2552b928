"""Providers and applications as operators see them, and what their acts need. The acts are in `providers` and `applications`."""

from collections.abc import Collection
from dataclasses import dataclass

from gateway.bindings.applications import CheckCapabilities, config_of
from gateway.bindings.config import config_document
from gateway.bindings.vault import Vault
from gateway.bindings.visible import unavailable_because
from gateway.domain.times import rfc3339
from gateway.store.applications import ApplicationRow
from gateway.store.database import Database
from gateway.store.providers import ProviderRow


@dataclass(frozen=True, slots=True)
class Administration:
    """What an operator's act reaches, over HTTP. `max_per_application`: the slots of one."""

    db: Database
    vault: Vault
    trusted_hosts: Collection[str]
    check_capabilities: CheckCapabilities
    max_per_application: int


def provider_json(row: ProviderRow) -> dict[str, object]:
    """A provider as operators see it."""
    return {
        "provider_id": str(row.provider_id),
        "name": row.name,
        "base_url": row.base_url,
        "enabled": row.enabled,
        "created_at": rfc3339(row.created_at),
        "updated_at": rfc3339(row.updated_at),
    }


async def application_json(row: ApplicationRow, vault: Vault | None, max_per_application: int) -> dict[str, object]:
    """An application as operators see it; of its token only whether it opens: readable, none, no_key or damaged.

    `unavailable`: one word for why users find it not available, or null. Without a vault tokens are not_checked.
    """
    fault = await vault.fault(row.application_id, row.token_ciphertext, row.token_key_id) if vault is not None else None
    unavailable = unavailable_because(row.closed, fault, row.unknown_runs, max_per_application)
    return {
        "app_id": str(row.application_id),
        "name": row.name,
        "description": row.description,
        "provider_id": str(row.provider_id),
        "provider": row.provider_name,
        "config": config_document(config_of(row)),
        "visibility": row.visibility,
        "groups": row.groups,
        "owner": row.owner_subject,
        "users": row.users,
        "enabled": row.enabled,
        "provider_enabled": row.provider_enabled,
        "available": unavailable is None,
        "unavailable": unavailable,
        "token": "not_checked" if vault is None else fault.value if fault is not None else "readable",
        "token_key_id": row.token_key_id,
        "config_version": row.config_version,
        "token_version": row.token_version,
        "created_at": rfc3339(row.created_at),
        "updated_at": rfc3339(row.updated_at),
    }
