"""Loader of the runtime statements: `sql/statements/<aggregate>.sql`, each with a name and a purpose.

A block is `-- name: <name>`, then `-- <purpose>`, then one statement with `%(name)s` parameters and a literal % doubled. Nothing is
ever put together from pieces: what runs is the text of the file.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, LiteralString

from gateway.store.sql_files import sql_folder

_NAME_LINE: Final = re.compile(r"^-- name: (\S+)$")
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_PARAMETER: Final = re.compile(r"%(?:%|\((\w+)\)s|)")


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement: `name` is `<aggregate>.<name>`, `purpose` the line below its name."""

    name: str
    purpose: str
    text: LiteralString


class StatementFileInvalid(Exception):
    """A statement file breaks the format, or names no such statement: a programming mistake."""


def statement(name: str) -> Statement:
    """The statement `<aggregate>.<name>`. Meant for module level: a wrong name ends the program when it starts."""
    aggregate, _, short = name.partition(".")
    found = _load(aggregate).get(short)
    if found is None:
        raise StatementFileInvalid(f"There is no statement {name}.")
    return found


def all_statements() -> tuple[Statement, ...]:
    """Every statement of every file, in the order of names; for tests."""
    aggregates = sorted(path.stem for path in (sql_folder() / "statements").glob("*.sql"))
    return tuple(found for aggregate in aggregates for found in _load(aggregate).values())


@cache
def _load(aggregate: str) -> Mapping[str, Statement]:
    path = sql_folder() / "statements" / f"{aggregate}.sql"
    if not path.is_file():
        raise StatementFileInvalid(f"There is no file statements/{aggregate}.sql.")
    return parse(aggregate, path.read_text(encoding="utf-8"))


def parse(aggregate: str, text: str) -> Mapping[str, Statement]:
    """The statements of one file's text by their short names. Raises StatementFileInvalid."""
    blocks: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in text.splitlines():
        match = _NAME_LINE.match(line)
        if match:
            name = match[1]
            if not _NAME.fullmatch(name) or name in blocks:
                raise StatementFileInvalid(f"statements/{aggregate}.sql: the name {name!r} is malformed or there twice.")
            current = blocks[name] = []
        elif current is not None:
            current.append(line)
        elif line.strip() and not line.startswith("--"):
            raise StatementFileInvalid(f"statements/{aggregate}.sql: SQL before the first name.")
    return {name: _block(f"{aggregate}.{name}", lines) for name, lines in blocks.items()}


def _block(name: str, lines: list[str]) -> Statement:
    purpose = lines[0].removeprefix("-- ").strip() if lines and lines[0].startswith("-- ") else ""
    body = "\n".join(lines[1:]).strip().removesuffix(";").rstrip()
    if not purpose or not body:
        raise StatementFileInvalid(f"Statement {name} lacks its purpose line or its text.")
    for match in _PARAMETER.finditer(body):
        if match[0] == "%":
            raise StatementFileInvalid(f"Statement {name} has a lone %: write %% or a named parameter.")
    # LiteralString although it was read at run time: the file is shipped with this program, no part of it comes from input.
    return Statement(name=name, purpose=purpose, text=body)
