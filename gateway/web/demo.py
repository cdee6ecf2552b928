"""The demo's sign-in: pick one of its users, get the session cookie. Mounted only when Services.demo is set, never under `serve`."""

from starlette.types import ASGIApp
from typing_extensions import TypedDict

from gateway.domain.problems import Code, Refused
from gateway.json_shapes import Body
from gateway.web.auth import origin_allowed
from gateway.web.call import Call, json_response
from gateway.web.services import Demo


class SessionBody(Body):
    """Which of the demo's users to be."""

    subject: str


class SessionJson(TypedDict):
    """Who the cookie's session is; null when there is none."""

    subject: str | None


class DemoUserJson(TypedDict):
    """One of the demo's users."""

    subject: str
    about: str


class DemoUsersJson(TypedDict):
    """The demo's users."""

    users: list[DemoUserJson]


async def list_users(call: Call) -> ASGIApp:
    """GET /demo/users."""
    shown: DemoUsersJson = {"users": [{"subject": user.subject, "about": user.about} for user in _demo(call).users]}
    return json_response(shown)


async def open_session(call: Call) -> ASGIApp:
    """POST /demo/session {"subject"}: the cookie of one of the demo's users."""
    demo = _demo(call)
    _check_origin(call)
    subject = (await call.body_of(SessionBody)).subject
    if subject not in {user.subject for user in demo.users}:
        raise Refused(Code.NOT_FOUND)
    shown: SessionJson = {"subject": subject}
    return json_response(shown, headers={"Set-Cookie": _cookie(call, demo.token_for(subject), demo.session_seconds)})


async def close_session(call: Call) -> ASGIApp:
    """DELETE /demo/session: forget the cookie."""
    _demo(call)
    _check_origin(call)
    shown: SessionJson = {"subject": None}
    return json_response(shown, headers={"Set-Cookie": _cookie(call, "", 0)})


def _demo(call: Call) -> Demo:
    if call.services.demo is None:
        raise Refused(Code.NOT_FOUND)
    return call.services.demo


def _check_origin(call: Call) -> None:
    # Browsers always send an Origin here; without one it is a command line, which no foreign page can steer.
    if call.headers.get("origin") is not None and not origin_allowed(call.headers, call.services.settings):
        raise Refused(Code.ORIGIN_NOT_ALLOWED)


def _cookie(call: Call, token: str, seconds: int) -> str:
    name = call.services.settings.session_cookie
    if name is None:
        raise Refused(Code.NOT_FOUND)
    # Both parts are made of token characters: the name by the settings' rule, the token because it is a JWT.
    return f"{name}={token}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{'; Secure' if call.secure else ''}"
