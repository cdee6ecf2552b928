"""Tables that grow for months are cleaned and counted by what is new in them, not by a fifth of everything."""

from typing import Final

import psycopg

from tests.db.test_plans import GROWING

SMALL_SHARE: Final = 0.02

BY_THEMSELVES: Final = {"account": "changes when somebody is renamed or suspended"}
"""Growing tables for which the server's own settings do, and why."""
REWRITTEN: Final = {"run", "snapshot", "conversation", "quota_usage", "quota_charge", "moderation_verdict", "evidence", "item"}
"""Those whose rows change, or go with retention: they leave dead rows behind."""
HOT_ROWS: Final = {"replica", "quota_usage"}
"""Few rows that change all the time: pages keep room for the next version, and its index stays as it is."""


def settings(url: str) -> dict[str, dict[str, str]]:
    with psycopg.connect(url) as connection:
        rows = connection.execute("select relname, reloptions from pg_class where relkind = 'r' and reloptions is not null").fetchall()
    return {table: {name: value for name, _, value in (option.partition("=") for option in options)} for table, options in rows}


def test_a_growing_table_is_cleaned_by_what_is_new(database_url_on_each: str) -> None:
    found = settings(database_url_on_each)
    for table in GROWING - set(BY_THEMSELVES):
        assert float(found[table]["autovacuum_analyze_scale_factor"]) <= SMALL_SHARE, table
        share = "autovacuum_vacuum_scale_factor" if table in REWRITTEN else "autovacuum_vacuum_insert_scale_factor"
        assert float(found[table][share]) <= SMALL_SHARE, table
    for table in HOT_ROWS:
        assert float(found[table]["fillfactor"]) <= 70, table


def test_autovacuum_is_switched_off_for_no_table(database_url: str) -> None:
    assert [table for table, found in settings(database_url).items() if "autovacuum_enabled" in found] == []
