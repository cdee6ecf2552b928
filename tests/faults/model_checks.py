"""What must be true after each step of the model test: design.md "Invariants", as far as one look at database and upstream shows them.

`WITNESS` keeps every change of a run's state, so that none passes unseen between two looks. `faults_of` is a pure function of a look.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, LiteralString
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from gateway.domain import snapshot as snapshots
from gateway.domain.snapshot import MessageItem
from gateway.domain.states import ALLOWED, ALLOWED_PERSISTENCE, SLOT_HOLDING, Execution, Persistence
from tests.faults.model_native import NativePost
from tests.faults.model_replica import LIMITS, LOOKUP_BUDGET
from tests.faults.model_upstream import EXECUTED, LEFT, Doing, Post, Word

WITNESS: Final[LiteralString] = """
create table witness (number bigint generated always as identity, run_id uuid, old_execution text, new_execution text,
    old_persistence text, new_persistence text, wrong text);
create function witness() returns trigger language plpgsql as $$
declare v_wrong text;
begin
    v_wrong := case
        when (new.attempt_token, new.correlation_id, new.submission_id, new.sequence, new.conversation_id)
            is distinct from (old.attempt_token, old.correlation_id, old.submission_id, old.sequence, old.conversation_id)
            then 'changed what admission wrote'
        when old.native_run_id is not null and new.native_run_id is distinct from old.native_run_id then 'changed its native id'
        when old.fence_at is not null and new.fence_at is distinct from old.fence_at then 'was fenced again'
        when old.started_at is not null and new.started_at is distinct from old.started_at then 'started again'
        when old.resolution_outcome is not null and new.resolution_outcome is distinct from old.resolution_outcome then 'resolved again'
        when new.lookups > old.lookups and old.lease_until > clock_timestamp() then 'was looked up though its lease lives'
        when new.lookups > old.lookups and old.execution <> 'unknown' then 'was looked up though it is not unknown'
        when new.execution = 'dispatched' and old.execution = 'reserved' and old.lease_until <= clock_timestamp()
            then 'was fenced without a lease'
        when new.execution = 'dispatched' and old.execution = 'reserved' and not exists (
            select from conversation c, account a, application p
            where c.conversation_id = new.conversation_id and a.account_id = new.account_id and p.application_id = new.application_id
                and c.deleted_at is null and a.state = 'active' and p.enabled)
            then 'was fenced though nobody may use it any more'
        when new.kind = 'resume' and new.execution = 'dispatched' and old.execution = 'reserved' and not exists (
            select from decision d join interrupt i on i.interrupt_id = d.interrupt_id join run w on w.run_id = i.run_id
            where d.run_id = new.run_id and w.execution = 'waiting' and w.answered_by = new.run_id
                and coalesce(i.expires_at > clock_timestamp() - interval '1 second', true))
            then 'was fenced for a question that is not its own to answer'
        when old.answered_by is not null and new.answered_by is not null and new.answered_by <> old.answered_by then 'was claimed again'
        when old.answered_by is not null and new.answered_by is null and not exists (
            select from run r where r.run_id = old.answered_by
                and (r.execution = 'released' or (r.execution = 'closed' and r.resolution_outcome = 'not_executed')))
            then 'lost its claim'
        when new.execution in ('released', 'unknown') and old.execution in ('reserved', 'dispatched', 'running')
            and old.lease_until > clock_timestamp() + interval '1 second'
            and exists (select from evidence e where e.run_id = new.run_id and e.kind = 'lease_lost')
            then 'was expired though its lease lives'
        end;
    if v_wrong is not null or old.execution <> new.execution or old.persistence <> new.persistence then
        insert into witness (run_id, old_execution, new_execution, old_persistence, new_persistence, wrong)
        values (new.run_id, old.execution, new.execution, old.persistence, new.persistence, v_wrong);
    end if;
    return new;
end $$;
create trigger witness after update on run for each row execute function witness();
"""

NO_CHANCE: Final[LiteralString] = """
create function random() returns double precision language sql immutable as 'select 0.5::double precision';
do $$ begin execute format('alter database %I set search_path = public, pg_catalog', current_database()); end $$;
"""
"""Jitter stands still in the sessions that begin after this: a schedule that failed fails again."""

Row = Mapping[str, Any]


@dataclass
class KnownRun:
    """A run that was admitted, as the test knows it. `decided`: of a decision, the run that waits and the answer. `saw_end`: the terminal
    event with which its task ended, in a process that lived."""

    name: str
    run_id: UUID
    who: str
    app: str
    submission_id: str
    text: str
    decided: tuple[UUID, str] | None = None
    saw_end: Word | None = None


@dataclass(frozen=True)
class Seen:
    """One look at everything."""

    runs: Mapping[UUID, Row]
    conversations: Mapping[UUID, Row]
    items: Mapping[UUID, Sequence[Row]]
    snapshots: Mapping[UUID, Row]
    charges: Mapping[UUID, Sequence[Row]]
    used: int
    rules: int
    submissions: Mapping[str, Row]
    evidence: Mapping[UUID, Sequence[tuple[str, Mapping[str, Any]]]]
    bindings: Mapping[UUID, Row]
    questions: Mapping[UUID, Row]
    decisions: Mapping[UUID, Row]
    changes: Sequence[Row]


@dataclass
class Eyes:
    """Reads the database past the program, over one connection."""

    connection: "psycopg.Connection[dict[str, Any]]"
    last_change: int = 0

    def rows(self, query: LiteralString, *params: object) -> list[dict[str, Any]]:
        return self.connection.execute(query, params).fetchall()

    def look(self) -> Seen:
        with self.connection.pipeline():
            cursors = [
                self.connection.execute(query)
                for query in (
                    "select *, lease_until > clock_timestamp() as lease_live, "
                    "extract(epoch from clock_timestamp() - fence_at) as fence_age, "
                    "extract(days from clock_timestamp() - unknown_at) as unknown_days from run",
                    "select c.*, b.code as blocked, b.blocking_run_id, a.human_input from conversation c "
                    "join application a on a.application_id = c.application_id "
                    "left join lateral conversation_block_v2(c.conversation_id) b on true",
                    "select * from item order by run_id, position",
                    "select * from snapshot",
                    "select * from quota_charge",
                    "select coalesce(sum(used), 0)::integer as used, (select count(*) from quota_rule) as rules from quota_usage",
                    "select * from submission",
                    "select run_id, kind, detail from evidence order by evidence_id",
                    "select * from binding",
                    "select *, extract(epoch from expires_at - clock_timestamp()) as seconds_left from interrupt",
                    "select * from decision",
                )
            ]
            cursors.append(self.connection.execute("select * from witness where number > %s order by number", [self.last_change]))
        runs, conversations, items, snaps, charges, usage, submissions, evidence, bindings, *asked, changes = (
            one.fetchall() for one in cursors
        )
        if changes:
            self.last_change = changes[-1]["number"]
        return Seen(
            runs={row["run_id"]: row for row in runs},
            conversations={row["conversation_id"]: row for row in conversations},
            items=_by_run(items),
            snapshots={row["run_id"]: row for row in snaps},
            charges=_by_run(charges),
            used=usage[0]["used"],
            rules=usage[0]["rules"],
            submissions={row["submission_id"]: row for row in submissions},
            evidence={run_id: [(row["kind"], row["detail"]) for row in rows] for run_id, rows in _by_run(evidence).items()},
            bindings={row["conversation_id"]: row for row in bindings},
            questions={row["run_id"]: row for row in asked[0]},
            decisions={row["run_id"]: row for row in asked[1]},
            changes=changes,
        )


def open_eyes(url: str) -> Eyes:
    return Eyes(psycopg.connect(url, autocommit=True, row_factory=dict_row))


def _by_run(rows: Iterable[Row]) -> dict[UUID, list[Row]]:
    grouped: defaultdict[UUID, list[Row]] = defaultdict(list)
    for row in rows:
        grouped[row["run_id"]].append(row)
    return grouped


def blocked_by(seen: Seen, conversation_id: UUID) -> str | None:
    """design.md "A conversation takes no new task", in Python: the reason, None for a conversation that is open."""
    conversation = seen.conversations[conversation_id]
    if conversation["blocked_reason"] is not None:
        return str(conversation["blocked_reason"])
    binding = seen.bindings.get(conversation_id)
    if binding is not None and binding["invalidated_at"] is not None:
        return "binding_invalidated"
    runs = [run for run in seen.runs.values() if run["conversation_id"] == conversation_id]
    if any(run["execution"] in SLOT_HOLDING for run in runs):
        return "run_active"
    if any(run["persistence"] == "pending" for run in runs):
        return "save_pending"
    if any(run["execution"] == "waiting" and run["answered_by"] is None for run in runs):
        return "waiting_for_decision"
    unanswered = [run for run in runs if run["execution"] == "succeeded" and run["persistence"] == "incomplete"]
    if any(run["acknowledged_at"] is None and run["resolved_at"] is None for run in unanswered):
        return "incomplete_answer"
    done = any(run["kind"] == "task" and not let_go(run) for run in runs)
    return "task_already_done" if conversation["human_input"] and done else None


@dataclass
class Faults:
    """Collects what is wrong, by the names that the story uses."""

    names: Mapping[UUID, str]
    found: list[str] = field(default_factory=list)

    def unless(self, holds: bool, run_id: UUID, what: str) -> None:
        if not holds:
            self.found.append(f"{self.names.get(run_id, run_id)}: {what}")


def faults_of(seen: Seen, known: Mapping[UUID, KnownRun], posts: Sequence[Post]) -> list[str]:
    """Every invariant that does not hold, in words; empty when all is well."""
    faults = Faults({run_id: run.name for run_id, run in known.items()})
    by_correlation = {post.correlation_id: post for post in posts}
    _changes(faults, seen)
    _limits(faults, seen)
    _once(faults, seen, known, posts)
    for run_id, run in seen.runs.items():
        post = by_correlation.get(str(run["correlation_id"]))
        _evidence(faults, seen, run_id, run, post)
        _charges(faults, seen, run_id, run)
        _text(faults, seen, run_id, run, post)
        _never_lost(faults, run_id, run, known.get(run_id))
    _decisions(faults, seen, known, posts)
    for conversation_id, conversation in seen.conversations.items():
        expected = blocked_by(seen, conversation_id)
        faults.unless(conversation["blocked"] == expected, conversation_id, f"blocked {conversation['blocked']}, not {expected}")
    return faults.found


def _changes(faults: Faults, seen: Seen) -> None:
    for change in seen.changes:
        run_id = change["run_id"]
        faults.unless(change["wrong"] is None, run_id, str(change["wrong"]))
        old, new = Execution(change["old_execution"]), Execution(change["new_execution"])
        faults.unless(old is new or new in ALLOWED[old], run_id, f"went from {old} to {new}")
        was, now = Persistence(change["old_persistence"]), Persistence(change["new_persistence"])
        faults.unless(was is now or now in ALLOWED_PERSISTENCE[was], run_id, f"went from {was} to {now}")


def _limits(faults: Faults, seen: Seen) -> None:
    active = [run for run in seen.runs.values() if run["execution"] in SLOT_HOLDING]
    for column, limit in (("account_id", LIMITS.per_user), ("application_id", LIMITS.per_application), ("conversation_id", 1)):
        for owner, number in Counter(run[column] for run in active).items():
            faults.unless(number <= limit, owner, f"{number} active runs of one {column}, allowed are {limit}")
    for run in seen.runs.values():
        holds = run["execution"] in SLOT_HOLDING
        slots = (run["user_slot"] is not None, run["application_slot"] is not None)
        faults.unless(slots == (holds, holds), run["run_id"], f"is {run['execution']} with slots {slots}")
        if holds:
            fits = run["user_slot"] <= LIMITS.per_user and run["application_slot"] <= LIMITS.per_application
            faults.unless(fits, run["run_id"], "has a slot beyond the limits")


def _once(faults: Faults, seen: Seen, known: Mapping[UUID, KnownRun], posts: Sequence[Post]) -> None:
    faults.unless(set(seen.runs) == set(known), UUID(int=0), f"{len(seen.runs)} runs, {len(known)} admissions were confirmed")
    by_submission = {row["run_id"]: name for name, row in seen.submissions.items()}
    faults.unless(set(by_submission) == set(seen.runs), UUID(int=0), "submissions and runs differ")
    for correlation_id, number in Counter(post.correlation_id for post in posts if post.doing in LEFT).items():
        faults.unless(number <= 1, UUID(correlation_id), f"{number} POSTs left for one run")
    orders: defaultdict[UUID, list[int]] = defaultdict(list)
    for run_id, run in seen.runs.items():
        orders[run["conversation_id"]].append(run["sequence"])
        mine = known.get(run_id)
        if mine is not None:
            first = [(item["role"], item["text"], item["sequence"]) for item in seen.items.get(run_id, ()) if item["position"] == 0]
            expected = [] if mine.decided is not None else [("user", mine.text, run["sequence"])]
            faults.unless(first == expected, run_id, f"its message is {first}")
            faults.unless(by_submission.get(run_id) == mine.submission_id, run_id, "has another submission")
    for conversation_id, order in orders.items():
        whole = sorted(order) == list(range(1, seen.conversations[conversation_id]["last_sequence"] + 1))
        faults.unless(whole, conversation_id, f"its runs are numbered {sorted(order)}")


def _evidence(faults: Faults, seen: Seen, run_id: UUID, run: Row, post: Post | None) -> None:
    doing = Doing.NEVER if post is None else post.doing
    if post is not None and doing in LEFT:
        binding = seen.bindings.get(run["conversation_id"])
        bound = None if binding is None else binding["thread_id"]
        faults.unless(bound == post.thread_id, run_id, f"its POST went to {post.thread_id}, its conversation is bound to {bound}")
    kinds = seen.evidence.get(run_id, ())
    counted = Counter(kind for kind, _ in kinds)
    for kind in ("fence", "saved", "acknowledged", "resolved", "released"):
        faults.unless(counted[kind] <= 1, run_id, f"{counted[kind]} rows of evidence {kind}")
    match run["execution"]:
        case "succeeded":
            told = counted["run_finished"] > 0 or any(kind == "looked_up" and detail == {"status": "success"} for kind, detail in kinds)
            told |= any("completed" in (detail.get("outcome"), detail.get("status")) for _, detail in kinds)
            faults.unless(told and doing is Doing.DONE, run_id, f"succeeded, but its POST is {doing}, and evidence {told}")
        case "waiting":
            faults.unless(doing is Doing.ASKED, run_id, f"waiting, but its POST is {doing}")
        case "failed":
            faults.unless(doing in (Doing.ERRED, Doing.REFUSED), run_id, f"failed, but its POST is {doing}")
        case "released":
            faults.unless(doing not in LEFT, run_id, f"released, but its POST is {doing}")
        case "closed" if run["resolution_outcome"] == "not_executed":
            faults.unless(doing not in EXECUTED, run_id, f"closed as not executed, but its POST is {doing}")
        case "reserved":
            faults.unless(doing not in LEFT, run_id, f"reserved, but its POST is {doing}")
    if run["execution"] == "unknown":
        cared_for = run["attention"] == "operator" or run["next_lookup_at"] is not None or run["lease_live"]
        faults.unless(cared_for, run_id, "unknown, and nobody will look at it")
        left = run["native_run_id"] is not None and run["lookups"] < LOOKUP_BUDGET + run["lookups_granted"]
        left &= run["reason"] != "decision_not_applied"
        faults.unless(not left or run["next_lookup_at"] is not None, run_id, "unknown with a native id, and never looked up")


def _decisions(faults: Faults, seen: Seen, known: Mapping[UUID, KnownRun], posts: Sequence[Post]) -> None:
    """One question has one claim and at most one effect, which is what its owner decided (contract E7)."""
    by_mark = {UUID(post.correlation_id): post for post in posts if isinstance(post, NativePost)}
    post_of = {run_id: by_mark.get(run["correlation_id"]) for run_id, run in seen.runs.items()}
    asked_by = {question["interrupt_id"]: run_id for run_id, question in seen.questions.items()}
    decided: defaultdict[UUID, list[UUID]] = defaultdict(list)
    for run_id, decision in seen.decisions.items():
        waiting = asked_by[decision["interrupt_id"]]
        decided[waiting].append(run_id)
        mine, post, question = known.get(run_id), post_of[run_id], seen.questions[waiting]
        faults.unless(mine is not None and mine.decided == (waiting, decision["action"]), run_id, f"decides {decision['action']}")
        if post is not None:
            faults.unless(post.answers == (question["native_id"], decision["action"]), run_id, f"its POST answers {post.answers}")
            is_it = post.applied is not None and post.applied.prompt.title == question["title"]
            faults.unless(is_it or seen.runs[run_id]["execution"] != "succeeded", run_id, "succeeded, and its decision took no effect")
            faults.unless(is_it or post.applied is None, run_id, f"answered {post.applied}, its owner saw {question['title']}")
    for run_id, run in seen.runs.items():
        told, post = seen.questions.get(run_id), post_of[run_id]
        faults.unless(run["execution"] != "waiting" or told is not None, run_id, "waits, and asks nothing")
        if told is not None:
            asks = None if post is None or post.asked is None else (post.asked.native_id, post.asked.prompt.title)
            faults.unless(asks == (told["native_id"], told["title"]), run_id, f"asks {told['title']}, its agent {asks}")
        claims = [resume for resume in decided[run_id] if not let_go(seen.runs[resume])]
        faults.unless(
            claims == [one for one in [run["answered_by"]] if one], run_id, f"answered by {run['answered_by']}, claimed by {claims}"
        )
        effects = [resume for resume in decided[run_id] if (its := post_of[resume]) is not None and its.applied is not None]
        faults.unless(not effects or effects == claims, run_id, f"the decisions of {effects} took effect")


def let_go(run: Row) -> bool:
    """Whether the run is known to have done nothing."""
    return bool(run["execution"] == "released" or (run["execution"] == "closed" and run["resolution_outcome"] == "not_executed"))


def _charges(faults: Faults, seen: Seen, run_id: UUID, run: Row) -> None:
    charges = seen.charges.get(run_id, ())
    faults.unless(len(charges) == (seen.rules if run["kind"] == "task" else 0), run_id, f"{len(charges)} charges")
    back = let_go(run)
    faults.unless(
        all((charge["refunded_at"] is not None) == back for charge in charges), run_id, f"{run['execution']}, refunded: {not back}"
    )
    unreturned = sum(1 for rows in seen.charges.values() for charge in rows if charge["refunded_at"] is None)
    faults.unless(seen.used == unreturned, run_id, f"{seen.used} tasks used, {unreturned} charges not returned")


def _text(faults: Faults, seen: Seen, run_id: UUID, run: Row, post: Post | None) -> None:
    items = [item for item in seen.items.get(run_id, ()) if item["position"] > 0]
    kept = seen.snapshots.get(run_id)
    persistence = run["persistence"]
    if persistence != "saved":
        faults.unless(not items, run_id, f"{persistence}, and has items")
    if kept is None:
        faults.unless(persistence in ("none", "incomplete"), run_id, f"{persistence} without a snapshot")
        return
    faults.unless(hashlib.sha256(kept["body"]).digest() == kept["sha256"], run_id, "its hash differs")
    snapshot = snapshots.parse(kept["body"])
    said = [] if post is None else post.texts
    shown = [item.text for item in snapshot.items if isinstance(item, MessageItem)]
    faults.unless(shown == said[: len(shown)], run_id, f"stored {shown}, said {said}")
    if persistence in ("saved", "pending"):
        finished = post is not None and not post.told.isdisjoint({Word.FINISHED, Word.ASKS})
        faults.unless(shown == said, run_id, f"{persistence} {shown}, said {said}")
        faults.unless(snapshot.complete == finished and kept["complete"] == finished, run_id, f"{persistence}, complete: {not finished}")
    if persistence == "saved":
        written = [(item["position"], item["text"], item["complete"], item["sequence"]) for item in items]
        bytes_say = [(item.position, item.text, item.complete, run["sequence"]) for item in snapshot.items if isinstance(item, MessageItem)]
        faults.unless(written == bytes_say, run_id, f"items {written}, snapshot {bytes_say}")


def _never_lost(faults: Faults, run_id: UUID, run: Row, known: KnownRun | None) -> None:
    """A terminal event that a living process saw through to its end ends the run, and its text is kept."""
    if known is None or known.saw_end is None:
        return
    faults.unless(run["execution"] not in SLOT_HOLDING, run_id, f"its holder saw {known.saw_end}, and it is {run['execution']}")
    kept = run["persistence"] in ("saved", "pending") or run["resolution_outcome"] is not None
    faults.unless(kept, run_id, f"its holder saw {known.saw_end}, and it is {run['persistence']}")
