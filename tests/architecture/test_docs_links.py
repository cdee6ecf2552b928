"""What the written pages point at exists: links, make targets, commands, routes, dependencies, tables, rules.

The pages that are made from code are compared with it in `test_docs`.
"""

import argparse
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from gateway.cli.parser import build_parser
from gateway.web.pages import load_pages
from gateway.web.routes import DEMO_ROUTES, PUBLIC_ROUTES, page_routes

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
MIGRATIONS = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "sql" / "migrations").glob("*.sql")))

_FENCED = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"^(?: {4}|\t).*$", re.MULTILINE)
_SPAN = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
_MAKE = re.compile(r"(?:^|[\s(])make ([a-z][a-z-]*)")
_COMMAND = re.compile(r"(?:^|[\s(/])gateway ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?")
_CREATE_TABLE = re.compile(r"^\s*create table (?:if not exists )?(\w+)", re.MULTILINE | re.IGNORECASE)
_ROUTE = re.compile(r"`(GET|POST|PUT|PATCH|DELETE) (/[^`?]*)[^`]*`")
_FILE = re.compile(r"`((?:[\w-]+/)+[\w.-]*)`")
_MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|root|home|Users)/[\w.-]+")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def code_of(text: str) -> Iterator[str]:
    """The parts of a page that are code: fenced and indented blocks, and spans."""
    yield from _FENCED.findall(text)
    prose = _FENCED.sub("", text)
    yield from _INDENTED.findall(prose)
    yield from _SPAN.findall(prose)


def anchors_of(page: Path) -> set[str]:
    """What a link may name after #: headings in lower case, without punctuation, blanks as hyphens."""
    headings = _HEADING.findall(_FENCED.sub("", text_of(page)))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def dangling_links(page: Path) -> Iterator[str]:
    for target in _LINK.findall(_FENCED.sub("", text_of(page))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        if not found.exists() or (anchor and anchor not in anchors_of(found)):
            yield f"{name_of(page)}: {target}"


def test_relative_links_resolve() -> None:
    assert [fault for page in PAGES for fault in dangling_links(page)] == []


def test_no_page_names_a_path_of_a_machine() -> None:
    assert [f"{name_of(page)}: {path}" for page in PAGES for path in _MACHINE_PATH.findall(text_of(page))] == []


def test_files_that_pages_name_exist() -> None:
    """Below the checkout, or below `gateway/` as the architecture page shortens them."""
    named = {(name_of(page), path) for page in PAGES for path in _FILE.findall(_FENCED.sub("", text_of(page)))}
    assert len(named) > 20
    missing = {(page, path) for page, path in named if not any((ROOT / base / path).exists() for base in ("", "gateway", "docs"))}
    assert missing == set()


def test_make_targets_that_pages_name_exist() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", text_of(ROOT / "Makefile"), re.MULTILINE))
    named = {(name_of(page), target) for page in PAGES for code in code_of(text_of(page)) for target in _MAKE.findall(code)}
    assert named, "the pages name make targets"
    assert {(page, target) for page, target in named if target not in targets} == set()


def commands_of(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def test_commands_that_pages_name_exist() -> None:
    commands = commands_of(build_parser(demo=False))
    wrong, seen = set(), set()
    for page in PAGES:
        for code in code_of(text_of(page)):
            for word, following in _COMMAND.findall(code):
                seen.add(word)
                members = commands_of(commands[word]) if word in commands else {}
                if word not in commands or (members and following and following not in members):
                    wrong.add((name_of(page), word, following))
    assert wrong == set()
    assert {"serve", "migrate", "check", "providers", "apps"} <= seen


def test_each_route_is_in_the_api_page_and_it_names_no_other() -> None:
    named = set(_ROUTE.findall(text_of(DOCS / "api.md")))
    public = {(route.method.value, route.path) for route in PUBLIC_ROUTES}
    others = {(route.method.value, route.path) for route in (*DEMO_ROUTES, *page_routes(load_pages()))}
    assert named == public | others


def test_each_direct_dependency_has_its_reason() -> None:
    page = text_of(DOCS / "dependencies.md")
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]
    wanted = [*project["dependencies"], *(entry for extra in project["optional-dependencies"].values() for entry in extra)]
    names = {re.split(r"[\[<>=~!; ]", entry)[0] for entry in wanted}
    assert {name for name in names if f"`{name}`" not in page and f"`{name}[" not in page} == set()


def test_each_table_is_in_the_schema_page_and_it_names_no_other() -> None:
    section = text_of(DOCS / "schema.md").partition("## Tables")[2].partition("\n## ")[0]
    named = set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))
    runner = text_of(ROOT / "gateway" / "store" / "migrate.py")
    assert named == {*_CREATE_TABLE.findall(MIGRATIONS), *_CREATE_TABLE.findall(runner)}


def test_each_constraint_that_the_schema_page_names_exists() -> None:
    section = text_of(DOCS / "schema.md").partition("## Which constraint holds what")[2].partition("\n## ")[0]
    named = {word for cell in re.findall(r"^\|[^|]*\|([^|]*)\|$", section, re.MULTILINE) for word in re.findall(r"`(\w+)`", cell)}
    assert "run_slots_are_the_state" in named
    assert {word for word in named if not re.search(rf"\b{word}\b", MIGRATIONS)} == set()


def test_the_index_of_decisions_is_complete() -> None:
    index = text_of(DOCS / "decisions" / "README.md")
    pages = {path.name for path in (DOCS / "decisions").glob("[0-9]*.md")}
    assert {name for name in pages if f"({name})" not in index} == set()


def test_rules_and_field_cases_that_code_names_are_explained() -> None:
    explained = set(re.findall(r"^\| ([A-F]\d+|O-\d\d) \|", text_of(DOCS / "rules.md"), re.MULTILINE))
    sources = [path for folder in ("gateway", "agent_service", "tests") for path in (ROOT / folder).rglob("*.py")]
    named = set(re.findall(r"\bO-\d\d\b", MIGRATIONS)) | set(re.findall(r"\bcontract ([A-F]\d+)", MIGRATIONS))
    for path in sources:
        text = text_of(path)
        named |= set(re.findall(r"\bO-\d\d\b", text)) | set(re.findall(r"\bcontract ([A-F]\d+)", text))
        named |= {f"O-{number}" for number in re.findall(r"\bdef test_o(\d\d)_", text)}
    assert len(named) > 20
    assert named - explained == set()
