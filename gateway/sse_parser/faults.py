"""The closed list of what can be wrong with a stream, each with the reason that people are told and a note for operators. No rules here."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from gateway.domain.evidence import StreamBroken
from gateway.domain.reasons import Reason


class Detail(StrEnum):
    """Why a stream was given up: the only words that StreamBroken.detail takes from the parser. Never text from upstream.

    The first five after ID_LENGTH are the faults of `domain.strict_json`.
    """

    NO_EVENT = "no_event"
    NO_TERMINAL_EVENT = "no_terminal_event"
    OPEN_FRAME = "open_frame"
    FRAME_BYTES = "frame_bytes"
    KEPT_FRAME_BYTES = "kept_frame_bytes"
    STREAM_BYTES = "stream_bytes"
    EVENTS = "events"
    TEXT_BYTES = "text_bytes"
    MESSAGES = "messages"
    IGNORED_MESSAGES = "ignored_messages"
    TOOLS = "tools"
    ID_LENGTH = "id_length"
    UTF8 = "utf8"
    SYNTAX = "syntax"
    DUPLICATE_KEY = "duplicate_key"
    NUMBER = "number"
    DEPTH = "depth"
    NOT_AN_OBJECT = "not_an_object"
    TYPE_FIELD = "type_field"
    REQUIRED_FIELD = "required_field"
    OPTIONAL_FIELD = "optional_field"
    NATIVE_RUN_VALUE = "native_run_value"
    FIRST_EVENT = "first_event"
    SECOND_RUN_STARTED = "second_run_started"
    MESSAGE_REOPENED = "message_reopened"
    MESSAGE_NOT_OPEN = "message_not_open"
    TOOL_REOPENED = "tool_reopened"
    CHUNK_WITHOUT_ID = "chunk_without_id"
    CHUNK_WITHOUT_NAME = "chunk_without_name"
    RUN_STARTED_IDS = "run_started_ids"
    RUN_FINISHED_IDS = "run_finished_ids"
    NATIVE_IS_CORRELATION = "native_is_correlation"
    NATIVE_CHANGED = "native_changed"
    MESSAGE_TUPLE = "message_tuple"


FAULTS: Final[Mapping[Detail, tuple[Reason, str]]] = {
    Detail.NO_EVENT: (Reason.STREAM_ENDED, "The stream ended before any event came."),
    Detail.NO_TERMINAL_EVENT: (Reason.STREAM_ENDED, "The stream ended before RUN_FINISHED or RUN_ERROR."),
    Detail.OPEN_FRAME: (Reason.STREAM_ENDED, "The stream ended inside a frame: the blank line behind it is missing."),
    Detail.FRAME_BYTES: (Reason.BOUND_EXCEEDED, "A frame, or one line of it, is too long."),
    Detail.KEPT_FRAME_BYTES: (Reason.BOUND_EXCEEDED, "A frame whose text is kept is too long."),
    Detail.STREAM_BYTES: (Reason.BOUND_EXCEEDED, "The stream is too long."),
    Detail.EVENTS: (Reason.BOUND_EXCEEDED, "Too many events; comments and ignored events count."),
    Detail.TEXT_BYTES: (Reason.BOUND_EXCEEDED, "Too much visible text."),
    Detail.MESSAGES: (Reason.BOUND_EXCEEDED, "Too many messages."),
    Detail.IGNORED_MESSAGES: (Reason.BOUND_EXCEEDED, "Too many messages of others (subagents, other roles)."),
    Detail.TOOLS: (Reason.BOUND_EXCEEDED, "Too many tool steps."),
    Detail.ID_LENGTH: (Reason.BOUND_EXCEEDED, "The id of a message or a tool call is too long."),
    Detail.UTF8: (Reason.BAD_FRAME, "Bytes that are not UTF-8."),
    Detail.SYNTAX: (Reason.BAD_FRAME, "Not JSON."),
    Detail.DUPLICATE_KEY: (Reason.BAD_FRAME, "An object has a key twice."),
    Detail.NUMBER: (Reason.BAD_FRAME, "NaN, Infinity, a number out of range, or an integer of too many digits."),
    Detail.DEPTH: (Reason.BAD_FRAME, "Nested too deep."),
    Detail.NOT_AN_OBJECT: (Reason.BAD_FRAME, "JSON, but no object."),
    Detail.TYPE_FIELD: (Reason.BAD_FRAME, "`type` is missing or not text."),
    Detail.REQUIRED_FIELD: (Reason.BAD_FRAME, "A required field is missing, null or of another type."),
    Detail.OPTIONAL_FIELD: (Reason.BAD_FRAME, "An optional field is of another type."),
    Detail.NATIVE_RUN_VALUE: (Reason.BAD_FRAME, "CUSTOM native_run without a run id of an accepted form."),
    Detail.FIRST_EVENT: (Reason.BAD_FRAME, "The first event is neither RUN_STARTED nor RUN_ERROR."),
    Detail.SECOND_RUN_STARTED: (Reason.BAD_FRAME, "RUN_STARTED came again."),
    Detail.MESSAGE_REOPENED: (Reason.BAD_FRAME, "A message id was used again."),
    Detail.MESSAGE_NOT_OPEN: (Reason.BAD_FRAME, "Text for a message that has not begun, or has ended."),
    Detail.TOOL_REOPENED: (Reason.BAD_FRAME, "A tool call id was used again."),
    Detail.CHUNK_WITHOUT_ID: (Reason.BAD_FRAME, "A chunk without an id, with no chunk of its kind before it."),
    Detail.CHUNK_WITHOUT_NAME: (Reason.BAD_FRAME, "A tool call's first chunk does not name the tool."),
    Detail.RUN_STARTED_IDS: (Reason.ID_MISMATCH, "RUN_STARTED with ids that are not this run's."),
    Detail.RUN_FINISHED_IDS: (Reason.ID_MISMATCH, "RUN_FINISHED with ids that are not this run's."),
    Detail.NATIVE_IS_CORRELATION: (Reason.ID_MISMATCH, "The native run id is the id that we sent."),
    Detail.NATIVE_CHANGED: (Reason.ID_MISMATCH, "The native run id came again, and it was another one."),
    Detail.MESSAGE_TUPLE: (Reason.BAD_FRAME, "Native profile: a `messages` event that is no pair of a message and what is about it."),
}
"""What each detail belongs to and means; the docs are generated from it."""


def broken(detail: Detail) -> StreamBroken:
    """The fact of a stream that was given up, or ended too early, for `detail`."""
    return StreamBroken(FAULTS[detail][0], detail)
