"""Stored tokens as ciphertexts. Opening and encrypting them is the vault's; giving an application another token is `applications`."""

from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from gateway.domain.limits import PAGE_MAX
from gateway.store.database import Database, Transaction
from gateway.store.statements import statement

_PAGE: Final = statement("tokens.page")
_REPLACE: Final = statement("tokens.replace")


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A stored token; `owner_id` and `name` are those of its application, or of a moderator's token and of the moderator."""

    owner_id: UUID
    of_moderator: bool
    name: str
    envelope: bytes = field(repr=False)
    key_id: str


async def page(db: Database, *, after: UUID | None, but_key_id: str | None = None) -> list[TokenRow]:
    """The next tokens in the order of their owners; with `but_key_id` those that are not under that key."""
    return await db.all(_PAGE, TokenRow, {"after": after, "but_key_id": but_key_id, "page_size": PAGE_MAX}, reading=True)


async def replace(tx: Transaction, row: TokenRow, *, envelope: bytes, key_id: str) -> bool:
    """Put the same token in another envelope. False: it is no longer the one that was read."""
    params = {"owner_id": row.owner_id, "read_envelope": row.envelope, "envelope": envelope, "key_id": key_id}
    return await tx.execute(_REPLACE, params) == 1
