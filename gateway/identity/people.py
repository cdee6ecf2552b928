"""What operators do to accounts: make, change, suspend, activate; each act and its audit entry are one commit.

What an account may do is `accounts`. What it already is, an account becomes without a change or an entry.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final
from uuid import UUID

from typing_extensions import TypedDict

from gateway.domain.audit import THE_GATEWAY, Act, Actor, Entry, TargetKind
from gateway.domain.faults import invalid
from gateway.domain.problems import Code, Refused
from gateway.domain.times import rfc3339
from gateway.identity.accounts import AccountState
from gateway.identity.tokens import MAX_NAMES, OPERATOR_ROLE, is_name
from gateway.json_shapes import Time
from gateway.store import accounts as rows
from gateway.store import audit
from gateway.store.accounts import AccountRow
from gateway.store.database import Database
from gateway.store.which import Which

ROLES: Final = frozenset({OPERATOR_ROLE})


async def create(
    db: Database, subject: str, *, groups: Collection[str] = (), roles: Collection[str] = (), actor: Actor = THE_GATEWAY
) -> UUID | None:
    """Make an active account; its id. None: the subject has one already, made by whomever; nothing was changed.

    Raises Refused(CONFIGURATION_INVALID).
    """
    if not is_name(subject):
        raise _no_name("subject")
    _check(groups, roles)
    async with db.transaction() as tx:
        if not await rows.create(tx, subject, groups=groups, roles=roles):
            return None
        row = _found(await rows.lock(tx, subject))
        detail = {"groups": sorted(set(groups)), "roles": sorted(set(roles))}
        await audit.record(tx, Entry(actor, Act.ACCOUNT_CREATE, TargetKind.ACCOUNT, subject, detail=detail))
        await tx.commit()
    return row.account_id


async def find(db: Database, which: Which) -> AccountRow:
    """The account of that id or subject. Raises Refused(NOT_FOUND)."""
    return _found(await rows.find(db, which))


async def change(
    db: Database,
    which: Which,
    *,
    groups: Collection[str] | None = None,
    roles: Collection[str] | None = None,
    state: AccountState | None = None,
    actor: Actor = THE_GATEWAY,
) -> bool:
    """Replace groups, roles, state; None leaves a thing as it is. False: all was as wanted already.

    Raises Refused: configuration_invalid, not_found.
    """
    _check(groups or (), roles or ())
    async with db.transaction() as tx:
        row = _found(await rows.lock(tx, which))
        new = replace(
            row,
            groups=row.groups if groups is None else sorted(set(groups)),
            roles=row.roles if roles is None else sorted(set(roles)),
            state=row.state if state is None else state.value,
        )
        if new == row:
            return False
        await rows.save(tx, row.account_id, state=new.state, groups=new.groups, roles=new.roles)
        for entry in _entries(actor, row, new):
            await audit.record(tx, entry)
        await tx.commit()
    return True


async def suspend(db: Database, which: Which, *, actor: Actor = THE_GATEWAY) -> bool:
    """active -> suspended, as `change` does."""
    return await change(db, which, state=AccountState.SUSPENDED, actor=actor)


async def activate(db: Database, which: Which, *, actor: Actor = THE_GATEWAY) -> bool:
    """suspended -> active, as `change` does."""
    return await change(db, which, state=AccountState.ACTIVE, actor=actor)


class AccountJson(TypedDict):
    """A person, with our own groups and roles; what a token claims besides is not here."""

    account_id: UUID
    subject: str
    state: AccountState
    groups: list[str]
    roles: list[str]
    created_at: Time
    updated_at: Time


def account_json(row: AccountRow) -> AccountJson:
    """An account as operators see it."""
    return {
        "account_id": row.account_id,
        "subject": row.subject,
        "state": AccountState(row.state),
        "groups": row.groups,
        "roles": row.roles,
        "created_at": rfc3339(row.created_at),
        "updated_at": rfc3339(row.updated_at),
    }


def _entries(actor: Actor, row: AccountRow, new: AccountRow) -> Iterator[Entry]:
    wanted = {"groups": (row.groups, new.groups), "roles": (row.roles, new.roles)}
    if detail := {field: after for field, (before, after) in wanted.items() if after != before}:
        yield Entry(actor, Act.ACCOUNT_SET, TargetKind.ACCOUNT, row.subject, detail=detail)
    if new.state != row.state:
        act = Act.ACCOUNT_SUSPEND if new.state == AccountState.SUSPENDED else Act.ACCOUNT_ACTIVATE
        yield Entry(actor, act, TargetKind.ACCOUNT, row.subject)


def _check(groups: Collection[str], roles: Collection[str]) -> None:
    if len(groups) > MAX_NAMES or not all(is_name(group) for group in groups):
        raise _no_name("groups")
    if not ROLES.issuperset(roles):
        raise invalid("roles", f"Each is one of: {', '.join(sorted(ROLES))}.")


def _no_name(field: str) -> Refused:
    return invalid(field, f"A name has 1 to 200 characters and no control characters; there are at most {MAX_NAMES}.")


def _found(row: AccountRow | None) -> AccountRow:
    if row is None:
        raise Refused(Code.NOT_FOUND, extra={"field": "account"})
    return row
