"""Strict JSON: the one decoder for requests, frames and look-ups.

Refused beyond what the standard library refuses: duplicate keys, NaN and Infinity (also as 1e999), nesting deeper than MAX_JSON_DEPTH,
integers longer than MAX_JSON_INTEGER_DIGITS, bytes that are not UTF-8 (field cases O-27, O-46). Lone surrogates pass here: who keeps
text decides (`domain.text`). Raises only NotStrictJson.
"""

import json
import math
import re
from typing import Final, Never

from gateway.domain.limits import MAX_JSON_DEPTH, MAX_JSON_INTEGER_DIGITS

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

# Possessive, and a string without its closing quote matches to the end: linear in time, and no memory for ways back (measured without:
# 480 MB for a string of 4 MB, 7 s for 40 kB of escaped quotes).
_STRUCTURE: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)


class NotStrictJson(ValueError):
    """The bytes are not strict JSON. `fault` is one word from a closed list, safe to log; never part of the input."""

    def __init__(self, fault: str) -> None:
        super().__init__(fault)
        self.fault = fault


def loads(raw: bytes | bytearray | str) -> Json:
    """Decode `raw` strictly. Raises NotStrictJson with the fault: utf8, syntax, duplicate_key, number, depth."""
    try:
        text = raw if isinstance(raw, str) else raw.decode("utf-8")
    except UnicodeDecodeError:
        raise NotStrictJson("utf8") from None
    _bound_depth(text)
    try:
        decoded: Json = _DECODER.decode(text)
    except NotStrictJson:
        raise
    except (ValueError, RecursionError):
        raise NotStrictJson("syntax") from None
    return decoded


def _bound_depth(text: str) -> None:
    # Cheap first: a text with few openers cannot be deep, whatever stands in its strings.
    if text.count("[") + text.count("{") <= MAX_JSON_DEPTH:
        return
    depth = 0
    for match in _STRUCTURE.finditer(text):
        token = match.group()
        if token in "[{":
            depth += 1
            if depth > MAX_JSON_DEPTH:
                raise NotStrictJson("depth")
        elif token in "]}":
            depth -= 1


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    decoded = dict(pairs)
    if len(decoded) != len(pairs):
        raise NotStrictJson("duplicate_key")
    return decoded


def _no_constant(_: str) -> Never:
    raise NotStrictJson("number")


def _bounded_int(digits: str) -> int:
    if len(digits) > MAX_JSON_INTEGER_DIGITS:
        raise NotStrictJson("number")
    return int(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise NotStrictJson("number")
    return number


# Made once: json.loads with these hooks makes a decoder for every call, which takes as long as decoding a small event.
_DECODER: Final = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=_bounded_int, parse_float=_finite)
