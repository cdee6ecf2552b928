"""Plans of the statements over months of traffic: none that runs often reads a table that grows from end to end (G12)."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import psycopg
import pytest

from bench.months import fill
from gateway.store.statements import Statement, all_statements
from tests.support.postgres import PostgresForTests

GROWING: Final = {"run", "submission", "item", "snapshot", "evidence", "conversation", "binding", "moderation_verdict", "quota_charge"}
RUNS: Final = 20_000

ALLOWED: Final = {
    "applications.has_history": "an operator changes an application; its first conversation ends the search",
    "applications.invalidate_bindings": "an operator changes an endpoint: all bindings of it are to be changed",
    "retention.erase_conversations": "a batch is a large part of the few conversations that are here",
}
"""Statements that may, and why."""

OTHERWISE: Final[dict[str, dict[str, object]]] = {
    "history.conversations": {"conversation_id": None},
    "history.items": {"step": -1},
}
"""Statements that are asked in a second way, too, for which another plan is made."""


@pytest.fixture(scope="module")
def months_url(postgres: PostgresForTests) -> Iterator[str]:
    with postgres.migrated_database() as url:
        fill(url, runs=RUNS)
        yield url


def values(connection: "psycopg.Connection[Any]") -> dict[str, Any]:
    """A value of the right type for each parameter's type, of a row that is there."""
    row = connection.execute(
        "select run_id, account_id, application_id, conversation_id, submission_id from run offset 77 limit 1"
    ).fetchone()
    assert row is not None
    run_id, account_id, application_id, conversation_id, submission_id = row
    return {
        "run_id": run_id,
        "account_id": account_id,
        "application_id": application_id,
        "conversation_id": conversation_id,
        "submission_id": submission_id,
        "subject": "month-user-7",
        "limit": 20,
    }


BY_TYPE: Final = {
    "uuid": "6e0a0a5e-0000-4000-8000-000000000001",
    "uuid[]": ["6e0a0a5e-0000-4000-8000-000000000001"],
    "text": "x",
    "text[]": ["running", "unknown"],
    "integer": 1,
    "integer[]": [1],
    "int": 1,
    "bigint": 1,
    "double precision": 1.0,
    "double precision[]": [1.0],
    "boolean": True,
    "boolean[]": [True],
    "bytea": b"x" * 32,
    "jsonb": "{}",
    "timestamptz": "2026-06-01T00:00:00Z",
}
_TYPED: Final = re.compile(r"%\((\w+)\)s::((?:double precision|\w+)(?:\[\])?)")


def parameters(statement: Statement, known: dict[str, Any]) -> dict[str, Any]:
    return {name: known.get(name, BY_TYPE.get(kind)) for name, kind in _TYPED.findall(statement.text)}


def whole_reads(plan: dict[str, Any]) -> Iterator[str]:
    """The growing tables that a plan reads from end to end."""
    if plan["Node Type"] == "Seq Scan" and plan["Relation Name"] in GROWING:
        yield plan["Relation Name"]
    for part in plan.get("Plans", ()):
        yield from whole_reads(part)


def test_no_statement_reads_a_growing_table_from_end_to_end(months_url: str) -> None:
    found: dict[str, list[str]] = {}
    explained = 0
    with psycopg.connect(months_url) as connection:
        known = values(connection)
        for statement in all_statements():
            if not re.match(r"\s*(--[^\n]*\n\s*)*(with|select|update|delete|insert)\b", statement.text):
                continue
            asked = parameters(statement, known)
            for params in (asked, asked | OTHERWISE.get(statement.name, {})):
                # psycopg binds on the server: the plan is made for these values, as it is for ours
                text = f"explain (format json) {statement.text}"
                row = psycopg.ClientCursor(connection).execute(text.encode(), params).fetchone()
                connection.rollback()
                assert row is not None
                plan = row[0] if isinstance(row[0], list) else json.loads(row[0])
                if tables := sorted(set(whole_reads(plan[0]["Plan"]))):
                    found[statement.name] = tables
            explained += 1
    assert explained > 60
    assert {name: tables for name, tables in found.items() if name not in ALLOWED} == {}
    assert {*ALLOWED, *OTHERWISE} <= {statement.name for statement in all_statements()}


def test_a_plan_that_reads_everything_is_found(months_url: str) -> None:
    with psycopg.connect(months_url) as connection:
        row = connection.execute("explain (format json) select count(*) from item where text like '%never%'").fetchone()
    assert row is not None
    assert list(whole_reads(row[0][0]["Plan"])) in (["item"], ["item", "item"])
