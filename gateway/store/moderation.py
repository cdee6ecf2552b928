"""Verdicts of moderation without a run, and the chains that operators set. The verdicts of admitted texts are written by admission."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

from gateway.store.database import Database, Params, Transaction
from gateway.store.statements import statement

_NOTE_WITHOUT_RUN: Final = statement("moderation.note_without_run")
_MODERATORS: Final = statement("moderation.moderators")
_LOCK_MODERATORS: Final = statement("moderation.lock_moderators")
_IN_FORCE: Final = statement("moderation.in_force")
_LOCK_CHAINS: Final = statement("moderation.lock_chains")
_END_CHAIN: Final = statement("moderation.end_chain")
_FORGET_TOKENS: Final = statement("moderation.forget_tokens")
_CREATE_CHAIN: Final = statement("moderation.create_chain")
_CREATE_MODERATOR: Final = statement("moderation.create_moderator")


@dataclass(frozen=True, slots=True)
class ModeratorRow:
    """One moderator of a chain. `token_owner`: what its token's ciphertext is bound to."""

    kind: str
    url: str | None
    token_owner: UUID | None
    token_ciphertext: bytes | None = field(repr=False)
    token_key_id: str | None


@dataclass(frozen=True, slots=True)
class ChainRow:
    """A chain in force, and one of its moderators; `kind` None: it has none. `application_id` None: it is that of all."""

    chain_id: UUID
    application_id: UUID | None
    application_name: str | None
    created_at: datetime
    kind: str | None
    url: str | None
    token_owner: UUID | None
    token_ciphertext: bytes | None = field(repr=False)
    token_key_id: str | None


@dataclass(frozen=True, slots=True)
class _NotedRow:
    noted: str | None


@dataclass(frozen=True, slots=True)
class _ChainId:
    chain_id: UUID


async def note_without_run(db: Database, params: Params) -> None:
    """Keep what was said of a text of which nothing came."""
    await db.one(_NOTE_WITHOUT_RUN, _NotedRow, params)


async def moderators(db: Database, chain_id: UUID) -> list[ModeratorRow]:
    """Who a chain asks, in order."""
    return await db.all(_MODERATORS, ModeratorRow, {"chain_id": chain_id}, reading=True)


async def in_force(db: Database) -> list[ChainRow]:
    """Every chain in force, that of all applications first, one row a moderator."""
    return await db.all(_IN_FORCE, ChainRow, reading=True)


async def end(tx: Transaction, application_id: UUID | None) -> list[ModeratorRow] | None:
    """End the chain of an application, or that of all; its moderators with their tokens, which it loses. None: there was no chain."""
    await tx.execute(_LOCK_CHAINS)
    ended = await tx.one(_END_CHAIN, _ChainId, {"application_id": application_id})
    if ended is None:
        return None
    rows = await tx.all(_LOCK_MODERATORS, ModeratorRow, {"chain_id": ended.chain_id})
    await tx.execute(_FORGET_TOKENS, {"chain_id": ended.chain_id})
    return rows


async def create(tx: Transaction, chain_id: UUID, application_id: UUID | None, rows: Sequence[ModeratorRow]) -> None:
    """A chain in place of the one that was ended before."""
    await tx.execute(_CREATE_CHAIN, {"chain_id": chain_id, "application_id": application_id})
    for position, row in enumerate(rows):
        await tx.execute(_CREATE_MODERATOR, {"chain_id": chain_id, "position": position, **asdict(row)})
