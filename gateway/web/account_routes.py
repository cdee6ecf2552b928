"""Who the caller is, and the applications that are visible to them."""

from starlette.types import ASGIApp
from typing_extensions import TypedDict

from gateway.domain.ids import ApplicationId
from gateway.identity.accounts import Access
from gateway.web.call import Call, json_response


class MeJson(TypedDict):
    """The caller. `groups`: of the token and of the account, together."""

    subject: str
    groups: list[str]
    operator: bool


async def me(call: Call, access: Access) -> ASGIApp:
    """GET /api/internal/me."""
    shown: MeJson = {"subject": access.subject, "groups": sorted(access.groups), "operator": access.operator}
    return json_response(shown)


async def list_applications(call: Call, access: Access) -> ASGIApp:
    """GET /api/internal/apps."""
    return json_response(await call.services.applications.visible(access))


async def read_application(call: Call, access: Access, application_id: ApplicationId) -> ASGIApp:
    """GET /api/internal/apps/{app_id}."""
    return json_response(await call.services.applications.one(access, application_id))


async def usage(call: Call, access: Access, application_id: ApplicationId) -> ASGIApp:
    """GET …/usage."""
    return json_response(await call.services.usage.of(access, application_id))
