"""The statement files: their format, that each statement is used, that PostgreSQL accepts each one on every major."""

import re
from pathlib import Path

import psycopg
import pytest

import gateway.store
from gateway.store.statements import Statement, StatementFileInvalid, all_statements, parse, statement


def numbered(text: str) -> str:
    """The statement as PREPARE wants it: parameters as $n, %% as %."""
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    return re.sub(r"%%|%\((\w+)\)s", number, text)


def test_every_statement_can_be_prepared(database_url_on_each: str) -> None:
    refused: dict[str, str] = {}
    with psycopg.connect(database_url_on_each, autocommit=True) as connection:
        for number, found in enumerate(all_statements()):
            try:
                connection.execute(f"prepare statement_{number} as {numbered(found.text)}".encode())
            except psycopg.Error as error:
                refused[found.name] = str(error)
    assert refused == {}


def test_every_statement_is_used_by_name() -> None:
    folder = Path(gateway.store.__file__).parent
    source = "\n".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    used = set(re.findall(r'\bstatement\("([^"]+)"\)', source))
    assert used == {found.name for found in all_statements()}


def test_a_block_is_a_name_a_purpose_and_a_text() -> None:
    fence = "-- name: fence\n-- Moves one run.\nupdate t set a = %(a)s::int\n-- why\nwhere b like 'x%%';\n"
    text = f"-- Runs.\n\n{fence}\n-- name: two\n-- P.\nselect 1\n"
    assert parse("runs", text) == {
        "fence": Statement("runs.fence", "Moves one run.", "update t set a = %(a)s::int\n-- why\nwhere b like 'x%%'"),
        "two": Statement("runs.two", "P.", "select 1"),
    }


@pytest.mark.parametrize(
    "text",
    [
        "select 1",
        "-- name: a\nselect 1",
        "-- name: a\n-- P.\n",
        "-- name: a\n-- P.\nselect 1\n-- name: a\n-- P.\nselect 1",
        "-- name: A-b\n-- P.\nselect 1",
        "-- name: a\n-- P.\nselect '50%'",
        "-- name: a\n-- P.\nselect %s",
    ],
)
def test_a_malformed_file_is_refused(text: str) -> None:
    with pytest.raises(StatementFileInvalid):
        parse("runs", text)


@pytest.mark.parametrize("name", ["runs.no_such_statement", "no_such_aggregate.one", "nothing"])
def test_an_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(StatementFileInvalid):
        statement(name)
