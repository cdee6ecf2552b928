"""Whether an answer is one that the description of the API promises: status, media type, headers, body, and no field besides."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import jsonschema_rs

from gateway.web.call import RouteSpec
from gateway.web.openapi import description

_OF_EVERY_ADDRESS = frozenset({"not_found", "method_not_allowed"})
"""What is told where no route is: described in words."""


class Described:
    """Checks answers of one gateway. `seen`: the (route, status, code or None) that were answered."""

    def __init__(self, specs: Sequence[RouteSpec]) -> None:
        self.document = description(specs)
        self.seen: set[tuple[str, int, str | None]] = set()
        self._routes = [(re.compile(re.sub(r"{\w+}", "[^/]+", spec.path)), spec) for spec in specs]
        self._closed = {name: _closed(schema) for name, schema in self.document["components"]["schemas"].items()}

    def spec_of(self, method: str, path: str) -> RouteSpec | None:
        """The row that serves this request."""
        return next((spec for pattern, spec in self._routes if spec.method == method and pattern.fullmatch(path)), None)

    async def check(self, response: httpx.Response) -> None:
        """Raises AssertionError for an answer that is not described. Reads the body, but for event streams."""
        kind = response.headers.get("content-type", "").partition(";")[0]
        if response.request.method in ("HEAD", "OPTIONS"):
            return
        document = None
        if kind.endswith("json"):
            await response.aread()
            document = response.json() if response.content else None
        code = document.get("code") if isinstance(document, dict) and kind == "application/problem+json" else None
        spec = self.spec_of(response.request.method, response.request.url.path)
        where = f"{response.request.method} {response.request.url.path}: {response.status_code} {kind} {code}"
        if spec is None:
            assert code in _OF_EVERY_ADDRESS, where
            return
        self.seen.add((spec.name, response.status_code, code))
        described = self.document["paths"][spec.path][spec.method.lower()]["responses"].get(str(response.status_code))
        assert described is not None, f"not described: {where}"
        for name, reference in described["headers"].items():
            details = self.document["components"]["headers"][reference["$ref"].rpartition("/")[2]]
            assert name in response.headers or not details["required"], f"without {name}: {where}"
        content = described["content"].get(kind, described["content"].get("*/*"))
        assert content is not None or not described["content"], f"not described: {where}"
        if document is not None and content is not None:
            validator = jsonschema_rs.Draft202012Validator({**content["schema"], "components": {"schemas": self._closed}})
            assert [error.message for error in validator.iter_errors(document)] == [], where


def _closed(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema without room for fields that are not described. Clients have to live with new ones; tests need not."""
    return {**schema, "additionalProperties": False} if "properties" in schema else schema
