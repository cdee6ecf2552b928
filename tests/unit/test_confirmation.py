"""The one question and its answer: version 1 exactly, plain text, bounds; whatever is shown is in the digest."""

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from gateway.domain.confirmation import (
    MAX_COMMENT_CHARACTERS,
    MAX_PROMPT_DESCRIPTION_CHARACTERS,
    MAX_PROMPT_TITLE_CHARACTERS,
    Action,
    Answer,
    Prompt,
    interrupt_id,
    parse_prompt,
)
from gateway.domain.ids import RunId
from gateway.domain.strict_json import Json

VALID: dict[str, Json] = {
    "type": "agentifui.acceptance.confirmation",
    "version": 1,
    "title": "Send the report?",
    "description": "It goes to finance.\nNobody else gets it.",
    "actions": ["approve", "reject"],
    "expires_at": None,
}
PROMPT = Prompt("Send the report?", "It goes to finance.\nNobody else gets it.", MAX_COMMENT_CHARACTERS, None)


def test_a_valid_prompt() -> None:
    assert parse_prompt(VALID) == PROMPT
    assert parse_prompt({**VALID, "actions": ["reject", "approve"]}) == PROMPT
    assert parse_prompt({**VALID, "comment_max_chars": 0}) == replace(PROMPT, comment_max_chars=0)
    assert parse_prompt({**VALID, "description": ""}) == replace(PROMPT, description="")


@pytest.mark.parametrize("text", ["2026-12-01T12:30:00Z", "2026-12-01T13:30:00+01:00", "2026-12-01T12:30:00.000000Z"])
def test_times_are_utc(text: str) -> None:
    assert parse_prompt({**VALID, "expires_at": text}) == replace(PROMPT, expires_at=datetime(2026, 12, 1, 12, 30, tzinfo=UTC))


@pytest.mark.parametrize(
    "change",
    [
        {"type": "other.form"},
        {"version": 2},
        {"version": True},
        {"version": 1.0},
        {"version": "1"},
        {"title": ""},
        {"title": "  "},
        {"title": "x" * (MAX_PROMPT_TITLE_CHARACTERS + 1)},
        {"title": "two\nlines"},
        {"title": "tab\there"},
        {"title": 7},
        {"title": "nul\x00"},
        {"title": "half \ud800"},
        {"title": "turned \u202e tfel"},
        {"title": "isolated \u2066x\u2069"},
        {"title": "line\u2028end"},
        {"description": None},
        {"description": "bell\x07"},
        {"description": "x" * (MAX_PROMPT_DESCRIPTION_CHARACTERS + 1)},
        {"actions": ["approve"]},
        {"actions": ["approve", "reject", "edit"]},
        {"actions": ["approve", "approve"]},
        {"actions": "approve"},
        {"actions": None},
        {"expires_at": ""},
        {"expires_at": 1796048814},
        {"expires_at": "2026-12-01"},
        {"expires_at": "2026-12-01T12:30:00"},
        {"expires_at": "2026-13-01T12:30:00Z"},
        {"expires_at": "0001-01-01T00:00:00+23:59"},
        {"expires_at": "2026-12-01T12:30:00Z\n"},
        {"comment_max_chars": -1},
        {"comment_max_chars": MAX_COMMENT_CHARACTERS + 1},
        {"comment_max_chars": True},
        {"comment_max_chars": None},
        {"fields": []},
    ],
)
def test_anything_else_is_refused_and_never_reduced(change: dict[str, Json]) -> None:
    assert parse_prompt({**VALID, **change}) is None


@pytest.mark.parametrize("missing", sorted(VALID))
def test_each_field_is_needed(missing: str) -> None:
    assert parse_prompt({key: value for key, value in VALID.items() if key != missing}) is None


@pytest.mark.parametrize("value", [None, "text", 7, [], [VALID], {}])
def test_no_form_at_all(value: Json) -> None:
    assert parse_prompt(value) is None


def test_the_digest_and_the_local_id_change_with_all_that_is_shown() -> None:
    others = [
        PROMPT,
        replace(PROMPT, title="Send it?"),
        replace(PROMPT, description=""),
        replace(PROMPT, comment_max_chars=5),
        replace(PROMPT, expires_at=datetime(2026, 12, 1, tzinfo=UTC)),
        replace(PROMPT, expires_at=datetime(2026, 12, 2, tzinfo=UTC)),
    ]
    run_id = RunId(UUID(int=1))
    assert len({prompt.digest() for prompt in others}) == len(others)
    assert len({interrupt_id(run_id, "n", prompt.digest()) for prompt in others}) == len(others)
    digest = PROMPT.digest()
    assert interrupt_id(run_id, "n", digest) == interrupt_id(run_id, "n", digest)
    assert len({interrupt_id(RunId(UUID(int=n)), native, digest) for n in (1, 2) for native in "ab"}) == 4


def test_the_answer() -> None:
    assert Answer(Action.APPROVE).resume_value() == {"action": "approve"}
    assert Answer(Action.REJECT, "no").resume_value() == {"action": "reject", "comment": "no"}
    assert Answer(Action.REJECT, "").resume_value() == {"action": "reject", "comment": ""}
