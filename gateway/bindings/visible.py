"""Applications as users see them: the allow-list of display fields (contract A5), and whether they can be used now."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final
from uuid import UUID

from gateway.bindings.vault import TokenFault, Vault
from gateway.domain.ids import ApplicationId
from gateway.domain.problems import Code, Refused
from gateway.identity.accounts import Access
from gateway.store import applications as rows
from gateway.store.admission import Verdict
from gateway.store.database import Database

_NOT_SERVED: Final = Verdict.BACKEND_NOT_SERVED.value


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

    def as_json(self) -> dict[str, object]:
        """The App of interface.md."""
        return {**asdict(self), "app_id": str(self.app_id), "tags": list(self.tags)}


@dataclass(frozen=True, slots=True)
class VisibleApplications:
    """Reads applications for callers. `max_per_application`: slots that unresolved runs may take up (ActiveLimits)."""

    db: Database
    vault: Vault
    max_per_application: int

    async def views(self, access: Access) -> list[AppView]:
        """What the caller may see, by name."""
        found = await rows.visible(self.db, subject=access.subject, groups=access.groups, application_id=None)
        return [await _view(row, self.vault, self.max_per_application) for row in found]

    async def view(self, access: Access, application_id: ApplicationId) -> AppView:
        """One application. Raises Refused(NOT_FOUND): invisible, or not there."""
        found = await rows.visible(self.db, subject=access.subject, groups=access.groups, application_id=application_id)
        if not found:
            raise Refused(Code.NOT_FOUND)
        return await _view(found[0], self.vault, self.max_per_application)

    async def visible(self, access: Access) -> Sequence[Mapping[str, object]]:
        """`views` as JSON of interface.md."""
        return [view.as_json() for view in await self.views(access)]

    async def one(self, access: Access, application_id: ApplicationId) -> Mapping[str, object]:
        """`view` as JSON of interface.md. Raises Refused(NOT_FOUND)."""
        return (await self.view(access, application_id)).as_json()


async def _view(row: rows.VisibleRow, vault: Vault, max_per_application: int) -> AppView:
    fault = await vault.fault(row.application_id, row.token_ciphertext, row.token_key_id)
    return AppView(
        app_id=row.application_id,
        name=row.name,
        description=row.description,
        app_type=row.app_type,
        is_marketplace_app=row.is_marketplace_app,
        tags=tuple(row.tags),
        visibility=row.visibility,
        human_input=row.human_input,
        available=unavailable_because(row.closed, fault, row.unknown_runs, max_per_application) is None,
    )


def unavailable_because(closed: str | None, fault: TokenFault | None, unknown_runs: int, max_per_application: int) -> str | None:
    """One word for why no message could be taken now, for operators: backend_not_served, token_…, app_disabled, slots_held. None: it could.

    `closed`: application_closed_v1's word; `unknown_runs` hold slots until somebody acts.
    """
    if closed != _NOT_SERVED and fault is not None:
        return f"token_{fault.value}"
    if closed is not None:
        return closed
    return "slots_held" if unknown_runs >= max_per_application else None
