"""Builders of upstream frames for the parser's tests: the shorthand of the field cases (RS, NR, TS, …). No assertions, no servers."""

import json
from collections.abc import Iterable

from gateway.domain import strict_json
from gateway.domain.evidence import StreamFact
from gateway.domain.limits import StreamBounds
from gateway.domain.snapshot import MessageItem
from gateway.sse_parser.guard import Guard
from gateway.sse_parser.parser import Batch, StreamParser

THREAD = "t-1"
CORRELATION = "c-1"
BOUNDS = StreamBounds()


def payload(event: object) -> bytes:
    """Compact JSON, not escaped, as the protocol's encoders write it."""
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def framed(*events: object) -> bytes:
    """F(x) of the field cases, for each event."""
    return b"".join(b"data: " + payload(event) + b"\n\n" for event in events)


def event(kind: str, /, **fields: object) -> dict[str, object]:
    return {"type": kind, **fields}


RS = event("RUN_STARTED", threadId=THREAD, runId=CORRELATION)
NR = event("CUSTOM", name="native_run", value={"run_id": "n-1"})
RF = event("RUN_FINISHED", threadId=THREAD, runId=CORRELATION)
RE = event("RUN_ERROR", message="boom secret=abc123")


def ts(message_id: str, **fields: object) -> dict[str, object]:
    return event("TEXT_MESSAGE_START", messageId=message_id, role="assistant", **fields)


def tc(message_id: str, delta: str, **fields: object) -> dict[str, object]:
    return event("TEXT_MESSAGE_CONTENT", messageId=message_id, delta=delta, **fields)


def te(message_id: str) -> dict[str, object]:
    return event("TEXT_MESSAGE_END", messageId=message_id)


def tk(message_id: str | None, delta: str | None = None, **fields: object) -> dict[str, object]:
    return event("TEXT_MESSAGE_CHUNK", messageId=message_id, delta=delta, **fields)


def ks(tool_id: str, name: str = "search", parent: str | None = None) -> dict[str, object]:
    return event("TOOL_CALL_START", toolCallId=tool_id, toolCallName=name, parentMessageId=parent)


def ka(tool_id: str, delta: str = "{}") -> dict[str, object]:
    return event("TOOL_CALL_ARGS", toolCallId=tool_id, delta=delta)


def ke(tool_id: str) -> dict[str, object]:
    return event("TOOL_CALL_END", toolCallId=tool_id)


def kr(tool_id: str, content: object = "result") -> dict[str, object]:
    return event("TOOL_CALL_RESULT", messageId=tool_id, toolCallId=tool_id, content=content)


def kk(tool_id: str | None, name: str | None = None, delta: str | None = None, parent: str | None = None) -> dict[str, object]:
    return event("TOOL_CALL_CHUNK", toolCallId=tool_id, toolCallName=name, delta=delta, parentMessageId=parent)


GOOD = (RS, NR, ts("m1"), tc("m1", "Hello "), tc("m1", "world"), te("m1"), RF)


def new_parser(bounds: StreamBounds = BOUNDS, *, thread_id: str = THREAD, correlation_id: str = CORRELATION) -> StreamParser:
    return StreamParser(thread_id=thread_id, correlation_id=correlation_id, bounds=bounds)


def read(parts: Iterable[bytes], parser: StreamParser | None = None) -> tuple[StreamParser, StreamFact, list[Batch]]:
    """Feed all parts, then the end of the body: the parser, the final fact, the batches."""
    parser = new_parser() if parser is None else parser
    batches = [parser.feed(part) for part in parts]
    return parser, parser.end(), batches


def read_events(*events: object, bounds: StreamBounds = BOUNDS) -> tuple[StreamParser, StreamFact]:
    parser, fact, _ = read([framed(*events)], new_parser(bounds))
    return parser, fact


def texts(parser: StreamParser) -> list[str]:
    return [item.text for item in parser.items() if isinstance(item, MessageItem)]


def finished_first(raw: bytes) -> bool:
    """By the plain definition: among the frames, RUN_STARTED with our ids comes first, and RUN_FINISHED with them before any RUN_ERROR.

    Frames that cannot be read count as ignored where they cannot mean any of the three.
    """
    guard = Guard(BOUNDS)
    kinds: list[tuple[object, bool]] = []
    for frame in guard.feed(raw):
        try:
            document = strict_json.loads(frame)
        except strict_json.NotStrictJson:
            if not kinds or b"RUN_" in frame or b"\\u" in frame:
                return False
            continue
        if not isinstance(document, dict):
            return False
        kind = document.get("type")
        if kind in ("RUN_STARTED", "RUN_FINISHED", "RUN_ERROR"):
            ours = document.get("threadId") == "t-1" and document.get("runId") == "c-1"
            kinds.append((kind, ours))
            if kind != "RUN_STARTED":
                break
        elif not kinds:
            return False
    return kinds == [("RUN_STARTED", True), ("RUN_FINISHED", True)]
