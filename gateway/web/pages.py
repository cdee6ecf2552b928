"""The pages and their files, read once and served from memory: no path of a request ever reaches the file system."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson
from starlette.responses import Response
from starlette.types import ASGIApp

from gateway.domain.problems import Code, Refused
from gateway.domain.reasons import REASON_MESSAGES
from gateway.web.call import Call

REASONS_MODULE: Final = "reasons.js"
FOLDER: Final = Path(__file__).parent / "static"
_TYPES: Final[Mapping[str, str]] = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
PAGE_POLICY: Final = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; font-src 'none'; "
    "object-src 'none'; frame-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)


@dataclass(frozen=True, slots=True)
class _File:
    body: bytes
    media_type: str
    etag: str


@dataclass(frozen=True, slots=True)
class Pages:
    """The handlers, over files in memory."""

    chat: str
    files: Mapping[str, _File]

    async def index(self, call: Call) -> ASGIApp:
        """GET /: the chat page, told whether this is the demo and whether a session cookie came, so that it asks for nothing in vain."""
        cookie, name = call.headers.get("cookie", ""), call.services.settings.session_cookie
        session = name is not None and f"{name}=" in cookie
        page = self.chat.replace("{demo}", _on_off(call.services.demo is not None)).replace("{session}", _on_off(session))
        headers = {"Content-Security-Policy": PAGE_POLICY, "Cache-Control": "no-store"}
        return Response(page.encode(), 200, headers, "text/html; charset=utf-8")

    async def static(self, call: Call) -> ASGIApp:
        """GET /static/{file}: revalidated at each load, so that a new release is seen at once."""
        file = self.files.get(call.path["file"])
        if file is None:
            raise Refused(Code.NOT_FOUND)
        headers = {"Cache-Control": "no-cache", "ETag": file.etag}
        if file.etag in call.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(file.body, 200, headers, file.media_type)


def load_pages(folder: Path = FOLDER) -> Pages:
    """Read the pages. Raises FileNotFoundError for a package built without them."""
    files = {path.name: _file(path.name, path.read_bytes()) for path in sorted(folder.iterdir()) if path.suffix in _TYPES}
    files[REASONS_MODULE] = _file(REASONS_MODULE, _reasons_module())
    return Pages((folder / "chat.html").read_text(encoding="utf-8"), files)


def _file(name: str, body: bytes) -> _File:
    return _File(body, _TYPES[Path(name).suffix], f'"{hashlib.sha256(body).hexdigest()[:32]}"')


def _reasons_module() -> bytes:
    # Made from the table, so that the page has no copy of its sentences.
    sentences = {reason.value: sentence for reason, sentence in REASON_MESSAGES.items()}
    return b"export const REASONS = Object.freeze(" + orjson.dumps(sentences, option=orjson.OPT_INDENT_2) + b");\n"


def _on_off(on: bool) -> str:
    return "on" if on else "off"
