"""Accounts: the read that says what a caller may do, and the operators' acts on people. Rules about callers are in `identity`."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID, uuid4

from gateway.domain.ids import ApplicationId
from gateway.domain.limits import PAGE_MAX
from gateway.store.database import Database, Transaction
from gateway.store.statements import statement
from gateway.store.which import Which, all_pages, which_params

_ACCESS: Final = statement("accounts.access")
_CREATE: Final = statement("accounts.create")
_ONE: Final = statement("accounts.one")
_PAGE: Final = statement("accounts.page")
_LOCK: Final = statement("accounts.lock")
_SAVE: Final = statement("accounts.save")


@dataclass(frozen=True, slots=True)
class AccessRow:
    """access_v1's answer. `all_groups`: the union of the claimed ones and ours."""

    account_id: UUID
    account_state: str
    all_groups: list[str]
    account_roles: list[str]
    visible: bool


@dataclass(frozen=True, slots=True)
class AccountRow:
    """One account with its own groups and roles; what a token claims besides is not here."""

    account_id: UUID
    subject: str
    state: str
    groups: list[str]
    roles: list[str]
    created_at: datetime
    updated_at: datetime


async def access(db: Database, subject: str, groups: Collection[str], application_id: ApplicationId | None) -> AccessRow | None:
    """What the caller is here, in one round trip. None: there is no such account."""
    params = {"subject": subject, "groups": sorted(groups), "application_id": application_id}
    return await db.one(_ACCESS, AccessRow, params, reading=True)


async def create(within: Database | Transaction, subject: str, *, groups: Collection[str] = (), roles: Collection[str] = ()) -> bool:
    """Make an active account. False: the subject has one already, made by whomever; nothing was changed."""
    params = {"account_id": uuid4(), "subject": subject, "groups": sorted(set(groups)), "roles": sorted(set(roles))}
    return await within.execute(_CREATE, params) == 1


async def find(db: Database, which: Which) -> AccountRow | None:
    """The account of that id or subject."""
    return await db.one(_ONE, AccountRow, which_params(which), reading=True)


async def page(db: Database, *, after: UUID | None, page_size: int, subject_from: str = "") -> list[AccountRow]:
    """The next accounts in the order of subjects, from `subject_from` on; `after` None begins."""
    return await db.all(_PAGE, AccountRow, {"after": after, "page_size": page_size, "subject_from": subject_from}, reading=True)


async def list_all(db: Database) -> list[AccountRow]:
    """All of them, by subject."""
    return await all_pages(lambda after: page(db, after=after, page_size=PAGE_MAX), lambda row: row.account_id)


async def lock(tx: Transaction, which: Which) -> AccountRow | None:
    """The account under the lock that admission takes."""
    return await tx.one(_LOCK, AccountRow, which_params(which))


async def save(tx: Transaction, account_id: UUID, *, state: str, groups: Collection[str], roles: Collection[str]) -> None:
    """Write a locked account as it shall be."""
    await tx.execute(_SAVE, {"account_id": account_id, "state": state, "groups": sorted(groups), "roles": sorted(roles)})
