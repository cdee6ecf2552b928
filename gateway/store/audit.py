"""The audit trail: entries are appended in the transaction of their act, read in pages, and read again as the texts that were hashed."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from gateway.domain.audit import Entry
from gateway.store.database import Database, Transaction
from gateway.store.statements import statement

_RECORD: Final = statement("audit.record")
_PAGE: Final = statement("audit.page")
_TEXTS: Final = statement("audit.texts")
_ANCHOR: Final = statement("audit.anchor")


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One entry."""

    audit_id: int
    at: datetime
    actor: str
    act: str
    target_kind: str
    target_id: str
    reason: str | None
    detail: dict[str, Any]
    sha256: bytes


@dataclass(frozen=True, slots=True)
class ChainRow:
    """One entry as a link of the chain: `sha256` is that of `text`, which begins with `previous_sha256`."""

    audit_id: int
    previous_sha256: bytes
    sha256: bytes
    text: str


@dataclass(frozen=True, slots=True)
class _RecordedRow:
    audit_id: int


async def record(tx: Transaction, entry: Entry) -> None:
    """Append `entry`, as the last statement of its act's transaction: all who append wait for the commit."""
    await tx.one(
        _RECORD,
        _RecordedRow,
        {
            "actor": entry.actor,
            "act": entry.act.value,
            "target_kind": entry.target_kind.value,
            "target_id": entry.target_id,
            "reason": entry.reason,
            "detail": json.dumps(dict(entry.detail)),
        },
    )


async def page(db: Database, *, before: int | None, limit: int) -> list[AuditRow]:
    """At most `limit` entries, newest first, before the one of that id."""
    return await db.all(_PAGE, AuditRow, {"before": before, "limit": limit}, reading=True)


@dataclass(frozen=True, slots=True)
class AnchorRow:
    """Where the trail begins after retention: the last entry that went, and whether an entry of the trail says so."""

    audit_id: int
    sha256: bytes
    recorded: bool


async def anchor(db: Database) -> AnchorRow | None:
    """The newest anchor; None while the trail is whole."""
    return await db.one(_ANCHOR, AnchorRow, reading=True)


async def texts(db: Database, *, after: int, limit: int) -> list[ChainRow]:
    """At most `limit` links in the order of the chain, after the one of that id; 0 begins."""
    return await db.all(_TEXTS, ChainRow, {"after": after, "limit": limit}, reading=True)
