"""From whatever a graph holds to plain JSON values. Total: what has no JSON form becomes its text, and no text breaks an encoder."""

import json
import math
from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from pydantic import BaseModel


def plain(value: object) -> Any:
    """The JSON form of a value: messages and other models by their fields, NaN and infinities as null."""
    match value:
        case None | bool() | int():
            return value
        case Enum():
            return plain(value.value)
        case str():
            return encodable(value)
        case float():
            return value if math.isfinite(value) else None
        case BaseModel():
            return plain(value.model_dump())
        case Mapping():
            return {encodable(str(key)): plain(entry) for key, entry in value.items()}
        case list() | tuple() | Set():
            return [plain(entry) for entry in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        case _:
            return encodable(str(value))


def encodable(text: str) -> str:
    """Lone surrogates cannot be sent as UTF-8; a tool that read a strange file must not fail the whole run."""
    return text.encode("utf-8", "replace").decode("utf-8")


def compact_json(value: object) -> str:
    """One line of JSON, not escaped beyond need."""
    return json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"))
