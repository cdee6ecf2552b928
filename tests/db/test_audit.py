"""The audit trail on real databases: append-only, one chain whoever writes at once, and every tampering found."""

import asyncio
import re
from enum import StrEnum

import psycopg
import pytest

from gateway.domain.audit import THE_GATEWAY, Act, Actor, Entry, TargetKind, cli_actor, web_actor
from gateway.runs.audit_trail import ChainVerdict, Trail
from gateway.store import audit
from gateway.store.database import Database
from gateway.store.errors import ConstraintViolated

pytestmark = pytest.mark.anyio


def entry(number: int = 0, **detail: object) -> Entry:
    return Entry(web_actor("olga"), Act.RUN_RESOLVE, TargetKind.RUN, f"run-{number}", "wé said: “no”", {"number": number, **detail})


async def append(database: Database, *entries: Entry) -> None:
    for one in entries:
        async with database.transaction() as tx:
            await audit.record(tx, one)
            await tx.commit()


async def verdict(database: Database) -> ChainVerdict:
    return await Trail(database).verify()


async def test_entries_are_read_newest_first_as_they_were_written(database_on_each: Database) -> None:
    database = database_on_each
    assert await verdict(database) == ChainVerdict(0, None)
    await append(database, entry(1, b=1.50, a=[None, True]), Entry(cli_actor("root"), Act.KEYS_REKEY, TargetKind.GATEWAY, "keys"))
    rows = await audit.page(database, before=None, limit=10)
    assert [(row.audit_id, row.actor, row.act, row.reason) for row in rows] == [
        (2, "cli:root", "keys_rekey", None),
        (1, "web:olga", "run_resolve", "wé said: “no”"),
    ]
    assert rows[1].detail == {"number": 1, "b": 1.5, "a": [None, True]}
    assert await verdict(database) == ChainVerdict(2, rows[0].sha256)


async def test_an_act_that_is_rolled_back_leaves_no_entry_and_no_gap(database: Database) -> None:
    await append(database, entry(1))
    async with database.transaction() as tx:
        await audit.record(tx, entry(2))
    await append(database, entry(3))
    assert [row.target_id for row in await audit.page(database, before=None, limit=10)] == ["run-3", "run-1"]
    assert (await verdict(database)).entries == 2


@pytest.mark.parametrize(
    "statement", ["update audit set reason = 'x'", "delete from audit", "truncate audit", "delete from audit where false"]
)
async def test_the_trail_is_append_only(database_on_each: Database, database_url_on_each: str, statement: str) -> None:
    await append(database_on_each, entry())
    with psycopg.connect(database_url_on_each, autocommit=True) as connection:
        for before in ("select 1", "set session_replication_role = replica"):
            connection.execute(before.encode())
            with pytest.raises(psycopg.errors.RestrictViolation, match="append-only"):
                connection.execute(statement.encode())
    assert (await verdict(database_on_each)).entries == 1


async def test_eight_writers_at_once_make_one_chain(database_on_each: Database) -> None:
    async def writer(number: int) -> None:
        await append(database_on_each, *(entry(number * 100 + n) for n in range(10)))

    await asyncio.gather(*(writer(number) for number in range(8)))
    rows = await audit.page(database_on_each, before=None, limit=100)
    assert [row.audit_id for row in rows] == list(range(80, 0, -1))
    assert len({row.target_id for row in rows}) == 80
    assert await verdict(database_on_each) == ChainVerdict(80, rows[0].sha256)


FORGE = """
    update audit a set sha256 = sha256(convert_to(audit_text_v1(a.previous_sha256, a.audit_id, a.at, a.actor, a.act, a.target_kind,
        a.target_id, a.reason, a.detail), 'UTF8')) where audit_id = 3
"""
TAMPERINGS: dict[str, tuple[list[str], int, str]] = {
    "a word": (["update audit set reason = 'other' where audit_id = 3"], 3, "hash_differs"),
    "a number in the detail": (["update audit set detail = '{\"number\": 4}' where audit_id = 3"], 3, "hash_differs"),
    "a microsecond": (["update audit set at = at + interval '1 microsecond' where audit_id = 3"], 3, "hash_differs"),
    "the actor": (["update audit set actor = 'web:ben' where audit_id = 3"], 3, "hash_differs"),
    "a word, with its hash made anew": (["update audit set reason = 'other' where audit_id = 3", FORGE], 4, "previous_hash_differs"),
    "an entry removed": (["delete from audit where audit_id = 3"], 4, "entry_missing_before"),
    "the first entry removed": (["delete from audit where audit_id = 1"], 2, "entry_missing_before"),
    "an entry removed, the others moved up": (
        ["delete from audit where audit_id = 3", "update audit set audit_id = audit_id - 1 where audit_id > 3"],
        3,
        "previous_hash_differs",
    ),
    "an entry slipped in": (
        [
            "update audit set audit_id = audit_id + 1 where audit_id = 5",
            "insert into audit select 5, at, actor, act, target_kind, target_id, reason, detail, sha256(sha256), sha256 from audit"
            " where audit_id = 4",
        ],
        5,
        "previous_hash_differs",
    ),
}


@pytest.mark.parametrize("tampering", TAMPERINGS)
async def test_tampering_past_the_trigger_is_found(database: Database, database_url: str, tampering: str) -> None:
    statements, broken, why = TAMPERINGS[tampering]
    await append(database, *(entry(n) for n in range(1, 6)))
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("alter table audit disable trigger user")
        for statement in statements:
            connection.execute(statement.encode())
        for trigger in ("audit_append_only", "audit_removal_is_anchored"):
            connection.execute(f"alter table audit enable always trigger {trigger}".encode())
    found = await verdict(database)
    assert (found.broken_audit_id, found.why, found.entries) == (broken, why, broken - 2 if why == "entry_missing_before" else broken - 1)


async def test_a_chain_does_not_fork(database: Database, database_url: str) -> None:
    await append(database, entry(1), entry(2))
    with (
        psycopg.connect(database_url, autocommit=True) as connection,
        pytest.raises(psycopg.errors.UniqueViolation, match="audit_one_chain"),
    ):
        connection.execute(
            "insert into audit select 3, at, actor, act, target_kind, target_id, reason, detail, previous_sha256, sha256 from audit"
            " where audit_id = 2"
        )


async def test_a_long_chain_is_verified_page_by_page(database: Database, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("select audit_v1('cli:root', 'run_lookup', 'run', n::text, null, '{}') from generate_series(1, 1203) n")
        connection.execute("set timezone = 'Asia/Kathmandu'")
    assert (await verdict(database)).entries == 1203


@pytest.mark.parametrize(
    "wrong", [Entry(Actor(""), Act.RUN_LOOKUP, TargetKind.RUN, "r"), Entry(THE_GATEWAY, Act.RUN_LOOKUP, TargetKind.RUN, "", "r")]
)
async def test_an_entry_without_who_or_what_is_refused(database: Database, wrong: Entry) -> None:
    with pytest.raises(ConstraintViolated):
        await append(database, wrong)


@pytest.mark.parametrize(("constraint", "words"), [("audit_act_known", Act), ("audit_target_known", TargetKind)])
async def test_the_schema_knows_the_same_words(database_url: str, constraint: str, words: type[StrEnum]) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        row = connection.execute("select pg_get_constraintdef(oid) from pg_constraint where conname = %s", (constraint,)).fetchone()
    assert row is not None
    assert set(re.findall(r"'([a-z_]+)'", str(row[0]))) == {word.value for word in words}
