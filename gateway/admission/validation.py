"""From a request's bytes to a Submission: strict, closed, and before anything costs anything (contract B5, C6; cases O-19, O-27, O-46).

The text that leaves here is the one canonical text: it is moderated, fingerprinted, stored and sent as it is, byte for byte.
"""

from typing import Final

from gateway.domain import strict_json
from gateway.domain.ids import ConversationId, SubmissionId, is_opaque_id, uuid_of
from gateway.domain.limits import MAX_TEXT_CHARACTERS, MAX_TITLE_CHARACTERS
from gateway.domain.problems import Code, Refused
from gateway.domain.submission import Submission
from gateway.domain.text import is_storable
from gateway.upstream.run_input import text_fits_upstream

_TITLE_CHARACTERS: Final = 60
"""A conversation's first title is the beginning of its first message; people rename it."""


def parse_submission(body: bytes) -> Submission:
    """The submission in `body`. Raises Refused: malformed_request, text_too_long, invalid_text."""
    try:
        document = strict_json.loads(body)
    except strict_json.NotStrictJson:
        raise Refused(Code.MALFORMED_REQUEST) from None
    if not isinstance(document, dict) or not document.keys() <= {"submission_id", "text", "conversation_id"}:
        raise Refused(Code.MALFORMED_REQUEST)
    submission_id, text, conversation_id = document.get("submission_id"), document.get("text"), document.get("conversation_id")
    if not isinstance(submission_id, str) or not is_opaque_id(submission_id) or not isinstance(text, str):
        raise Refused(Code.MALFORMED_REQUEST)
    # Length first: nothing else is done with a text that is too long.
    if len(text) > MAX_TEXT_CHARACTERS:
        raise Refused(Code.TEXT_TOO_LONG)
    if not is_storable(text) or not text.strip():
        raise Refused(Code.INVALID_TEXT)
    if not text_fits_upstream(text):
        raise Refused(Code.TEXT_TOO_LONG)
    return Submission(SubmissionId(submission_id), text, _conversation_id(conversation_id))


def title_of(text: str) -> str:
    """The title that a conversation gets from its first message: its first words on one line, at most 60 characters."""
    line = " ".join(text.split())
    return line if len(line) <= _TITLE_CHARACTERS else line[: _TITLE_CHARACTERS - 1].rstrip() + "…"


def _conversation_id(raw: strict_json.Json) -> ConversationId | None:
    if raw is None:
        return None
    if isinstance(raw, str) and (conversation_id := uuid_of(raw)) is not None:
        return ConversationId(conversation_id)
    raise Refused(Code.MALFORMED_REQUEST)


assert _TITLE_CHARACTERS <= MAX_TITLE_CHARACTERS
