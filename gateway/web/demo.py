"""The demo's sign-in: pick one of its users, get the session cookie. Mounted only when Services.demo is set, never under `serve`."""

from starlette.types import ASGIApp

from gateway.domain.problems import Code, Refused
from gateway.web.auth import origin_allowed
from gateway.web.body import json_object
from gateway.web.call import Call, json_response
from gateway.web.services import Demo

_KEYS = frozenset({"subject"})


async def list_users(call: Call) -> ASGIApp:
    """GET /demo/users."""
    return json_response({"users": [{"subject": user.subject, "about": user.about} for user in _demo(call).users]})


async def open_session(call: Call) -> ASGIApp:
    """POST /demo/session {"subject"}: the cookie of one of the demo's users."""
    demo = _demo(call)
    _check_origin(call)
    subject = json_object(await call.body(), _KEYS).get("subject")
    if not isinstance(subject, str):
        raise Refused(Code.MALFORMED_REQUEST)
    if subject not in {user.subject for user in demo.users}:
        raise Refused(Code.NOT_FOUND)
    return json_response({"subject": subject}, headers={"Set-Cookie": _cookie(call, demo.token_for(subject), demo.session_seconds)})


async def close_session(call: Call) -> ASGIApp:
    """DELETE /demo/session: forget the cookie."""
    _demo(call)
    _check_origin(call)
    return json_response({"subject": None}, headers={"Set-Cookie": _cookie(call, "", 0)})


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
