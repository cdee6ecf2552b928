"""Applications as users see them: the allow-list of display fields (contract A5), and whether they can be used now."""

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from typing_extensions import TypedDict

from gateway.bindings.applications import Visibility
from gateway.bindings.vault import TokenFault, Vault
from gateway.domain.ids import ApplicationId
from gateway.domain.problems import Code, Refused
from gateway.identity.accounts import Access
from gateway.store import applications as rows
from gateway.store.admission import Verdict
from gateway.store.database import Database

_NOT_SERVED: Final = Verdict.BACKEND_NOT_SERVED.value


class AppJson(TypedDict):
    """An application as users see it: exactly these fields go out. `available`: it can be used now."""

    app_id: UUID
    name: str
    description: str
    app_type: str
    is_marketplace_app: bool
    tags: list[str]
    visibility: Visibility
    human_input: bool
    available: bool


class AppsJson(TypedDict):
    """What the caller may see, by name."""

    apps: list[AppJson]


@dataclass(frozen=True, slots=True)
class VisibleApplications:
    """Reads applications for callers. `max_per_application`: slots that unresolved runs may take up (ActiveLimits)."""

    db: Database
    vault: Vault
    max_per_application: int

    async def visible(self, access: Access) -> AppsJson:
        """What the caller may see, by name."""
        found = await rows.visible(self.db, subject=access.subject, groups=access.groups, application_id=None)
        return {"apps": [await self._app(row) for row in found]}

    async def one(self, access: Access, application_id: ApplicationId) -> AppJson:
        """One application. Raises Refused(NOT_FOUND): invisible, or not there."""
        found = await rows.visible(self.db, subject=access.subject, groups=access.groups, application_id=application_id)
        if not found:
            raise Refused(Code.NOT_FOUND)
        return await self._app(found[0])

    async def _app(self, row: rows.VisibleRow) -> AppJson:
        fault = await self.vault.fault(row.application_id, row.token_ciphertext, row.token_key_id)
        return {
            "app_id": row.application_id,
            "name": row.name,
            "description": row.description,
            "app_type": row.app_type,
            "is_marketplace_app": row.is_marketplace_app,
            "tags": row.tags,
            "visibility": Visibility(row.visibility),
            "human_input": row.human_input,
            "available": unavailable_because(row.closed, fault, row.unknown_runs, self.max_per_application) is None,
        }


def unavailable_because(closed: str | None, fault: TokenFault | None, unknown_runs: int, max_per_application: int) -> str | None:
    """One word for why no message could be taken now, for operators: backend_not_served, token_…, app_disabled, slots_held. None: it could.

    `closed`: application_closed_v2's word; `unknown_runs` hold slots until somebody acts.
    """
    if closed != _NOT_SERVED and fault is not None:
        return f"token_{fault.value}"
    if closed is not None:
        return closed
    return "slots_held" if unknown_runs >= max_per_application else None
