"""Accounts, as operators make and change them over HTTP. The rules are in `gateway.identity.people`."""

from typing import Annotated, Final

from pydantic import Field, WithJsonSchema
from starlette.types import ASGIApp
from typing_extensions import TypedDict

from gateway.domain.audit import web_actor
from gateway.domain.limits import MAX_SUBJECT_CHARACTERS
from gateway.domain.problems import Code, Refused
from gateway.domain.text import is_storable
from gateway.identity import people
from gateway.identity.accounts import Access, AccountState
from gateway.identity.people import ROLES, AccountJson, account_json
from gateway.identity.tokens import MAX_NAMES
from gateway.json_shapes import AnyText, Body, text_schema
from gateway.store import accounts as rows
from gateway.web.call import JSON, OPERATOR, Call, Group, Method, Operator, RouteSpec, json_response
from gateway.web.query import PageQuery, one, read_page

_Subject = Annotated[str, AnyText, WithJsonSchema(text_schema(MAX_SUBJECT_CHARACTERS))]
_Groups = Annotated[
    list[Annotated[str, AnyText]],
    WithJsonSchema({"type": "array", "items": text_schema(MAX_SUBJECT_CHARACTERS), "maxItems": MAX_NAMES}),
]
_Roles = Annotated[list[Annotated[str, AnyText]], WithJsonSchema({"type": "array", "items": {"type": "string", "enum": sorted(ROLES)}})]


class NewAccountBody(Body):
    """An account to be made; `subject` is what the person's tokens say."""

    subject: _Subject
    groups: _Groups = Field(default_factory=list)
    roles: _Roles = Field(default_factory=list)


class AccountBody(Body):
    """What to change; null, or not there, leaves a thing as it is. A suspended account is refused from its next request on."""

    groups: _Groups | None = None
    roles: _Roles | None = None
    state: Annotated[AccountState, Field(strict=False)] | None = None


class AccountsJson(TypedDict):
    """A page of accounts, by subject."""

    accounts: list[AccountJson]
    next: str | None


class AccountsQuery(PageQuery, total=False):
    """Which page of the accounts, and where they begin."""

    subject_from: Annotated[
        str, Field(max_length=MAX_SUBJECT_CHARACTERS, description="Leaves out those before it: the beginning of a subject finds it.")
    ]


async def list_accounts(call: Call, _: Access) -> ASGIApp:
    """GET /accounts?subject_from&limit&cursor."""
    db, subject_from = call.services.administration.db, one(call, "subject_from") or ""
    if len(subject_from) > MAX_SUBJECT_CHARACTERS or not is_storable(subject_from):
        raise Refused(Code.MALFORMED_REQUEST)
    found, following = await read_page(
        call,
        "operator/accounts",
        lambda after, limit: rows.page(db, after=after, page_size=limit, subject_from=subject_from),
        lambda row: row.account_id,
    )
    shown: AccountsJson = {"accounts": [account_json(row) for row in found], "next": following}
    return json_response(shown)


async def create_account(call: Call, access: Access) -> ASGIApp:
    """POST /accounts {"subject", "groups"?, "roles"?}."""
    db, body = call.services.administration.db, await call.body_of(NewAccountBody)
    account_id = await people.create(db, body.subject, groups=body.groups, roles=body.roles, actor=web_actor(access.subject))
    if account_id is None:
        raise Refused(Code.ALREADY_EXISTS)
    return json_response(account_json(await people.find(db, account_id)), 201)


async def change_account(call: Call, access: Access) -> ASGIApp:
    """PATCH /accounts/{account_id} {"groups"?, "roles"?, "state"?}."""
    db, account_id, body = call.services.administration.db, call.path_id("account_id"), await call.body_of(AccountBody)
    await people.change(db, account_id, groups=body.groups, roles=body.roles, state=body.state, actor=web_actor(access.subject))
    return json_response(account_json(await people.find(db, account_id)))


ROUTES: Final = (
    RouteSpec(
        path=f"{OPERATOR}/accounts",
        method=Method.GET,
        name="operator_list_accounts",
        group=Group.OPERATORS,
        caller=Operator(list_accounts),
        answers=JSON,
        about="People, by subject.",
        returns={200: AccountsJson},
        query=AccountsQuery,
    ),
    RouteSpec(
        path=f"{OPERATOR}/accounts",
        method=Method.POST,
        name="operator_create_account",
        group=Group.OPERATORS,
        caller=Operator(create_account),
        answers=JSON,
        about="Makes an active account.",
        returns={201: AccountJson},
        takes=NewAccountBody,
        refuses=(Code.CONFIGURATION_INVALID, Code.ALREADY_EXISTS),
    ),
    RouteSpec(
        path=f"{OPERATOR}/accounts/{{account_id}}",
        method=Method.PATCH,
        name="operator_change_account",
        group=Group.OPERATORS,
        caller=Operator(change_account),
        answers=JSON,
        about="Replaces its own groups or roles, suspends or activates it.",
        returns={200: AccountJson},
        takes=AccountBody,
        refuses=(Code.CONFIGURATION_INVALID,),
    ),
)
