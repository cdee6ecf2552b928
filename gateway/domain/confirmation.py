"""The one question that an agent may ask a person, version 1 of `agentifui.acceptance.confirmation`, and the answer to it (contract E3).

Strict and closed: what is not exactly this form is None, and never a reduced form of it. Pure: what is pending is `native`, who may answer
is `admission`. docs/approval-schemas.md has the JSON schemas, made from the numbers here.
"""

import hashlib
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final
from uuid import UUID, uuid5

from gateway.domain.ids import InterruptId, RunId
from gateway.domain.strict_json import Json

PROMPT_TYPE: Final = "agentifui.acceptance.confirmation"
PROMPT_VERSION: Final = 1
MAX_PROMPT_TITLE_CHARACTERS: Final = 200
MAX_PROMPT_DESCRIPTION_CHARACTERS: Final = 4000
MAX_COMMENT_CHARACTERS: Final = 2000
"""The longest comment, also where the prompt names no bound of its own."""

EXPIRES_AT_PATTERN: Final = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)$"
_EXPIRES_AT: Final = re.compile(EXPIRES_AT_PATTERN)
# Plain text: no control characters (line ends and tabs only where there may be lines), no halves of pairs, and none of the characters that
# turn the direction of what follows: with them a question reads as another than it is.
_NOT_PLAIN: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
_LINES: Final = re.compile("[\t\n\u2028\u2029]")
_REQUIRED: Final = frozenset({"type", "version", "title", "description", "actions", "expires_at"})
_OPTIONAL: Final = frozenset({"comment_max_chars"})
_INTERRUPT_NAMESPACE: Final = UUID("4f0c1c0e-93b4-5a3d-8c55-0f2b8a6f7d21")


class Action(StrEnum):
    """What a person may answer. Each prompt offers both."""

    APPROVE = "approve"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class Prompt:
    """A valid question. `expires_at` is aware and in UTC; whether it has passed, the database's clock says."""

    title: str
    description: str
    comment_max_chars: int
    expires_at: datetime | None

    def digest(self) -> bytes:
        """32 bytes that change with everything a person is shown: what an answer is bound to."""
        expires_at = self.expires_at.isoformat(timespec="microseconds") if self.expires_at else None
        shown = [PROMPT_VERSION, self.title, self.description, self.comment_max_chars, expires_at]
        return hashlib.sha256(json.dumps(shown, ensure_ascii=True, separators=(",", ":")).encode("ascii")).digest()


@dataclass(frozen=True, slots=True)
class Question:
    """A valid prompt under upstream's own interrupt id, which never leaves the gateway."""

    native_id: str
    prompt: Prompt


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's answer. `comment` is None where there is none."""

    action: Action
    comment: str | None = None

    def resume_value(self) -> dict[str, str]:
        """What the agent gets from `interrupt()`: {"action": …, "comment"?: …}."""
        value = {"action": self.action.value}
        return value if self.comment is None else {**value, "comment": self.comment}


def parse_prompt(value: Json) -> Prompt | None:
    """The prompt in an interrupt's value; None for anything that is not exactly version 1."""
    if not isinstance(value, dict) or not _REQUIRED <= value.keys() <= _REQUIRED | _OPTIONAL:
        return None
    title, description, comment_max_chars = value["title"], value["description"], value.get("comment_max_chars", MAX_COMMENT_CHARACTERS)
    if value["type"] != PROMPT_TYPE or type(value["version"]) is not int or value["version"] != PROMPT_VERSION:
        return None
    if not isinstance(title, str) or not is_plain(title, MAX_PROMPT_TITLE_CHARACTERS, lines=False) or not title.strip():
        return None
    if not isinstance(description, str) or not is_plain(description, MAX_PROMPT_DESCRIPTION_CHARACTERS, lines=True):
        return None
    if type(comment_max_chars) is not int or not 0 <= comment_max_chars <= MAX_COMMENT_CHARACTERS or not _offers_both(value["actions"]):
        return None
    expires_at = value["expires_at"]
    if expires_at is None:
        return Prompt(title, description, comment_max_chars, None)
    moment = _moment(expires_at) if isinstance(expires_at, str) else None
    return None if moment is None else Prompt(title, description, comment_max_chars, moment)


def is_plain(text: str, longest: int, *, lines: bool) -> bool:
    """Whether `text` is plain text of at most `longest` characters; with line ends and tabs only where `lines` says so."""
    return len(text) <= longest and _NOT_PLAIN.search(text) is None and (lines or _LINES.search(text) is None)


def interrupt_id(run_id: RunId, native_interrupt_id: str, digest: bytes) -> InterruptId:
    """The local id of a question: a function of its run, upstream's id and what is shown, so an answer to it is an answer to just that."""
    return InterruptId(uuid5(_INTERRUPT_NAMESPACE, f"{run_id}/{native_interrupt_id}/{digest.hex()}"))


def _offers_both(actions: Json) -> bool:
    return isinstance(actions, list) and len(actions) == len(Action) and all(action.value in actions for action in Action)


def _moment(text: str) -> datetime | None:
    if _EXPIRES_AT.fullmatch(text) is None:
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
