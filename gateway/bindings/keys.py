"""The keys of all replicas, and the tokens under them: whether rings differ, which tokens do not open, and moving all to the newest key.

Replicas publish the ids of their keys with the heartbeat. Rings differ during a legal rotation, so this is told, and stops nothing; what is
stopped is encrypting under a key that a living replica does not have, which would take its applications away from it.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from gateway.bindings.vault import TokenFault, TokenUnreadable, Vault
from gateway.domain.audit import Act, Actor, Entry, TargetKind
from gateway.store import audit, leases, tokens
from gateway.store.database import Database
from gateway.store.errors import StoreError
from gateway.store.leases import ReplicaRow
from gateway.store.tokens import TokenRow

_log: Final[structlog.stdlib.BoundLogger] = structlog.get_logger("gateway.bindings.keys")


@dataclass(frozen=True, slots=True)
class UnreadableToken:
    """A stored token that does not open here; only an operator can help, with the missing key or with a new token."""

    row: TokenRow
    fault: TokenFault


@dataclass(frozen=True, slots=True)
class Rekeyed:
    """What came of a pass. `moved`: tokens now under `key_id`, or, in a dry run, that would be."""

    key_id: str
    moved: int
    unreadable: Sequence[UnreadableToken]


class KeyNotEverywhere(Exception):
    """Replicas that live do not have the newest key: what is encrypted under it they could not open."""

    def __init__(self, key_id: str, replicas: Sequence[ReplicaRow]) -> None:
        super().__init__()
        self.key_id = key_id
        self.replicas = replicas


async def other_rings(db: Database, key_ids: Sequence[str], *, lease_seconds: float) -> list[ReplicaRow]:
    """The replicas that live and whose ring is not this one: other keys, another one that encrypts, or not told."""
    living = await leases.replicas(db, lease_seconds=lease_seconds)
    return [replica for replica in living if not is_same_ring(replica.key_ids, key_ids)]


def is_same_ring(told: Sequence[str] | None, key_ids: Sequence[str]) -> bool:
    """Whether the same key encrypts and the same keys decrypt. Not told is not the same."""
    return told is not None and (told[:1], set(told)) == (list(key_ids[:1]), set(key_ids))


async def unreadable_tokens(db: Database, vault: Vault) -> AsyncIterator[UnreadableToken]:
    """Every stored token that does not open with this vault."""
    async for row in _tokens(db, None):
        fault = await vault.fault(row.owner_id, row.envelope, row.key_id)
        if fault is not None:
            yield UnreadableToken(row, fault)


async def report_unreadable(db: Database, vault: Vault, *, pause_seconds: float) -> None:
    """Say in the log which tokens do not open, once: when a replica starts, as soon as the database can be asked (O-36)."""
    while True:
        try:
            async for token in unreadable_tokens(db, vault):
                whose = "moderator" if token.row.of_moderator else "application_id"
                named = token.row.name if token.row.of_moderator else str(token.row.owner_id)
                _log.error("token_unreadable", **{whose: named}, fault=token.fault.value, key_id=token.row.key_id)
            return
        except StoreError:
            await asyncio.sleep(pause_seconds)


async def rekey(db: Database, vault: Vault, *, lease_seconds: float, dry_run: bool, actor: Actor) -> Rekeyed:
    """Move every token to the newest key, while replicas serve: one small transaction each, with its audit entry.

    Versions and bindings stay, since the token is the same. What was moved is not moved again, so it can be broken off, started anew and
    run twice at once. A token that does not open stays as it is and is reported. Raises KeyNotEverywhere, before anything is changed.
    """
    newest = vault.key_ids[0]
    living = await leases.replicas(db, lease_seconds=lease_seconds)
    lacking = [replica for replica in living if newest not in (replica.key_ids or ())]
    if lacking:
        raise KeyNotEverywhere(newest, lacking)
    moved, unreadable, passing = 0, list[UnreadableToken](), True
    while passing:
        passing, unreadable = False, []
        async for row in _tokens(db, newest):
            try:
                envelope, key_id = await vault.rewrap(row.owner_id, row.envelope, row.key_id)
            except TokenUnreadable as fault:
                unreadable.append(UnreadableToken(row, fault.fault))
                continue
            if dry_run or await _replace(db, row, envelope, key_id, actor):
                moved += 1
            else:
                # Somebody set or moved it in the meantime; whatever is there now is looked at once more.
                passing = True
    return Rekeyed(newest, moved, unreadable)


async def _replace(db: Database, row: TokenRow, envelope: bytes, key_id: str, actor: Actor) -> bool:
    async with db.transaction() as tx:
        if not await tokens.replace(tx, row, envelope=envelope, key_id=key_id):
            return False
        detail = {"name": row.name, "was_key": row.key_id, "key": key_id}
        target = (TargetKind.GATEWAY, "moderation") if row.of_moderator else (TargetKind.APPLICATION, str(row.owner_id))
        await audit.record(tx, Entry(actor, Act.KEYS_REKEY, *target, detail=detail))
        await tx.commit()
    return True


async def _tokens(db: Database, but_key_id: str | None) -> AsyncIterator[TokenRow]:
    after = None
    while page := await tokens.page(db, after=after, but_key_id=but_key_id):
        for row in page:
            yield row
        after = page[-1].owner_id
