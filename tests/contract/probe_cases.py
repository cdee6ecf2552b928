"""Services that are broken in one way each, and the clause by which a probe has to name it. Scripts of the scripted upstream, as data.

The probe's messages come in this order, which the scripts rely on: wrong token, no JSON, no message, unknown thread, the same with a large
body; then the run, then two at once. Its look-ups: during the run, after it, of no run, under another thread, without a token.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gateway.domain.limits import MAX_REPLY_BODY_BYTES, StreamBounds
from gateway.probe.clauses import Clause
from tests.support.upstream_script import Answer, Frame, Script, event, failed, finished, good_run, message, pause, raw, started, tool

TOKEN: Final = "tok_CANARY_service"
BOUNDS: Final = StreamBounds(frame_bytes=64 * 1024, kept_frame_bytes=16 * 1024, idle_seconds=20, total_seconds=60)
SETTLE_SECONDS: Final = 5.0

GOOD: Final = Answer()
BEFORE_THE_RUN: Final = (GOOD,) * 5
OPEN: Final = Answer(http_status=200)
"""Takes anybody, and anything."""
NOTHING: Final[Mapping[str, object]] = {"detail": "CANARY_detail"}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One way to be broken. `rule` is the number that has to be named."""

    clause: Clause
    rule: str
    script: Script
    bounds: StreamBounds = BOUNDS
    settle_seconds: float = SETTLE_SECONDS
    token: str = TOKEN
    runs: int | None = field(default=None)
    """How often the agent is run, where that is the point."""


def on_run(answer: Answer, *after: Answer) -> Script:
    """The first real message gets `answer`, the next ones `after`, else the same."""
    return Script(ag_ui=[*BEFORE_THE_RUN, answer, *after])


def plays(*frames: Frame | Sequence[Frame]) -> Script:
    """The first real message gets these frames."""
    return on_run(Answer(frames=[frame for part in frames for frame in ([part] if isinstance(part, Mapping) else part)]))


def looked_up(*answers: Answer) -> Script:
    return Script(lookup=answers)


def told(status: str, **ids: str) -> Answer:
    return Answer(http_status=200, json={"thread_id": "{threadId}", "run_id": "{nativeRunId}", "status": status, **ids})


_NAMED = {"assistant_id": "agent"}
_STARTED = started()
_CONTENT = "TEXT_MESSAGE_CONTENT"

BROKEN: Final[Mapping[str, Case]] = {
    "every connection is closed": Case(clause=Clause.REACHABLE, rule="A1", script=Script(connections=["close"])),
    "every connection is reset": Case(clause=Clause.REACHABLE, rule="A1", script=Script(connections=["reset"])),
    "another token": Case(clause=Clause.TOKEN_TAKEN, rule="B1", script=Script(), token="tok_CANARY_other"),
    "no capabilities": Case(clause=Clause.CAPABILITIES, rule="B2", script=Script(capabilities=[Answer(http_status=404)])),
    "another assistant": Case(clause=Clause.CAPABILITIES, rule="B2", script=Script(assistant_id="CANARY_assistant")),
    "capabilities in HTML": Case(
        clause=Clause.CAPABILITIES, rule="B2", script=Script(capabilities=[Answer(http_status=200, body="<html>CANARY")])
    ),
    "capabilities with a key twice": Case(
        clause=Clause.CAPABILITIES,
        rule="B2",
        script=Script(capabilities=[Answer(http_status=200, body='{"assistant_id": "other", "assistant_id": "agent"}')]),
    ),
    "capabilities for everybody": Case(
        clause=Clause.TOKEN_REQUIRED, rule="B1", script=Script(capabilities=[Answer(http_status=200, json=_NAMED)])
    ),
    "any token will do": Case(
        clause=Clause.TOKEN_COMPARED,
        rule="B1",
        script=Script(capabilities=[GOOD, Answer(http_status=401), Answer(http_status=200, json=_NAMED)]),
    ),
    "capabilities move": Case(
        clause=Clause.NO_REDIRECT, rule="B1", script=Script(capabilities=[Answer(redirect="http://127.0.0.1:9/CANARY")])
    ),
    "threads move": Case(clause=Clause.NO_REDIRECT, rule="B1", script=Script(threads=[Answer(redirect="/CANARY/", http_status=308)])),
    "messages move": Case(clause=Clause.NO_REDIRECT, rule="B1", script=on_run(Answer(redirect="/ag-ui/", executes=False))),
    "look-ups move": Case(clause=Clause.NO_REDIRECT, rule="B1", script=looked_up(Answer(redirect="/x"))),
    "replies are compressed": Case(
        clause=Clause.REPLIES,
        rule="B10",
        script=Script(capabilities=[Answer(http_status=200, headers={"content-encoding": "gzip"}, json=_NAMED)]),
    ),
    "replies are huge": Case(
        clause=Clause.REPLIES,
        rule="B10",
        script=Script(threads=[Answer(http_status=200, body='{"thread_id": "1", "x": "' + "x" * MAX_REPLY_BODY_BYTES + '"}')]),
    ),
    "threads fail": Case(clause=Clause.THREAD, rule="B3", script=Script(threads=[Answer(http_status=500)])),
    "threads are accepted": Case(clause=Clause.THREAD, rule="B3", script=Script(threads=[Answer(http_status=202)])),
    "thread ids with a blank": Case(clause=Clause.THREAD, rule="B3", script=Script(thread_ids=["CANARY thread"])),
    "thread ids that are a step in a path": Case(clause=Clause.THREAD, rule="B3", script=Script(thread_ids=[".."])),
    "thread ids are numbers": Case(
        clause=Clause.THREAD, rule="B3", script=Script(threads=[Answer(http_status=200, json={"thread_id": 7})])
    ),
    "one thread for all": Case(clause=Clause.THREAD_FRESH, rule="B3", script=Script(thread_ids=["only"] * 9)),
    "threads for everybody": Case(
        clause=Clause.THREAD_NEEDS_TOKEN,
        rule="B1",
        script=Script(threads=[GOOD, GOOD, Answer(http_status=201, json={"thread_id": "for-everybody"})]),
    ),
    "messages of everybody": Case(clause=Clause.POST_NEEDS_TOKEN, rule="B1", script=Script(ag_ui=[OPEN, GOOD]), runs=4),
    "a server error for no JSON": Case(
        clause=Clause.NO_JSON_REFUSED, rule="B4", script=Script(ag_ui=[GOOD, Answer(http_status=500), GOOD])
    ),
    "runs without JSON": Case(clause=Clause.NO_JSON_REFUSED, rule="B4", script=Script(ag_ui=[GOOD, OPEN, GOOD])),
    "runs without a message": Case(clause=Clause.NO_MESSAGE_REFUSED, rule="B4", script=Script(ag_ui=[GOOD, GOOD, OPEN, GOOD])),
    "refuses with 200 and JSON": Case(
        clause=Clause.NO_MESSAGE_REFUSED, rule="B4", script=Script(ag_ui=[GOOD, GOOD, Answer(http_status=200, json=NOTHING), GOOD])
    ),
    "makes up threads": Case(clause=Clause.UNKNOWN_THREAD_REFUSED, rule="B3", script=Script(any_thread=True), runs=4),
    "calls an unknown thread busy": Case(
        clause=Clause.UNKNOWN_THREAD_REFUSED, rule="B3", script=Script(ag_ui=[GOOD, GOOD, GOOD, Answer(http_status=409), GOOD])
    ),
    "a proxy with a small limit": Case(
        clause=Clause.LARGEST_BODY,
        rule="B5",
        script=Script(ag_ui=[GOOD, GOOD, GOOD, GOOD, Answer(http_status=413, body="<html>CANARY"), GOOD]),
    ),
    "closes on a large body": Case(
        clause=Clause.LARGEST_BODY, rule="B5", script=Script(ag_ui=[GOOD, GOOD, GOOD, GOOD, Answer(reset="after_request"), GOOD])
    ),
    "refuses every message": Case(clause=Clause.MESSAGE_TAKEN, rule="B4", script=on_run(Answer(http_status=422)), runs=0),
    "fails at every message": Case(clause=Clause.MESSAGE_TAKEN, rule="B4", script=on_run(Answer(http_status=500, json=NOTHING))),
    "says that a fresh thread is busy": Case(clause=Clause.MESSAGE_TAKEN, rule="B4", script=on_run(Answer(http_status=409))),
    "resets on a message": Case(clause=Clause.MESSAGE_TAKEN, rule="B4", script=on_run(Answer(reset="after_request"))),
    "never answers a message": Case(
        clause=Clause.MESSAGE_TAKEN, rule="B4", script=on_run(Answer(hang=True)), bounds=replace(BOUNDS, idle_seconds=0.5)
    ),
    "answers in JSON": Case(clause=Clause.EVENT_STREAM, rule="B7", script=on_run(Answer(http_status=200, json=NOTHING))),
    "a stream of another type": Case(
        clause=Clause.EVENT_STREAM, rule="B7", script=on_run(Answer(headers={"content-type": "application/x-ndjson"}))
    ),
    "a stream in Latin-1": Case(
        clause=Clause.EVENT_STREAM, rule="B7", script=on_run(Answer(headers={"content-type": "text/event-stream; charset=iso-8859-1"}))
    ),
    "a compressed stream": Case(clause=Clause.EVENT_STREAM, rule="B7", script=on_run(Answer(headers={"content-encoding": "gzip"}))),
    "a frame that is not JSON": Case(clause=Clause.FRAMES, rule="B7", script=plays(_STARTED, raw("data: CANARY\n\n"), finished())),
    "a frame that is not UTF-8": Case(clause=Clause.FRAMES, rule="B7", script=plays(_STARTED, raw(b'data: {"type":"\xff"}\n\n'))),
    "a frame with a key twice": Case(
        clause=Clause.FRAMES, rule="B7", script=plays(_STARTED, raw('data: {"type":"RUN_ERROR","type":"RUN_FINISHED"}\n\n'))
    ),
    "an event without its fields": Case(clause=Clause.FRAMES, rule="B7", script=plays(_STARTED, event("TEXT_MESSAGE_START"))),
    "no RUN_STARTED": Case(clause=Clause.ORDER, rule="B7", script=plays(message("m", "CANARY_text"), finished())),
    "RUN_STARTED twice": Case(clause=Clause.ORDER, rule="B7", script=plays(_STARTED, _STARTED, finished())),
    "text without a start": Case(
        clause=Clause.ORDER, rule="B7", script=plays(_STARTED, event(_CONTENT, messageId="m", delta="CANARY_text"), finished())
    ),
    "RUN_STARTED with the service's own ids": Case(
        clause=Clause.RUN_IDS, rule="B7", script=plays(event("RUN_STARTED", threadId="{threadId}", runId="{nativeRunId}"))
    ),
    "RUN_FINISHED without ids": Case(clause=Clause.RUN_IDS, rule="B7", script=plays(_STARTED, event("RUN_FINISHED"))),
    "one message id for all": Case(
        clause=Clause.ITEM_IDS, rule="D4", script=plays(_STARTED, message("m", "a"), tool("t", "look"), message("m", "b"), finished())
    ),
    "one tool call id for all": Case(
        clause=Clause.ITEM_IDS, rule="D4", script=plays(_STARTED, tool("t", "look"), tool("t", "look"), finished())
    ),
    "chunks without an id": Case(
        clause=Clause.CHUNKS, rule="B13", script=plays(_STARTED, event("TEXT_MESSAGE_CHUNK", delta="CANARY_text"), finished())
    ),
    "a frame that is too large": Case(
        clause=Clause.BOUNDS, rule="B10", script=plays(_STARTED, event("STATE_SNAPSHOT", snapshot="x" * 65 * 1024), finished())
    ),
    "a text that is too large": Case(clause=Clause.BOUNDS, rule="B10", script=plays(_STARTED, message("m", "x" * 17 * 1024), finished())),
    "too many events": Case(
        clause=Clause.BOUNDS,
        rule="B10",
        script=plays(_STARTED, [event("STEP_STARTED", stepName="s")] * 40, finished()),
        bounds=replace(BOUNDS, events=30),
    ),
    "silence": Case(
        clause=Clause.BOUNDS, rule="B10", script=on_run(Answer(cut_after_frame=3, ending="stall")), bounds=replace(BOUNDS, idle_seconds=0.5)
    ),
    "an endless run": Case(
        clause=Clause.BOUNDS,
        rule="B10",
        script=on_run(Answer(cut_after_frame=3, ending="stall")),
        bounds=replace(BOUNDS, total_seconds=0.5),
    ),
    "no native run id": Case(
        clause=Clause.NATIVE_RUN, rule="B7", script=plays(event("RUN_STARTED", threadId="{threadId}", runId="{runId}"), finished())
    ),
    "a native run id that is no text": Case(clause=Clause.NATIVE_RUN, rule="B7", script=plays(started(native=7), finished())),
    "a native run id that changes": Case(
        clause=Clause.NATIVE_RUN, rule="B7", script=plays(_STARTED, event("CUSTOM", name="native_run", value="another"), finished())
    ),
    "our run id as the native one": Case(clause=Clause.NATIVE_DIFFERS, rule="B8", script=on_run(Answer(native_run_id="{runId}")), runs=1),
    "no terminal event": Case(clause=Clause.TERMINAL, rule="B9", script=plays(_STARTED, message("m", "CANARY_text"))),
    "an empty stream": Case(clause=Clause.TERMINAL, rule="B9", script=on_run(Answer(frames=[]))),
    "a stream that is cut": Case(clause=Clause.TERMINAL, rule="B9", script=on_run(Answer(cut_after_frame=7, ending="reset"))),
    "no blank line behind the last frame": Case(
        clause=Clause.TERMINAL,
        rule="B9",
        script=plays(_STARTED, raw('data: {"type":"RUN_FINISHED","threadId":"{threadId}","runId":"{runId}"}\n')),
    ),
    "the agent fails": Case(clause=Clause.SUCCESS, rule="B9", script=plays(_STARTED, failed("CANARY_error")), runs=1),
    "the agent is not even started": Case(clause=Clause.SUCCESS, rule="B9", script=plays(failed("CANARY_error")), runs=0),
    "the agent asks for something": Case(
        clause=Clause.SUCCESS, rule="B9", script=plays(_STARTED, event("CUSTOM", name="on_interrupt", value="CANARY"), finished())
    ),
    "an outcome that nobody knows": Case(
        clause=Clause.SUCCESS, rule="B9", script=plays(_STARTED, finished(outcome={"type": "CANARY_outcome"}))
    ),
    "no look-up while it runs": Case(clause=Clause.LOOKUP_DURING, rule="B6", script=looked_up(Answer(http_status=404), GOOD)),
    "a look-up of another run": Case(
        clause=Clause.LOOKUP_DURING, rule="B6", script=looked_up(told("running", run_id="CANARY_another"), GOOD)
    ),
    "a status that nobody knows": Case(clause=Clause.LOOKUP_DURING, rule="B6", script=looked_up(told("CANARY_status"), GOOD)),
    "success before the end": Case(
        clause=Clause.LOOKUP_DURING,
        rule="B6",
        script=Script(
            ag_ui=[*BEFORE_THE_RUN, Answer(frames=[*_STARTED, pause(0.4), *message("m", "CANARY_text"), finished()])],
            lookup=[told("success"), GOOD],
        ),
        settle_seconds=0.05,
    ),
    "for ever running": Case(clause=Clause.LOOKUP_AFTER, rule="B6", script=Script(lookup_status={"*": "running"}), settle_seconds=0.3),
    "an error after a success": Case(clause=Clause.LOOKUP_AFTER, rule="B6", script=looked_up(GOOD, told("error"), GOOD)),
    "forgets a run that is over": Case(clause=Clause.LOOKUP_AFTER, rule="B6", script=looked_up(GOOD, Answer(http_status=404), GOOD)),
    "knows every run": Case(clause=Clause.LOOKUP_UNKNOWN, rule="B6", script=Script(lookup_status={"*": "success"})),
    "one state for all runs": Case(
        clause=Clause.LOOKUP_UNKNOWN, rule="B6", script=looked_up(GOOD, GOOD, told("success", run_id="the-latest"), GOOD)
    ),
    "looks at the run id only": Case(
        clause=Clause.LOOKUP_OTHER_THREAD, rule="B6", script=looked_up(GOOD, GOOD, GOOD, told("success"), GOOD)
    ),
    "look-ups for everybody": Case(clause=Clause.LOOKUP_NEEDS_TOKEN, rule="B1", script=looked_up(GOOD, GOOD, GOOD, GOOD, told("success"))),
    "one message a thread": Case(clause=Clause.NEXT_MESSAGE, rule="B4", script=on_run(GOOD, Answer(http_status=409)), runs=1),
    "the same native run id again": Case(clause=Clause.NATIVE_FRESH, rule="B8", script=on_run(Answer(native_run_id="once"))),
    "tells the token": Case(
        clause=Clause.TOKEN_HIDDEN, rule="A4", script=plays(_STARTED, message("m", f"My token is {TOKEN}."), finished())
    ),
}


ADVISED: Final[Mapping[str, Case]] = {
    "native_run comes late": Case(
        clause=Clause.NATIVE_SOON,
        rule="B7",
        script=plays(_STARTED[0], message("m", "Well."), _STARTED[1], finished()),
    ),
    "a message that stays open": Case(clause=Clause.TIDY, rule="B13", script=plays(_STARTED, message("m", "Well.")[:2], finished())),
    "events after the end": Case(clause=Clause.TIDY, rule="B13", script=plays(good_run(), event("STEP_FINISHED", stepName="s"))),
    "nothing to say": Case(clause=Clause.TEXT, rule="B7", script=plays(_STARTED, finished())),
    "raw events": Case(
        clause=Clause.RAW_OFF, rule="B10", script=plays(_STARTED, event("RAW", event={"x": "CANARY"}), message("m", "a"), finished())
    ),
    "a body that stays open": Case(clause=Clause.BODY_END, rule="B9", script=on_run(Answer(ending="stall"), GOOD), settle_seconds=0.2),
    "a body that is cut at its end": Case(clause=Clause.BODY_END, rule="B9", script=on_run(Answer(ending="unfinished"), GOOD)),
    "one of two is refused as a server error": Case(
        clause=Clause.TWO_AT_ONCE, rule="C7", script=on_run(GOOD, GOOD, Answer(http_status=503)), runs=2
    ),
    "an unknown run is refused otherwise": Case(
        clause=Clause.LOOKUP_UNKNOWN, rule="B6", script=looked_up(GOOD, GOOD, Answer(http_status=422), GOOD)
    ),
    "no JSON fails inside the stream": Case(
        clause=Clause.NO_JSON_REFUSED,
        rule="B4",
        script=Script(ag_ui=[GOOD, Answer(http_status=200, frames=[failed("CANARY")]), GOOD]),
        runs=3,
    ),
    "a state that lags behind": Case(clause=Clause.LOOKUP_AFTER, rule="B6", script=looked_up(GOOD, told("running"), GOOD)),
    "not let in, and not told why": Case(
        clause=Clause.TOKEN_REQUIRED, rule="B1", script=Script(capabilities=[GOOD, Answer(http_status=404), GOOD])
    ),
}
"""Kept, with advice."""
