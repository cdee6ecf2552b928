"""NUL and lone surrogates: refused or replaced, and nothing else is touched (field cases O-19, O-41)."""

import pytest

from gateway.domain.text import clean, is_storable


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("a\x00b", "a\ufffdb"),
        ("\x00\x00", "\ufffd\ufffd"),
        ("a\ud83d", "a\ufffd"),
        ("\ude42\ud83d", "\ufffd\ufffd"),
        ("\ud800 \udfff", "\ufffd \ufffd"),
    ],
)
def test_unstorable(text: str, cleaned: str) -> None:
    assert not is_storable(text)
    assert clean(text) == cleaned
    assert is_storable(cleaned)
    assert cleaned.encode()


@pytest.mark.parametrize(
    "text", ["", "a", "Grüße 東京 🙂👩‍👩‍👧", "می‌خواهم", "\u2028\u0085\x0b\x7f\x1b", "\ufffd\ufeff\uffff", "\ud7ff\ue000"]
)
def test_storable_text_is_left_alone(text: str) -> None:
    assert is_storable(text)
    assert clean(text) == text
