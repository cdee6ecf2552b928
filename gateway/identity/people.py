"""What operators do to accounts: make, change, suspend, activate; each act and its audit entry are one commit.

What an account may do is `accounts`. Names are checked by who takes them in (`tokens.is_name`).
"""

from collections.abc import Collection

from gateway.domain.audit import THE_GATEWAY, Act, Actor, Entry, TargetKind
from gateway.store import accounts as rows
from gateway.store import audit
from gateway.store.database import Database


async def create(
    db: Database, subject: str, *, groups: Collection[str] = (), roles: Collection[str] = (), actor: Actor = THE_GATEWAY
) -> bool:
    """Make an active account. False: the subject has one already, made by whomever; nothing was changed."""
    async with db.transaction() as tx:
        if not await rows.create(tx, subject, groups=groups, roles=roles):
            return False
        detail = {"groups": sorted(groups), "roles": sorted(roles)}
        await audit.record(tx, Entry(actor, Act.ACCOUNT_CREATE, TargetKind.ACCOUNT, subject, detail=detail))
        await tx.commit()
    return True


async def change(
    db: Database, subject: str, *, groups: Collection[str] | None, roles: Collection[str] | None, actor: Actor = THE_GATEWAY
) -> bool:
    """Replace groups, roles or both. False: there is no such account."""
    async with db.transaction() as tx:
        if not await rows.change(tx, subject, groups=groups, roles=roles):
            return False
        wanted = {"groups": groups, "roles": roles}
        detail = {name: sorted(words) for name, words in wanted.items() if words is not None}
        await audit.record(tx, Entry(actor, Act.ACCOUNT_SET, TargetKind.ACCOUNT, subject, detail=detail))
        await tx.commit()
    return True


async def suspend(db: Database, subject: str, *, actor: Actor = THE_GATEWAY) -> bool:
    """active -> suspended. False: it was not active, or is not there."""
    async with db.transaction() as tx:
        if not await rows.suspend(tx, subject):
            return False
        await audit.record(tx, Entry(actor, Act.ACCOUNT_SUSPEND, TargetKind.ACCOUNT, subject))
        await tx.commit()
    return True


async def activate(db: Database, subject: str, *, actor: Actor = THE_GATEWAY) -> bool:
    """suspended -> active. False: it was not suspended, or is not there."""
    async with db.transaction() as tx:
        if not await rows.activate(tx, subject):
            return False
        await audit.record(tx, Entry(actor, Act.ACCOUNT_ACTIVATE, TargetKind.ACCOUNT, subject))
        await tx.commit()
    return True
