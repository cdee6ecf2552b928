"""Providers and applications as operators see them, and what their acts need. The acts are in `providers` and `applications`."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from typing_extensions import TypedDict

from gateway.bindings.applications import CheckCapabilities, Visibility, config_of
from gateway.bindings.config import ConfigJson, config_document
from gateway.bindings.vault import Vault
from gateway.bindings.visible import unavailable_because
from gateway.domain.times import rfc3339
from gateway.json_shapes import Time
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


class ProviderJson(TypedDict):
    """A service that hosts applications, as operators see it."""

    provider_id: UUID
    name: str
    base_url: str
    enabled: bool
    created_at: Time
    updated_at: Time


class TokenState(StrEnum):
    """What can be said of a stored token without showing it. NOT_CHECKED: without keys, as a command may be."""

    READABLE = "readable"
    NONE = "none"
    NO_KEY = "no_key"
    DAMAGED = "damaged"
    NOT_CHECKED = "not_checked"


class OperatorAppJson(TypedDict):
    """An application as operators see it. `unavailable`: one word for why users find it not available, or null.

    `config_version` rises with each change that ended bindings, `token_version` with each other token, or the loss of one.
    """

    app_id: UUID
    name: str
    description: str
    provider_id: UUID
    provider: str
    config: ConfigJson
    visibility: Visibility
    groups: list[str]
    owner: str | None
    users: list[str]
    enabled: bool
    provider_enabled: bool
    available: bool
    unavailable: str | None
    token: TokenState
    token_key_id: str | None
    config_version: int
    token_version: int
    created_at: Time
    updated_at: Time


def provider_json(row: ProviderRow) -> ProviderJson:
    """A provider as operators see it."""
    return {
        "provider_id": row.provider_id,
        "name": row.name,
        "base_url": row.base_url,
        "enabled": row.enabled,
        "created_at": rfc3339(row.created_at),
        "updated_at": rfc3339(row.updated_at),
    }


async def application_json(row: ApplicationRow, vault: Vault | None, max_per_application: int) -> OperatorAppJson:
    """An application as operators see it. Without a vault its token is not checked."""
    fault = await vault.fault(row.application_id, row.token_ciphertext, row.token_key_id) if vault is not None else None
    unavailable = unavailable_because(row.closed, fault, row.unknown_runs, max_per_application)
    return {
        "app_id": row.application_id,
        "name": row.name,
        "description": row.description,
        "provider_id": row.provider_id,
        "provider": row.provider_name,
        "config": config_document(config_of(row)),
        "visibility": Visibility(row.visibility),
        "groups": row.groups,
        "owner": row.owner_subject,
        "users": row.users,
        "enabled": row.enabled,
        "provider_enabled": row.provider_enabled,
        "available": unavailable is None,
        "unavailable": unavailable,
        "token": TokenState.NOT_CHECKED if vault is None else TokenState(fault) if fault is not None else TokenState.READABLE,
        "token_key_id": row.token_key_id,
        "config_version": row.config_version,
        "token_version": row.token_version,
        "created_at": rfc3339(row.created_at),
        "updated_at": rfc3339(row.updated_at),
    }
