"""What must hold for every input of the parser, searched for by Hypothesis and by mutating the recorded samples."""

import json
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.domain import strict_json
from gateway.domain.evidence import RunFinished, StreamBroken, StreamFact
from gateway.domain.limits import StreamBounds
from gateway.domain.snapshot import parse
from gateway.domain.text import clean, is_storable
from gateway.sse_parser import decode as module
from gateway.sse_parser.decode import decode
from gateway.sse_parser.events import Ignored, RunErrorSeen, RunFinishedSeen
from gateway.sse_parser.faults import Detail, broken
from gateway.sse_parser.guard import Guard
from gateway.sse_parser.treatment import TREATMENTS
from tests.property.frames import (
    BOUNDS,
    GOOD,
    NR,
    RE,
    RF,
    RS,
    event,
    finished_first,
    framed,
    ka,
    ke,
    kk,
    kr,
    ks,
    new_parser,
    payload,
    read,
    read_events,
    tc,
    te,
    texts,
    tk,
    ts,
)
from tests.unit.test_parser_samples import VERDICTS, Verdict, by_path

message_ids = st.sampled_from(["m1", "m2", "m3"])
tool_ids = st.sampled_from(["k1", "k2"])
deltas = st.one_of(
    st.sampled_from(["", "a", "Hello ", "\n\n", '"', "\\", "é", "🙂", "\x00", "\ud83d", "\u2028", "data: x"]), st.text(max_size=8)
)
optional_message_ids = st.one_of(st.none(), message_ids)
some_events: st.SearchStrategy[object] = st.one_of(
    st.sampled_from([RS, NR, RF, RE, event("RAW", event={"type": "RUN"}), event("STEP_STARTED", stepName="s"), event("NEW")]),
    st.builds(ts, message_ids),
    st.builds(tc, message_ids, deltas),
    st.builds(te, message_ids),
    st.builds(tk, optional_message_ids, deltas),
    st.builds(ks, tool_ids, st.sampled_from(["search", "x y"]), optional_message_ids),
    st.builds(ka, tool_ids, deltas),
    st.builds(ke, tool_ids),
    st.builds(kr, tool_ids, deltas),
    st.builds(kk, st.one_of(st.none(), tool_ids), st.sampled_from(["search", None]), deltas),
    st.builds(lambda m, d: tc(m, d, subagentRunId="s"), message_ids, deltas),
    st.builds(lambda m: {**ts(m), "role": "user"}, message_ids),
)
streams = st.lists(some_events, max_size=12).map(lambda events: [RS, *events, RF])
frame_ends = st.sampled_from([b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n", b"\n", b"\n: c\n\n", b"\nid: 1\nevent: x\n\n\n"])


def ascii_or_not(value: object, escape: bool) -> bytes:
    return json.dumps(value).encode() if escape else payload(value).decode("utf-8", "replace").encode()


@st.composite
def wires(draw: st.DrawFn) -> bytes:
    """A stream as bytes: events in either escaping, any line ends, now and then something that is no event."""
    events = draw(st.one_of(streams, st.lists(some_events, max_size=12)))
    parts = [draw(st.sampled_from([b"", b"", b"\xef\xbb\xbf"]))]
    for one in events:
        parts += [b"data: ", ascii_or_not(one, draw(st.booleans())), draw(frame_ends)]
        parts.append(draw(st.sampled_from([b""] * 20 + [b"data:\n\n", b": ping\n\n", b"data: \xff\n\n", b"data: {\n\n", b"\r", b"\n"])))
    return b"".join(parts)


def chunked(raw: bytes, cuts: list[int]) -> Iterator[bytes]:
    edges = [0, *sorted(cut % (len(raw) + 1) for cut in cuts), len(raw)]
    return (raw[start:end] for start, end in pairwise(edges))


def seen(raw: bytes, cuts: list[int], bounds: StreamBounds = BOUNDS) -> tuple[object, ...]:
    parser, fact, batches = read(chunked(raw, cuts), new_parser(bounds))
    text: dict[int, str] = {}
    order: list[object] = []
    for change in (change for batch in batches for change in batch.changes):
        if hasattr(change, "text"):
            text[change.position] = text.get(change.position, "") + change.text
        else:
            order.append(change)
    ends = [batch.end for batch in batches if batch.end is not None]
    assert ends == ([] if isinstance(fact, StreamBroken) and fact.reason == "stream_ended" else [fact])
    assert sum(batch.started for batch in batches) <= 1
    return fact, parser.items(), parser.native_run_id, parser.counts, text, order


some_cuts = st.lists(st.integers(min_value=0, max_value=5_000), max_size=8)


@given(wires(), some_cuts)
def test_any_way_of_cutting_gives_the_same(raw: bytes, cuts: list[int]) -> None:
    whole = seen(raw, [])
    assert seen(raw, cuts) == whole
    assert seen(raw, list(range(len(raw)))) == whole


@given(wires(), some_cuts, st.integers(1, 200), st.integers(0, 1_000), st.integers(0, 6), st.integers(0, 20))
def test_any_way_of_cutting_gives_the_same_at_every_bound(
    raw: bytes, cuts: list[int], frame: int, stream: int, events: int, text: int
) -> None:
    bounds = StreamBounds(
        frame_bytes=frame, kept_frame_bytes=max(1, frame - 20), stream_bytes=stream, events=events, text_bytes=text, messages=1, tools=1
    )
    whole = seen(raw, [], bounds)
    assert seen(raw, cuts, bounds) == whole
    assert seen(raw, list(range(len(raw))), bounds) == whole


@given(st.lists(st.binary(max_size=40), max_size=10))
def test_no_bytes_raise_and_none_succeed(parts: list[bytes]) -> None:
    parser, fact, _ = read(parts)
    assert isinstance(fact, StreamBroken)
    assert fact.detail in set(Detail)
    assert parser.snapshot(False).canonical()


@given(wires(), some_cuts)
def test_no_success_without_a_matching_run_finished(raw: bytes, cuts: list[int]) -> None:
    fact = read(chunked(raw, cuts))[1]
    if isinstance(fact, RunFinished):
        assert finished_first(raw)


@given(
    st.lists(
        st.one_of(st.binary(max_size=60), st.sampled_from([b"data: {", b"x" * 50, b":\n", b"\n", b"\r", b"data: {}\n\n"])), max_size=30
    )
)
def test_buffered_bytes_are_bounded(parts: list[bytes]) -> None:
    bounds = StreamBounds(frame_bytes=64, events=10_000)
    guard = Guard(bounds)
    for part in parts:
        guard.feed(part)
        assert guard.buffered <= bounds.frame_bytes


@given(st.lists(st.tuples(message_ids, st.one_of(deltas, st.text(max_size=30))), max_size=20), some_cuts, st.booleans())
def test_text_is_the_cleaned_deltas(pieces: list[tuple[str, str]], cuts: list[int], escape: bool) -> None:
    starts = [ts("m1"), ts("m2"), ts("m3")]
    events = [RS, NR, *starts, *(tc(message_id, delta) for message_id, delta in pieces), RF]
    raw = b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in events) if escape else None
    if raw is None:
        pieces = [(message_id, delta.encode("utf-8", "replace").decode()) for message_id, delta in pieces]
        raw = framed(RS, NR, *starts, *(tc(message_id, delta) for message_id, delta in pieces), RF)
    parser, fact, _ = read(chunked(raw, cuts))
    assert isinstance(fact, RunFinished)
    # A surrogate pair inside one delta is one character to JSON; only halves are replaced.
    said = [(message_id, json.loads(json.dumps(delta))) for message_id, delta in pieces]
    expected = [clean("".join(clean(delta) for owner, delta in said if owner == message_id)) for message_id in ("m1", "m2", "m3")]
    assert texts(parser) == expected
    assert all(map(is_storable, expected))
    assert parser.counts.text_bytes == len("".join(expected).encode())
    snapshot = parser.snapshot(True)
    assert parse(snapshot.canonical()) == snapshot


values: st.SearchStrategy[object] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=6),
        st.sampled_from(["type", "RUN_FINISHED", "assistant", "m1"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["type", "x", "run_id", "messageId"]), inner, max_size=3)
    ),
    max_leaves=6,
)
keys = st.one_of(
    st.sampled_from(
        ["type", "messageId", "delta", "role", "toolCallId", "toolCallName", "content", "name", "value", "threadId", "runId", "outcome"]
    ),
    st.text(max_size=3),
)
kinds = st.one_of(st.sampled_from(sorted(TREATMENTS)), st.sampled_from(["NEW", "native_run", "RUN_FINISHED ", ""]), values)


@st.composite
def objects(draw: st.DrawFn) -> bytes:
    """A JSON object written by hand, so that keys may come twice, in any spelling and blanks."""
    pairs = draw(st.lists(st.tuples(keys, values), max_size=6))
    pairs.insert(draw(st.integers(0, len(pairs))), ("type", draw(kinds)))
    if draw(st.integers(0, 4)) == 0:
        pairs.insert(draw(st.integers(0, len(pairs))), ("type", draw(kinds)))
    escape = draw(st.booleans())
    blank = draw(st.sampled_from(["", "", " ", "\n\t"]))
    written = []
    for key, value in pairs:
        name = json.dumps(key) if draw(st.integers(0, 9)) else '"' + "".join(f"\\u{ord(c):04x}" for c in key if ord(c) < 0x10000) + '"'
        written.append(f"{name}{blank}:{blank}{json.dumps(value, ensure_ascii=escape)}")
    return f"{{{blank}{f',{blank}'.join(written)}}}".encode("utf-8", "replace")


def strictly(frame: bytes, kept: int) -> object:
    """What decode says when every cheap way is shut."""
    try:
        document = strict_json.loads(frame)
    except strict_json.NotStrictJson as refused:
        return broken(Detail(refused.fault))
    if not isinstance(document, dict):
        return broken(Detail.NOT_AN_OBJECT)
    try:
        return module._typed(document, len(frame) <= kept)
    except module._Refused as refused:
        return refused.fault


@given(st.one_of(objects(), objects().map(lambda raw: raw[:-1]), values.map(lambda value: json.dumps(value).encode())))
@example(b'{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"\\"\\\\","delta":"\\\\"}')
@example(b'{"type":"TEXT_MESSAGE_END","messageId":"m","a":1,"a":"b"}')
def test_every_cheap_way_agrees_with_the_strict_one(frame: bytes) -> None:
    cheap, strict = decode(frame, 10_000), strictly(frame, 10_000)
    if isinstance(cheap, Ignored) and cheap != strict:
        # Skipped unread. Then it is a fault or another ignored event: never one that we would have acted on, by any reading.
        assert isinstance(strict, StreamBroken | Ignored)
        assert b'"RUN_FINISHED"' not in frame
        return
    assert cheap == strict


def both_readings(frame: bytes) -> list[object]:
    """The `type` by the first and by the last of several keys."""
    found: list[object] = []

    def hook(pairs: list[tuple[str, object]]) -> dict[str, object]:
        kinds = [value for key, value in pairs if key == "type"]
        found[:] = [kinds[0], kinds[-1]] if kinds else []
        return dict(pairs)

    try:
        json.loads(frame, object_pairs_hook=hook)
    except ValueError:
        return []
    return found


@given(objects())
def test_a_skipped_frame_hides_nothing_by_any_reading(frame: bytes) -> None:
    if isinstance(decode(frame, 10_000), Ignored):
        for kind in both_readings(frame):
            row = TREATMENTS.get(kind) if isinstance(kind, str) else None
            assert row is None or row.ignored_class is not None


@given(st.binary(max_size=80).map(lambda raw: raw.decode("utf-8", "ignore").encode()), st.integers(0, 100))
def test_decode_raises_nothing(frame: bytes, kept: int) -> None:
    assert not isinstance(decode(frame, kept), RunFinishedSeen | RunErrorSeen)


Mutation = Callable[[bytes, int, int, bytes], bytes]
MUTATIONS: dict[str, Mutation] = {
    "cut out": lambda raw, start, end, _: raw[:start] + raw[end:],
    "repeat": lambda raw, start, end, _: raw[:end] + raw[start:],
    "overwrite": lambda raw, start, _, junk: raw[:start] + junk + raw[start + len(junk) :],
    "insert": lambda raw, start, _, junk: raw[:start] + junk + raw[start:],
    "truncate": lambda raw, start, *_: raw[:start],
}


@settings(max_examples=settings().max_examples // 2)
@pytest.mark.parametrize("verdict", VERDICTS, ids=by_path)
@given(
    st.sampled_from(sorted(MUTATIONS)),
    st.integers(0, 100_000),
    st.integers(0, 300),
    st.one_of(st.binary(max_size=6), st.sampled_from([b"\n", b"\n\n", b"\r", b'"', b"\\u0074", b"}", b'"type":"RUN_FINISHED",'])),
    some_cuts,
)
def test_mutated_samples(verdict: Verdict, mutation: str, start: int, length: int, junk: bytes, cuts: list[int]) -> None:
    raw = verdict.raw
    start %= len(raw)
    mutant = MUTATIONS[mutation](raw, start, start + length, junk)
    whole: StreamFact | None = None
    for parts in ([mutant], chunked(mutant, cuts)):
        parser, fact, _ = read(parts, verdict.parser())
        assert whole is None or whole == fact
        whole = fact
        assert parser.snapshot(False).canonical()
    if isinstance(whole, RunFinished):
        assert f'"threadId":"thread-{verdict.task}","runId":"run-{verdict.task}-{verdict.turn}"'.encode() in mutant


def test_the_good_stream_is_good() -> None:
    assert isinstance(read_events(*GOOD)[1], RunFinished)
