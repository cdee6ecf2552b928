"""The description of the API (OpenAPI 3.1), made from rows of the route table and from the shapes that they name. Pure."""

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from gateway import __version__
from gateway.domain.problems import PROBLEMS, Code
from gateway.json_shapes import Body
from gateway.web import words
from gateway.web.call import Anybody, Group, RouteSpec, refusals
from gateway.web.negotiation import Answer
from gateway.web.problems import MEDIA_TYPE, OVERLOADED, ProblemJson
from gateway.web.rate_limit import MAX_POLICIES

Schema = dict[str, Any]

_SCHEMAS: Final = "#/components/schemas/"
_SUFFIX: Final = re.compile(r"Json$")
_LINK: Final = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_HEADERS: Final[Mapping[str, Schema]] = {
    "X-Request-Id": {"description": "Names this request in the log.", "required": True, "schema": {"type": "string"}},
    "Retry-After": {"description": "Seconds to wait.", "required": True, "schema": {"type": "string", "pattern": "^[0-9]+$"}},
    "RateLimit-Policy": {
        "description": f"Rules of quota that count this task, the tightest {MAX_POLICIES} (draft-ietf-httpapi-ratelimit-headers).",
        "required": False,
        "schema": {"type": "string"},
    },
    "RateLimit": {"description": "What is left of the tightest of them.", "required": False, "schema": {"type": "string"}},
    "WWW-Authenticate": {"description": "Bearer.", "required": True, "schema": {"type": "string"}},
}


def description(specs: Sequence[RouteSpec], *, session_cookie: str | None = None) -> Schema:
    """The OpenAPI document of these routes. `session_cookie`: the name of the cookie that may carry the token, where there is one."""
    shapes = _Shapes(specs)
    paths: dict[str, Schema] = {}
    for spec in specs:
        paths.setdefault(spec.path, {})[spec.method.lower()] = _operation(spec, shapes, session_cookie)
    schemes: Schema = {"bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}}
    if session_cookie is not None:
        schemes["cookie"] = {"type": "apiKey", "in": "cookie", "name": session_cookie}
    overview = _LINK.sub(r"\1", "\n\n".join((words.OVERVIEW, words.CALLING, words.REFUSALS)))
    groups = {spec.group for spec in specs}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Agent governance gateway", "version": __version__, "description": overview},
        "tags": [{"name": group.value} for group in Group if group in groups],
        "paths": paths,
        "components": {"schemas": shapes.schemas, "headers": dict(_HEADERS), "securitySchemes": schemes},
    }


class _Shapes:
    """The schemas of every shape that the routes name, under the names of their classes."""

    def __init__(self, specs: Sequence[RouteSpec]) -> None:
        shapes = {shape for spec in specs for shape in (spec.takes, spec.query, *spec.returns.values()) if isinstance(shape, type)}
        wanted = sorted((ProblemJson, *shapes), key=lambda shape: shape.__name__)
        inputs: list[tuple[str, JsonSchemaMode, TypeAdapter[Any]]] = [
            (shape.__name__, _mode(shape), TypeAdapter[Any](shape)) for shape in wanted
        ]
        _, found = TypeAdapter.json_schemas(inputs, ref_template=_SCHEMAS + "{model}")
        every: dict[str, Schema] = {_name(name): _tidy(schema) for name, schema in found["$defs"].items()}
        queries = {_name(spec.query.__name__) for spec in specs if spec.query is not None}
        self.schemas = {name: schema for name, schema in sorted(every.items()) if name not in queries}
        self._every = every

    def of(self, shape: type[Any]) -> Schema:
        """The whole schema of a shape."""
        return self._every[_name(shape.__name__)]


def _mode(shape: type[Any]) -> JsonSchemaMode:
    return "validation" if issubclass(shape, Body) else "serialization"


def _name(class_name: str) -> str:
    return _SUFFIX.sub("", class_name)


def _tidy(value: Any) -> Any:
    """Without the titles that repeat a field's name, and with the names of the description."""
    if isinstance(value, list):
        return [_tidy(part) for part in value]
    if not isinstance(value, dict):
        return value
    tidied = {key: _tidy(part) for key, part in value.items() if not (key == "title" and isinstance(part, str))}
    if isinstance(reference := tidied.get("$ref"), str):
        tidied["$ref"] = _name(reference)
    if isinstance(text := tidied.get("description"), str):
        tidied["description"] = " ".join(text.split())
    return tidied


def reference(shape: type[Any]) -> Schema:
    """Where the description has this shape."""
    return {"$ref": _SCHEMAS + _name(shape.__name__)}


def _operation(spec: RouteSpec, shapes: _Shapes, session_cookie: str | None) -> Schema:
    operation: Schema = {"operationId": spec.name, "tags": [spec.group.value], "summary": spec.about}
    if Answer.STREAM in spec.answers:
        operation["description"] = words.STREAM if spec.takes is None else f"{words.SUBMITTING}\n\n{words.STREAM}"
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", **({"format": "uuid"} if name.endswith("_id") else {})}}
        for name in spec.parameters
    ]
    if spec.query is not None:
        parameters += _query(shapes.of(spec.query))
    if parameters:
        operation["parameters"] = parameters
    if spec.takes is not None:
        operation["requestBody"] = {"required": True, "content": {Answer.JSON.value: {"schema": reference(spec.takes)}}}
    operation["responses"] = {str(status): answer for status, answer in sorted(_responses(spec).items())}
    if isinstance(spec.caller, Anybody):
        operation["security"] = []
    else:
        operation["security"] = [{"bearer": []}, *([{"cookie": []}] if session_cookie is not None else [])]
    return operation


def _query(schema: Schema) -> list[Schema]:
    found = []
    for name, details in schema["properties"].items():
        kept = {key: part for key, part in details.items() if key != "description"}
        parameter = {"name": name, "in": "query", "required": name in schema.get("required", ()), "schema": kept}
        found.append(parameter | ({"description": details["description"]} if "description" in details else {}))
    return found


def _responses(spec: RouteSpec) -> dict[int, Schema]:
    found: dict[int, Schema] = {}
    for status, shape in spec.returns.items():
        response = _response(found, status)
        if shape is not None:
            kind, schema = (shape, {}) if isinstance(shape, str) else (Answer.JSON.value, reference(shape))
            response["content"][kind] = {"schema": schema}
    if Answer.STREAM in spec.answers:
        _response(found, 200)["content"][Answer.STREAM.value] = {"schema": {}}  # OpenAPI 3.1 has no word for events
    for status, codes in problems_of(spec).items():
        response = _response(found, status)
        listed = "; ".join(f"`{code.value}`: {PROBLEMS[code].title}" for code in codes)
        response["description"] = f"{response['description']}. {listed}"
        only = {"properties": {"code": {"enum": [code.value for code in codes]}}}
        response["content"][MEDIA_TYPE] = {"schema": {"allOf": [reference(ProblemJson), only]}}
        if status in OVERLOADED:
            response["headers"]["Retry-After"] = _header("Retry-After")
    if Code.QUOTA_EXHAUSTED in spec.refuses:
        for status in {*spec.returns, PROBLEMS[Code.QUOTA_EXHAUSTED].status}:
            found[status]["headers"] |= {name: _header(name) for name in ("RateLimit-Policy", "RateLimit")}
    return found


def problems_of(spec: RouteSpec) -> dict[int, list[Code]]:
    """The problems that the route can answer with, by status."""
    found: dict[int, list[Code]] = {}
    for code in sorted(refusals(spec), key=lambda code: (PROBLEMS[code].status, code.value)):
        found.setdefault(PROBLEMS[code].status, []).append(code)
    return found


def _response(found: dict[int, Schema], status: int) -> Schema:
    names = ("X-Request-Id", *(("WWW-Authenticate",) if status == HTTPStatus.UNAUTHORIZED else ()))
    empty = {"description": HTTPStatus(status).phrase, "headers": {name: _header(name) for name in names}, "content": {}}
    return found.setdefault(status, empty)


def _header(name: str) -> Schema:
    return {"$ref": f"#/components/headers/{name}"}
