"""Retention on real databases: batches, what is spared, and an audit trail that is verified from where it now begins (contract F6)."""

import hashlib
from uuid import UUID

import psycopg
import pytest

from gateway.domain.audit import Act, Actor, Entry, TargetKind
from gateway.domain.ids import ApplicationId
from gateway.metrics import Metrics
from gateway.reconciler.retention import Retention
from gateway.runs.audit_trail import ChainVerdict, Trail
from gateway.store import audit, retention
from gateway.store.database import Database
from tests.support.scripted_upstream import Answer, Script, message, started
from tests.support.stack import Replica, Stack

pytestmark = pytest.mark.anyio


def sql(url: str, *statements: str) -> list[tuple[object, ...]]:
    """Run as somebody who goes past the gateway; the rows of the last one."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def counts(url: str) -> dict[str, int]:
    tables = ("item", "snapshot", "evidence", "moderation_verdict", "run", "submission", "binding")
    return {table: int(str(sql(url, f"select count(*) from {table}")[0][0])) for table in tables}


async def said(replica: Replica, application: ApplicationId, submission: str) -> str:
    """A conversation with one answer; its id."""
    ada = replica.client("ada")
    _, events = await ada.ask(application, submission, "hi")
    return str(events[0].data["threadId"])


async def deleted(replica: Replica, application: ApplicationId, conversation_id: str) -> None:
    ada = replica.client("ada")
    answer = await ada.http.delete(f"/api/internal/apps/{application}/agent/conversations/{conversation_id}", headers=ada.headers)
    assert answer.status_code == 200


AGED = "update conversation set deleted_at = deleted_at - interval '8 days' where deleted_at is not null"


async def test_what_was_deleted_is_erased_and_a_replay_never_executes(database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application, replica = await stack.application(), await stack.replica()
        kept, gone, recent = [await said(replica, application, f"s{n}") for n in range(3)]
        await deleted(replica, application, gone)
        asked = f"from run where conversation_id = '{gone}'"
        sql(
            database_url,
            "insert into interrupt (interrupt_id, run_id, native_id, title, description, comment_max_chars, digest)"
            f" select gen_random_uuid(), run_id, 'n', 'canary', 'canary', 10, sha256('x') {asked}",
            "insert into decision (run_id, interrupt_id, action, comment)"
            f" select run_id, (select interrupt_id from interrupt), 'approve', 'canary' {asked}",
        )
        sql(database_url, AGED)
        await deleted(replica, application, recent)
        before, executions = counts(database_url), stack.upstream.counts().executions
        assert sql(database_url, "select title, comment from interrupt, decision") == [("canary", "canary")]
        metrics = Metrics()
        await Retention(stack.database, 7, None, None, metrics).round()
        after = counts(database_url)
        assert sql(database_url, "select title, description, comment from interrupt, decision") == [("-", "", None)]
        assert {table: before[table] - after[table] for table in before} == {**dict.fromkeys(before, 0), "item": 4, "snapshot": 1}
        assert sql(database_url, "select conversation_id from conversation where erased_at is not null") == [(UUID(gone),)]
        assert b'gateway_retention_removed_total{table="item"} 4.0' in metrics.text(())
        await Retention(stack.database, 7, None, None).round()
        assert counts(database_url) == after
        assert len(await replica.client("ada").items(application, kept)) == 4
        replayed = await replica.client("ada").submit(application, "s1", "hi")
        assert replayed.status_code in (200, 404)
        other = await replica.client("ada").submit(application, "s1", "other")
        assert (other.status_code, other.json()["code"]) == (409, "submission_conflict")
        assert stack.upstream.counts().executions == executions


async def test_nothing_of_an_unresolved_run_is_removed(database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application, replica = await stack.application(), await stack.replica()
        stack.upstream.use(Script(ag_ui=[Answer(frames=(*started(), *message("m1", "half")))]))
        conversation_id = await said(replica, application, "s1")
        sql(
            database_url,
            f"update conversation set deleted_at = now() - interval '9 days' where conversation_id = '{conversation_id}'",
            "update evidence set at = at - interval '9 days'",
            "update moderation_verdict set at = at - interval '9 days'",
        )
        before = counts(database_url)
        assert before["evidence"] > 0
        await Retention(stack.database, 7, 7, 30).round()
        assert counts(database_url) == before
        sql(
            database_url,
            "update run set execution = 'closed', persistence = 'incomplete', user_slot = null, application_slot = null,"
            " lease_until = null, next_lookup_at = null, finished_at = now() - interval '8 days', resolution_outcome = 'failed',"
            " resolution_reason = 'x',"
            " resolved_at = now() - interval '8 days', attention = null",
        )
        await Retention(stack.database, 7, 7, 30).round()
        after = counts(database_url)
        assert (after["item"], after["snapshot"], after["evidence"], after["moderation_verdict"]) == (0, 0, 0, 0)
        assert (after["run"], after["submission"], after["binding"]) == (1, 1, 1)


async def test_evidence_goes_in_batches_oldest_first_and_recent_stays(database_on_each: Database, database_url_on_each: str) -> None:
    url = database_url_on_each
    async with Stack.over(url) as stack:
        application, replica = await stack.application(), await stack.replica()
        await said(replica, application, "s1")
    sql(
        url,
        "update run set finished_at = finished_at - interval '40 days'",
        "insert into evidence (evidence_id, run_id, kind, at) overriding system value"
        " select n, run_id, 'saved', now() - interval '30 days' from run, generate_series(-4, 0) n",
    )
    before = counts(url)["evidence"]
    assert before > 7
    after, removed = -100, []
    for _ in range(4):
        batch = await retention.remove_evidence(database_on_each, days=20, after=after, limit=2)
        assert batch.last is not None
        after = batch.last
        removed.append((batch.removed, batch.more))
    assert removed == [(2, True), (2, True), (1, True), (0, False)]
    assert counts(url)["evidence"] == before - 5
    empty = await retention.remove_evidence(database_on_each, days=20, after=10**9, limit=2)
    assert empty == retention.BatchRow(0, None, False)


async def test_a_round_goes_on_behind_what_an_unresolved_run_keeps(database: Database, database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application, replica = await stack.application(), await stack.replica()
        await said(replica, application, "over")
        stack.upstream.use(Script(ag_ui=[Answer(frames=(*started(), *message("m1", "half")))]))
        await said(replica, application, "stuck")
    sql(
        database_url,
        "insert into evidence (run_id, kind) select run_id, 'looked_up' from run, generate_series(1, 250) where submission_id = 'stuck'",
        "insert into evidence (run_id, kind) select run_id, 'looked_up' from run, generate_series(1, 3) where submission_id = 'over'",
        "update evidence set at = at - interval '9 days'",
        "update run set finished_at = finished_at - interval '9 days'",
    )
    await Retention(database, None, 7, None).round()
    left = sql(database_url, "select r.submission_id, count(*) > 250 from evidence e join run r using (run_id) group by 1")
    assert left == [("stuck", True)]


async def appended(database: Database, number: int) -> None:
    for n in range(number):
        async with database.transaction() as tx:
            await audit.record(tx, Entry(Actor("web:olga"), Act.RUN_RESOLVE, TargetKind.RUN, f"run-{n}"))
            await tx.commit()


async def verdict(database: Database) -> ChainVerdict:
    return await Trail(database).verify()


def aged(url: str, through: int, days: int) -> None:
    """Make entries older than they are, and the chain anew, as only the owner of the database can."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("alter table audit disable trigger user")
        connection.execute(f"update audit set at = at - interval '{days} days' where audit_id <= {through}".encode())
        rows = connection.execute("select audit_id from audit order by audit_id").fetchall()
        previous = bytes(32)
        for (audit_id,) in rows:
            connection.execute("update audit set previous_sha256 = sha256(%s || %s) where audit_id = %s", (bytes([9]), previous, audit_id))
            connection.execute("update audit set previous_sha256 = %s where audit_id = %s", (previous, audit_id))
            text = connection.execute(
                "select audit_text_v1(previous_sha256, audit_id, at, actor, act, target_kind, target_id, reason, detail) from audit"
                " where audit_id = %s",
                (audit_id,),
            ).fetchone()
            assert text is not None
            previous = hashlib.sha256(str(text[0]).encode()).digest()
            connection.execute("update audit set sha256 = %s where audit_id = %s", (previous, audit_id))
        connection.execute("alter table audit enable always trigger audit_append_only")
        connection.execute("alter table audit enable always trigger audit_removal_is_anchored")


async def test_a_pruned_trail_is_verified_from_its_anchor(database_on_each: Database, database_url_on_each: str) -> None:
    database, url = database_on_each, database_url_on_each
    await appended(database, 6)
    aged(url, through=4, days=50)
    assert (await verdict(database)).entries == 6
    assert await retention.prune_audit(database, days=1, limit=3) == 3
    assert await retention.prune_audit(database, days=1, limit=3) == 1
    assert await retention.prune_audit(database, days=1, limit=3) == 0
    rows = await audit.page(database, before=None, limit=10)
    assert [(row.audit_id, row.act) for row in rows] == [(8, "audit_prune"), (7, "audit_prune"), (6, "run_resolve"), (5, "run_resolve")]
    assert rows[1].detail["through"] == 3
    assert await verdict(database) == ChainVerdict(4, rows[0].sha256)
    await appended(database, 1)
    assert (await verdict(database)).entries == 5


async def test_the_newest_entry_and_what_is_young_stays(database: Database, database_url: str) -> None:
    await appended(database, 2)
    aged(database_url, through=2, days=50)
    assert await retention.prune_audit(database, days=1, limit=10) == 1
    aged_29 = "select audit_prune_v1(29, 10)"
    assert sql(database_url, aged_29) == [(1,)]  # the one that was the newest before
    assert (await verdict(database)).entries == 2


ANCHOR = "insert into audit_anchor (audit_id, sha256, removed) select audit_id, sha256, 1 from audit where audit_id = {}"


@pytest.mark.parametrize(
    "forged",
    [
        [ANCHOR.format(3)],  # young
        ["insert into audit_anchor (audit_id, sha256, removed) values (1, sha256('x'), 1)"],  # another hash
        ["insert into audit_anchor (audit_id, sha256, removed) values (99, sha256('x'), 1)"],  # not there
        ["delete from audit where audit_id <= 1"],  # no anchor
        ["begin", ANCHOR.format(1), "delete from audit where audit_id <= 2"],  # further than its anchor
        ["begin", ANCHOR.format(1), "commit", "delete from audit where audit_id <= 1"],  # an anchor of another transaction
        [ANCHOR.format(1), "update audit_anchor set audit_id = 2"],
        [ANCHOR.format(1), "delete from audit_anchor"],
    ],
)
async def test_no_way_past_the_function_removes_more(database: Database, database_url: str, forged: list[str]) -> None:
    await appended(database, 4)
    aged(database_url, through=2, days=50)
    with pytest.raises(psycopg.errors.RestrictViolation):
        sql(database_url, *forged)
    assert [row.audit_id for row in await audit.page(database, before=None, limit=10)] == [4, 3, 2, 1]


async def test_a_beginning_that_the_trail_does_not_name_is_found(database: Database, database_url: str) -> None:
    await appended(database, 4)
    aged(database_url, through=2, days=50)
    sql(database_url, "begin", ANCHOR.format(1), "delete from audit where audit_id <= 1", "commit")
    found = await verdict(database)
    assert (found.broken_audit_id, found.why) == (2, "beginning_not_recorded")


ERASED = {"conversation.title", "item.text", "snapshot.body", "interrupt.title", "interrupt.description", "decision.comment"}
KEPT = {
    "binding": {"thread_id", "endpoint_fingerprint", "fingerprint"},
    "conversation": {"blocked_reason"},
    "conversation_alias": {"client_thread"},  # the client's id of it, so that its name is not used again
    "decision": {"action"},
    "evidence": {"kind"},
    "interrupt": {"native_id", "digest"},
    "item": {"type", "role", "name", "status"},  # their rows go
    "moderation_verdict": {"submission_id", "text_kind", "text_sha256", "provider", "version", "outcome", "fault", "mode"},
    "quota_charge": {"bucket"},
    "run": {
        *("kind", "submission_id", "execution", "persistence", "reason", "native_status", "attention", "native_run_id"),
        *("resolution_outcome", "resolution_reason", "resolved_by"),
    },
    "snapshot": {"sha256"},
}
"""Words of ours, ids, digests, and what operators wrote."""


async def test_each_column_that_can_hold_what_was_said_is_erased_or_named_here(database_url: str) -> None:
    """A new table with people's words fails here until `retention.erase_conversations` knows it."""
    found = sql(
        database_url,
        "select distinct c.table_name || '.' || c.column_name from information_schema.columns c"
        " join pg_constraint f on f.conrelid = c.table_name::regclass and f.contype in ('f', 'p')"
        " where c.table_schema = 'public' and c.data_type in ('text', 'bytea')"
        " and (f.confrelid in ('run'::regclass, 'conversation'::regclass) or c.table_name in ('run', 'conversation'))",
    )
    named = ERASED | {f"{table}.{column}" for table, columns in KEPT.items() for column in columns}
    assert {str(name) for (name,) in found} == named
