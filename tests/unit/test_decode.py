"""Decode: each event's fields, the treatment table, and that no cheap way gives another answer than the strict one."""

import inspect
import json
import time

import ag_ui.core
import orjson
import pytest
from ag_ui.core import BaseEvent, EventType

from gateway.domain import strict_json
from gateway.domain.evidence import Outcome, StreamBroken
from gateway.domain.reasons import Reason
from gateway.sse_parser import decode as module
from gateway.sse_parser.decode import decode, looks_terminal, plain_content
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
from gateway.sse_parser.faults import FAULTS, Detail, broken
from gateway.sse_parser.treatment import CUSTOM_NOTES, OUTCOME_NOTES, OUTCOMES, TREATMENTS, Treatment
from tests.property.frames import GOOD, NR, RF, RS, event, framed, ks, payload, read, read_events, tc, texts, ts

KEPT = 256 * 1024
LARGE = "x" * KEPT


def decoded(frame: bytes | dict[str, object], kept: int = KEPT) -> Event | StreamBroken:
    return decode(frame if isinstance(frame, bytes) else payload(frame), kept)


REQUIRED = broken(Detail.REQUIRED_FIELD)
OPTIONAL = broken(Detail.OPTIONAL_FIELD)


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (RS, RunStarted("t-1", "c-1")),
        (event("RUN_STARTED", threadId=None, runId=5, parentRunId=None, input=None, timestamp=None, rawEvent=None), RunStarted(None, None)),
        (event("RUN_STARTED", threadId="t", runId="r", input={"messages": [{"type": "x"}]}, protocolVersion="1"), RunStarted("t", "r")),
        (RF, RunFinishedSeen("t-1", "c-1", Outcome.SUCCESS)),
        (event("RUN_FINISHED"), RunFinishedSeen(None, None, Outcome.SUCCESS)),
        (event("RUN_ERROR", message="m", code=None), RunErrorSeen()),
        (event("RUN_ERROR"), REQUIRED),
        (event("RUN_ERROR", message=None), REQUIRED),
        (event("TEXT_MESSAGE_START", messageId="m"), TextStart("m", True, False)),
        (event("TEXT_MESSAGE_START", messageId="m", role=None, name=None), TextStart("m", True, False)),
        (event("TEXT_MESSAGE_START", messageId="m", role="user"), TextStart("m", False, False)),
        (event("TEXT_MESSAGE_START", messageId="m", role="tool"), TextStart("m", False, False)),
        (event("TEXT_MESSAGE_START", messageId="m", role=1), OPTIONAL),
        (event("TEXT_MESSAGE_START", messageId="m", subagentRunId="s"), TextStart("m", True, True)),
        (event("TEXT_MESSAGE_START", messageId="m", subagentRunId=None), TextStart("m", True, False)),
        (event("TEXT_MESSAGE_START", messageId="m", subagentRunId=[]), OPTIONAL),
        (event("TEXT_MESSAGE_START"), REQUIRED),
        (tc("m", "a"), TextContent("m", "a", False)),
        (tc("m", ""), TextContent("m", "", False)),
        (tc("m", 'a\n"b"\\c é 你 🙂'), TextContent("m", 'a\n"b"\\c é 你 🙂', False)),
        (tc("m", "a", timestamp=1_700_000_000_000), TextContent("m", "a", False)),
        (tc("m", "a", timestamp=None, extra={"type": "nested"}), TextContent("m", "a", False)),
        (tc("m", "a", subagentRunId="s"), TextContent("m", "a", True)),
        (event("TEXT_MESSAGE_CONTENT", messageId="m", delta=None), REQUIRED),
        (event("TEXT_MESSAGE_CONTENT", messageId="m", delta=1), REQUIRED),
        (event("TEXT_MESSAGE_CONTENT", messageId="m"), REQUIRED),
        (event("TEXT_MESSAGE_CONTENT", messageId=None, delta="a"), REQUIRED),
        (event("TEXT_MESSAGE_END", messageId="m"), TextEnd("m", False)),
        (event("TEXT_MESSAGE_END", messageId=7), REQUIRED),
        (event("TEXT_MESSAGE_CHUNK"), TextChunk(None, "", True, False)),
        (event("TEXT_MESSAGE_CHUNK", messageId="m", delta="a", role="user", subagentRunId="s"), TextChunk("m", "a", False, True)),
        (event("TEXT_MESSAGE_CHUNK", delta=[]), OPTIONAL),
        (ks("k", "n", "m"), ToolStart("k", "n", "m")),
        (ks("k", "n"), ToolStart("k", "n", None)),
        (event("TOOL_CALL_START", toolCallId="k"), REQUIRED),
        (event("TOOL_CALL_START", toolCallId="k", toolCallName="n", parentMessageId=3), OPTIONAL),
        (event("TOOL_CALL_ARGS", toolCallId="k", delta='"}'), ToolArgs("k")),
        (event("TOOL_CALL_ARGS", toolCallId="k"), REQUIRED),
        (event("TOOL_CALL_END", toolCallId="k"), ToolEnd("k")),
        (event("TOOL_CALL_RESULT", messageId="m", toolCallId="k", content="c", role="tool"), ToolResult("k")),
        (event("TOOL_CALL_RESULT", messageId="m", toolCallId="k", content=[{"type": "text"}]), ToolResult("k")),
        (event("TOOL_CALL_RESULT", messageId="m", toolCallId="k", content=None), REQUIRED),
        (event("TOOL_CALL_RESULT", toolCallId="k", content="c"), REQUIRED),
        (event("TOOL_CALL_CHUNK"), ToolChunk(None, None, None)),
        (event("TOOL_CALL_CHUNK", toolCallId="k", toolCallName="n", parentMessageId="m", delta="d"), ToolChunk("k", "n", "m")),
        (event("TOOL_CALL_CHUNK", toolCallId="k", delta=5), OPTIONAL),
        (event("CUSTOM", name="other", value=None), Ignored(IgnoredClass.CUSTOM)),
        (event("CUSTOM", value=1), REQUIRED),
        (event("CUSTOM", name="on_interrupt", value='{"type": "x"}'), InterruptAsked()),
        (event("NEW_TYPE", payload={}), Ignored(IgnoredClass.UNKNOWN)),
        (event("RUN_PAUSED"), Ignored(IgnoredClass.UNKNOWN)),
        (b'{"payload":1,"type":"NEW_TYPE"}', Ignored(IgnoredClass.UNKNOWN)),
        ({"type": None}, broken(Detail.TYPE_FIELD)),
        ({"type": 5}, broken(Detail.TYPE_FIELD)),
        ({"error": "overloaded"}, broken(Detail.TYPE_FIELD)),
        ({}, broken(Detail.TYPE_FIELD)),
        (b"[]", broken(Detail.NOT_AN_OBJECT)),
        (b'"RUN_FINISHED"', broken(Detail.NOT_AN_OBJECT)),
        (b"5", broken(Detail.NOT_AN_OBJECT)),
        (b"[DONE]", broken(Detail.SYNTAX)),
        (b'{"type":"RUN_FINISHED"', broken(Detail.SYNTAX)),
        (b'{"type":"RAW","event":{"a":1', broken(Detail.SYNTAX)),
        (b'{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"a\tb"}', broken(Detail.SYNTAX)),
        (b'\xef\xbb\xbf{"type":"RUN_FINISHED"}', broken(Detail.SYNTAX)),
    ],
    ids=repr,
)
def test_fields(frame: bytes | dict[str, object], expected: Event | StreamBroken) -> None:
    assert decoded(frame) == expected


@pytest.mark.parametrize(
    ("value", "native"),
    [
        ({"run_id": "n-1"}, "n-1"),
        ({"runId": "n-1"}, "n-1"),
        ({"run_id": "n-1", "runId": "n-1", "more": 1}, "n-1"),
        ({"run_id": None, "runId": "n-1"}, "n-1"),
        ({"run_id": "n-1", "runId": None}, "n-1"),
        ("n-1", "n-1"),
        ({"run_id": "n-1", "runId": "n-2"}, None),
        ({"run_id": 5}, None),
        ({"id": "n-1"}, None),
        ({"run_id": "n 1"}, None),
        ({"run_id": "n" * 201}, None),
        ({"run_id": "ñ"}, None),
        ("", None),
        (None, None),
        (["n-1"], None),
        (7, None),
    ],
)
def test_native_run_shapes(value: object, native: str | None) -> None:
    seen = decoded(event("CUSTOM", name="native_run", value=value))
    assert seen == (broken(Detail.NATIVE_RUN_VALUE) if native is None else NativeRun(native))


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (None, Outcome.SUCCESS),
        ({"type": "success"}, Outcome.SUCCESS),
        ({"type": "success", "pendingToolCallIds": ["k"]}, Outcome.SUCCESS),
        ({"type": "interrupt", "interrupts": []}, Outcome.INTERRUPT),
        ({"type": "interrupt"}, Outcome.INTERRUPT),
        ({"type": "cancelled"}, Outcome.CANCELLED),
        ({"type": "partial"}, Outcome.UNRECOGNISED),
        ({"type": None}, Outcome.UNRECOGNISED),
        ({"type": ["success"]}, Outcome.UNRECOGNISED),
        ({}, Outcome.UNRECOGNISED),
        ("success", Outcome.UNRECOGNISED),
        (["success"], Outcome.UNRECOGNISED),
        (True, Outcome.UNRECOGNISED),
    ],
)
def test_outcomes(outcome: object, expected: Outcome) -> None:
    assert decoded(event("RUN_FINISHED", threadId="t", runId="r", outcome=outcome)) == RunFinishedSeen("t", "r", expected)


def test_every_outcome_has_a_note_and_a_word_but_unrecognised() -> None:
    assert set(OUTCOMES.values()) == set(Outcome) - {Outcome.UNRECOGNISED}
    assert set(OUTCOME_NOTES) == set(Outcome)


def test_every_detail_has_a_reason_and_a_note() -> None:
    assert set(FAULTS) == set(Detail)


def test_every_fault_of_the_strict_decoder_is_a_detail() -> None:
    for raw in (b"\xff", b"{", b'{"a":1,"a":1}', b"NaN", b"[" * 70):
        with pytest.raises(strict_json.NotStrictJson) as refused:
            strict_json.loads(raw)
        assert FAULTS[Detail(refused.value.fault)][0] is Reason.BAD_FRAME


# The protocol's own models


MODELS: dict[str, type[BaseEvent]] = {
    model.model_fields["type"].default: model
    for _, model in inspect.getmembers(ag_ui.core, inspect.isclass)
    if issubclass(model, BaseEvent) and model is not BaseEvent
}
HANDLED = [name for name, row in TREATMENTS.items() if row.treatment in (Treatment.VALIDATED, Treatment.EXPANDED)]


def fields_of(kind: str, *, required: bool) -> list[str]:
    """The fields of an event as they are on the wire, without its type."""
    fields = MODELS[kind].model_fields
    return [str(field.alias or name) for name, field in fields.items() if name != "type" and field.is_required() is required]


def least(kind: str) -> dict[str, object]:
    """The event with its required fields only."""
    return event(kind, **dict.fromkeys(fields_of(kind, required=True), "x"))


@pytest.mark.parametrize("kind", HANDLED)
def test_null_on_an_optional_field_is_absence_and_more_fields_change_nothing(kind: str) -> None:
    expected = decoded(least(kind))
    assert not isinstance(expected, StreamBroken)
    optional = fields_of(kind, required=False)
    assert optional
    for frame in (
        *({**least(kind), field: None} for field in optional),
        {**least(kind), **dict.fromkeys(optional)},
        {**least(kind), "new": {"type": "RUN_FINISHED", "delta": [1, 2.5, None, "x"]}},
        {**least(kind), "timestamp": 1, "rawEvent": {"a": 1}, "metadata": {"b": []}},
    ):
        assert decoded(frame) == expected, frame


@pytest.mark.parametrize(("kind", "field"), [(kind, field) for kind in HANDLED for field in fields_of(kind, required=True)])
def test_a_required_field_that_is_missing_null_or_of_another_type_is_a_fault(kind: str, field: str) -> None:
    without = {name: value for name, value in least(kind).items() if name != field}
    for frame in (without, {**without, field: None}, {**without, field: 7}, {**without, field: True}, {**without, field: {"x": "y"}}):
        seen = decoded(frame)
        # Ids of the run that are wrong in any way are ids of another run; that is for the sequence to say.
        assert seen == REQUIRED or (isinstance(seen, RunStarted | RunFinishedSeen) and None in (seen.thread_id, seen.run_id)), frame


# The table


def test_table_has_every_type_of_the_protocol() -> None:
    assert set(TREATMENTS) >= {kind.value for kind in EventType}


@pytest.mark.parametrize("name", list(TREATMENTS))
def test_table_rows_are_what_decode_does(name: str) -> None:
    row = TREATMENTS[name]
    fields = {
        "threadId": "t", "runId": "r", "message": "e", "messageId": "m", "delta": "d", "toolCallId": "k", "toolCallName": "n",
        "content": "c", "name": "other",
    }  # fmt: skip
    seen = decoded(event(name, **fields))
    assert not isinstance(seen, StreamBroken)
    if row.treatment in (Treatment.IGNORED, Treatment.BY_NAME):
        assert row.ignored_class is not None
        assert seen == Ignored(row.ignored_class)
    else:
        assert row.ignored_class is None
        assert not isinstance(seen, Ignored)
    assert looks_terminal(payload(event(name))) is row.terminal
    assert row.note


def test_what_may_act_is_what_the_table_handles() -> None:
    for name, row in TREATMENTS.items():
        handled = row.treatment in (Treatment.VALIDATED, Treatment.EXPANDED)
        assert module._may_act(payload({"x": {"type": name}})) is handled, name
    for name in CUSTOM_NOTES:
        assert module._may_act(payload(event("CUSTOM", name=name)))
        assert not module._may_act(payload(event("CUSTOM", name=name + "s")))


def test_an_ignored_event_that_quotes_a_handled_type_is_skipped_all_the_same() -> None:
    """What a user writes comes back in every snapshot; it must neither have them decoded nor give them faults that others do not have."""
    text = 'What do "RUN_FINISHED", "TEXT_MESSAGE_CONTENT" and \\u0052UN_ERROR mean?'
    for quoted in (text, json.dumps({"type": "RUN_ERROR", "text": text}), json.dumps(json.dumps({"type": "RUN_ERROR", "text": text}))):
        frame = event("STATE_SNAPSHOT", snapshot={"text": quoted, "RUN_MODE": "RUN_ONCE", "score": float("nan")})
        assert decoded(frame) == Ignored(IgnoredClass.SNAPSHOT)
    assert decoded(b'{"type":"RAW","a":"\\\\","type":"RUN_ERROR","message":"m"}') == broken(Detail.DUPLICATE_KEY)
    assert decoded(b'{"type":"RAW","a":"\\\\\\\\\\u0052","type":"x"}') == broken(Detail.DUPLICATE_KEY)


def test_only_a_leading_type_looks_terminal() -> None:
    assert looks_terminal(b'{ "type" : "RUN_ERROR"}')
    assert not looks_terminal(b'{"message":"x","type":"RUN_ERROR"}')
    assert not looks_terminal(b'{"type":"RUN_ERRORS"}')
    assert not looks_terminal(b"x")


# What cannot be believed


@pytest.mark.parametrize(
    "frame",
    [
        b'{"type":"RUN_ERROR","type":"RUN_FINISHED","message":"m","threadId":"t-1","runId":"c-1"}',
        b'{"type":"RUN_FINISHED","type":"RUN_ERROR","message":"m","threadId":"t-1","runId":"c-1"}',
        b'{"type":"RAW","type":"RUN_FINISHED","threadId":"t-1","runId":"c-1"}',
        b'{"type":"RAW","event":{"type":"on_chain"},"type":"RUN_ERROR","message":"m"}',
        b'{"type":"NEW","type":"RUN_ERROR","message":"m"}',
        b'{"type":"RAW","\\u0074ype":"RUN_ERROR","message":"m"}',
        b'{"type":"RAW","\\u0074ype":"\\u0052UN_ERROR","message":"m"}',
        b'{"type":"RAW","type":"\\u0052UN_ERROR","message":"m"}',
        b'{"type":"RAW","type":"RUN\\u005FERROR","message":"m"}',
        b'{"\\u0074ype":"RUN_ERROR","type":"RAW","message":"m"}',
        b'{"type":"RAW","type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"a"}',
        b'{"type":"CUSTOM","name":"other","name":"on_interrupt","value":1}',
        b'{"type":"CUSTOM","name":"on_interrupt","name":"other","value":1}',
        b'{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"a","delta":"b"}',
        b'{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","messageId":"m2","delta":"a"}',
        b'{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","d":{"x":"y"},"d":1,"delta":"a"}',
        b'{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"\\"","delta":"\\"\\"\\""}',
        b'{"type":"TEXT_MESSAGE_END","messageId":"m1","x":null,"x":null}',
        b'{"type":"TEXT_MESSAGE_END","messageId":"m1","a":"\\\\","b":"\\\\","x":1,"x":2}',
        b'{"type":"TOOL_CALL_START","toolCallId":"k","toolCallName":"a","toolCallName":"b"}',
        b'{"type":"RUN_FINISHED","threadId":"t-1","threadId":"t-1","runId":"c-1"}',
        b'{"type":"RUN_FINISHED","threadId":"t-1","runId":"c-1","outcome":{"type":"success","type":"interrupt"}}',
    ],
)
def test_a_key_that_comes_twice_is_a_fault(frame: bytes) -> None:
    assert decoded(frame) == broken(Detail.DUPLICATE_KEY)
    fact = read([framed(*GOOD[:4]) + b"data: " + frame + b"\n\n" + framed(*GOOD[4:])])[1]
    assert fact == broken(Detail.DUPLICATE_KEY)


@pytest.mark.parametrize(
    ("frame", "detail"),
    [
        (b'{"type":"RUN_FINISHED","threadId":"t-1","runId":"c-1","result":NaN}', Detail.NUMBER),
        (b'{"type":"RUN_FINISHED","threadId":"t-1","runId":"c-1","result":-Infinity}', Detail.NUMBER),
        (b'{"type":"RUN_FINISHED","threadId":"t-1","runId":"c-1","result":1e999}', Detail.NUMBER),
        (b'{"type":"RUN_FINISHED","threadId":"t-1","runId":"c-1","result":' + b"9" * 5000 + b"}", Detail.NUMBER),
        (b'{"type":"TEXT_MESSAGE_END","messageId":"m1","timestamp":' + b"9" * 5000 + b"}", Detail.NUMBER),
        (b'{"type":"TEXT_MESSAGE_CONTENT","timestamp":' + b"9" * 70 + b',"messageId":"m1","delta":"a"}', Detail.NUMBER),
        (b'{"type":"RUN_ERROR","type":"RUN_FINISHED","threadId":"t-1","runId":"c-1"}', Detail.DUPLICATE_KEY),
        (b'{"type":"CUSTOM","value":' + b"[" * 5000 + b"]" * 5000 + b"}", Detail.DEPTH),
        (b'{"type":"TEXT_MESSAGE_END","messageId":"m1","x":' + b'{"a":' * 64 + b"1" + b"}" * 65, Detail.DEPTH),
    ],
)
def test_o46_json_that_python_accepts_and_others_do_not(frame: bytes, detail: Detail) -> None:
    fact = read([framed(*GOOD[:-1]) + b"data: " + frame + b"\n\n" + framed(RF)])[1]
    assert fact == StreamBroken(Reason.BAD_FRAME, detail)


# Cheap ways


@pytest.mark.parametrize(
    "template",
    [
        '{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"a"}',
        '{"type":"TEXT_MESSAGE_CONTENT","timestamp":5,"messageId":"m","delta":"a"}',
        '{"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "a"}',
        ' {\n\t"type"\r: "TEXT_MESSAGE_CONTENT" ,"messageId":"m","delta":"a" } ',
        '{"messageId":"m","delta":"a","type":"TEXT_MESSAGE_CONTENT"}',
        '{"delta":"a","x":{"type":"RAW"},"type":"TEXT_MESSAGE_CONTENT","messageId":"m"}',
        '{"\\u0074ype":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"a"}',
        '{"type":"TEXT_MESSAGE\\u005fCONTENT","messageId":"m","delta":"\\u0061"}',
        '{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"a","rawEvent":{"type":"RUN_FINISHED"}}',
        '{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"a","f":1.5,"g":-3,"h":true}',
    ],
)
def test_one_event_in_many_spellings(template: str) -> None:
    assert decoded(template.encode()) == TextContent("m", "a", False)


def test_blanks_before_an_ignored_type_do_not_hide_it() -> None:
    assert decoded(b'{ "type" : "STATE_SNAPSHOT", "snapshot": {"type": "x"}}') == Ignored(IgnoredClass.SNAPSHOT)
    assert decoded(b'{"snapshot": {"type": "x"}, "type": "STATE_SNAPSHOT"}') == Ignored(IgnoredClass.SNAPSHOT)
    assert decoded(b'{\x0b"type":"RAW"}') == broken(Detail.SYNTAX)


def test_large_ignored_frames_are_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    nested = {"type": "on_chain", "text": LARGE, "deep": [[{"type": "ai"}]], "name": "你\n"}
    raw = payload(event("RAW", event=nested))
    first = json.dumps({"event": nested, "type": "RAW"}).encode()
    custom = payload(event("CUSTOM", name="big", value=nested))
    new = payload(event("NEW", event=nested))

    def refused(_: object) -> None:
        pytest.fail("decoded")

    monkeypatch.setattr(strict_json, "loads", refused)
    monkeypatch.setattr(orjson, "loads", refused)
    assert decoded(raw) == Ignored(IgnoredClass.RAW)
    assert decoded(raw + b" \n") == Ignored(IgnoredClass.RAW)
    assert decoded(first) == Ignored(IgnoredClass.UNKNOWN)
    assert decoded(custom) == Ignored(IgnoredClass.CUSTOM)
    assert decoded(new) == Ignored(IgnoredClass.UNKNOWN)
    assert decoded(payload(event("RAW", event={"type": "x"}))) == Ignored(IgnoredClass.RAW)


def test_an_ignored_frame_that_names_a_handled_type_is_decoded_and_still_ignored() -> None:
    for inner in ({"type": "RUN_FINISHED"}, {"name": "native_run"}, {"type": "TOOL_CALL_START"}):
        assert decoded(event("RAW", event=inner)) == Ignored(IgnoredClass.RAW)
        assert decoded({"event": inner, "type": "RAW"}) == Ignored(IgnoredClass.RAW)
        assert decoded({"event": inner, "text": LARGE, "type": "RAW"}) == Ignored(IgnoredClass.RAW)
    assert decoded(b'{"type":"RAW","event":"\\u0041"}') == Ignored(IgnoredClass.RAW)


def test_large_frames_without_a_leading_type() -> None:
    assert decoded({"text": LARGE, **RF}) == RunFinishedSeen("t-1", "c-1", Outcome.SUCCESS)
    assert decoded({"text": LARGE}) == broken(Detail.TYPE_FIELD)
    assert decoded(b'"' + LARGE.encode() + b'"') == broken(Detail.SYNTAX)
    assert decoded(b'{"type":' + LARGE.encode()) == broken(Detail.SYNTAX)


@pytest.mark.parametrize("kind", [name for name, row in TREATMENTS.items() if row.kept])
def test_kept_frames_have_their_own_bound(kind: str) -> None:
    fields: dict[str, object] = {"messageId": "m", "delta": "", "toolCallId": "k", "toolCallName": "n", "pad": ""}
    size = len(payload(event(kind, **fields)))
    full = event(kind, **{**fields, "pad": "x" * (1000 - size)})
    for spelling in (full, dict(reversed(full.items()))):
        assert len(payload(spelling)) == 1000
        assert not isinstance(decoded(spelling, 1000), StreamBroken)
        assert decoded(spelling, 999) == broken(Detail.KEPT_FRAME_BYTES)
    plain = payload(tc("m", "a"))
    assert plain_content(plain, len(plain)) == ("m", "a")
    assert plain_content(plain, len(plain) - 1) is None


def test_frames_of_which_nothing_is_kept_may_be_large() -> None:
    assert decoded(event("TOOL_CALL_RESULT", messageId="m", toolCallId="k", content=LARGE)) == ToolResult("k")
    assert decoded(event("TOOL_CALL_ARGS", toolCallId="k", delta=LARGE)) == ToolArgs("k")
    assert decoded({**RF, "result": LARGE}) == RunFinishedSeen("t-1", "c-1", Outcome.SUCCESS)
    assert decoded({**ks("k", "n"), "rawEvent": {"type": LARGE}}) == ToolStart("k", "n", None)
    assert decoded({**ts("m"), "rawEvent": {"type": LARGE}}) == TextStart("m", True, False)
    assert decoded({**RS, "input": {"type": LARGE}}) == RunStarted("t-1", "c-1")
    assert decoded(event("CUSTOM", name="on_interrupt", value=LARGE)) == InterruptAsked()


def test_ids_are_bounded() -> None:
    longest = "m" * module.MAX_ID_CHARACTERS
    for build in (lambda m: tc(m, "a"), ts, lambda k: ks(k), lambda p: ks("k", "n", p)):
        assert not isinstance(decoded(build(longest)), StreamBroken)
        assert decoded(build(longest + "m")) == broken(Detail.ID_LENGTH)


def test_terminal_events_never_take_the_fast_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: object) -> None:
        pytest.fail("the fast decoder saw a terminal event")

    monkeypatch.setattr(orjson, "loads", refused)
    for frame in (RF, dict(reversed(RF.items())), event("RUN_ERROR", message="m")):
        assert not isinstance(decoded(frame), StreamBroken)


def test_hostile_frames_take_no_quadratic_time() -> None:
    started = time.perf_counter()
    for frame in (
        b'{"type":"CUSTOM","name":' + b"[]," * 70 + b'"' + b'\\"' * 400_000,
        b'{"type":"CUSTOM","name":[' + b'"",' * 80_000 + b"[" * 70,
        b'{"type":"RAW","e":"' + b"\\u00" * 200_000 + b'"}',
        b'{"' + b"type" * 200_000,
    ):
        decoded(frame, 4 * 1024 * 1024)
    assert time.perf_counter() - started < 5


def test_o12_an_error_object_under_200_is_no_event() -> None:
    assert read([b'event: error\ndata: {"error":"overloaded"}\n\n'])[1] == broken(Detail.TYPE_FIELD)
    assert read([])[1] == StreamBroken(Reason.STREAM_ENDED, Detail.NO_EVENT)


def test_o15_line_separators_inside_json() -> None:
    delta = b'data: {"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"a\xe2\x80\xa8b\xc2\x85c\\u000bd"}\n\n'
    raw = framed(RS, NR, ts("m1")) + delta + framed(*GOOD[5:])
    parser, _, _ = read([raw])
    assert texts(parser) == ["a\u2028b\u0085c\x0bd"]
    parser, _, _ = read(raw[index : index + 1] for index in range(len(raw)))
    assert texts(parser) == ["a\u2028b\u0085c\x0bd"]


def test_o30_null_on_optional_fields_and_empty_deltas() -> None:
    started = event("RUN_STARTED", threadId="t-1", runId="c-1", parentRunId=None, input=None, timestamp=None, rawEvent=None)
    parser, fact = read_events(started, NR, ts("m1", timestamp=None), tc("m1", ""), tc("m1", "a", metadata=None), {**RF, "outcome": None})
    assert fact.__class__.__name__ == "RunFinished"
    assert texts(parser) == ["a"]
    for wrong in (event("TEXT_MESSAGE_CONTENT", messageId="m1", delta=None), event("TEXT_MESSAGE_CONTENT", messageId=None, delta="a")):
        assert read_events(RS, NR, ts("m1"), wrong, RF)[1] == REQUIRED


def test_o31_newer_types_and_reasoning_never_reach_the_text() -> None:
    noise = [
        event("REASONING_START", messageId="r"),
        event("REASONING_MESSAGE_CONTENT", messageId="r", delta="secret plan"),
        event("THINKING_TEXT_MESSAGE_CONTENT", delta="secret plan"),
        event("STATE_DELTA", delta=[{"op": "add"}]),
        event("ACTIVITY_SNAPSHOT", messageId="a", activityType="x", content={}),
        event("FOO_BAR", messageId="m1", delta="secret plan"),
    ]
    mixed = [one for real in GOOD[:-1] for one in (real, *noise)]
    parser, fact = read_events(*mixed, RF)
    assert fact.__class__.__name__ == "RunFinished"
    assert texts(parser) == ["Hello world"]
    assert (parser.counts.ignored_reasoning, parser.counts.unknown) == (18, 6)
    flood = framed(RS, NR) + framed(event("FOO_BAR")) * 50_001 + framed(RF)
    assert read([flood])[1] == StreamBroken(Reason.BOUND_EXCEEDED, Detail.EVENTS)
