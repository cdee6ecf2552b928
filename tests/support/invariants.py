"""The invariants of design.md, asked of a real database and of what upstream counted: one checker for every crash, fault and load test.

`watch` puts a trigger on the run table that remembers each change of a state, so that a step which no table allows is seen even when a
later one covers it up. `broken` lists every violation in words; `assert_hold` raises with all of them.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from gateway.domain import snapshot as snapshots
from gateway.domain.ids import RunId
from gateway.domain.snapshot import Item, MessageItem, ToolItem, ToolStatus, item_id
from gateway.domain.states import ALLOWED, ALLOWED_PERSISTENCE, OVER, SLOT_HOLDING, Execution, Persistence
from tests.support.scripted_upstream import ScriptedUpstream

_WATCH: Final = """
create table test_change (run_id uuid, old_execution text, new_execution text, old_persistence text, new_persistence text);
create function test_note_change() returns trigger language plpgsql as $$
begin
    insert into test_change values (new.run_id, old.execution, new.execution, old.persistence, new.persistence);
    return null;
end
$$;
create trigger test_note_change after update on run for each row
    when (old.execution is distinct from new.execution or old.persistence is distinct from new.persistence)
    execute function test_note_change();
"""

_RUNS: Final = """
select r.*, clock_timestamp() as now, s.body, s.sha256, s.complete, a.subject,
    (select count(*) from quota_rule q
        where r.kind = 'task' and q.removed_at is null and (q.application_id is null or q.application_id = r.application_id)) as rules,
    (select count(*) from evidence e where e.run_id = r.run_id and e.kind = 'fence') as fences,
    (select count(*) from evidence e where e.run_id = r.run_id and (
        e.kind = 'run_finished' and e.detail ->> 'outcome' = 'success'
        or e.kind = 'looked_up' and e.detail ->> 'status' = 'success')) as successes
from run r
join account a on a.account_id = r.account_id
left join snapshot s on s.run_id = r.run_id
where r.application_id = any (%s)
"""
_ITEMS: Final = """
select i.* from item i join run r on r.run_id = i.run_id
where r.application_id = any (%s)
order by i.conversation_id, i.sequence, i.position
"""
_CHARGES: Final = """
select q.run_id, q.refunded_at is not null as refunded
from quota_charge q
join run r on r.run_id = q.run_id
where r.application_id = any (%s)
"""
_USAGE: Final = """
select u.quota_rule_id, u.bucket, u.used, count(q.run_id) filter (where q.refunded_at is null) as charged
from quota_usage u
left join quota_charge q on (q.quota_rule_id, q.bucket, q.window_start) = (u.quota_rule_id, u.bucket, u.window_start)
group by u.quota_rule_id, u.bucket, u.window_start, u.used
"""
_UNMODERATED: Final = """
select r.run_id, r.execution, r.persistence, r.reason, a.subject
from run r
join account a on a.account_id = r.account_id
left join item i on i.run_id = r.run_id and i.position = 0
where r.application_id = any (%s) and r.kind = 'task' and (
    not exists (select from moderation_verdict v where v.run_id = r.run_id)
    or exists (
        select from moderation_verdict v
        where v.run_id = r.run_id and (v.outcome <> 'allowed' or v.text_sha256 <> sha256(convert_to(i.text, 'UTF8')))))
"""
_CHANGES: Final = """
select c.* from test_change c join run r on r.run_id = c.run_id where r.application_id = any (%s)
"""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A submission that a replica answered with 2xx."""

    subject: str
    submission_id: str
    text: str
    run_id: str


async def watch(database_url: str) -> None:
    """Remember each change of a run's state from now on."""
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute(_WATCH)


async def assert_hold(
    database_url: str, applications: Sequence[UUID], upstreams: Sequence[ScriptedUpstream], acknowledged: Iterable[Acknowledged]
) -> None:
    """Every invariant holds for all runs of these applications; what upstream counted is the oracle for POSTs."""
    found = await broken(database_url, applications, upstreams, acknowledged)
    assert not found, "broken invariants:\n" + "\n".join(found)


async def broken(
    database_url: str, applications: Sequence[UUID], upstreams: Sequence[ScriptedUpstream], acknowledged: Iterable[Acknowledged]
) -> list[str]:
    """Each violation, in words."""
    async with await psycopg.AsyncConnection.connect(database_url, row_factory=dict_row) as connection:
        # One snapshot of everything: runs may still be moving.
        await connection.execute("set transaction isolation level repeatable read read only")
        wanted = (list(applications),)
        runs = {row["run_id"]: row for row in await (await connection.execute(_RUNS, wanted)).fetchall()}
        items: dict[UUID, list[dict[str, Any]]] = {run_id: [] for run_id in runs}
        for row in await (await connection.execute(_ITEMS, wanted)).fetchall():
            items[row["run_id"]].append(row)
        charges = await (await connection.execute(_CHARGES, wanted)).fetchall()
        usage = await (await connection.execute(_USAGE)).fetchall()
        unmoderated = await (await connection.execute(_UNMODERATED, wanted)).fetchall()
        watched = await (await connection.execute("select to_regclass('test_change') is not null as yes")).fetchall()
        changes = await (await connection.execute(_CHANGES, wanted)).fetchall() if watched[0]["yes"] else []
    return [
        *_posts(runs, upstreams),
        *_slots(runs),
        *_acknowledged(runs, items, acknowledged),
        *_successes(runs),
        *_saved(runs, items),
        *_charges(runs, charges, usage),
        *(f"C3: no verdict on the message of {_name(run)}" for run in unmoderated),
        *_changes(changes),
    ]


def _name(run: dict[str, Any]) -> str:
    return f"run {run['run_id']} of {run['subject']} ({run['execution']}, {run['persistence']}, {run['reason']})"


def _posts(runs: dict[UUID, dict[str, Any]], upstreams: Sequence[ScriptedUpstream]) -> Iterable[str]:
    """1: at most one executing POST per submission, none without a fence, none for a run that was proven never sent."""
    posts = Counter(post.run_id for upstream in upstreams for post in upstream.posts)
    by_correlation = {str(run["correlation_id"]): run for run in runs.values()}
    for correlation_id, number in posts.items():
        run = by_correlation.get(correlation_id)
        if run is None:
            yield f"a POST of no run: {correlation_id}"
            continue
        if number > 1:
            yield f"{number} POSTs for {_name(run)}"
        if run["fence_at"] is None or run["execution"] in (Execution.RESERVED, Execution.RELEASED):
            yield f"a POST for {_name(run)}"
        if run["resolution_outcome"] == "not_executed":
            yield f"a POST for {_name(run)}, resolved as not executed"
    for run in runs.values():
        if run["fences"] != (run["fence_at"] is not None):
            yield f"{run['fences']} fences in the evidence of {_name(run)}"


def _slots(runs: dict[UUID, dict[str, Any]]) -> Iterable[str]:
    """3: each slot-holding run has a live lease, or is unknown and visible: being looked up, or an operator was asked."""
    for run in runs.values():
        holds = run["execution"] in SLOT_HOLDING
        if holds != (run["user_slot"] is not None) or holds != (run["application_slot"] is not None):
            yield f"slots of {_name(run)}"
        leased = run["lease_until"] is not None and run["lease_until"] > run["now"]
        visible = run["execution"] == Execution.UNKNOWN and (run["attention"] == "operator" or run["next_lookup_at"] is not None)
        if holds and not leased and not visible:
            yield f"leaked slot: {_name(run)}, lease {run['lease_until']}, attention {run['attention']}"


def _acknowledged(
    runs: dict[UUID, dict[str, Any]], items: dict[UUID, list[dict[str, Any]]], acknowledged: Iterable[Acknowledged]
) -> Iterable[str]:
    """4: the user message of each acknowledged submission is in the history, once, and its one run is the one that was named."""
    for known in set(acknowledged):
        found = [run for run in runs.values() if (run["subject"], run["submission_id"]) == (known.subject, known.submission_id)]
        if [str(run["run_id"]) for run in found] != [known.run_id]:
            yield f"acknowledged {known}, and there are {[_name(run) for run in found]}"
            continue
        said = [item["text"] for item in items[found[0]["run_id"]] if item["role"] == "user"]
        if said != [known.text]:
            yield f"acknowledged {known}, and history says {said}"


def _successes(runs: dict[UUID, dict[str, Any]]) -> Iterable[str]:
    """5: nothing succeeds without RUN_FINISHED or a look-up that said so."""
    for run in runs.values():
        if run["execution"] == Execution.SUCCEEDED and not run["successes"]:
            yield f"no evidence of success: {_name(run)}"


def _saved(runs: dict[UUID, dict[str, Any]], items: dict[UUID, list[dict[str, Any]]]) -> Iterable[str]:
    """4, 5: saved items are those of the hashed snapshot, once, in order; nothing else is in the history beyond the user message."""
    for run in runs.values():
        mine = items[run["run_id"]]
        if [item["position"] for item in mine] != list(range(len(mine))):
            yield f"positions {[item['position'] for item in mine]} of {_name(run)}"
        if {item["item_id"] for item in mine} != {item_id(RunId(run["run_id"]), item["position"]) for item in mine}:
            yield f"item ids of {_name(run)}"
        if run["persistence"] != Persistence.SAVED:
            if len(mine) != 1:
                yield f"items of {_name(run)}, which is not saved"
            continue
        if run["body"] is None or snapshots.sha256(run["body"]) != run["sha256"]:
            yield f"no hashed snapshot of {_name(run)}"
            continue
        snapshot = snapshots.parse(run["body"])
        if tuple(_item(item) for item in mine[1:]) != snapshot.items:
            yield f"items of {_name(run)} are not those of its snapshot"
        if run["execution"] == Execution.SUCCEEDED and not snapshot.complete:
            yield f"an incomplete snapshot was saved for {_name(run)}"


def _item(row: dict[str, Any]) -> Item:
    if row["type"] == "tool":
        return ToolItem(row["position"], row["name"], ToolStatus(row["status"]), row["parent_position"])
    return MessageItem(row["position"], row["text"], row["complete"])


def _charges(runs: dict[UUID, dict[str, Any]], charges: Sequence[dict[str, Any]], usage: Sequence[dict[str, Any]]) -> Iterable[str]:
    """C4: one charge a task and rule, none of a decision; returned exactly for what was never sent; usage is what is charged and kept."""
    number = Counter(charge["run_id"] for charge in charges)
    for run_id, run in runs.items():
        if number[run_id] != run["rules"]:
            yield f"{number[run_id]} charges of {_name(run)}, {run['rules']} rules"
    for charge in charges:
        run = runs[charge["run_id"]]
        never_sent = run["execution"] == Execution.RELEASED or run["resolution_outcome"] == "not_executed"
        if charge["refunded"] != never_sent:
            yield f"charge {'returned' if charge['refunded'] else 'kept'}: {_name(run)}"
    for row in usage:
        if row["used"] != row["charged"]:
            yield f"used {row['used']}, charged {row['charged']} in {row['bucket']}"


def _changes(changes: Sequence[dict[str, Any]]) -> Iterable[str]:
    """Each change of a state is one that its table allows."""
    for change in changes:
        old, new = Execution(change["old_execution"]), Execution(change["new_execution"])
        if old is not new and new not in ALLOWED[old]:
            yield f"execution of run {change['run_id']} went from {old} to {new}"
        kept, keeps = Persistence(change["old_persistence"]), Persistence(change["new_persistence"])
        if kept is not keeps and keeps not in ALLOWED_PERSISTENCE[kept]:
            yield f"persistence of run {change['run_id']} went from {kept} to {keeps}"


def at_rest(run: dict[str, Any]) -> bool:
    """Whether nothing is left to be done by itself: over and saved as far as it can be, or an operator was asked."""
    if run["execution"] == Execution.UNKNOWN:
        return bool(run["attention"] == "operator")
    return run["execution"] in OVER and run["persistence"] != Persistence.PENDING
