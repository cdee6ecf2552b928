"""Quota rules, as operators set them over HTTP, and who uses the most. The rules about rules are in `gateway.admission.quota_rules`."""

from typing import Annotated, Final

from pydantic import Field, WithJsonSchema
from starlette.types import ASGIApp
from typing_extensions import TypedDict

from gateway.admission import quota_rules
from gateway.admission.quota_rules import WINDOWS, HeaviestJson, QuotaRuleJson, rule_json
from gateway.domain.audit import web_actor
from gateway.domain.limits import MAX_SUBJECT_CHARACTERS, PAGE_DEFAULT, PAGE_MAX
from gateway.domain.problems import Code
from gateway.domain.quota import Scope
from gateway.identity.accounts import Access
from gateway.json_shapes import AnyText, Body, Id, text_schema
from gateway.store import quotas as rows
from gateway.web.call import JSON, OPERATOR, Call, Group, Method, Operator, RouteSpec, json_response
from gateway.web.query import PageQuery, one, page_of, read_page

_DAY: Final = "1d"


class QuotaRuleBody(Body):
    """A limit on tasks. `scope`: whose tasks count together. With `app_id` only those of that application count, with `group` only those of
    the group's members. The rule of the same scope, window, application and group gets the new limit, if there is one."""

    scope: Annotated[Scope, Field(strict=False)]
    limit: Annotated[int, Field(ge=1, le=quota_rules.MAX_TASKS)]
    window: Annotated[str, AnyText, WithJsonSchema({"type": "string", "description": f"It is {WINDOWS}"})]
    app_id: Id | None = None
    group: Annotated[str, AnyText, WithJsonSchema(text_schema(MAX_SUBJECT_CHARACTERS))] | None = None


class QuotaRulesJson(TypedDict):
    """A page of rules. No rule: the number of tasks is not limited."""

    quotas: list[QuotaRuleJson]
    next: str | None


class HeaviestQuery(TypedDict, total=False):
    """How far back, and how many."""

    window: Annotated[str, Field(description=f"Hours or days that end now, as `1h` or `30d`; `{_DAY}` where it is not given.")]
    limit: Annotated[int, Field(ge=1, le=PAGE_MAX, description=f"Of each, users and applications; {PAGE_DEFAULT} where it is not given.")]


async def list_rules(call: Call, _: Access) -> ASGIApp:
    """GET /quotas?limit&cursor."""
    db = call.services.administration.db
    found, following = await read_page(
        call, "operator/quotas", lambda after, limit: rows.page(db, after=after, page_size=limit), lambda row: row.quota_rule_id
    )
    shown: QuotaRulesJson = {"quotas": [rule_json(row) for row in found], "next": following}
    return json_response(shown)


async def set_rule(call: Call, access: Access) -> ASGIApp:
    """POST /quotas {"scope", "limit", "window", "app_id"?, "group"?}."""
    db, body = call.services.administration.db, await call.body_of(QuotaRuleBody)
    rule = await quota_rules.set_rule(
        db,
        scope=body.scope,
        window=body.window,
        limit=body.limit,
        which=body.app_id,
        group=body.group,
        actor=web_actor(access.subject),
    )
    return json_response(rule_json(rule))


async def remove_rule(call: Call, access: Access) -> ASGIApp:
    """DELETE /quotas/{quota_rule_id}."""
    db = call.services.administration.db
    return json_response(rule_json(await quota_rules.remove(db, call.path_id("quota_rule_id"), actor=web_actor(access.subject))))


async def heaviest(call: Call, _: Access) -> ASGIApp:
    """GET /usage?window&limit."""
    limit, _cursor = page_of(call)
    return json_response(await quota_rules.heaviest(call.services.administration.db, window=one(call, "window") or _DAY, limit=limit))


ROUTES: Final = (
    RouteSpec(
        path=f"{OPERATOR}/quotas",
        method=Method.GET,
        name="operator_list_quotas",
        group=Group.OPERATORS,
        caller=Operator(list_rules),
        answers=JSON,
        about="The quota rules in force.",
        returns={200: QuotaRulesJson},
        query=PageQuery,
    ),
    RouteSpec(
        path=f"{OPERATOR}/quotas",
        method=Method.POST,
        name="operator_set_quota",
        group=Group.OPERATORS,
        caller=Operator(set_rule),
        answers=JSON,
        about="Sets a limit: makes a rule, or gives the one that is alike another limit.",
        returns={200: QuotaRuleJson},
        takes=QuotaRuleBody,
        refuses=(Code.CONFIGURATION_INVALID, Code.NOT_FOUND),
    ),
    RouteSpec(
        path=f"{OPERATOR}/quotas/{{quota_rule_id}}",
        method=Method.DELETE,
        name="operator_remove_quota",
        group=Group.OPERATORS,
        caller=Operator(remove_rule),
        answers=JSON,
        about="Ends a rule, and shows it a last time. What was charged under it stays charged.",
        returns={200: QuotaRuleJson},
    ),
    RouteSpec(
        path=f"{OPERATOR}/usage",
        method=Method.GET,
        name="operator_usage",
        group=Group.OPERATORS,
        caller=Operator(heaviest),
        answers=JSON,
        about="The users and applications with the most tasks.",
        returns={200: HeaviestJson},
        query=HeaviestQuery,
        refuses=(Code.CONFIGURATION_INVALID,),
    ),
)
