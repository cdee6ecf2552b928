"""Applications, as operators make and change them over HTTP. The rules are in `gateway.bindings.applications`."""

from collections.abc import Sequence
from typing import Annotated, Any, Final
from uuid import UUID

from pydantic import Field, PlainValidator, WithJsonSchema
from starlette.types import ASGIApp
from typing_extensions import TypedDict

from gateway.bindings import applications
from gateway.bindings.administration import Administration, OperatorAppJson, application_json
from gateway.bindings.applications import (
    MAX_DESCRIPTION_CHARACTERS,
    MAX_PEOPLE,
    ApplicationChange,
    Audience,
    NewApplication,
    Visibility,
)
from gateway.bindings.config import ConfigJson, parse_config
from gateway.bindings.providers import MAX_NAME_CHARACTERS
from gateway.domain.audit import web_actor
from gateway.domain.limits import MAX_SUBJECT_CHARACTERS
from gateway.domain.problems import Code
from gateway.domain.strict_json import Json
from gateway.identity.accounts import Access
from gateway.json_shapes import AnyText, Body, Id, text_schema
from gateway.store import applications as rows
from gateway.store.applications import ApplicationRow
from gateway.upstream.endpoint import MAX_TOKEN_CHARACTERS
from gateway.web.call import JSON, OPERATOR, Call, Group, Method, Operator, RouteSpec, json_response
from gateway.web.query import PageQuery, read_page


def _as_it_is(value: Json) -> Json:
    return value


_Name = Annotated[str, AnyText, WithJsonSchema(text_schema(MAX_NAME_CHARACTERS))]
_Description = Annotated[str, AnyText, WithJsonSchema({"type": "string", "maxLength": MAX_DESCRIPTION_CHARACTERS})]
_Subject = Annotated[str, AnyText, WithJsonSchema(text_schema(MAX_SUBJECT_CHARACTERS))]
_Subjects = Annotated[
    list[_Subject], WithJsonSchema({"type": "array", "items": text_schema(MAX_SUBJECT_CHARACTERS), "maxItems": MAX_PEOPLE})
]
_Visibility = Annotated[Visibility, Field(strict=False)]
# Strict JSON by then; parse_config reads it, and says what is wrong with which part.
_Config = Annotated[Any, PlainValidator(_as_it_is, json_schema_input_type=ConfigJson)]
_Token = Annotated[str, AnyText, WithJsonSchema({**text_schema(MAX_TOKEN_CHARACTERS), "writeOnly": True})]


class NewAppBody(Body):
    """An application to be made. Without a token it is listed and not available."""

    name: _Name
    provider_id: Id
    config: _Config
    description: _Description = ""
    visibility: _Visibility = Visibility.PUBLIC
    groups: _Subjects = Field(default_factory=list)
    owner: _Subject | None = None
    users: _Subjects = Field(default_factory=list)
    token: _Token | None = Field(None, repr=False)


class AppBody(Body):
    """What to change. Null, or not there, leaves a thing as it is; but with `owner` null it has no owner any more.

    `config` is the whole configuration. Another endpoint or assistant ends the bindings of its conversations for good.
    """

    name: _Name | None = None
    provider_id: Id | None = None
    config: _Config | None = None
    description: _Description | None = None
    visibility: _Visibility | None = None
    groups: _Subjects | None = None
    owner: _Subject | None = None
    users: _Subjects | None = None
    enabled: bool | None = None


class TokenBody(Body):
    """A service token, which is never shown again."""

    token: _Token = Field(repr=False)


class OperatorAppsJson(TypedDict):
    """A page of applications, by name."""

    apps: list[OperatorAppJson]
    next: str | None


async def list_apps(call: Call, _: Access) -> ASGIApp:
    """GET /apps?limit&cursor."""
    office = call.services.administration
    found, following = await read_page(
        call, "operator/apps", lambda after, limit: rows.page(office.db, after=after, page_size=limit), lambda row: row.application_id
    )
    shown: OperatorAppsJson = {"apps": [await _app(office, row) for row in found], "next": following}
    return json_response(shown)


async def create_app(call: Call, access: Access) -> ASGIApp:
    """POST /apps."""
    office, body = call.services.administration, await call.body_of(NewAppBody)
    new = NewApplication(
        name=body.name,
        provider=body.provider_id,
        config=parse_config(body.config),
        audience=Audience(body.description, body.visibility, tuple(body.groups), body.owner, tuple(body.users)),
        token=body.token,
    )
    application_id = await applications.create(office.db, office.vault, new, actor=web_actor(access.subject))
    return json_response(await _read(office, application_id), 201)


async def change_app(call: Call, access: Access) -> ASGIApp:
    """PATCH /apps/{app_id}: all of the body, or nothing."""
    office, application_id, body = call.services.administration, call.path_id("app_id"), await call.body_of(AppBody)
    wanted = ApplicationChange(
        name=body.name,
        provider=body.provider_id,
        config=None if body.config is None else parse_config(body.config),
        description=body.description,
        visibility=body.visibility,
        groups=_tuple(body.groups),
        owner_subject=body.owner,
        users=_tuple(body.users),
        enabled=body.enabled,
        drop_owner="owner" in body.model_fields_set and body.owner is None,
    )
    await applications.change(office.db, application_id, wanted, actor=web_actor(access.subject))
    return json_response(await _read(office, application_id))


async def set_token(call: Call, access: Access) -> ASGIApp:
    """PUT /apps/{app_id}/token {"token"}."""
    office, application_id, body = call.services.administration, call.path_id("app_id"), await call.body_of(TokenBody)
    actor = web_actor(access.subject)
    await applications.set_token(office.db, office.vault, application_id, body.token, office.check_capabilities, actor=actor)
    return json_response(await _read(office, application_id))


async def _read(office: Administration, application_id: UUID) -> OperatorAppJson:
    return await _app(office, await applications.find(office.db, application_id))


async def _app(office: Administration, row: ApplicationRow) -> OperatorAppJson:
    return await application_json(row, office.vault, office.max_per_application)


def _tuple(names: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)


ROUTES: Final = (
    RouteSpec(
        path=f"{OPERATOR}/apps",
        method=Method.GET,
        name="operator_list_apps",
        group=Group.OPERATORS,
        caller=Operator(list_apps),
        answers=JSON,
        about="Applications, by name, with what operators see of them.",
        returns={200: OperatorAppsJson},
        query=PageQuery,
    ),
    RouteSpec(
        path=f"{OPERATOR}/apps",
        method=Method.POST,
        name="operator_create_app",
        group=Group.OPERATORS,
        caller=Operator(create_app),
        answers=JSON,
        about="Makes an application.",
        returns={201: OperatorAppJson},
        takes=NewAppBody,
        refuses=(Code.CONFIGURATION_INVALID, Code.ALREADY_EXISTS, Code.NOT_FOUND),
    ),
    RouteSpec(
        path=f"{OPERATOR}/apps/{{app_id}}",
        method=Method.PATCH,
        name="operator_change_app",
        group=Group.OPERATORS,
        caller=Operator(change_app),
        answers=JSON,
        about="Changes it: all that is asked for, or nothing.",
        returns={200: OperatorAppJson},
        takes=AppBody,
        refuses=(Code.CONFIGURATION_INVALID, Code.ALREADY_EXISTS, Code.CHANGE_BLOCKED, Code.BACKEND_TYPE_FIXED),
    ),
    RouteSpec(
        path=f"{OPERATOR}/apps/{{app_id}}/token",
        method=Method.PUT,
        name="operator_set_token",
        group=Group.OPERATORS,
        caller=Operator(set_token),
        answers=JSON,
        about="Replaces the service token once the service takes the new one. Bindings stay.",
        returns={200: OperatorAppJson},
        takes=TokenBody,
        refuses=(Code.CONFIGURATION_INVALID, Code.CHANGE_BLOCKED, Code.UPSTREAM_CHECK_FAILED),
    ),
)
