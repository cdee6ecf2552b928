"""The pages and their files, read once and served from memory: no path of a request ever reaches the file system."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson
from starlette.responses import Response
from starlette.types import ASGIApp

from gateway.domain.evidence import EVIDENCE_DOCS
from gateway.domain.limits import MAX_REASON_CHARACTERS
from gateway.domain.problems import PROBLEMS, Code, Refused
from gateway.domain.reasons import REASON_MESSAGES, REASON_NOTES
from gateway.domain.resolution import OBSTACLE_DOCS, OUTCOME_DOCS
from gateway.domain.states import EXECUTION_DOCS, PERSISTENCE_DOCS
from gateway.sse_parser.faults import FAULTS
from gateway.web.call import Call

CHAT: Final = "chat.html"
OPERATOR: Final = "operator.html"
TABLES: Final[Mapping[str, Mapping[str, object]]] = {
    "reasons.js": {"REASONS": REASON_MESSAGES},
    "operator-tables.js": {
        "EXECUTION": EXECUTION_DOCS,
        "PERSISTENCE": PERSISTENCE_DOCS,
        "REASON_NOTES": REASON_NOTES,
        "OUTCOMES": OUTCOME_DOCS,
        "OBSTACLES": OBSTACLE_DOCS,
        "EVIDENCE": EVIDENCE_DOCS,
        "FAULTS": {detail: note for detail, (_, note) in FAULTS.items()},
        "PROBLEMS": {code: problem.title for code, problem in PROBLEMS.items()},
        "MAX_REASON_CHARACTERS": MAX_REASON_CHARACTERS,
    },
}
"""Modules that are made from the tables of the code, so that the pages have no copy of its words: for each its exports."""
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

    documents: Mapping[str, str]
    files: Mapping[str, _File]

    async def chat(self, call: Call) -> ASGIApp:
        """GET /: the chat page."""
        return self._document(CHAT, call)

    async def operator(self, call: Call) -> ASGIApp:
        """GET /operator: the console. It holds nothing itself; what it asks for is refused to who is no operator."""
        return self._document(OPERATOR, call)

    def _document(self, name: str, call: Call) -> ASGIApp:
        """The page, told whether this is the demo and whether a session cookie came, so that it asks for nothing in vain."""
        cookie, session_cookie = call.headers.get("cookie", ""), call.services.settings.session_cookie
        session = session_cookie is not None and f"{session_cookie}=" in cookie
        page = self.documents[name].replace("{demo}", _on_off(call.services.demo is not None)).replace("{session}", _on_off(session))
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
    files |= {name: _file(name, _module(exports)) for name, exports in TABLES.items()}
    return Pages({name: (folder / name).read_text(encoding="utf-8") for name in (CHAT, OPERATOR)}, files)


def _file(name: str, body: bytes) -> _File:
    return _File(body, _TYPES[Path(name).suffix], f'"{hashlib.sha256(body).hexdigest()[:32]}"')


def _module(exports: Mapping[str, object]) -> bytes:
    options = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS  # enums as keys
    return b"".join(
        b"export const %s = Object.freeze(%s);\n" % (name.encode(), orjson.dumps(value, option=options)) for name, value in exports.items()
    )


def _on_off(on: bool) -> str:
    return "on" if on else "off"
