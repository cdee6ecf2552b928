"""Snapshots: canonical bytes that are the same everywhere, their inverse, their hash, and item ids."""

import hashlib
import json
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.domain.ids import RunId, is_opaque_id
from gateway.domain.in_transaction import NetworkCallInsideTransaction, forbid_inside_transaction, inside_transaction
from gateway.domain.snapshot import Item, MessageItem, Snapshot, ToolItem, ToolStatus, item_id, parse, sha256
from gateway.domain.strict_json import NotStrictJson

RUN = RunId(UUID("11111111-1111-4111-8111-111111111111"))
SNAPSHOT = Snapshot(
    (MessageItem(1, "Grüße\n🙂\u2028", True), ToolItem(2, "get", ToolStatus.RETURNED, 1), ToolItem(3, "x", ToolStatus.STARTED)), True
)
CANONICAL = (
    '{"complete":true,"items":['
    '{"complete":true,"position":1,"text":"Grüße\\n🙂\u2028","type":"message"},'
    '{"name":"get","parent":1,"position":2,"status":"returned","type":"tool"},'
    '{"name":"x","parent":null,"position":3,"status":"started","type":"tool"}],"version":1}'
).encode()

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
positions = st.integers(1, 1_000)
items: st.SearchStrategy[Item] = st.one_of(
    st.builds(MessageItem, positions, texts, st.booleans()),
    st.builds(ToolItem, positions, texts, st.sampled_from(ToolStatus), st.one_of(st.none(), positions)),
)


def test_canonical_bytes_never_change() -> None:
    assert SNAPSHOT.canonical() == CANONICAL
    assert sha256(CANONICAL) == hashlib.sha256(CANONICAL).digest()
    assert Snapshot((), False).canonical() == b'{"complete":false,"items":[],"version":1}'


@settings(deadline=None, max_examples=60)
@given(st.lists(items, max_size=4), st.booleans())
def test_round_trip(found: list[Item], complete: bool) -> None:
    snapshot = Snapshot(tuple(found), complete)
    canonical = snapshot.canonical()
    assert parse(canonical) == snapshot
    assert parse(canonical).canonical() == canonical
    assert sha256(canonical) == sha256(parse(canonical).canonical())


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"complete": None},
        {"items": {}},
        {"items": [[]]},
        {"items": [{"type": "message", "position": 1, "text": "a"}]},
        {"items": [{"type": "message", "position": "1", "text": "a", "complete": True}]},
        {"items": [{"type": "tool", "position": 1, "name": "n", "status": "lost", "parent": None}]},
        {"items": [{"type": "tool", "position": 1, "name": "n", "status": "started", "parent": "1"}]},
        {"items": [{"type": "new", "position": 1}]},
    ],
)
def test_what_this_program_did_not_write_is_refused(change: dict[str, object]) -> None:
    document = {"version": 1, "complete": True, "items": [], **change}
    with pytest.raises(ValueError, match=r"not a snapshot|not a valid ToolStatus"):
        parse(json.dumps(document).encode())


def test_bytes_that_are_no_json_are_refused() -> None:
    for raw in (b"", b"{", b"[]", b"\xff", CANONICAL + b"x"):
        with pytest.raises(ValueError) as refused:
            parse(raw)
        assert isinstance(refused.value, NotStrictJson) or str(refused.value) == "not a snapshot"


def test_an_item_is_the_same_whoever_saves_it() -> None:
    assert item_id(RUN, 1) == UUID("df9bcd54-fd55-5455-98f3-30b4da799905")
    assert len({item_id(RUN, position) for position in range(100)}) == 100
    assert item_id(RunId(UUID(int=RUN.int + 1)), 1) != item_id(RUN, 1)


@pytest.mark.parametrize(
    ("text", "opaque"),
    [
        ("a", True),
        ("!~", True),
        ("x" * 200, True),
        ("", False),
        ("x" * 201, False),
        ("a b", False),
        ("a\n", False),
        ("é", False),
        ("\x7f", False),
    ],
)
def test_opaque_ids(text: str, opaque: bool) -> None:
    assert is_opaque_id(text) is opaque


def test_the_inside_a_transaction_flag() -> None:
    forbid_inside_transaction()
    with inside_transaction():
        with inside_transaction():
            pass
        with pytest.raises(NetworkCallInsideTransaction):
            forbid_inside_transaction()
    forbid_inside_transaction()
