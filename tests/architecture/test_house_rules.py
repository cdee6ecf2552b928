"""House rules of CONTRIBUTING.md that the linter does not know: docstrings, broad excepts, sleeping tests, names, sizes."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = sorted(path for folder in ("gateway", "agent_service") for path in (ROOT / folder).rglob("*.py"))
GATEWAY = sorted((ROOT / "gateway").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

LONGEST_MODULE_LINES = 400
LONGEST_FUNCTION_LINES = 60
LONGEST_SLEEP_SECONDS = 0.5

LONG_MODULES: dict[str, str] = {}
"""Longer ones that do not say why themselves."""

BLOCKING_SLEEPS = {
    "tests/support/pgbouncer.py": "waits for a program of others, which has no signal to wait for",
    "tests/support/standby.py": "waits for replication, of which only the primary knows",
    "tests/replicas/test_demo.py": "waits for processes to be gone, of which only the system knows",
    "tests/unit/test_embedded.py": "waits for a process to be gone, of which only the system knows",
}

BANNED_WORDS = {"requeue", "rescue", "resend", "reap", "manager", "managers", "helper", "helpers", "util", "utils"}
BANNED_NAMES = {"retry_run"}
BARE_NAMES = {"status", "data"}
"""Not used alone for a thing that is defined. A value may be called so where its type says which status, and that the data are bytes."""
BARE_TYPES = {"status": {"int", "int | None", "LookupStatus", "ToolStatus"}, "data": {"bytes"}}
BARE_EXCEPTIONS = {
    ("gateway/admission/run_agent_input.py", "status"): "the member that AG-UI calls so",
    ("gateway/runs/frames.py", "status"): "makes the frame that interface.md calls the status of a run",
    ("gateway/store/history.py", "status"): "the column item.status: how far a tool step got",
    ("gateway/store/lookups.py", "status"): "the value of a LookupStatus, as text for SQL",
}

_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
_BORROWED = {"run_manager"}
"""A parameter that LangChain names."""


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_what_is_listed_exists() -> None:
    listed = [*LONG_MODULES, *BLOCKING_SLEEPS, *(path for path, _ in BARE_EXCEPTIONS)]
    assert [path for path in listed if not (ROOT / path).is_file()] == []


def test_a_module_says_what_lives_in_it() -> None:
    assert [name_of(path) for path in PRODUCT if path.stat().st_size and not ast.get_docstring(tree_of(path))] == []


def unexplained_excepts(path: Path) -> Iterator[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    for node in ast.walk(tree_of(path)):
        if not isinstance(node, ast.ExceptHandler):
            continue
        where = f"{name_of(path)}:{node.lineno}"
        caught = ast.unparse(node.type) if node.type else ""
        if not caught:
            yield f"{where}: without a type"
        elif "BaseException" in caught and not isinstance(node.body[-1], ast.Raise):
            yield f"{where}: BaseException is caught to clean up, and goes on"
        elif re.search(r"\bException\b", caught):
            comment = lines[node.lineno - 1].partition("#")[2]
            if not re.sub(r"^\s*noqa: [A-Z0-9, ]+", "", comment).strip(" -"):
                yield f"{where}: why everything?"


def test_a_broad_except_says_why() -> None:
    assert [fault for path in PRODUCT for fault in unexplained_excepts(path)] == []


def sleeps(path: Path) -> Iterator[str]:
    for node in ast.walk(tree_of(path)):
        if not isinstance(node, ast.Call) or ast.unparse(node.func) not in ("time.sleep", "asyncio.sleep", "anyio.sleep"):
            continue
        where, seconds = f"{name_of(path)}:{node.lineno}", node.args[0]
        if ast.unparse(node.func) == "time.sleep" and name_of(path) not in BLOCKING_SLEEPS:
            yield f"{where}: blocks"
        if isinstance(seconds, ast.Constant) and isinstance(seconds.value, int | float) and seconds.value >= LONGEST_SLEEP_SECONDS:
            yield f"{where}: {seconds.value} s"


def test_tests_wait_on_signals() -> None:
    """A short pause in a loop that asks again is a signal of a kind; a long one is a guess."""
    assert [fault for path in TESTS for fault in sleeps(path)] == []


def words_of(name: str) -> set[str]:
    return set(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_"))


def defined_in(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Every name that a module defines: functions, classes, parameters, variables, attributes."""
    for node in ast.walk(tree):
        if isinstance(node, (*_FUNCTION, ast.ClassDef)):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno


def test_words_that_are_not_used_as_names() -> None:
    assert [name_of(path) for path in PRODUCT if words_of(path.stem) & (BANNED_WORDS | BARE_NAMES)] == []
    assert [
        f"{name_of(path)}:{line}: {name}"
        for path in PRODUCT
        for name, line in defined_in(tree_of(path))
        if name not in _BORROWED and (words_of(name) & BANNED_WORDS or name in BANNED_NAMES)
    ] == []


def bare_definitions(tree: ast.Module) -> Iterator[tuple[str, int, str | None]]:
    """Functions, classes, parameters and fields with a bare name, each with its type where it has one."""
    for node in ast.walk(tree):
        if isinstance(node, (*_FUNCTION, ast.ClassDef)) and node.name in BARE_NAMES:
            yield node.name, node.lineno, None
        elif isinstance(node, ast.arg) and node.arg in BARE_NAMES:
            yield node.arg, node.lineno, ast.unparse(node.annotation) if node.annotation else None
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id in BARE_NAMES:
            yield node.target.id, node.lineno, ast.unparse(node.annotation)


def test_a_bare_name_has_a_type_that_says_what_it_is() -> None:
    assert [
        f"{name_of(path)}:{line}: {name}: {kind}"
        for path in GATEWAY
        for name, line, kind in bare_definitions(tree_of(path))
        if kind not in BARE_TYPES[name] and (name_of(path), name) not in BARE_EXCEPTIONS
    ] == []


def unexplained_lengths(path: Path) -> Iterator[str]:
    text, name = path.read_text(encoding="utf-8"), name_of(path)
    tree = ast.parse(text)
    if re.search(r"\b[Ll]onger than\b", ast.get_docstring(tree) or ""):
        return
    if len(text.splitlines()) > LONGEST_MODULE_LINES and name not in LONG_MODULES:
        yield f"{name}: {len(text.splitlines())} lines"
    for node in ast.walk(tree):
        if isinstance(node, _FUNCTION):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > LONGEST_FUNCTION_LINES:
                yield f"{name}: {node.name} has {lines} lines"


def test_what_is_long_says_why() -> None:
    assert [fault for path in PRODUCT for fault in unexplained_lengths(path)] == []
