"""The protocol's model: each rule of it is explained, taken out by a line of its script, and replayed by a test; and it holds."""

import ast
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.support.require import missing

ROOT: Final = Path(__file__).resolve().parents[2]
MODEL: Final = ROOT / "docs" / "model"
SCHEDULES: Final = (ROOT / "tests" / "faults" / "test_schedules.py", ROOT / "tests" / "faults" / "test_decisions.py")
ASSUMED: Final = {"R_STALL"}
"""What the model assumes of the world, and no line of code can give."""


def rules() -> set[str]:
    """The switches of the models; a heartbeat's period is a number there."""
    return {name for page in MODEL.glob("*.pml") for name in re.findall(r"^#ifndef (R_\w+|PERIOD)\b", page.read_text("utf-8"), re.M)}


def lines() -> dict[str, tuple[str, set[str]]]:
    """Each line of check.sh: its part, and the rules that it takes out."""
    table = (MODEL / "check.sh").read_text("utf-8").partition("<<'TABLE'\n")[2].partition("\nTABLE\n")[0]
    rows = [row.split("|") for row in table.splitlines()]
    return {row[0]: (row[1], set(re.findall(r"-D(R_\w+|PERIOD)=", row[6]))) for row in rows}


def schedules() -> str:
    """What the tests say that they replay: the first words of their docstrings."""
    nodes = [node for file in SCHEDULES for node in ast.parse(file.read_text("utf-8")).body]
    tests = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return "\n".join((ast.get_docstring(node) or "").partition(":")[0] for node in tests if node.name.startswith("test_"))


def test_there_are_rules_and_lines() -> None:
    assert len(rules()) > 25
    assert len(lines()) > 40


def test_each_rule_is_explained() -> None:
    page = (MODEL / "README.md").read_text("utf-8")
    for rule in rules():
        assert f"| `{rule}`" in page, rule


def test_each_rule_is_replayed_by_a_test() -> None:
    said = schedules()
    for rule in rules() - ASSUMED:
        assert re.search(rf"\b{rule}\b", said), rule


def test_each_rule_is_taken_out_by_a_line() -> None:
    assert set().union(*(taken_out for _, taken_out in lines().values())) == rules()


def test_each_counterexample_is_replayed_by_a_test() -> None:
    said = schedules()
    for name, (part, taken_out) in lines().items():
        if part == "weak" and not taken_out & ASSUMED:
            assert re.search(rf"\b{name}\b", said), name


def test_each_line_has_its_result_written_down() -> None:
    page = (MODEL / "README.md").read_text("utf-8")
    for name in lines():
        assert re.search(rf"^\| {name} +\|", page, re.M), name


def check(*what: str) -> None:
    for tool in ("spin", "gcc"):
        if shutil.which(tool) is None:
            missing("spin", f"the model checker needs {tool}")
    ended = subprocess.run(["sh", str(MODEL / "check.sh"), *what], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("name", ["built_outage", "admit_gives_up"])
def test_the_script_says_what_holds_and_what_fails(name: str) -> None:
    check("one", name)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_code_as_built_holds() -> None:
    """Several minutes of searching (docs/model/README.md)."""
    check("base")
