"""What a scripted upstream is told to do: scripts, answers and frames, as values that Python and JSON share.

Here lives: the vocabulary of `scripted_upstream.py`, the stock frames of a good run, and the filling in of ids.
Not here: sockets, counting, signals (`scripted_upstream.py`).

A script is a `Script`; over HTTP it is the same thing as JSON (`PUT /_script`), field for field, and unknown fields are
refused. Each endpoint has a sequence of `Answer`s: the n-th request takes the n-th, and the last one repeats. An
empty sequence means that the endpoint does what a good upstream does.

A frame is a JSON object with one of these keys:
  "type"           an AG-UI event, sent as `data: <json>` and a blank line
  "raw"            text written as it is, no framing added
  "raw_base64"     bytes written as they are
  "gate"           nothing is written until this gate is released
  "pause_seconds"  nothing is written for so long
Strings anywhere in an event, a raw text or an answer's `json` may hold {threadId}, {runId}, {nativeRunId}, {text}.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from pydantic import ConfigDict, TypeAdapter

Frame: TypeAlias = Mapping[str, object]
Framing: TypeAlias = Literal["chunked", "close", "length"]
Ending: TypeAlias = Literal["clean", "unfinished", "mid_chunk", "reset", "stall"]
Moment: TypeAlias = Literal["before_body", "after_request"]
ConnectionPlan: TypeAlias = Literal["serve", "close", "reset", "hang"]

_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What one request gets. The default of every field is what a good upstream does.

    Whole answers: `http_status`, `headers` (each replaces the default header of that name; an empty value removes it),
    `json` or `body` or `body_base64`; `redirect` is a 307 to that address unless `http_status` says another.
    Before any answer: `delay_seconds`, `gate` (wait for its release), `hang` (read the request, never answer),
    `close` and `reset` (FIN or RST, before the body is read or after the whole request was).
    Streams (`POST /ag-ui` with neither `json` nor `body` nor a status other than 200, or with explicit `frames`):
    `frames` (None: `good_run()`), `framing`, `pace_seconds` before each frame, `chunk_bytes` (write pieces of so
    many bytes whatever the frames are; 1 is every byte), `newline` (of event frames), `cut_after_bytes` of the body or
    `cut_after_frame` (0: headers only; gates and pauses are not counted), and `ending`, which applies to a cut and to
    the end of the frames alike:
      clean       the body ends by its own framing
      unfinished  the connection closes between chunks, the last chunk missing
      mid_chunk   the connection closes inside a chunk that announced more
      reset       RST
      stall       nothing more is written, the connection stays open until the other side leaves
    A streamed answer that names no status still needs the token and a thread that was handed out, as does every answer
    that names no status and no body; one that does name a status is given to anybody.
    `executes` says whether a POST /ag-ui counts as an execution (None: a stream does, anything else does not);
    `native_run_id` is the id given to it (None: a fresh UUID; "{runId}" makes it equal to the correlation id);
    `ends_as` is the run's status from the end of the answer on (None: derived from the frames, cut or not).
    """

    __pydantic_config__ = _STRICT

    http_status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    json: object = None
    body: bytes | str | None = None
    body_base64: str | None = None
    redirect: str | None = None
    delay_seconds: float = 0
    gate: str | None = None
    hang: bool = False
    close: Moment | None = None
    reset: Moment | None = None
    frames: Sequence[Frame] | None = None
    framing: Framing = "chunked"
    pace_seconds: float = 0
    chunk_bytes: int | None = None
    newline: Literal["\n", "\r\n", "\r"] = "\n"
    cut_after_bytes: int | None = None
    cut_after_frame: int | None = None
    ending: Ending = "clean"
    executes: bool | None = None
    native_run_id: str | None = None
    ends_as: str | None = None

    def is_stream(self) -> bool:
        """Whether a POST /ag-ui with this answer gets an event stream."""
        if self.hang or self.close or self.reset or self.redirect is not None:
            return False
        return self.frames is not None or (self.http_status in (None, 200) and not self.has_body())

    def has_body(self) -> bool:
        """Whether the answer's body is given."""
        return self.json is not None or self.body is not None or self.body_base64 is not None

    def needs_rights(self) -> bool:
        """Whether the checks of a good upstream (token, thread, busy) come before this answer."""
        return self.http_status is None and self.redirect is None and not self.has_body()


@dataclass(frozen=True, kw_only=True)
class Script:
    """What the server does until the next script. Each sequence starts afresh with each script.

    `ag_ui_by_text` wins over `ag_ui` for a message of exactly that text, each text with a count of its own.
    `lookup_status` maps a native run id, a correlation run id or "*" to the status that a look-up tells instead of the
    truth. `thread_ids` are handed out first, repeats included; then come fresh UUIDs. `any_thread` takes a POST for a
    thread that was never handed out. `one_run_per_thread` answers 409 to a POST on a thread that has a run going (real
    ag-ui-langgraph has no such lock, hence the default).
    `connections`: what happens to the n-th connection (the last repeats; empty: all are served).
    """

    __pydantic_config__ = _STRICT

    assistant_id: str = "agent"
    connections: Sequence[ConnectionPlan] = ()
    capabilities: Sequence[Answer] = ()
    threads: Sequence[Answer] = ()
    ag_ui: Sequence[Answer] = ()
    ag_ui_by_text: Mapping[str, Sequence[Answer]] = field(default_factory=dict)
    lookup: Sequence[Answer] = ()
    lookup_status: Mapping[str, str] = field(default_factory=dict)
    thread_ids: Sequence[str] = ()
    any_thread: bool = False
    one_run_per_thread: bool = False


_SCRIPTS = TypeAdapter(Script)


def script_from_json(text: bytes | str) -> Script:
    """Read a script; raises pydantic's ValidationError (a ValueError) with every fault."""
    return _SCRIPTS.validate_json(text)


def script_to_json(script: Script) -> bytes:
    """The JSON form of a script, for `PUT /_script` from another process."""
    return _SCRIPTS.dump_json(script)


def event(type_: str, **fields: object) -> Frame:
    """An AG-UI event frame; field names as on the wire (camelCase)."""
    return {"type": type_, **fields}


def raw(written: bytes | str) -> Frame:
    """Bytes (or text) written as they are. Only text gets its placeholders filled in."""
    if isinstance(written, bytes):
        return {"raw_base64": base64.b64encode(written).decode("ascii")}
    return {"raw": written}


def gate(name: str) -> Frame:
    """Holds the stream here until `release(name)`."""
    return {"gate": name}


def pause(seconds: float) -> Frame:
    """Holds the stream here for so long; only for tests of time itself."""
    return {"pause_seconds": seconds}


def started(*, native: object = "{nativeRunId}") -> list[Frame]:
    """RUN_STARTED and CUSTOM native_run, with which every good stream begins."""
    return [
        event("RUN_STARTED", threadId="{threadId}", runId="{runId}"),
        event("CUSTOM", name="native_run", value={"run_id": native}),
    ]


def message(message_id: str, *deltas: str) -> list[Frame]:
    """One whole assistant message."""
    return [
        event("TEXT_MESSAGE_START", messageId=message_id, role="assistant"),
        *(event("TEXT_MESSAGE_CONTENT", messageId=message_id, delta=delta) for delta in deltas),
        event("TEXT_MESSAGE_END", messageId=message_id),
    ]


def tool(call_id: str, name: str, *, parent: str | None = None, result: str = "21 degrees") -> list[Frame]:
    """One whole tool call with its result."""
    opening: dict[str, object] = {"toolCallId": call_id, "toolCallName": name}
    if parent is not None:
        opening["parentMessageId"] = parent
    return [
        event("TOOL_CALL_START", **opening),
        event("TOOL_CALL_ARGS", toolCallId=call_id, delta='{"city": "Paris"}'),
        event("TOOL_CALL_END", toolCallId=call_id),
        event("TOOL_CALL_RESULT", messageId=f"{call_id}-result", toolCallId=call_id, content=result, role="tool"),
    ]


def finished(**fields: object) -> Frame:
    """RUN_FINISHED with the run's ids; fields such as `outcome` on top."""
    return {"type": "RUN_FINISHED", "threadId": "{threadId}", "runId": "{runId}", **fields}


def failed(text: str = "scripted failure", **fields: object) -> Frame:
    """RUN_ERROR."""
    return {"type": "RUN_ERROR", "message": text, **fields}


def good_run() -> list[Frame]:
    """Text, tool, text, finished: 15 frames. Message ids are unique to the run, the question is in the answer."""
    return [
        *started(),
        *message("{nativeRunId}-1", "Let me ", "look that up."),
        *tool("{nativeRunId}-call", "get_weather", parent="{nativeRunId}-1"),
        *message("{nativeRunId}-2", "You said: ", "{text}", "."),
        finished(),
    ]


def filled(value: object, ids: Mapping[str, str]) -> object:
    """A copy of a JSON value with the placeholders of every string in it (keys excepted) filled in."""
    if isinstance(value, str):
        for name, text in ids.items():
            value = value.replace("{" + name + "}", text)
        return value
    if isinstance(value, Mapping):
        return {key: filled(inner, ids) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [filled(inner, ids) for inner in value]
    return value


def status_after(frames: Sequence[Frame]) -> str:
    """What a look-up truthfully says once these frames were played: the first terminal event decides."""
    interrupted = False
    for frame in frames:
        kind = frame.get("type")
        if kind == "CUSTOM" and frame.get("name") == "on_interrupt":
            interrupted = True
        if kind == "RUN_ERROR":
            return "error"
        if kind == "RUN_FINISHED":
            outcome = frame.get("outcome")
            if interrupted or (isinstance(outcome, Mapping) and outcome.get("type") == "interrupt"):
                return "interrupted"
            return "success"
    return "running"
