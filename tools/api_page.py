"""docs/api.md, from what `/openapi.json` is made from: the route table, the shapes that it names, and the words."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from gateway.web import words
from gateway.web.call import Group, RouteSpec
from gateway.web.negotiation import Answer
from gateway.web.openapi import description, problems_of

Schema = Mapping[str, Any]

_EXAMPLE: Final = """\
```json
{"submission_id": "my-first", "text": "What is the weather in Paris?", "conversation_id": "68c2f831-3922-42b5-bf38-bfb4cb704457"}
```"""
_REFUSAL: Final = """\
```
HTTP/1.1 409 Conflict
content-type: application/problem+json

{"type":"/problems/submission_conflict","title":"Submission conflict","status":409,"code":"submission_conflict",
 "detail":"This submission id was used for other content. Make a new id for a new message.",
 "instance":"urn:request:b5f8f3b64af4432b97d969393ec70df0","retry":"new-submission"}
```"""
_DEMO: Final = "These exist under `gateway demo` only."
_CONTRACT: Final = "The same as [OpenAPI 3.1](https://spec.openapis.org/oas/v3.1.0) is at `/openapi.json` of every gateway."


def api_lines(specs: Sequence[RouteSpec]) -> Iterator[str]:
    """The page without its notice."""
    document = description(specs)
    schemas: Mapping[str, Schema] = document["components"]["schemas"]
    yield from ("# The HTTP API", "", words.OVERVIEW, "", _CONTRACT)
    yield from ("", "## Who is calling", "", words.CALLING)
    yield from ("", "## Submitting a message", "", _EXAMPLE, "", words.SUBMITTING)
    yield from ("", "## The stream", "", words.STREAM)
    yield from ("", "## Refusals", "", words.REFUSALS, "", _REFUSAL)
    for group in Group:
        rows = [spec for spec in specs if spec.group is group]
        if rows:
            yield from ("", f"## {group.value}")
            yield from ("", _DEMO) if group is Group.DEMO else ()
        for spec in rows:
            yield from _route(spec, document["paths"][spec.path][spec.method.lower()])
    yield from ("", "## Shapes", "", "`?` after a field: it may be missing. What a shape is made of may grow; read what you know.")
    for name, schema in schemas.items():
        yield from _shape(name, schema, schemas)


def _route(spec: RouteSpec, operation: Schema) -> Iterator[str]:
    yield from ("", f"### `{spec.method.value} {spec.path}`", "", spec.about, "")
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "query":
            meaning = parameter.get("description")
            yield f"- `?{parameter['name']}`: {_type(parameter['schema'])}{f'. {meaning}' if meaning else ''}"
    if spec.takes is not None:
        yield f"- body: {_type(operation['requestBody']['content'][Answer.JSON.value]['schema'])}"
    yield f"- answers: {', '.join(_answers(operation['responses']))}"
    problems = "; ".join(f"{status} {', '.join(f'`{code.value}`' for code in codes)}" for status, codes in problems_of(spec).items())
    yield f"- problems: {problems}"


def _answers(responses: Schema) -> Iterator[str]:
    for status, response in responses.items():
        for kind, content in response["content"].items():
            if kind == Answer.STREAM.value:
                yield f"{status} [an event stream](#the-stream)"
            elif kind == Answer.JSON.value:
                yield f"{status} {_type(content['schema'])}"
            elif not kind.endswith("problem+json"):
                yield f"{status} {'a file' if kind == '*/*' else kind}"


def _shape(name: str, schema: Schema, schemas: Mapping[str, Schema]) -> Iterator[str]:
    yield from ("", f"### {name}", "")
    if "description" in schema:
        yield from (schema["description"], "")
    if "enum" in schema:
        yield f"One of {', '.join(f'`{value}`' for value in schema['enum'])}."
        return
    required = schema.get("required", ())
    yield from ("| field | type |", "| --- | --- |")
    for field, details in schema["properties"].items():
        yield f"| `{field}`{'' if field in required else ' ?'} | {_type(details)} |"


def _type(schema: Schema) -> str:
    """A schema in a few words, with links to shapes."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(part) for part in schema["anyOf"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    match schema.get("type"):
        case "array":
            return f"list of {_type(schema['items'])}"
        case "object":
            inner = schema.get("additionalProperties")
            return f"object of {_type(inner)}" if isinstance(inner, Mapping) else "object"
        case None:
            return "JSON"
        case kind:
            return f"{schema.get('format', kind)}{_bounds(schema)}"


def _bounds(schema: Schema) -> str:
    low, high = schema.get("minimum", schema.get("minLength")), schema.get("maximum", schema.get("maxLength"))
    what = " characters" if "maxLength" in schema else ""
    found: Iterable[str] = (f", {low} to {high}{what}",) if low is not None and high is not None else ()
    return "".join(found)
