"""Conversations and their items as their owner reads and keeps them: list, read, rename, delete. Nothing here executes or decides.

Reading of single runs is `read`, the JSON of items is `items`.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from typing_extensions import TypedDict

from gateway.domain.ids import ApplicationId, ConversationId, RunId
from gateway.domain.limits import MAX_TITLE_CHARACTERS
from gateway.domain.problems import Code, Refused
from gateway.domain.reasons import Reason
from gateway.domain.snapshot import MessageItem, ToolItem, ToolStatus
from gateway.domain.text import is_storable
from gateway.domain.times import rfc3339
from gateway.identity.accounts import Access
from gateway.json_shapes import Time
from gateway.runs.cursors import opened, opened_moment, sealed, sealed_moment
from gateway.runs.items import ItemJson, UserMessage, VisibleItem, item_json, user_message_state
from gateway.runs.read import RunJson, RunView, run_json, run_view
from gateway.store import history as store
from gateway.store.database import Database
from gateway.store.history import ConversationRow, ItemRow, Owner, Step


class ConversationJson(TypedDict):
    """`active_run`: the run in the way, without its snapshot. `blocked`: why it takes no message."""

    conversation_id: UUID
    title: str
    created_at: Time
    updated_at: Time
    active_run: RunJson | None
    blocked: Reason | None


class ConversationsJson(TypedDict):
    """A page of conversations, newest activity first. Those whose messages were all never sent are not listed."""

    conversations: list[ConversationJson]
    next: str | None


class ItemsJson(TypedDict):
    """A page of a conversation's items, in order."""

    items: list[ItemJson]
    next: str | None


class ReceiptLineJson(TypedDict):
    """One thing that was or was not deleted."""

    what: str
    detail: str


class ReceiptJson(TypedDict):
    """The receipt of a deletion. `active_run_id`: a run that goes on."""

    conversation_id: UUID
    deleted_at: Time
    deleted: list[ReceiptLineJson]
    not_deleted: list[ReceiptLineJson]
    active_run_id: UUID | None


_ITEM_CURSOR: Final = struct.Struct(">qi")
_THE_BEGINNING: Final = (0, -1)
_THE_END: Final = (2**63 - 1, 2**31 - 1)
"""Places of an item that no item has: (sequence, position)."""


@dataclass(frozen=True, slots=True)
class ConversationView:
    """A conversation. `active_run`: the run that blocks or waits, without snapshot. `blocked`: why there can be no new task."""

    conversation_id: ConversationId
    title: str
    created_at: datetime
    updated_at: datetime
    active_run: RunView | None
    blocked: Reason | None


@dataclass(frozen=True, slots=True)
class ConversationPage:
    """Some conversations, newest activity first; `next` is the cursor of the page that follows, if there is one."""

    conversations: Sequence[ConversationView]
    next: str | None


@dataclass(frozen=True, slots=True)
class ItemPage:
    """Some items of a conversation in order, each with its run; `next` as above."""

    items: Sequence[tuple[RunId, VisibleItem]]
    next: str | None


@dataclass(frozen=True, slots=True)
class Removed:
    """The receipt of a deletion."""

    conversation_id: ConversationId
    deleted_at: datetime
    active_run_id: RunId | None


@dataclass(frozen=True, slots=True)
class History:
    """The use cases. All raise Refused: not_found for what is missing, foreign or deleted, malformed_request for a bad cursor."""

    database: Database

    async def conversations(self, access: Access, application_id: ApplicationId, *, limit: int, cursor: str | None) -> ConversationPage:
        """One page of the caller's conversations with this application."""
        owner = Owner(access.account_id, application_id)
        scope = f"conversations/{owner.account_id}/{owner.application_id}"
        after = None if cursor is None else _conversation_cursor(cursor, scope)
        rows = await store.conversations(self.database, owner, after=after, limit=limit + 1)
        shown = rows[:limit]
        return ConversationPage([_view(row) for row in shown], _cursor_after(shown[-1], scope) if len(rows) > limit else None)

    async def conversation(self, access: Access, application_id: ApplicationId, conversation_id: ConversationId) -> ConversationView:
        """One conversation."""
        owner = Owner(access.account_id, application_id)
        row = await store.conversation(self.database, owner, conversation_id)
        if row is None:
            raise Refused(Code.NOT_FOUND)
        return _view(row)

    async def items(
        self,
        access: Access,
        application_id: ApplicationId,
        conversation_id: ConversationId,
        *,
        limit: int,
        cursor: str | None,
        from_end: bool = False,
    ) -> ItemPage:
        """One page of a conversation's items in order. `from_end`: pages come from the end backwards, and `next` is the one before."""
        owner = Owner(access.account_id, application_id)
        scope = f"items/{'end/' if from_end else ''}{conversation_id}"
        place = None if cursor is None else _item_cursor(cursor, scope)
        outside, step = (_THE_END, Step.BACK) if from_end else (_THE_BEGINNING, Step.ON)
        rows = await store.items(self.database, owner, conversation_id, place=place or outside, step=step, limit=limit + 1)
        if not rows and await store.conversation(self.database, owner, conversation_id) is None:
            raise Refused(Code.NOT_FOUND)
        shown = rows[:limit]
        following = None
        if len(rows) > limit:
            following = sealed(_ITEM_CURSOR.pack(shown[-1].sequence, shown[-1].position), scope)
        in_order = shown[::-1] if from_end else shown
        return ItemPage([(RunId(row.run_id), _visible(row)) for row in in_order], following)

    async def rename(self, access: Access, application_id: ApplicationId, conversation_id: ConversationId, title: str) -> ConversationView:
        """Give a conversation a title of 1 to 200 characters, trimmed. Raises Refused(invalid_text, text_too_long)."""
        trimmed = title.strip()
        if not trimmed or not is_storable(trimmed):
            raise Refused(Code.INVALID_TEXT, extra={"field": "title"})
        if len(trimmed) > MAX_TITLE_CHARACTERS:
            raise Refused(Code.TEXT_TOO_LONG, extra={"field": "title", "max_characters": MAX_TITLE_CHARACTERS})
        if not await store.rename(self.database, Owner(access.account_id, application_id), conversation_id, trimmed):
            raise Refused(Code.NOT_FOUND)
        return await self.conversation(access, application_id, conversation_id)

    async def remove(self, access: Access, application_id: ApplicationId, conversation_id: ConversationId) -> Removed:
        """Delete a conversation here (contract D10). A run that is active in it goes on, and keeps its slot until it ends."""
        async with self.database.transaction() as tx:
            removed = await store.remove(tx, Owner(access.account_id, application_id), conversation_id)
            if removed is None:
                raise Refused(Code.NOT_FOUND)
            active_run = await store.active_run(tx, conversation_id)
            await tx.commit()
        return Removed(conversation_id, removed.deleted_at, RunId(active_run) if active_run else None)

    async def check_run(self, access: Access, application_id: ApplicationId, run_id: RunId) -> None:
        """Raise Refused(not_found) when the caller may no longer watch this run."""
        if not await store.run_exists(self.database, Owner(access.account_id, application_id), run_id):
            raise Refused(Code.NOT_FOUND)


def _view(row: ConversationRow) -> ConversationView:
    return ConversationView(
        conversation_id=ConversationId(row.conversation_id),
        title=row.title,
        created_at=row.created_at,
        updated_at=row.updated_at,
        active_run=run_view(row.blocking_run) if row.blocking_run else None,
        blocked=Reason(row.blocked) if row.blocked else None,
    )


def conversation_json(view: ConversationView) -> ConversationJson:
    """The JSON of interface.md "Conversation"."""
    return {
        "conversation_id": view.conversation_id,
        "title": view.title,
        "created_at": rfc3339(view.created_at),
        "updated_at": rfc3339(view.updated_at),
        "active_run": run_json(view.active_run, snapshot=False) if view.active_run else None,
        "blocked": view.blocked,
    }


def conversation_page_json(page: ConversationPage) -> ConversationsJson:
    """The JSON of a page of conversations."""
    return {"conversations": [conversation_json(view) for view in page.conversations], "next": page.next}


def item_page_json(page: ItemPage) -> ItemsJson:
    """The JSON of a page of items."""
    return {"items": [item_json(run_id, item) for run_id, item in page.items], "next": page.next}


def removed_json(removed: Removed) -> ReceiptJson:
    """The receipt of a deletion: what was deleted and what was not, without a claim that goes beyond this gateway (contract D10)."""
    return {
        "conversation_id": removed.conversation_id,
        "deleted_at": rfc3339(removed.deleted_at),
        "deleted": [
            {
                "what": "history",
                "detail": "The conversation and its messages are no longer shown to anybody here, and take no new message.",
            },
        ],
        "not_deleted": [
            {"what": "stored_rows", "detail": "The rows are kept until this service's retention time for deleted conversations is over."},
            {"what": "upstream_memory", "detail": "What the agent service remembers of this conversation is not deleted."},
            {"what": "backups", "detail": "Backups of this service keep it until they expire."},
            {"what": "submission_ids", "detail": "The ids of its messages are kept, so that none is ever executed again."},
        ],
        "active_run_id": removed.active_run_id,
    }


def _visible(row: ItemRow) -> VisibleItem:
    if row.type == "tool":
        assert row.name is not None
        assert row.status is not None
        return ToolItem(row.position, row.name, ToolStatus(row.status), row.parent_position)
    assert row.text is not None
    if row.role == "user":
        state = user_message_state(row.execution, row.reason, row.resolution_outcome)
        return UserMessage(row.text, state, row.position)
    return MessageItem(row.position, row.text, bool(row.complete))


def _cursor_after(row: ConversationRow, scope: str) -> str:
    return sealed_moment(row.updated_at, row.conversation_id, scope)


def _conversation_cursor(cursor: str, scope: str) -> tuple[datetime, ConversationId]:
    at, conversation_id = opened_moment(cursor, scope)
    return at, ConversationId(conversation_id)


def _item_cursor(cursor: str, scope: str) -> tuple[int, int]:
    sequence, position = _ITEM_CURSOR.unpack(opened(cursor, scope, _ITEM_CURSOR.size))
    return int(sequence), int(position)
