"""The local rules: the corpus of evasions and innocents, versions, rules that are none, time."""

import hashlib
import time
from uuid import uuid4

import pytest

from gateway.admission.local_rules import DENIED, LocalRules, RuleInvalid, RulesTooLarge
from gateway.admission.moderation import Asked, Judgement, TextKind
from gateway.domain.ids import AccountId, ApplicationId
from gateway.domain.limits import MAX_TEXT_CHARACTERS
from tests.support.moderation_corpus import EVASIONS, EXPECTED, INNOCENTS, RULES

pytestmark = pytest.mark.anyio

LOCAL = LocalRules(RULES)


async def judged(rules: LocalRules, text: str) -> Judgement:
    return await rules.judge(Asked(text, TextKind.MESSAGE, AccountId(uuid4()), ApplicationId(uuid4())))


def test_the_corpus_is_large_enough() -> None:
    assert len(set(EVASIONS)) == len(EVASIONS) >= 60
    assert len(set(INNOCENTS)) == len(INNOCENTS) >= 60


@pytest.mark.parametrize(("text", "categories"), EXPECTED, ids=[ascii(text)[:60] for text, _ in EXPECTED])
async def test_o47_the_corpus_has_its_verdicts(text: str, categories: tuple[str, ...]) -> None:
    assert (await judged(LOCAL, text)).categories == categories


async def test_secrets_can_be_allowed() -> None:
    text = "card 4111 1111 1111 1111"
    assert not (await judged(LocalRules([]), text)).allowed
    assert (await judged(LocalRules([], secrets=False), text)).allowed


async def test_a_text_can_break_several_rules() -> None:
    assert (await judged(LOCAL, "forbidden 4111111111111111")).categories == (DENIED, "card_number")


async def test_the_version_is_of_all_that_decides() -> None:
    versions = [
        (await judged(rules, "x")).version for rules in (LOCAL, LocalRules(RULES), LocalRules(RULES[:-1]), LocalRules(RULES, secrets=False))
    ]
    assert versions[0] == versions[1]
    assert len(set(versions)) == 3


@pytest.mark.parametrize("rule", ["/(/", "/a{2000}/", r"/(?<=a)b/", r"/(a)\1/"])
def test_a_pattern_that_is_none_is_named_by_its_line(rule: str) -> None:
    with pytest.raises(RuleInvalid) as invalid:
        LocalRules(["# why", "", rule])
    assert invalid.value.line == 3


async def test_ten_thousand_terms_and_no_heap_of_them() -> None:
    terms = [hashlib.sha256(str(number).encode()).hexdigest()[:16] for number in range(10_000)]
    assert not (await judged(LocalRules(terms), f"x {terms[-1]}")).allowed
    with pytest.raises(RulesTooLarge):
        LocalRules([f"/{term}.{{0,500}}{term}/" for term in terms[:300]])


@pytest.mark.parametrize(
    "text",
    [
        *(character * MAX_TEXT_CHARACTERS for character in ("a", "\ufdfa", "о", "1", "\u202e")),
        *((piece * MAX_TEXT_CHARACTERS)[:MAX_TEXT_CHARACTERS] for piece in ("4111 ", "\u202eab", "a\u0301", "eyJ", "б о")),
        "a" + "\u0316\u0301" * (MAX_TEXT_CHARACTERS // 2 - 1),
        "a" + "\u0301" * (MAX_TEXT_CHARACTERS // 2) + "\u0316" * (MAX_TEXT_CHARACTERS // 2 - 1),
        "\u0f40" + "\u0f72\u0f71" * (MAX_TEXT_CHARACTERS // 2 - 1),
    ],
    ids=range(13),
)
async def test_no_text_makes_it_slow(text: str) -> None:
    """Linear in the text: a hundred times the usual cost at most, where a matcher that goes back would take for ever."""
    began_at = time.perf_counter()
    await judged(LocalRules([*RULES, r"/(a+)+$/", r"/(.*)*x/"]), text)
    assert time.perf_counter() - began_at < 2
