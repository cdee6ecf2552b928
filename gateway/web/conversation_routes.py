"""Conversations over HTTP: list, read, rename, delete. The use cases are `gateway.runs.history`."""

from typing import Annotated

from pydantic import Field, WithJsonSchema
from starlette.types import ASGIApp

from gateway.domain.ids import ApplicationId, ConversationId
from gateway.domain.limits import MAX_TITLE_CHARACTERS
from gateway.identity.accounts import Access
from gateway.json_shapes import AnyText, Body, text_schema
from gateway.runs.history import conversation_json, conversation_page_json, item_page_json, removed_json
from gateway.web.call import Call, json_response
from gateway.web.query import PageQuery, page_of, yes


class TitleBody(Body):
    """A conversation's new title."""

    title: Annotated[str, AnyText, WithJsonSchema(text_schema(MAX_TITLE_CHARACTERS))]


class ItemsQuery(PageQuery, total=False):
    """Which page of a conversation's items."""

    newest: Annotated[bool, Field(description="`true`: the newest page first, and `next` is the one before it. Items stay in order.")]


async def list_conversations(call: Call, access: Access, application_id: ApplicationId) -> ASGIApp:
    """GET …/conversations."""
    limit, cursor = page_of(call)
    page = await call.services.history.conversations(access, application_id, limit=limit, cursor=cursor)
    return json_response(conversation_page_json(page))


async def read_conversation(call: Call, access: Access, application_id: ApplicationId) -> ASGIApp:
    """GET …/conversations/{conversation_id}."""
    return json_response(conversation_json(await call.services.history.conversation(access, application_id, _conversation(call))))


async def rename_conversation(call: Call, access: Access, application_id: ApplicationId) -> ASGIApp:
    """PATCH …/conversations/{conversation_id} {"title"}."""
    conversation_id = _conversation(call)
    title = (await call.body_of(TitleBody)).title
    return json_response(conversation_json(await call.services.history.rename(access, application_id, conversation_id, title)))


async def delete_conversation(call: Call, access: Access, application_id: ApplicationId) -> ASGIApp:
    """DELETE …/conversations/{conversation_id}: a receipt."""
    return json_response(removed_json(await call.services.history.remove(access, application_id, _conversation(call))))


async def list_items(call: Call, access: Access, application_id: ApplicationId) -> ASGIApp:
    """GET …/conversations/{conversation_id}/items."""
    conversation_id = _conversation(call)
    limit, cursor = page_of(call)
    page = await call.services.history.items(
        access, application_id, conversation_id, limit=limit, cursor=cursor, from_end=yes(call, "newest")
    )
    return json_response(item_page_json(page))


def _conversation(call: Call) -> ConversationId:
    return ConversationId(call.path_id("conversation_id"))
