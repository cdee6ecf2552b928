"""From a request's bytes to a Submission: strict, closed, and before anything costs anything (contract B5, C6; cases O-19, O-27, O-46).

The text that leaves here is the one canonical text: it is moderated, fingerprinted, stored and sent as it is, byte for byte.
"""

from typing import Annotated, Final

from pydantic import Field, WithJsonSchema

from gateway.domain.confirmation import MAX_COMMENT_CHARACTERS, Action, Answer
from gateway.domain.ids import OPAQUE_ID, ConversationId, InterruptId, RunId, SubmissionId
from gateway.domain.limits import MAX_TEXT_CHARACTERS, MAX_TITLE_CHARACTERS
from gateway.domain.problems import Code, Refused
from gateway.domain.submission import Decision, Submission
from gateway.domain.text import is_storable
from gateway.json_shapes import AnyText, Body, Id, body_of, text_schema
from gateway.upstream.run_input import text_fits_upstream

_TITLE_CHARACTERS: Final = 60
"""A conversation's first title is the beginning of its first message; people rename it."""


class SubmissionBody(Body):
    """One message. Without `conversation_id` it begins a conversation."""

    submission_id: Annotated[str, Field(pattern=f"^{OPAQUE_ID}$")]
    text: Annotated[str, AnyText, WithJsonSchema(text_schema(MAX_TEXT_CHARACTERS))]
    conversation_id: Id | None = None


def parse_submission(raw: bytes) -> Submission:
    """The submission in a body. Raises Refused: malformed_request, text_too_long, invalid_text."""
    body = body_of(raw, SubmissionBody)
    conversation_id = ConversationId(body.conversation_id) if body.conversation_id is not None else None
    return Submission(SubmissionId(body.submission_id), checked_text(body.text), conversation_id)


def checked_text(text: str) -> str:
    """`text`, which a message may have. Raises Refused: text_too_long, invalid_text."""
    # Length first: nothing else is done with a text that is too long.
    if len(text) > MAX_TEXT_CHARACTERS:
        raise Refused(Code.TEXT_TOO_LONG)
    if not is_storable(text) or not text.strip():
        raise Refused(Code.INVALID_TEXT)
    if not text_fits_upstream(text):
        raise Refused(Code.TEXT_TOO_LONG)
    return text


class DecisionBody(Body):
    """An answer to the question of a waiting run. `interrupt_id` is of the question that was shown."""

    submission_id: Annotated[str, Field(pattern=f"^{OPAQUE_ID}$")]
    interrupt_id: Id
    decision: Annotated[Action, Field(strict=False)]
    comment: Annotated[str, AnyText, WithJsonSchema(text_schema(MAX_COMMENT_CHARACTERS))] | None = None


def parse_decision(run_id: RunId, raw: bytes) -> Decision:
    """The decision about `run_id` in a body. Raises Refused: malformed_request, text_too_long, invalid_text."""
    body = body_of(raw, DecisionBody)
    answer = checked_answer(body.decision, body.comment)
    return Decision(SubmissionId(body.submission_id), run_id, InterruptId(body.interrupt_id), answer)


def checked_answer(action: Action, comment: str | None) -> Answer:
    """The answer that a person gave. A comment of nothing but blanks is none. Raises Refused: text_too_long, invalid_text."""
    if comment is not None:
        if len(comment) > MAX_COMMENT_CHARACTERS:
            raise Refused(Code.TEXT_TOO_LONG, extra={"field": "comment", "max_characters": MAX_COMMENT_CHARACTERS})
        if not is_storable(comment):
            raise Refused(Code.INVALID_TEXT, extra={"field": "comment"})
    return Answer(action, comment if comment is not None and comment.strip() else None)


def title_of(text: str) -> str:
    """The title that a conversation gets from its first message: its first words on one line, at most 60 characters."""
    line = " ".join(text.split())
    return line if len(line) <= _TITLE_CHARACTERS else line[: _TITLE_CHARACTERS - 1].rstrip() + "…"


assert _TITLE_CHARACTERS <= MAX_TITLE_CHARACTERS
