"""What the shapes of our JSON are made of: the bodies that we take, the answers that we give. OpenAPI and docs/api.md are made from them.

A shape stands beside the code that reads or renders it. Bodies are pydantic models on top of strict JSON (domain.strict_json): no unknown
key, no type made of another. Answers are TypedDicts named …Json, so that the type checker holds a renderer to its shape; the description
leaves the suffix away.
"""

from typing import Annotated, TypeVar
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, ValidationError

from gateway.domain import strict_json
from gateway.domain.ids import uuid_of
from gateway.domain.problems import Code, Refused

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
"""RFC 3339 in UTC."""


def _uuid(value: object) -> UUID:
    found = uuid_of(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError
    return found


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError  # noqa: TRY004 - what pydantic takes for a finding
    return value


Id = Annotated[UUID, BeforeValidator(_uuid)]
"""In a body: a UUID in its one form with hyphens."""
AnyText = PlainValidator(_text, json_schema_input_type=str)
"""In a body: any string, half of a pair included, which pydantic's own would refuse. What is wrong with a text has codes of its own."""


def text_schema(max_characters: int) -> dict[str, object]:
    """What the description says of such a text: the codes text_too_long and invalid_text hold it."""
    return {"type": "string", "minLength": 1, "maxLength": max_characters}


class Body(BaseModel):
    """A request's body."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


_Body = TypeVar("_Body", bound=Body)


def body_of(raw: bytes, shape: type[_Body]) -> _Body:
    """The body in `raw`, JSON in UTF-8. Raises Refused(malformed_request)."""
    try:
        return shape.model_validate(strict_json.loads(raw))
    except (strict_json.NotStrictJson, ValidationError):
        raise Refused(Code.MALFORMED_REQUEST) from None
