"""What a native server needs besides its graph to stand behind the gateway: a check of the bearer token, and GET /capabilities.

A file as a user writes it, loaded by LangGraph Agent Server and by aegra alike; docs/native-servers.md shows it.
"""

import hmac
import os
from collections.abc import Mapping
from typing import Any

from langgraph_sdk import Auth
from starlette.requests import Request
from starlette.responses import JSONResponse

try:
    from fastapi import FastAPI as Application  # aegra takes nothing else
except ImportError:
    from starlette.applications import Starlette as Application

auth = Auth()


def is_gateway(given: str) -> bool:
    """Whether an Authorization header carries our token."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), f"Bearer {os.environ['SERVICE_TOKEN']}".encode())


@auth.authenticate
async def authenticate(headers: Mapping[Any, Any]) -> dict[str, Any]:
    """One caller, the gateway. LangGraph Agent Server gives the names and values of headers as bytes, aegra as text."""
    given = headers.get(b"authorization") or headers.get("authorization") or ""
    if not is_gateway(given.decode("latin-1") if isinstance(given, bytes) else given):
        raise Auth.exceptions.HTTPException(status_code=401, detail="Invalid token")
    return {"identity": "gateway"}


async def capabilities(request: Request) -> JSONResponse:
    """What this server can do for the gateway. It checks the token itself: aegra lets requests for routes like this one pass."""
    if not is_gateway(request.headers.get("authorization", "")):
        return JSONResponse({"detail": "Invalid token"}, 401)
    return JSONResponse(
        {
            "assistant_id": "agent",
            "native_interrupt": True,
            "native_resume": True,
            "one_task_per_thread": True,
            "actions": ["approve", "reject"],
        }
    )


app = Application()
app.add_route("/capabilities", capabilities)
