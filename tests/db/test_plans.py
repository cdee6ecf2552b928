"""Statements over months of traffic (G12): none that runs often reads a table that grows from end to end, and what a request or a loop
executes touches few rows, however many there are. Plans inside functions: `test_plans_of_functions`."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import psycopg
import pytest

from bench.months import fill
from gateway.domain.resolution import RunFilter
from gateway.store.statements import Statement, all_statements, statement
from tests.support.postgres import PostgresForTests

GROWING: Final = {
    "account", "run", "submission", "item", "snapshot", "evidence", "conversation", "conversation_alias", "binding", "moderation_verdict",
    "quota_charge", "quota_usage",
}  # fmt: skip
RUNS: Final = 20_000
FEW_ROWS: Final = 200
"""What one execution of a hot statement may touch of growing tables: a page of things with what hangs on each."""

ALLOWED: Final = {
    "applications.has_history": "an operator changes an application; its first conversation ends the search",
    "applications.invalidate_bindings": "an operator changes an endpoint: all bindings of it are to be changed",
    "retention.erase_conversations": "a batch is a large part of the few conversations that are here",
}
"""Statements that may read a table from end to end, and why."""

HOT: Final = {
    "accounts.access", "accounts.create",
    "admission.context", "admission.submitted", "admission.admit", "admission.attempt", "admission.closed",
    "applications.visible", "applications.usable",
    "approval.answered", "approval.question", "approval.run_of_question", "approval.decide",
    "history.conversations", "history.items", "history.rename", "history.remove",
    "history.active_run", "history.run_exists",
    "leases.beat", "leases.release_expired", "leases.expire",
    "lookups.claim", "lookups.grant", "lookups.note", "lookups.settle", "lookups.found", "lookups.refuse", "lookups.exhaust",
    "moderation.note_without_run", "moderation.moderators",
    "numbers.gauges", "quotas.usage",
    "retention.erase_conversations", "retention.remove_evidence", "retention.remove_verdicts", "retention.prune_audit",
    "runs.view", "runs.fence", "runs.reread", "runs.start", "runs.release", "runs.settle", "runs.checkpoint",
    "runs.acknowledge",
    "saves.claim", "saves.due_now", "saves.save",
}  # fmt: skip
"""What a request of a user, a run or a loop of a replica executes."""

_ACT: Final = "an operator's act"
_PAGE: Final = "an operator's page"
COLD: Final = {
    "accounts.one": _PAGE,
    "accounts.page": _PAGE,
    "accounts.lock": _ACT,
    "accounts.save": _ACT,
    "admission.await_admissions": _ACT,
    "admission.close": _ACT,
    "admission.open": _ACT,
    "applications.create": _ACT,
    "applications.one": _PAGE,
    "applications.page": _PAGE,
    "applications.lock": _ACT,
    "applications.lock_of_provider": _ACT,
    "applications.runs_in_the_way": _ACT,
    "applications.has_history": _ACT,
    "applications.save": _ACT,
    "applications.move": _ACT,
    "applications.invalidate_bindings": _ACT,
    "applications.set_token": _ACT,
    "audit.record": _ACT,
    "audit.page": _PAGE,
    "audit.texts": "`gateway audit verify` reads the whole trail",
    "audit.anchor": "`gateway audit verify`",
    "edge.arrived": "`gateway check --through`",
    "leases.lost": _PAGE,
    "leases.replicas": _PAGE,
    "leases.leave": "a replica ends",
    "moderation.lock_moderators": _ACT,
    "moderation.in_force": _PAGE,
    "moderation.lock_chains": _ACT,
    "moderation.end_chain": _ACT,
    "moderation.forget_tokens": _ACT,
    "moderation.create_chain": _ACT,
    "moderation.create_moderator": _ACT,
    "numbers.durability": "`gateway check`",
    "operators.runs": _PAGE,
    "operators.evidence": _PAGE,
    "operators.text": _PAGE,
    "operators.lock": _ACT,
    "operators.resolve": _ACT,
    "operators.give_up": _ACT,
    "overview.totals": _PAGE,
    "overview.applications": _PAGE,
    "overview.refusals": "an operator's page: the runs of a day, by blocks of the table",
    "overview.moderation": _PAGE,
    "providers.create": _ACT,
    "providers.one": _PAGE,
    "providers.page": _PAGE,
    "providers.lock": _ACT,
    "providers.hold": _ACT,
    "providers.save": _ACT,
    "quotas.lock_rules": _ACT,
    "quotas.set_limit": _ACT,
    "quotas.create": _ACT,
    "quotas.page": _PAGE,
    "quotas.heaviest_users": "an operator's page: the runs of a period, by blocks of the table",
    "quotas.heaviest_applications": "an operator's page: the runs of a period, by blocks of the table",
    "quotas.remove": _ACT,
    "tokens.page": "`gateway keys rekey`",
    "tokens.replace": "`gateway keys rekey`",
}
"""What is executed by none of these, and by whom it is."""

OTHERWISE: Final[dict[str, dict[str, object]]] = {
    "history.conversations": {"conversation_id": None},
    "history.items": {"step": -1},
}
"""Statements that are asked in a second way, too, for which another plan is made."""


def test_every_statement_is_named_as_hot_or_as_cold() -> None:
    assert HOT | set(COLD) == {found.name for found in all_statements()}
    assert not HOT & set(COLD)


@pytest.fixture(scope="module")
def months_url(postgres: PostgresForTests) -> Iterator[str]:
    with postgres.migrated_database() as url:
        fill(url, runs=RUNS)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(r"update application set token_ciphertext = '\x00', token_key_id = 'months'")
        yield url


Values = Mapping[str, Any]

NEW: Final = "6e0a0a5e-0000-4000-8000-00000000000"
"""An id that is not there, but for its last digit."""


def values(connection: "psycopg.Connection[Any]") -> dict[str, Any]:
    """A value of the right type for each parameter's type, of a row that is there."""
    row = connection.execute(
        "select run_id, account_id, application_id, conversation_id, submission_id, subject, client_thread"
        " from run join account using (account_id) join conversation_alias using (conversation_id, account_id, application_id)"
        " where submission_id = 'month-77'"
    ).fetchone()
    assert row is not None
    run_id, account_id, application_id, conversation_id, submission_id, subject, client_thread = row
    return {
        "run_id": run_id,
        "account_id": account_id,
        "application_id": application_id,
        "conversation_id": conversation_id,
        "submission_id": submission_id,
        "subject": subject,
        "client_thread": client_thread,
        "limit": 20,
        "text_sha256": hashlib.sha256(b"x").digest(),
        "text_kind": "message",
        "providers": ["local"],
        "versions": ["1"],
        "durations": [0.1],
        "outcome": "allowed",
        "categories": [],
        "fault": None,
        "chain_id": None,
        "quota_zone": "UTC",
        # nothing is as old: what retention looks at is then no more than a batch either
        "days": 4000,
    }


BY_TYPE: Final = {
    "uuid": f"{NEW}1",
    "uuid[]": [f"{NEW}1"],
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


def parameters(statement: Statement, known: Values) -> dict[str, Any]:
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
        for one in all_statements():
            if not re.match(r"\s*(--[^\n]*\n\s*)*(with|select|update|delete|insert)\b", one.text):
                continue
            asked = parameters(one, known)
            for params in (asked, asked | OTHERWISE.get(one.name, {})):
                # psycopg binds on the server: the plan is made for these values, as it is for ours
                text = f"explain (format json) {one.text}"
                row = psycopg.ClientCursor(connection).execute(text.encode(), params).fetchone()
                connection.rollback()
                assert row is not None
                plan = row[0] if isinstance(row[0], list) else json.loads(row[0])
                if tables := sorted(set(whole_reads(plan[0]["Plan"]))):
                    found[one.name] = tables
            explained += 1
    assert explained > 60
    assert {name: tables for name, tables in found.items() if name not in ALLOWED} == {}
    assert {*ALLOWED, *OTHERWISE} <= {one.name for one in all_statements()}


def test_a_plan_that_reads_everything_is_found(months_url: str) -> None:
    with psycopg.connect(months_url) as connection:
        row = connection.execute("explain (format json) select count(*) from item where text like '%never%'").fetchone()
    assert row is not None
    assert list(whole_reads(row[0][0]["Plan"])) in (["item"], ["item", "item"])


class Session:
    """One connection that executes, and knows how many rows of growing tables that touched. Nothing is committed."""

    def __init__(self, connection: "psycopg.Connection[Any]") -> None:
        self.connection = connection
        self.known = values(connection)

    def touched_by(self, name: str, **more: object) -> int:
        """By index or not, and in the functions that it calls."""
        one = statement(name)
        before = self.touched()
        psycopg.ClientCursor(self.connection).execute(one.text.encode(), parameters(one, {**self.known, **more}))
        return self.touched() - before

    def touched(self) -> int:
        """By everything so far."""
        row = self.connection.execute(
            "select coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)::bigint from pg_stat_xact_user_tables"
            " where relname = any (%s)",
            (sorted(GROWING),),
        ).fetchone()
        assert row is not None
        return int(row[0])


@pytest.fixture
def session(months_url: str) -> Iterator[Session]:
    with psycopg.connect(months_url) as connection:
        yield Session(connection)
        connection.rollback()


HOT_VALUES: Final[dict[str, Values]] = {
    # seen for the first time
    "accounts.create": {"account_id": f"{NEW}2", "subject": "new"},
    "admission.admit": {"submission_id": "new", "run_id": f"{NEW}2", "conversation_id": None},
    "approval.decide": {"submission_id": "new", "run_id": f"{NEW}2", "comment": "x", "action": "approve"},
}


@pytest.mark.parametrize("name", sorted(HOT))
def test_a_hot_statement_touches_few_rows(session: Session, name: str) -> None:
    for otherwise in ({}, OTHERWISE.get(name, {})):
        assert session.touched_by(name, **HOT_VALUES.get(name, {}), **otherwise) <= FEW_ROWS
        session.connection.rollback()


def test_rows_that_are_touched_are_counted(session: Session) -> None:
    before = session.touched()
    session.connection.execute("select count(*) from evidence")
    assert session.touched() - before >= 3 * RUNS
    session.connection.execute("set local enable_seqscan = off")
    session.connection.execute("select max(text) from item where run_id > '00000000-0000-0000-0000-000000000000'")
    assert session.touched() - before >= 6 * RUNS


@pytest.mark.parametrize("oldest_first", [False, True])
@pytest.mark.parametrize("run_filter", [one.value for one in RunFilter])
def test_no_page_of_operators_reads_the_runs_from_end_to_end(months_url: str, run_filter: str, oldest_first: bool) -> None:
    """Each filter by an index of its own kind of runs; all of them by their time, which who asks has to say (the console does)."""
    runs = next(statement for statement in all_statements() if statement.name == "operators.runs")
    asked = {
        **dict.fromkeys(("run_id", "application_id", "after_at", "after_id", "older_than_seconds")),
        "filter": run_filter,
        "oldest_first": oldest_first,
        "created_within_seconds": 24 * 3600.0 if run_filter == "all" else None,
        "limit": 50,
        "gate_seconds": 905.0,
    }
    with psycopg.connect(months_url) as connection:
        row = psycopg.ClientCursor(connection).execute(f"explain (format json) {runs.text}".encode(), asked).fetchone()
    assert row is not None
    assert list(whole_reads(row[0][0]["Plan"])) == []
