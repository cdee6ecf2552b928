"""Each field case of docs/rules.md has a test that is named by its number."""

import ast
import re
from collections.abc import Iterator

from tests.architecture.test_house_rules import ROOT, TESTS, tree_of

UNDER_OTHER_NAMES = {"22", "25", "26", "37", "40", "43", "47"}
"""May be without: proxies, poolers and rollouts, moderation and foreign ids are tested by what they do."""


def numbers_in_names() -> Iterator[str]:
    for path in TESTS:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield from re.findall(r"_o(\d\d)(?=_)", node.name)


def test_each_case_has_a_test_of_its_number_and_each_number_a_case() -> None:
    cases = set(re.findall(r"^\| O-(\d\d) \|", (ROOT / "docs" / "rules.md").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(numbers_in_names())
    assert len(cases) == 47
    assert cases - named - UNDER_OTHER_NAMES == set()
    assert named - cases == set()
