"""One frame's payload in, one typed event or a fault out. Knows the fields of each event; knows nothing of order, ids or items.

Three readers, of which only the last builds objects that a hostile frame could choose, and all of which agree on every frame:

1. The exact shape that nearly every frame has, a plain TEXT_MESSAGE_CONTENT, is matched whole: there is no room in it for a second key.
2. A frame that cannot be an event that we act on is skipped unread. "Cannot" does not rest on finding the top-level type: whichever of
   several `type` keys one believes, and however deep it is, its value would have to stand in the frame as a string that is a handled
   type or CUSTOM name, or be spelt with escaped letters. A text that quotes one (snapshots repeat what users write) is no such string: its
   quotes are escaped. A frame with neither changes nothing by any reading, so neither a terminal event nor visible text can
   hide in it (`_may_act`).
3. Everything else is decoded: by the fast decoder only where the result proves that no key came twice and nothing was nested
   (`_flat`), by `strict_json` otherwise and always for terminal events.
"""

import re
from collections.abc import Mapping
from typing import Final, assert_never

import orjson

from gateway.domain import strict_json
from gateway.domain.evidence import Outcome, StreamBroken
from gateway.domain.ids import is_opaque_id
from gateway.sse_parser.events import (
    Event,
    Ignored,
    IgnoredClass,
    InterruptAsked,
    NativeRun,
    RunErrorSeen,
    RunFinishedSeen,
    RunStarted,
    TextChunk,
    TextContent,
    TextEnd,
    TextStart,
    ToolArgs,
    ToolChunk,
    ToolEnd,
    ToolResult,
    ToolStart,
)
from gateway.sse_parser.faults import Detail, broken
from gateway.sse_parser.guard import Payload
from gateway.sse_parser.treatment import CUSTOM_NOTES, NATIVE_RUN, ON_INTERRUPT, OUTCOMES, TREATMENTS, Row, Treatment
from gateway.sse_parser.usage import usage_of

Document = dict[str, strict_json.Json]

MAX_ID_CHARACTERS: Final = 1024
"""Of a message or tool id. Real ones have 13 to 64; the bound keeps thousands of remembered ids small."""

# What the encoders of the protocol write: no blanks, `timestamp` right behind `type` when there is one.
_PLAIN_CONTENT: Final = (
    rb'\{"type":"TEXT_MESSAGE_CONTENT",(?:"timestamp":(?:null|[1-9][0-9]{0,18}+),)?+'
    rb'"messageId":"([^"\\\x00-\x1f]{0,1024}+)","delta":"([^"\\\x00-\x1f]*+)"\}'
)
_match_plain_content: Final = re.compile(_PLAIN_CONTENT).fullmatch
_match_plain_read: Final = re.compile(b"data: " + _PLAIN_CONTENT + b"\n\n").fullmatch
_AROUND_A_FRAME: Final = len(b"data: \n\n")
_LEADING_TYPE: Final = re.compile(rb'\{[ \t\n\r]*"type"[ \t\n\r]*:[ \t\n\r]*"([^"\\]{1,64})"')
_OPENING: Final = re.compile(rb"[ \t\n\r]*+\{")
_BLANKS: Final = re.compile(rb"[ \t\n\r]*+")
_ESCAPED_LETTER: Final = re.compile(rb"(?<!\\)(?:\\\\)*+\\u00(?:4[1-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aA])")
"""An ASCII letter or underscore written as an escape. No encoder does that; who does wants to hide a word."""
_ACTING_STRINGS: Final = (b'"RUN_', b'"TEXT_MESSAGE_', b'"TOOL_CALL_', *(f'"{name}"'.encode() for name in CUSTOM_NOTES))
"""How every handled type begins, and the handled CUSTOM names (a test compares this with the table): the sieve before `_ACTING`."""
_ACTING_NAMES: Final = (*CUSTOM_NOTES, *(name for name, row in TREATMENTS.items() if row.ignored_class is None))
_ACTING: Final = re.compile(rb'(?<!\\)"(?:%b)"' % "|".join(_ACTING_NAMES).encode())
"""One of these names as a string of its own. A quote behind a backslash opens none: it stands in somebody's text."""

_ROWS: Final[Mapping[bytes, Row]] = {name.encode(): row for name, row in TREATMENTS.items()}
_IGNORED: Final[Mapping[IgnoredClass, Ignored]] = {ignored_class: Ignored(ignored_class) for ignored_class in IgnoredClass}
_ASSISTANT: Final = "assistant"


class _Refused(Exception):
    """Carries a fault out of the field readers to `decode`, the only place that catches it."""

    def __init__(self, fault: StreamBroken) -> None:
        super().__init__(fault.detail)
        self.fault = fault


def plain_content(frame: Payload, kept_frame_bytes: int) -> tuple[str, str] | None:
    """Message id and text, when `frame` is a TEXT_MESSAGE_CONTENT of the plain shape; None for all others, which `decode` reads."""
    plain = _match_plain_content(frame)
    if plain is None or len(frame) > kept_frame_bytes:
        return None
    message_id, delta = plain.groups()
    return message_id.decode(), delta.decode()


def plain_read(read: bytes, kept_frame_bytes: int) -> tuple[str, str] | None:
    """The same for a whole read of the socket that is exactly one such frame, in valid UTF-8: nearly every read of a paced stream."""
    plain = _match_plain_read(read)
    if plain is None or len(read) - _AROUND_A_FRAME > kept_frame_bytes:
        return None
    message_id, delta = plain.groups()
    try:
        return message_id.decode(), delta.decode()
    except UnicodeDecodeError:
        return None


def decode(frame: Payload, kept_frame_bytes: int) -> Event | StreamBroken:
    """The event in `frame` (valid UTF-8, from the guard), or the fault that it is. Never raises for what it is given."""
    plain = plain_content(frame, kept_frame_bytes)
    if plain is not None:
        return TextContent(*plain, False)
    unread = _skipped(frame, kept_frame_bytes)
    if unread is not None:
        return unread
    try:
        return _typed(_document(frame), len(frame) <= kept_frame_bytes)
    except _Refused as refused:
        return refused.fault


def looks_terminal(frame: Payload) -> bool:
    """Whether `frame` begins like a terminal event: for counting what comes after the first one, and for nothing else."""
    leading = _LEADING_TYPE.match(frame)
    row = None if leading is None else _ROWS.get(leading.group(1))
    return row is not None and row.terminal


def _skipped(frame: Payload, kept_frame_bytes: int) -> Event | StreamBroken | None:
    """What can be said of `frame` without decoding it; None when it must be decoded."""
    leading = _LEADING_TYPE.match(frame)
    small = len(frame) <= kept_frame_bytes
    if leading is None:
        if small or _may_act(frame):
            return None
        return _large_unread(frame)
    row = _ROWS.get(leading.group(1))
    if row is not None and row.kept and not small:
        return broken(Detail.KEPT_FRAME_BYTES)
    if row is None or row.treatment is Treatment.IGNORED or (row.treatment is Treatment.BY_NAME and not small):
        if _may_act(frame) or not _is_closed(frame):
            return None
        return _IGNORED[_class_of(row)]
    return None


def _large_unread(frame: Payload) -> Ignored | StreamBroken:
    # Its type does not come first, and finding it would mean decoding megabytes: it need only look like an event.
    if not (_OPENING.match(frame) and _is_closed(frame)):
        return broken(Detail.SYNTAX)
    if b'"type"' not in frame:
        return broken(Detail.TYPE_FIELD)
    return _IGNORED[IgnoredClass.UNKNOWN]


def _is_closed(frame: Payload) -> bool:
    """Whether `frame` ends like an object. Without a copy: it may have megabytes."""
    closing = frame.rfind(b"}")
    return closing >= 0 and _BLANKS.fullmatch(frame, closing + 1) is not None


def _may_act(frame: Payload) -> bool:
    """Whether any reading of `frame` could be an event that we act on. Sound, not exact."""
    if any(string in frame for string in _ACTING_STRINGS) and _ACTING.search(frame) is not None:
        return True
    return b"\\u00" in frame and _ESCAPED_LETTER.search(frame) is not None


def _class_of(row: Row | None) -> IgnoredClass:
    if row is None or row.ignored_class is None:
        return IgnoredClass.UNKNOWN
    return row.ignored_class


def _document(frame: Payload) -> Document:
    flat = _flat(frame)
    if flat is not None:
        return flat
    try:
        decoded = strict_json.loads(frame)
    except strict_json.NotStrictJson as refused:
        raise _Refused(broken(Detail(refused.fault))) from None
    if not isinstance(decoded, dict):
        raise _Refused(broken(Detail.NOT_AN_OBJECT))
    return decoded


def _flat(frame: Payload) -> Document | None:
    """`frame` by the fast decoder, when that gives what the strict one would; None when that is not proven.

    The proof: without `\\u` and escaped backslashes, each `\\"` is a quote inside a string and each other `"` opens or closes one. An
    object of n keys, whose values are s strings and otherwise scalars, has 2(n+s) such quotes; a key that came twice, or a value that was
    nested and then overwritten, would leave more. Floats go the strict way (the fast decoder makes long integers into floats), terminal
    events always.
    """
    quotes = frame.count(b'"')
    if b"\\" in frame:
        if b"\\u" in frame or b"\\\\" in frame:
            return None
        quotes -= frame.count(b'\\"')
    if b'"RUN_FINISHED"' in frame or b'"RUN_ERROR"' in frame:
        return None
    try:
        document = orjson.loads(frame)
    except orjson.JSONDecodeError:
        return None
    if type(document) is not dict:
        return None
    strings = len(document)
    for value in document.values():
        kind = type(value)
        if kind is str:
            strings += 1
        elif value is not None and kind is not int and kind is not bool:
            return None
    return document if quotes == 2 * strings else None


def _typed(document: Document, small: bool) -> Event | StreamBroken:
    name = document.get("type")
    if not isinstance(name, str):
        return broken(Detail.TYPE_FIELD)
    row = TREATMENTS.get(name)
    if row is None:
        return _IGNORED[IgnoredClass.UNKNOWN]
    if row.kept and not small:
        return broken(Detail.KEPT_FRAME_BYTES)
    match row.treatment:
        case Treatment.IGNORED:
            return _IGNORED[_class_of(row)]
        case Treatment.BY_NAME:
            return _custom(document)
        case Treatment.VALIDATED | Treatment.EXPANDED:
            return _run_event(name, document) if name.startswith("RUN_") else _item_event(name, document)
        case _:
            assert_never(row.treatment)


def _run_event(name: str, document: Document) -> Event:
    if name == "RUN_ERROR":
        _required(document, "message")
        return RunErrorSeen(usage_of(document.get("usage")))
    thread_id, run_id = _text_or_none(document, "threadId"), _text_or_none(document, "runId")
    if name == "RUN_STARTED":
        return RunStarted(thread_id, run_id)
    return RunFinishedSeen(thread_id, run_id, _outcome(document.get("outcome")), usage_of(document.get("usage")))


def _item_event(name: str, document: Document) -> Event:
    if name.startswith("TOOL_CALL_") and _of_subagent(document):
        return _IGNORED[IgnoredClass.SUBAGENT]  # its text is dropped where the ids of messages are known
    match name:
        case "TEXT_MESSAGE_CONTENT":
            return TextContent(_id(document, "messageId"), _required(document, "delta"), _of_subagent(document))
        case "TEXT_MESSAGE_START":
            return TextStart(_id(document, "messageId"), _is_assistant(document), _of_subagent(document))
        case "TEXT_MESSAGE_END":
            return TextEnd(_id(document, "messageId"), _of_subagent(document))
        case "TEXT_MESSAGE_CHUNK":
            delta = _optional(document, "delta") or ""
            return TextChunk(_optional_id(document, "messageId"), delta, _is_assistant(document), _of_subagent(document))
        case "TOOL_CALL_START":
            return ToolStart(_id(document, "toolCallId"), _required(document, "toolCallName"), _optional_id(document, "parentMessageId"))
        case "TOOL_CALL_ARGS":
            _required(document, "delta")
            return ToolArgs(_id(document, "toolCallId"))
        case "TOOL_CALL_END":
            return ToolEnd(_id(document, "toolCallId"))
        case "TOOL_CALL_RESULT":
            _required(document, "messageId")
            if not isinstance(document.get("content"), str | list):
                raise _Refused(broken(Detail.REQUIRED_FIELD))
            return ToolResult(_id(document, "toolCallId"))
        case "TOOL_CALL_CHUNK":
            _optional(document, "delta")
            tool_id, parent = _optional_id(document, "toolCallId"), _optional_id(document, "parentMessageId")
            return ToolChunk(tool_id, _optional(document, "toolCallName"), parent)
    raise AssertionError(name)  # a row of the table without its fields here; a test walks the table


def _custom(document: Document) -> Event:
    name = _required(document, "name")
    if name == ON_INTERRUPT:
        return InterruptAsked()
    if name == NATIVE_RUN:
        return NativeRun(_native_run_id(document.get("value")))
    return _IGNORED[IgnoredClass.CUSTOM]


def _native_run_id(value: strict_json.Json) -> str:
    """One of the three accepted shapes: {"run_id": id}, {"runId": id}, id. Both keys at once must agree."""
    native = value
    if isinstance(value, dict):
        snake, camel = value.get("run_id"), value.get("runId")
        native = snake if camel is None or camel == snake else camel if snake is None else None
    if not isinstance(native, str) or not is_opaque_id(native):
        raise _Refused(broken(Detail.NATIVE_RUN_VALUE))
    return native


def _outcome(outcome: strict_json.Json) -> Outcome:
    if outcome is None:
        return Outcome.SUCCESS
    kind = outcome.get("type") if isinstance(outcome, dict) else None
    return OUTCOMES.get(kind, Outcome.UNRECOGNISED) if isinstance(kind, str) else Outcome.UNRECOGNISED


def _required(document: Document, key: str) -> str:
    value = document.get(key)
    if not isinstance(value, str):
        raise _Refused(broken(Detail.REQUIRED_FIELD))
    return value


def _optional(document: Document, key: str) -> str | None:
    value = document.get(key)
    if value is not None and not isinstance(value, str):
        raise _Refused(broken(Detail.OPTIONAL_FIELD))
    return value


def _id(document: Document, key: str) -> str:
    return _bounded(_required(document, key))


def _optional_id(document: Document, key: str) -> str | None:
    value = _optional(document, key)
    return value if value is None else _bounded(value)


def _bounded(upstream_id: str) -> str:
    if len(upstream_id) > MAX_ID_CHARACTERS:
        raise _Refused(broken(Detail.ID_LENGTH))
    return upstream_id


def _is_assistant(document: Document) -> bool:
    role = _optional(document, "role")
    return role is None or role == _ASSISTANT


def _of_subagent(document: Document) -> bool:
    return _optional(document, "subagentRunId") is not None


def _text_or_none(document: Document, key: str) -> str | None:
    value = document.get(key)
    return value if isinstance(value, str) else None
