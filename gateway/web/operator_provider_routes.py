"""Providers, as operators make and change them over HTTP. The rules are in `gateway.bindings.providers`."""

from typing import Annotated, Final

from pydantic import WithJsonSchema
from starlette.types import ASGIApp
from typing_extensions import TypedDict

from gateway.bindings import providers
from gateway.bindings.administration import ProviderJson, provider_json
from gateway.bindings.providers import MAX_NAME_CHARACTERS, ProviderChange
from gateway.bindings.urls import MAX_URL_CHARACTERS
from gateway.domain.audit import web_actor
from gateway.domain.problems import Code
from gateway.identity.accounts import Access
from gateway.json_shapes import AnyText, Body, text_schema
from gateway.store import providers as rows
from gateway.web.call import JSON, OPERATOR, Call, Group, Method, Operator, RouteSpec, json_response
from gateway.web.query import PageQuery, read_page

_Name = Annotated[str, AnyText, WithJsonSchema(text_schema(MAX_NAME_CHARACTERS))]
_BaseUrl = Annotated[str, AnyText, WithJsonSchema(text_schema(MAX_URL_CHARACTERS))]


class NewProviderBody(Body):
    """A provider to be made."""

    name: _Name
    base_url: _BaseUrl


class ProviderBody(Body):
    """What to change; null, or not there, leaves a thing as it is. Another base URL ends the bindings of all applications for good."""

    name: _Name | None = None
    base_url: _BaseUrl | None = None
    enabled: bool | None = None


class ProvidersJson(TypedDict):
    """A page of providers, by name."""

    providers: list[ProviderJson]
    next: str | None


async def list_providers(call: Call, _: Access) -> ASGIApp:
    """GET /providers?limit&cursor."""
    db = call.services.administration.db
    found, following = await read_page(
        call, "operator/providers", lambda after, limit: rows.page(db, after=after, page_size=limit), lambda row: row.provider_id
    )
    shown: ProvidersJson = {"providers": [provider_json(row) for row in found], "next": following}
    return json_response(shown)


async def create_provider(call: Call, access: Access) -> ASGIApp:
    """POST /providers {"name", "base_url"}."""
    office, body = call.services.administration, await call.body_of(NewProviderBody)
    provider_id = await providers.create(
        office.db, name=body.name, base_url=body.base_url, trusted_hosts=office.trusted_hosts, actor=web_actor(access.subject)
    )
    return json_response(provider_json(await providers.find(office.db, provider_id)), 201)


async def change_provider(call: Call, access: Access) -> ASGIApp:
    """PATCH /providers/{provider_id}: all of the body, or nothing."""
    office, provider_id, body = call.services.administration, call.path_id("provider_id"), await call.body_of(ProviderBody)
    wanted = ProviderChange(name=body.name, base_url=body.base_url, enabled=body.enabled)
    await providers.change(office.db, provider_id, wanted, office.trusted_hosts, actor=web_actor(access.subject))
    return json_response(provider_json(await providers.find(office.db, provider_id)))


ROUTES: Final = (
    RouteSpec(
        path=f"{OPERATOR}/providers",
        method=Method.GET,
        name="operator_list_providers",
        group=Group.OPERATORS,
        caller=Operator(list_providers),
        answers=JSON,
        about="Providers, by name.",
        returns={200: ProvidersJson},
        query=PageQuery,
    ),
    RouteSpec(
        path=f"{OPERATOR}/providers",
        method=Method.POST,
        name="operator_create_provider",
        group=Group.OPERATORS,
        caller=Operator(create_provider),
        answers=JSON,
        about="Makes a provider.",
        returns={201: ProviderJson},
        takes=NewProviderBody,
        refuses=(Code.CONFIGURATION_INVALID, Code.ALREADY_EXISTS),
    ),
    RouteSpec(
        path=f"{OPERATOR}/providers/{{provider_id}}",
        method=Method.PATCH,
        name="operator_change_provider",
        group=Group.OPERATORS,
        caller=Operator(change_provider),
        answers=JSON,
        about="Renames, moves or switches it: all that is asked for, or nothing.",
        returns={200: ProviderJson},
        takes=ProviderBody,
        refuses=(Code.CONFIGURATION_INVALID, Code.ALREADY_EXISTS, Code.CHANGE_BLOCKED),
    ),
)
