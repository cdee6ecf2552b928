"""Applications as users see them: the allow-list of display fields (contract A5), and whether they can be used now."""

from dataclasses import dataclass
from uuid import UUID

from gateway.bindings.config import BackendType
from gateway.bindings.vault import Vault
from gateway.domain.ids import ApplicationId
from gateway.domain.problems import Code, Refused
from gateway.identity.accounts import Access
from gateway.store import applications as rows
from gateway.store.database import Database


@dataclass(frozen=True, slots=True)
class AppView:
    """App of interface.md: exactly these fields go out, under these names."""

    app_id: UUID
    name: str
    description: str
    app_type: str
    is_marketplace_app: bool
    tags: tuple[str, ...]
    visibility: str
    human_input: bool
    available: bool


async def list_visible(db: Database, vault: Vault, access: Access, *, max_per_application: int) -> list[AppView]:
    """What the caller may see, by name. `max_per_application`: slots that unresolved runs may take up (ActiveLimits)."""
    found = await rows.visible(db, subject=access.subject, groups=access.groups, application_id=None)
    return [_view(row, vault, max_per_application) for row in found]


async def get_visible(db: Database, vault: Vault, access: Access, application_id: ApplicationId, *, max_per_application: int) -> AppView:
    """One application. Raises Refused(NOT_FOUND): invisible, or not there."""
    found = await rows.visible(db, subject=access.subject, groups=access.groups, application_id=application_id)
    if not found:
        raise Refused(Code.NOT_FOUND)
    return _view(found[0], vault, max_per_application)


def _view(row: rows.VisibleRow, vault: Vault, max_per_application: int) -> AppView:
    available = (
        row.enabled
        and row.backend_type == BackendType.LANGCHAIN
        and row.unknown_runs < max_per_application
        and vault.can_open(row.application_id, row.token_ciphertext, row.token_key_id)
    )
    return AppView(
        app_id=row.application_id,
        name=row.name,
        description=row.description,
        app_type=row.app_type,
        is_marketplace_app=row.is_marketplace_app,
        tags=tuple(row.tags),
        visibility=row.visibility,
        human_input=row.human_input,
        available=available,
    )
