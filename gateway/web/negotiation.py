"""`Accept`: which of JSON and an event stream a caller wants (interface.md: no `Accept` means JSON)."""

from enum import StrEnum
from typing import Final

from starlette.datastructures import Headers

from gateway.domain.problems import Code, Refused


class Answer(StrEnum):
    """What an address can answer with."""

    JSON = "application/json"
    STREAM = "text/event-stream"


_NAMED: Final = 2
"""How exactly a range names a type: 0 */*, 1 type/*, 2 type/subtype (RFC 9110 12.5.1)."""


def negotiate(headers: Headers, offered: tuple[Answer, ...]) -> Answer:
    """The best of `offered`; the first where the caller does not mind. Raises Refused(not_acceptable).

    An event stream beside another offer must be asked for by name, because clients that accept */* do not expect one.
    """
    accept = ", ".join(headers.getlist("accept")).strip()
    if not accept:
        return offered[0]
    ranges = _ranges(accept)
    best: Answer | None = None
    best_quality = 0.0
    for answer in offered:
        exactness, quality = _match(answer.value, ranges)
        if answer is Answer.STREAM and len(offered) > 1:
            # Named and not worse than JSON wins: `text/event-stream, */*` and `application/json, text/event-stream` ask for the stream.
            if exactness == _NAMED and quality > 0 and quality >= best_quality:
                best, best_quality = answer, quality
        elif quality > best_quality:
            best, best_quality = answer, quality
    if best is None:
        raise Refused(Code.NOT_ACCEPTABLE)
    return best


def _ranges(accept: str) -> list[tuple[str, float]]:
    ranges = []
    for part in accept.split(","):
        media, *parameters = (piece.strip().lower() for piece in part.split(";"))
        quality = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip() == "q":
                try:
                    quality = min(max(float(value), 0.0), 1.0)
                except ValueError:
                    quality = 0.0
        ranges.append((media, quality))
    return ranges


def _match(media_type: str, ranges: list[tuple[str, float]]) -> tuple[int, float]:
    """How exactly, and with which quality, the most exact range of the list names `media_type`."""
    best = (-1, 0.0)
    for exactness, pattern in enumerate(("*/*", f"{media_type.partition('/')[0]}/*", media_type)):
        qualities = [quality for media, quality in ranges if media == pattern]
        if qualities:
            best = (exactness, max(qualities))
    return best
