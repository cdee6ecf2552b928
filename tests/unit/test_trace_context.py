"""The trace context: what of a caller's header is believed, and what goes out."""

import pytest

from gateway.domain.trace_context import TraceContext, new_trace, outgoing, parse
from tests.support.current_trace import in_trace

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(
    ("header", "sampled"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f" 00-{TRACE}-{SPAN}-00 ", False),
        (f"00-{TRACE}-{SPAN}-03", True),
        (f"cc-{TRACE}-{SPAN}-01", True),
        (f"cc-{TRACE}-{SPAN}-01-what-comes-later", True),
    ],
)
def test_a_valid_header_is_believed(header: str, sampled: bool) -> None:
    assert parse(header) == TraceContext(TRACE, SPAN, sampled)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "x",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE[:-1]}-{SPAN}-01",
    ],
)
def test_any_other_is_none(header: str) -> None:
    assert parse(header) is None


def test_a_child_is_another_span_of_the_same_trace() -> None:
    parent = TraceContext(TRACE, SPAN, True)
    child = parent.child()
    assert (child.trace_id, child.sampled) == (TRACE, True)
    assert child.span_id != SPAN
    assert parse(child.header()) == child


def test_what_goes_out_is_the_current_trace_or_one_that_nobody_records() -> None:
    made = parse(outgoing())
    assert made is not None
    assert not made.sampled
    trace = new_trace(sampled=True)
    with in_trace(trace):
        assert parse(outgoing()) == trace
