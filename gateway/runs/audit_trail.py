"""The audit trail as operators read it: its entries, and whether the chain of them is as it was written. Reading changes nothing."""

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from typing_extensions import TypedDict

from gateway.domain.audit import Act, TargetKind
from gateway.domain.times import rfc3339
from gateway.json_shapes import Time
from gateway.runs.cursors import opened, sealed
from gateway.store import audit as trail
from gateway.store.audit import AuditRow
from gateway.store.database import Database

_AUDIT_CURSOR: Final = struct.Struct(">q")
_AUDIT_SCOPE: Final = "audit"
_CHAIN_PAGE: Final = 500
_FIRST_PREVIOUS: Final = bytes(32)
"""What the first entry names as the hash before it."""


class ChainFault(StrEnum):
    """Why an entry of the trail is not as it was written."""

    BEGINNING_NOT_RECORDED = "beginning_not_recorded"
    ENTRY_MISSING_BEFORE = "entry_missing_before"
    PREVIOUS_HASH_DIFFERS = "previous_hash_differs"
    HASH_DIFFERS = "hash_differs"


class AuditTargetJson(TypedDict):
    """What an act was done to."""

    kind: TargetKind
    id: str


class AuditEntryJson(TypedDict):
    """One act of an operator. `sha256` chains it to the one before."""

    audit_id: int
    at: Time
    actor: str
    act: Act
    target: AuditTargetJson
    reason: str | None
    detail: dict[str, object]
    sha256: str


class AuditChainBreakJson(TypedDict):
    """The first entry that is not as it was written, or does not follow the one before; `why` is a word of a closed list."""

    audit_id: int
    why: ChainFault


class AuditChainJson(TypedDict):
    """What recomputing the whole trail found. `sha256`: of the last entry that is as it was written, null of an empty trail; kept
    elsewhere, it shows later whether entries are missing at the end. `broken`: null when all are."""

    entries: int
    sha256: str | None
    broken: AuditChainBreakJson | None


class AuditJson(TypedDict):
    """A page of the audit trail, newest first."""

    audit: list[AuditEntryJson]
    next: str | None


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Some entries, newest first; `next` is the cursor of the page that follows, if there is one."""

    entries: Sequence[AuditRow]
    next: str | None


@dataclass(frozen=True, slots=True)
class ChainVerdict:
    """What recomputing the whole chain found. `sha256`: of the last entry that is as it was written; None of an empty trail.

    `broken_audit_id`: the first entry that is not, or that does not follow the one before; `why` names which.
    """

    entries: int
    sha256: bytes | None
    broken_audit_id: int | None = None
    why: ChainFault | None = None


@dataclass(frozen=True, slots=True)
class Trail:
    """Reads it."""

    database: Database

    async def page(self, *, limit: int, cursor: str | None) -> AuditPage:
        """One page of the trail. Raises Refused(malformed_request) for a cursor of another list."""
        before = None if cursor is None else int(_AUDIT_CURSOR.unpack(opened(cursor, _AUDIT_SCOPE, _AUDIT_CURSOR.size))[0])
        rows = await trail.page(self.database, before=before, limit=limit + 1)
        shown = rows[:limit]
        following = sealed(_AUDIT_CURSOR.pack(shown[-1].audit_id), _AUDIT_SCOPE) if len(rows) > limit else None
        return AuditPage(shown, following)

    async def verify(self) -> ChainVerdict:
        """Recompute the whole chain, here and not in the database, and stop at the first entry that is not as it was written."""
        anchor = await trail.anchor(self.database)
        if anchor is not None and not anchor.recorded:
            return ChainVerdict(0, None, anchor.audit_id + 1, ChainFault.BEGINNING_NOT_RECORDED)
        last, previous = (0, _FIRST_PREVIOUS) if anchor is None else (anchor.audit_id, anchor.sha256)
        entries = 0
        while links := await trail.texts(self.database, after=0 if entries == 0 else last, limit=_CHAIN_PAGE):
            for link in links:
                why = None
                if link.audit_id != last + 1:
                    why = ChainFault.ENTRY_MISSING_BEFORE
                elif link.previous_sha256 != previous:
                    why = ChainFault.PREVIOUS_HASH_DIFFERS
                elif hashlib.sha256(link.text.encode("utf-8")).digest() != link.sha256:
                    why = ChainFault.HASH_DIFFERS
                if why is not None:
                    return ChainVerdict(entries, previous if entries else None, link.audit_id, why)
                entries, last, previous = entries + 1, link.audit_id, link.sha256
        return ChainVerdict(entries, previous if entries else None)


def audit_page_json(page: AuditPage) -> AuditJson:
    """A page of the trail."""
    return {"audit": [audit_json(row) for row in page.entries], "next": page.next}


def chain_json(verdict: ChainVerdict) -> AuditChainJson:
    """What was found of the trail."""
    broken: AuditChainBreakJson | None = None
    if verdict.broken_audit_id is not None and verdict.why is not None:
        broken = {"audit_id": verdict.broken_audit_id, "why": verdict.why}
    return {"entries": verdict.entries, "sha256": verdict.sha256.hex() if verdict.sha256 is not None else None, "broken": broken}


def audit_json(row: AuditRow) -> AuditEntryJson:
    """One entry of the trail."""
    return {
        "audit_id": row.audit_id,
        "at": rfc3339(row.at),
        "actor": row.actor,
        "act": Act(row.act),
        "target": {"kind": TargetKind(row.target_kind), "id": row.target_id},
        "reason": row.reason,
        "detail": row.detail,
        "sha256": row.sha256.hex(),
    }
