"""Chains of moderators, as operators set them over HTTP. The rules are in `gateway.admission.operator_chains`."""

from typing import Annotated, Final

from pydantic import Field, WithJsonSchema
from starlette.types import ASGIApp

from gateway.admission.chains import MAX_MODERATORS
from gateway.admission.operator_chains import ChainsJson
from gateway.bindings.urls import MAX_URL_CHARACTERS
from gateway.domain.audit import web_actor
from gateway.domain.problems import Code
from gateway.identity.accounts import Access
from gateway.json_shapes import AnyText, Body, Id, text_schema
from gateway.upstream.endpoint import MAX_TOKEN_CHARACTERS
from gateway.web.call import JSON, OPERATOR, Call, Group, Method, Operator, RouteSpec, json_response

_Moderators = Annotated[
    list[Annotated[str, AnyText]],
    WithJsonSchema({"type": "array", "items": text_schema(MAX_URL_CHARACTERS), "minItems": 1, "maxItems": MAX_MODERATORS}),
]
_Tokens = Annotated[
    list[Annotated[str, AnyText]],
    WithJsonSchema(
        {"type": "array", "items": {**text_schema(MAX_TOKEN_CHARACTERS), "writeOnly": True}, "maxItems": MAX_MODERATORS, "writeOnly": True}
    ),
]


class ChainBody(Body):
    """Who is asked about messages, in this order. Each moderator is `local`, `openai:URL` or `webhook:URL`; the only one may be `none` for
    nobody, or `default` to take the chain away. `app_id`: of one application; null, or not there, of all that have none of their own.
    `tokens`: one for each service, in their order, or none at all; then a service that was in the chain before keeps its token."""

    moderators: _Moderators
    app_id: Id | None = None
    tokens: _Tokens = Field(default_factory=list, repr=False)


async def show(call: Call, _: Access) -> ASGIApp:
    """GET /moderation."""
    return json_response(await call.services.chains.shown())


async def change(call: Call, access: Access) -> ASGIApp:
    """POST /moderation {"moderators", "app_id"?, "tokens"?}."""
    chains, body = call.services.chains, await call.body_of(ChainBody)
    await chains.set(body.app_id, body.moderators, body.tokens, actor=web_actor(access.subject))
    return json_response(await chains.shown())


ROUTES: Final = (
    RouteSpec(
        path=f"{OPERATOR}/moderation",
        method=Method.GET,
        name="operator_show_moderation",
        group=Group.OPERATORS,
        caller=Operator(show),
        answers=JSON,
        about="Who is asked about messages: the chains in force.",
        returns={200: ChainsJson},
    ),
    RouteSpec(
        path=f"{OPERATOR}/moderation",
        method=Method.POST,
        name="operator_set_moderation",
        group=Group.OPERATORS,
        caller=Operator(change),
        answers=JSON,
        about="Sets a chain, which counts from the next message on.",
        returns={200: ChainsJson},
        takes=ChainBody,
        refuses=(Code.CONFIGURATION_INVALID, Code.NOT_FOUND),
    ),
)
