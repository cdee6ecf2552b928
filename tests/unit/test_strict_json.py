"""Strict JSON: what is refused and how it is called; everything else as the standard library reads it."""

import json
import math
import time
import tracemalloc

import pytest

from gateway.domain.limits import MAX_JSON_DEPTH, MAX_JSON_INTEGER_DIGITS
from gateway.domain.strict_json import NotStrictJson, loads


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        (b"\xff", "utf8"),
        (b'"\xed\xa0\xbd"', "utf8"),
        (b"", "syntax"),
        (b"{", "syntax"),
        (b"[1,]", "syntax"),
        (b'{"a":1} x', "syntax"),
        (b"'a'", "syntax"),
        (b'"a\nb"', "syntax"),
        (b'"a\x00b"', "syntax"),
        (b"01", "syntax"),
        (b"\xef\xbb\xbf{}", "syntax"),
        (b'{"a":1,"a":1}', "duplicate_key"),
        (b'{"a":1,"\\u0061":2}', "duplicate_key"),
        (b'[{"x":{"a":null,"b":1,"a":null}}]', "duplicate_key"),
        (b"NaN", "number"),
        (b"[Infinity]", "number"),
        (b'{"a":-Infinity}', "number"),
        (b"1e999", "number"),
        (b"[-1e999]", "number"),
        (b"1" * (MAX_JSON_INTEGER_DIGITS + 1), "number"),
        (b"1" * 5_000, "number"),
        (b"[" * (MAX_JSON_DEPTH + 1) + b"]" * (MAX_JSON_DEPTH + 1), "depth"),
        (b'{"a":' * (MAX_JSON_DEPTH + 1) + b"1" + b"}" * (MAX_JSON_DEPTH + 1), "depth"),
        (b"[" * 100_000, "depth"),
        (b'["' + b"[" * 100 + b'",' + b"[" * MAX_JSON_DEPTH, "depth"),
        (b'["\\"",' + b"[" * MAX_JSON_DEPTH, "depth"),
        (b"[" * MAX_JSON_DEPTH, "syntax"),
    ],
)
def test_refused(raw: bytes, fault: str) -> None:
    with pytest.raises(NotStrictJson) as refused:
        loads(raw)
    assert refused.value.fault == fault
    assert str(refused.value) == fault
    assert refused.value.__cause__ is None
    if fault != "utf8":
        with pytest.raises(NotStrictJson, match=fault):
            loads(raw.decode())


@pytest.mark.parametrize(
    "raw",
    [
        b"null",
        b' {"a": [1, -2.5e3, true, false, null, "x"]}\n',
        b'{"a":{"a":{"a":1}}}',
        b'"\\ud83d"',
        b'"\\ud83d\\ude42"',
        '"🙂\u2028"'.encode(),
        b"[" * MAX_JSON_DEPTH + b"]" * MAX_JSON_DEPTH,
        b'["' + b"[{" * 1_000 + b'"]',
        b'["\\\\",' + b'"\\"[[",' * 100 + b"1]",
        b"[" + b"[]," * 1_000 + b"{}]",
        b"9" * MAX_JSON_INTEGER_DIGITS,
        b"1e308",
        b"1e-999",
    ],
)
def test_accepted_as_the_standard_library_reads_it(raw: bytes) -> None:
    assert loads(raw) == json.loads(raw)
    assert loads(raw.decode()) == json.loads(raw)


def test_no_number_is_infinite() -> None:
    number = loads("1.7976931348623157e308")
    assert isinstance(number, float)
    assert math.isfinite(number)


def test_the_depth_check_is_linear_in_time_and_memory() -> None:
    started = time.perf_counter()
    for raw in (
        b"[],".join([b"["] + [b""] * 70) + b'"' + b'\\"' * 500_000,
        b"[],".join([b"["] + [b""] * 70) + b'"' + b"a" * 4_000_000,
    ):
        with pytest.raises(NotStrictJson):
            loads(raw)
    long = b"[" + b"[]," * 70 + b'"' + b"a" * 4_000_000 + b'"]'
    tracemalloc.start()
    try:
        loads(long)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert time.perf_counter() - started < 5
    assert peak < 4 * len(long)
