"""The protocol machine: order, ids, outcomes, chunks, bounds. Each field case that it answers for has its test here, by id."""

from dataclasses import replace

import pytest

from gateway.domain.evidence import Outcome, RunErrored, RunFinished, StreamBroken, StreamFact
from gateway.domain.limits import StreamBounds
from gateway.domain.reasons import Reason
from gateway.domain.snapshot import MessageItem, ToolItem, ToolStatus
from gateway.sse_parser.faults import Detail, broken
from gateway.sse_parser.parser import Batch
from tests.property.frames import (
    BOUNDS,
    GOOD,
    NR,
    RE,
    RF,
    RS,
    event,
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

SUCCESS = RunFinished(Outcome.SUCCESS)


def fact_of(*events: object, bounds: StreamBounds = BOUNDS) -> StreamFact:
    return read_events(*events, bounds=bounds)[1]


def native(value: object) -> dict[str, object]:
    return event("CUSTOM", name="native_run", value=value)


@pytest.mark.parametrize(
    ("events", "fact"),
    [
        (GOOD, SUCCESS),
        ((RS, RF), SUCCESS),
        ((RE,), RunErrored()),
        ((RS, RE), RunErrored()),
        ((RS, ts("m1"), tc("m1", "a"), RE), RunErrored()),
        ((RF,), broken(Detail.FIRST_EVENT)),
        ((NR, RS, RF), broken(Detail.FIRST_EVENT)),
        ((tc("m1", "a"), RS, RF), broken(Detail.FIRST_EVENT)),
        ((event("RAW", event={}), RS, RF), broken(Detail.FIRST_EVENT)),
        ((event("NEW"), RS, RF), broken(Detail.FIRST_EVENT)),
        ((RS, RS, RF), broken(Detail.SECOND_RUN_STARTED)),
        ((event("RUN_STARTED", threadId="t-2", runId="c-1"), RF), broken(Detail.RUN_STARTED_IDS)),
        ((event("RUN_STARTED", threadId="t-1", runId="c-2"), RF), broken(Detail.RUN_STARTED_IDS)),
        ((event("RUN_STARTED", threadId="t-1"), RF), broken(Detail.RUN_STARTED_IDS)),
        ((RS, native("c-1"), RF), broken(Detail.NATIVE_IS_CORRELATION)),
        ((RS, native({"runId": "C-1"}), RF), broken(Detail.NATIVE_IS_CORRELATION)),
        ((RS, NR, NR, RF), SUCCESS),
        ((RS, NR, native("n-2"), RF), broken(Detail.NATIVE_CHANGED)),
        ((RS, native({"run_id": ""}), RF), broken(Detail.NATIVE_RUN_VALUE)),
        ((RS, ts("m1"), te("m1"), ts("m1"), RF), broken(Detail.MESSAGE_REOPENED)),
        ((RS, ts("m1"), ts("m1"), RF), broken(Detail.MESSAGE_REOPENED)),
        ((RS, tc("m1", "a"), RF), broken(Detail.MESSAGE_NOT_OPEN)),
        ((RS, tc("m1", ""), RF), broken(Detail.MESSAGE_NOT_OPEN)),
        ((RS, ts("m1"), te("m1"), tc("m1", "a"), RF), broken(Detail.MESSAGE_NOT_OPEN)),
        ((RS, ks("k1"), ks("k1"), RF), broken(Detail.TOOL_REOPENED)),
        ((RS, ks("k1"), ke("k1"), ks("k1"), RF), broken(Detail.TOOL_REOPENED)),
        ((RS, ts("m1"), tc("m1", "a")), broken(Detail.NO_TERMINAL_EVENT)),
        ((RS, ts("m1"), te("m1"), ks("k1"), ke("k1"), kr("k1")), broken(Detail.NO_TERMINAL_EVENT)),
        ((), broken(Detail.NO_EVENT)),
    ],
)
def test_order_and_ids(events: tuple[object, ...], fact: StreamFact) -> None:
    assert fact_of(*events) == fact


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (None, Outcome.SUCCESS),
        ({"type": "success"}, Outcome.SUCCESS),
        ({"type": "interrupt", "interrupts": [{"id": "i"}]}, Outcome.INTERRUPT),
        ({"type": "interrupt", "interrupts": []}, Outcome.INTERRUPT),
        ({"type": "cancelled"}, Outcome.CANCELLED),
        ({"type": "new"}, Outcome.UNRECOGNISED),
    ],
)
def test_outcomes(outcome: object, expected: Outcome) -> None:
    finished = {**RF, "outcome": outcome}
    assert fact_of(RS, NR, finished) == RunFinished(expected)
    asked = event("CUSTOM", name="on_interrupt", value='{"a": 1}')
    assert fact_of(RS, NR, asked, finished) == RunFinished(Outcome.INTERRUPT)
    assert fact_of(RS, NR, finished, asked) == RunFinished(expected)
    assert fact_of(RS, NR, asked, RE) == RunErrored()


def test_what_is_about_nothing_known_is_dropped_and_counted() -> None:
    parser, fact = read_events(
        RS,
        te("m9"),
        ka("k9"),
        ke("k9"),
        kr("k9"),
        ts("m1"),
        te("m1"),
        te("m1"),
        ks("k1"),
        ke("k1"),
        ke("k1"),
        ka("k1"),
        kr("k1"),
        kr("k1"),
        RF,
    )
    assert fact == SUCCESS
    assert parser.counts.stray == 8
    assert parser.items() == (MessageItem(1, "", True), ToolItem(2, "search", ToolStatus.RETURNED))


def test_a_result_before_the_end_stands() -> None:
    parser, fact = read_events(RS, ks("k1"), kr("k1"), ke("k1"), RF)
    assert fact == SUCCESS
    assert parser.items() == (ToolItem(1, "search", ToolStatus.RETURNED),)


def test_interleaved_messages_keep_apart() -> None:
    parser, fact = read_events(
        RS, ts("m1"), ts("m2"), tc("m1", "a"), tc("m2", "b"), ks("k1", parent="m2"), tc("m1", "c"), te("m2"), te("m1"), RF
    )
    assert fact == SUCCESS
    assert parser.items() == (MessageItem(1, "ac", True), MessageItem(2, "b", True), ToolItem(3, "search", ToolStatus.CALLED, 2))


@pytest.mark.parametrize("role", ["user", "system", "developer", "tool", "new"])
def test_other_roles_are_no_answers(role: str) -> None:
    parser, fact = read_events(RS, {**ts("u1"), "role": role}, tc("u1", "not said"), te("u1"), *GOOD[2:])
    assert fact == SUCCESS
    assert texts(parser) == ["Hello world"]
    assert parser.counts.dropped_text == 2


def test_subagents_say_nothing_here() -> None:
    parser, fact = read_events(
        RS,
        ts("s1", subagentRunId="s"),
        tc("s1", "inner"),
        tc("s1", "inner", subagentRunId="s"),
        tc("s2", "inner", subagentRunId="s"),
        ts("m1"),
        tc("m1", "inner", subagentRunId="s"),
        tc("m1", "outer"),
        ts("m1", subagentRunId="s"),
        {**te("m1"), "subagentRunId": "s"},
        tc("m1", " and more"),
        {**te("s1"), "subagentRunId": "s"},
        te("m1"),
        RF,
    )
    assert fact == SUCCESS
    assert texts(parser) == ["outer and more"]
    assert (parser.counts.dropped_text, parser.counts.stray) == (7, 0)
    assert fact_of(RS, ts("s1", subagentRunId="s"), ts("s1"), RF) == broken(Detail.MESSAGE_REOPENED)


def test_tool_steps_of_subagents_are_not_shown() -> None:
    inner = {"subagentRunId": "s"}
    steps = [{**step, **inner} for step in (ks("k1", "secret_tool"), ka("k1"), ke("k1"), kr("k1"), kk("k2", "secret_tool"))]
    parser, fact = read_events(*GOOD[:-1], *steps, ks("k3", "search"), RF)
    assert fact == SUCCESS
    assert [item.name for item in parser.items() if isinstance(item, ToolItem)] == ["search"]
    assert (parser.counts.ignored_subagent, parser.counts.stray) == (5, 0)


# Chunks


def test_chunks_are_expanded() -> None:
    parser, fact = read_events(
        RS, tk("m1", "a"), tk(None, "b"), tk("m1"), tk("m2", "c"), kk("k1", "n", "{"), kk(None, None, "}"), kr("k1"), RF
    )
    assert fact == SUCCESS
    assert parser.items() == (
        MessageItem(1, "ab", True),
        MessageItem(2, "c", True),
        ToolItem(3, "n", ToolStatus.RETURNED),
    )
    assert parser.counts.closed_open == 0


def test_noise_between_chunks_does_not_split_a_message() -> None:
    step = event("STEP_STARTED", stepName="s")
    parser, fact = read_events(RS, tk("m1", "a"), step, NR, event("RAW", event={}), tk("m1", "b"), step, tk(None, "c"), RF)
    assert fact == SUCCESS
    assert parser.items() == (MessageItem(1, "abc", True),)


def test_a_message_goes_on_after_a_tool_as_a_new_item() -> None:
    parser, fact = read_events(
        RS, tk("m1", "a"), kk("k1", "n", parent="m1"), tk("m1", "b"), kk("k1", None, "more"), kk("k2", "n", parent="m1"), RF
    )
    assert fact == SUCCESS
    assert parser.items() == (
        MessageItem(1, "a", True),
        ToolItem(2, "n", ToolStatus.CALLED, 1),
        MessageItem(3, "b", True),
        ToolItem(4, "n", ToolStatus.CALLED, 3),
    )


def test_parallel_tools_in_chunks() -> None:
    parser, fact = read_events(RS, kk("k1", "a"), kk("k2", "b"), kk("k1", None, "1"), kk("k2", None, "2"), kr("k1"), RF)
    assert fact == SUCCESS
    assert parser.items() == (ToolItem(1, "a", ToolStatus.RETURNED), ToolItem(2, "b", ToolStatus.CALLED))


def test_chunks_and_long_forms_meet() -> None:
    parser, fact = read_events(
        RS, ts("m1"), tk("m1", "a"), tc("m1", "b"), te("m1"), tk("m2", "c"), tc("m2", "d"), te("m2"), ks("k1"), kk("k1"), RF
    )
    assert fact == SUCCESS
    assert texts(parser) == ["ab", "cd"]
    parser, fact = read_events(RS, kk("k1", "n"), ke("k1"), tk("m1", "a"), ts("m2"), te("m1"), te("m2"), RF)
    assert fact == SUCCESS
    assert parser.items() == (ToolItem(1, "n", ToolStatus.CALLED), MessageItem(2, "a", True), MessageItem(3, "", True))
    assert parser.counts.stray == 0


@pytest.mark.parametrize(
    ("events", "detail"),
    [
        ((tk(None, "a"),), Detail.CHUNK_WITHOUT_ID),
        ((kk(None, "n"),), Detail.CHUNK_WITHOUT_ID),
        ((tk("m1", "a"), kk(None, "n")), Detail.CHUNK_WITHOUT_ID),
        ((kk("k1", "n"), tk(None, "a")), Detail.CHUNK_WITHOUT_ID),
        ((tk("m1", "a"), ts("m2"), tk(None, "b")), Detail.CHUNK_WITHOUT_ID),
        ((kk("k1"),), Detail.CHUNK_WITHOUT_NAME),
        ((tk("m1", "a"), te("m1"), tk("m1", "b")), Detail.MESSAGE_REOPENED),
        ((tk("m1", "a"), te("m1"), tk(None, "b")), Detail.MESSAGE_REOPENED),
        ((tk("m1", "a"), ts("m1")), Detail.MESSAGE_REOPENED),
        ((tk("m1", "a"), tk("m2", "b"), tc("m1", "c")), Detail.MESSAGE_NOT_OPEN),
        ((kk("k1", "n"), ke("k1"), kk("k1", "n")), Detail.TOOL_REOPENED),
        ((kk("k1", "n"), ks("k1")), Detail.TOOL_REOPENED),
    ],
)
def test_chunks_that_contradict(events: tuple[object, ...], detail: Detail) -> None:
    assert fact_of(RS, *events, RF) == broken(detail)


def test_dropped_chunks_leak_into_no_message() -> None:
    user = tk("u1", "not said", role="user")
    inner = tk("s1", "not said", subagentRunId="s")
    for dropped in (user, inner):
        parser, fact = read_events(RS, tk("m1", "a"), dropped, tk(None, "not said"), dropped, tk("m1", "b"), RF)
        assert fact == SUCCESS
        assert parser.items() == (MessageItem(1, "ab", True),)
        assert parser.counts.dropped_text == 3
    mixed = tk("m1", "not said", subagentRunId="s")
    assert texts(read_events(RS, tk("m1", "a"), mixed, tk("m1", "b"), RF)[0]) == ["ab"]
    assert fact_of(RS, tk("m1", "a"), mixed, tk(None, "whose?"), RF) == broken(Detail.CHUNK_WITHOUT_ID)
    parser, fact = read_events(RS, tk("m1", "a"), kk("k1", "n"), mixed, RF)
    assert (fact, texts(parser)) == (SUCCESS, ["a"])


# Bounds


def test_bounds() -> None:
    few = replace(BOUNDS, messages=2, tools=2, text_bytes=6)
    assert fact_of(RS, ts("m1"), ts("m2"), ks("k1"), ks("k2"), RF, bounds=few) == SUCCESS
    assert fact_of(RS, ts("m1"), ts("m2"), ts("m3"), RF, bounds=few) == broken(Detail.MESSAGES)
    assert fact_of(RS, tk("m1"), tk("m2"), tk("m3"), RF, bounds=few) == broken(Detail.MESSAGES)
    assert fact_of(RS, ks("k1"), ks("k2"), ks("k3"), RF, bounds=few) == broken(Detail.TOOLS)
    assert fact_of(RS, kk("k1", "n"), kk("k2", "n"), kk("k3", "n"), RF, bounds=few) == broken(Detail.TOOLS)
    users = [{**ts(f"u{number}"), "role": "user"} for number in range(33)]
    assert fact_of(RS, *users[:32], RF, bounds=few) == SUCCESS
    assert fact_of(RS, *users, RF, bounds=few) == broken(Detail.IGNORED_MESSAGES)
    chunks = [tk(f"u{number}", "x", role="user") for number in range(33)]
    assert fact_of(RS, *chunks, RF, bounds=few) == broken(Detail.IGNORED_MESSAGES)


def test_a_plain_frame_in_a_read_of_its_own_has_the_bound_of_kept_frames() -> None:
    said = tc("m1", "x" * 100)
    size = len(payload(said))
    for bound, fact in ((size, SUCCESS), (size - 1, broken(Detail.KEPT_FRAME_BYTES))):
        bounds = replace(BOUNDS, kept_frame_bytes=bound)
        for parts in ([framed(RS, ts("m1")), framed(said), framed(RF)], [framed(RS, ts("m1"), said, RF)]):
            assert read(parts, new_parser(bounds))[1] == fact


def test_text_is_bounded_in_cleaned_bytes_and_what_fits_is_kept() -> None:
    few = replace(BOUNDS, text_bytes=6)
    for pieces, kept in (
        (["abc", "def", "g"], "abcdef"),
        (["abc", "defg"], "abc"),
        (["é", "你", "!", "!"], "é你!"),
        (["\x00", "\x00", "a"], "\ufffd\ufffd"),
    ):
        parser, fact = read_events(RS, ts("m1"), *(tc("m1", piece) for piece in pieces), RF, bounds=few)
        assert fact == broken(Detail.TEXT_BYTES)
        assert texts(parser) == [kept]
    assert fact_of(RS, ts("m1"), tc("m1", "abcdef"), tc("m1", ""), RF, bounds=few) == SUCCESS
    assert fact_of(RS, tk("m1", "abcdefg"), RF, bounds=few) == broken(Detail.TEXT_BYTES)


# The façade


def test_batches_tell_news_once() -> None:
    parser = new_parser()
    assert parser.feed(framed(RS)) == Batch(started=True, activity=True)
    assert parser.feed(framed(NR)) == Batch(native_run_id=parser.native_run_id, activity=True)
    assert parser.feed(framed(NR)) == Batch(activity=True)
    assert parser.feed(b": ping\n\n") == Batch()
    assert parser.feed(b"data:\n\n") == Batch()
    assert parser.feed(b"data: {") == Batch()
    assert parser.feed(payload(RF)[1:]) == Batch()
    assert parser.feed(b"\n\n") == Batch(end=SUCCESS, activity=True)
    assert parser.feed(framed(RE)) == Batch()
    assert parser.end() == parser.end() == SUCCESS
    assert parser.counts.after_terminal == 1
    both = new_parser().feed(framed(RS, NR))
    assert (both.started, both.native_run_id) == (True, "n-1")


def test_the_end_comes_with_what_went_before_it() -> None:
    batch = new_parser().feed(framed(*GOOD[:4]) + b"data: x\n\n" + framed(*GOOD[4:]))
    assert batch.end == broken(Detail.SYNTAX)
    assert [change.__class__.__name__ for change in batch.changes] == ["MessageStarted", "TextAppended"]
    assert (batch.started, batch.native_run_id, batch.activity) == (True, "n-1", True)


def test_after_a_fault_it_stays_a_fault() -> None:
    parser = new_parser()
    parser.feed(framed(RS, RS))
    assert parser.feed(framed(RF)) == Batch()
    assert parser.end() == broken(Detail.SECOND_RUN_STARTED)
    assert (parser.counts.frames, parser.counts.after_terminal) == (2, 0)


def test_after_the_end_of_the_body_nothing_counts() -> None:
    parser = new_parser()
    parser.feed(framed(*GOOD[:-1]))
    ended = parser.end()
    assert ended == broken(Detail.NO_TERMINAL_EVENT)
    assert parser.feed(framed(RF)) == Batch()
    assert parser.end() == ended
    assert parser.counts.frames == len(GOOD) - 1


def test_a_guard_fault_after_a_terminal_event_changes_nothing() -> None:
    parser = new_parser()
    assert parser.feed(framed(*GOOD) + b"data: \xff\n\n").end == SUCCESS
    assert parser.feed(b"x" * 10_000_000) == Batch()
    assert parser.end() == SUCCESS


def test_a_fault_in_a_read_of_its_own_is_told_in_its_batch() -> None:
    parser = new_parser()
    parser.feed(framed(RS))
    assert parser.feed(framed(tc("m1", "a"))) == Batch(end=broken(Detail.MESSAGE_NOT_OPEN), activity=True)
    assert parser.feed(framed(tc("m1", "a"))) == Batch()


# Field cases


def test_o13_terminal_event_without_blank_line() -> None:
    start = framed(*GOOD[:-1])
    last = b"data: " + payload(RF)
    for tail, fact in (
        (b"", broken(Detail.OPEN_FRAME)),
        (b"\n", broken(Detail.OPEN_FRAME)),
        (b"\n\n", SUCCESS),
    ):
        assert read([start + last + tail])[1] == fact
        assert read([start, last, tail])[1] == fact


def test_o14_character_split_over_two_reads() -> None:
    text = "Grüße 東京 🙂👩‍👩‍👧"
    raw = framed(RS, NR, ts("m1"), tc("m1", text), te("m1"), RF)
    for index in range(1, len(raw)):
        parser, fact, _ = read([raw[:index], raw[index:]])
        assert (fact, texts(parser)) == (SUCCESS, [text])
    parser, fact, _ = read(raw[index : index + 1] for index in range(len(raw)))
    assert (fact, texts(parser)) == (SUCCESS, [text])


def test_o28_the_first_terminal_event_decides() -> None:
    parser, fact = read_events(RS, NR, ts("m1"), tc("m1", "par"), RE, RF)
    assert fact == RunErrored()
    assert parser.items() == (MessageItem(1, "par", False),)
    assert (parser.counts.after_terminal, parser.counts.terminal_again) == (1, 1)
    parser, fact = read_events(*GOOD, RE, tc("m1", "more"), RS)
    assert fact == SUCCESS
    assert texts(parser) == ["Hello world"]
    assert (parser.counts.after_terminal, parser.counts.terminal_again) == (3, 1)


@pytest.mark.parametrize(
    "finished",
    [
        {**RF, "runId": "n-1"},
        {**RF, "threadId": "t-2"},
        {**RF, "threadId": None},
        event("RUN_FINISHED", runId="c-1"),
        event("RUN_FINISHED", threadId="t-1"),
        {**RF, "runId": ["c-1"]},
        {**RF, "runId": "C-1"},
    ],
)
def test_o29_run_finished_with_other_ids(finished: dict[str, object]) -> None:
    parser, fact = read_events(*GOOD[:-1], finished, RF)
    assert fact == broken(Detail.RUN_FINISHED_IDS)
    assert texts(parser) == ["Hello world"]


def test_o29_two_native_ids_and_a_wrong_start() -> None:
    assert fact_of(RS, NR, native({"run_id": "n-2"}), RF) == broken(Detail.NATIVE_CHANGED)
    parser, _ = read_events(RS, NR, native({"run_id": "n-2"}), RF)
    assert parser.native_run_id == "n-1"
    assert fact_of(event("RUN_STARTED", threadId="t-2", runId="c-2"), RF).__class__ is StreamBroken


def test_o32_run_finishes_while_items_are_open() -> None:
    parser, fact = read_events(RS, NR, ts("m1"), tc("m1", "A"), ks("k1", "search", "m1"), ke("k1"), tc("m1", "B"), RF)
    assert fact == SUCCESS
    assert parser.items() == (MessageItem(1, "AB", True), ToolItem(2, "search", ToolStatus.CALLED, 1))
    assert parser.counts.closed_open == 1
    parser, fact = read_events(RS, NR, ks("k1"), ka("k1"), ks("k2"), kr("k2"), {**ts("u1"), "role": "user"}, RF)
    assert fact == SUCCESS
    assert parser.items() == (ToolItem(1, "search", ToolStatus.CALLED), ToolItem(2, "search", ToolStatus.RETURNED))
    assert parser.counts.closed_open == 1


def test_o33_parents_that_do_not_exist_yet() -> None:
    assert read_events(RS, ks("k1"), ke("k1"), RF)[0].items() == (ToolItem(1, "search", ToolStatus.CALLED),)
    assert read_events(RS, ks("k1", parent="m9"), ke("k1"), RF)[0].items() == (ToolItem(1, "search", ToolStatus.CALLED),)
    parser, fact = read_events(RS, ts("m1"), te("m1"), ks("k1", parent="m2"), ke("k1"), ts("m2"), tc("m2", "x"), te("m2"), RF)
    assert fact == SUCCESS
    assert parser.items() == (MessageItem(1, "", True), ToolItem(2, "search", ToolStatus.CALLED), MessageItem(3, "x", True))
    hidden = {**ts("u1"), "role": "user"}
    assert read_events(RS, hidden, ks("k1", parent="u1"), RF)[0].items() == (ToolItem(1, "search", ToolStatus.CALLED),)


def test_o19_nul_in_text_and_in_a_tool_name() -> None:
    parser, fact = read_events(RS, ts("m1"), tc("m1", "a\x00b"), te("m1"), ks("k1", "to\x00ol"), RF)
    assert fact == SUCCESS
    assert parser.items() == (MessageItem(1, "a\ufffdb", True), ToolItem(2, "tool", ToolStatus.CALLED))


def test_o41_lone_surrogates() -> None:
    def escaped(delta: bytes) -> bytes:
        return b'data: {"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"' + delta + b'"}\n\n'

    start, end = framed(RS, NR, ts("m1")), framed(te("m1"), RF)
    for deltas, text in (
        ([b"a\\ud83d"], "a\ufffd"),
        ([b"\\ud83d\\ude42"], "🙂"),
        ([b"\\ud83d", b"\\ude42"], "\ufffd\ufffd"),
        ([b"\\ude42\\ud83d"], "\ufffd\ufffd"),
    ):
        pieces = [escaped(delta) for delta in deltas]
        for parts in ([start, *pieces, end], [start + b"".join(pieces) + end]):
            parser, fact, _ = read(parts)
            assert (fact, texts(parser)) == (SUCCESS, [text])
            assert parser.snapshot(True).canonical()


def test_o12_a_stream_without_events_is_no_answer() -> None:
    for raw in (b"", b"\n\n", b": hello\n\n", b"event: error\n\n"):
        parser, fact, _ = read([raw])
        assert fact == StreamBroken(Reason.STREAM_ENDED, Detail.NO_EVENT)
        assert parser.items() == ()


def test_a_missing_native_id_is_counted() -> None:
    assert read_events(RS, RF)[0].counts.missing_native == 1
    assert read_events(RS, NR, RF)[0].counts.missing_native == 0
    assert read_events(RS, RE)[0].counts.missing_native == 0
