"""Accounts: the read that says what a caller may do, and the operators' acts on people. Rules about callers are in `identity`."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID, uuid4

from gateway.domain.ids import ApplicationId
from gateway.store.database import Database, Transaction
from gateway.store.statements import statement

_ACCESS: Final = statement("accounts.access")
_CREATE: Final = statement("accounts.create")
_BY_SUBJECT: Final = statement("accounts.by_subject")
_PAGE: Final = statement("accounts.page")
_SET: Final = statement("accounts.set")
_SUSPEND: Final = statement("accounts.suspend")
_ACTIVATE: Final = statement("accounts.activate")


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
    params = {"account_id": uuid4(), "subject": subject, "groups": sorted(groups), "roles": sorted(roles)}
    return await within.execute(_CREATE, params) == 1


async def find(db: Database, subject: str) -> AccountRow | None:
    """The subject's account."""
    return await db.one(_BY_SUBJECT, AccountRow, {"subject": subject}, reading=True)


async def page(db: Database, *, after: str, page_size: int) -> list[AccountRow]:
    """The next accounts in the order of subjects; `after` "" begins."""
    return await db.all(_PAGE, AccountRow, {"after": after, "page_size": page_size}, reading=True)


async def change(tx: Transaction, subject: str, *, groups: Collection[str] | None, roles: Collection[str] | None) -> bool:
    """Replace groups, roles or both. False: there is no such account."""
    params = {
        "subject": subject,
        "groups": None if groups is None else sorted(groups),
        "roles": None if roles is None else sorted(roles),
    }
    return await tx.execute(_SET, params) == 1


async def suspend(tx: Transaction, subject: str) -> bool:
    """active → suspended. False: it was not active, or is not there."""
    return await tx.execute(_SUSPEND, {"subject": subject}) == 1


async def activate(tx: Transaction, subject: str) -> bool:
    """suspended → active. False: it was not suspended, or is not there."""
    return await tx.execute(_ACTIVATE, {"subject": subject}) == 1
