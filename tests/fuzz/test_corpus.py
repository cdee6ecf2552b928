"""What the fuzzer found once is replayed without it, and so are its seeds: nothing that must not be."""

from pathlib import Path

import pytest

from gateway.domain.evidence import RunErrored, RunFinished
from tests.fuzz.__main__ import HERE, seeds
from tests.fuzz.target import check
from tests.property.frames import RS, event, framed

CORPUS = sorted((HERE / "corpus").iterdir())


def test_the_corpus_is_replayed() -> None:
    assert len(CORPUS) > 50
    kinds = {type(check(path.read_bytes())).__name__ for path in CORPUS}
    assert kinds >= {"StreamBroken", "RunErrored", "RunFinished"}


def test_the_seeds_are_replayed(tmp_path: Path) -> None:
    seeds(tmp_path)
    facts = [check(path.read_bytes()) for path in sorted(tmp_path.iterdir())]
    assert any(isinstance(fact, RunFinished) for fact in facts)
    assert any(isinstance(fact, RunErrored) for fact in facts)


def test_the_target_finds_what_must_not_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """That it checks at all: text that goes uncleaned past the projection."""
    stream = b"\x00\x07" + framed(RS, event("TEXT_MESSAGE_CHUNK", messageId="m", delta="\x00"))
    check(stream)
    monkeypatch.setattr("gateway.sse_parser.projection.clean", lambda text: text)
    with pytest.raises(AssertionError):
        check(stream)
