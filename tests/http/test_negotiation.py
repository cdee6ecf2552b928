"""What `Accept` asks for."""

import pytest
from starlette.datastructures import Headers

from gateway.domain.problems import Code, Refused
from gateway.web.call import JSON, JSON_OR_STREAM, STREAM
from gateway.web.negotiation import Answer, negotiate


def accept(*values: str) -> Headers:
    return Headers(raw=[(b"accept", value.encode()) for value in values])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, Answer.JSON),
        ("", Answer.JSON),
        ("*/*", Answer.JSON),
        ("application/*", Answer.JSON),
        ("application/json", Answer.JSON),
        ("APPLICATION/JSON; charset=utf-8", Answer.JSON),
        ("text/html,application/xhtml+xml,*/*;q=0.8", Answer.JSON),
        ("text/event-stream", Answer.STREAM),
        ("Text/Event-Stream", Answer.STREAM),
        ("text/event-stream, */*;q=0.1", Answer.STREAM),
        ("application/json, text/event-stream", Answer.STREAM),
        ("application/json, text/event-stream;q=0.5", Answer.JSON),
        ("text/event-stream;q=0, */*", Answer.JSON),
        ("text/event-stream;q=nan, application/json;q=0.1", Answer.JSON),
        ("text/*", None),
        ("text/html", None),
        ("application/json;q=0", None),
        ("application/json;q=x", None),
        ("text/event-streamish", None),
    ],
)
def test_json_or_stream(value: str | None, expected: Answer | None) -> None:
    headers = accept() if value is None else accept(value)
    if expected is None:
        with pytest.raises(Refused) as refused:
            negotiate(headers, JSON_OR_STREAM)
        assert refused.value.code is Code.NOT_ACCEPTABLE
    else:
        assert negotiate(headers, JSON_OR_STREAM) is expected


def test_one_offer_needs_no_naming() -> None:
    assert negotiate(accept("*/*"), STREAM) is Answer.STREAM
    assert negotiate(accept("text/*"), STREAM) is Answer.STREAM
    assert negotiate(accept(), STREAM) is Answer.STREAM
    with pytest.raises(Refused):
        negotiate(accept("application/json"), STREAM)
    with pytest.raises(Refused):
        negotiate(accept("text/event-stream"), JSON)


def test_several_headers_are_one_list() -> None:
    assert negotiate(accept("text/html", "application/json"), JSON) is Answer.JSON
