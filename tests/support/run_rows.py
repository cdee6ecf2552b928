"""Run rows written straight into the database, in any state that the schema allows: what a replica may find when it starts.

Each has an account, a conversation, a submission, its user message, its charges and the evidence that belongs to the state.
"""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID, uuid4

import psycopg

from gateway.bindings.fingerprint import Profile, binding_fingerprint, endpoint_fingerprint
from gateway.domain.ids import ApplicationId, RunId
from gateway.domain.snapshot import USER_POSITION, MessageItem, Snapshot, item_id
from gateway.domain.states import OVER, SLOT_HOLDING, Execution, Persistence, RunKind

EXPIRED: Final = -1.0
ANSWER: Final = Snapshot((MessageItem(1, "the whole answer", complete=True),), complete=True)
SEEN: Final = Snapshot((MessageItem(1, "what was seen", complete=False),), complete=False)

_KEPT: Final = {Persistence.PARTIAL: SEEN, Persistence.PENDING: ANSWER, Persistence.SAVED: ANSWER}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One run as its row says it is. `lease_seconds` from now; negative: over; None: no lease."""

    execution: Execution
    persistence: Persistence = Persistence.NONE
    lease_seconds: float | None = None
    native_run_id: str | None = None
    attention: str | None = None
    resolution: str | None = None
    subject: str = field(default_factory=lambda: f"row-{uuid4()}")
    submission_id: str = "s1"
    text: str = field(default_factory=lambda: f"asked before, {uuid4()}")
    run_id: RunId = field(default_factory=lambda: RunId(uuid4()))
    correlation_id: UUID = field(default_factory=uuid4)
    conversation_id: UUID = field(default_factory=uuid4)

    @property
    def fenced(self) -> bool:
        return self.execution not in (Execution.RESERVED, Execution.RELEASED)


async def insert_runs(database_url: str, application_id: ApplicationId, base_url: str, *rows: RunRow) -> None:
    """Write the rows in one transaction. `base_url` is the application's, so that bindings are valid."""
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        for row in rows:
            await _insert(connection, application_id, base_url, row)


async def _insert(
    connection: psycopg.AsyncConnection[tuple[object, ...]], application_id: ApplicationId, base_url: str, row: RunRow
) -> None:
    account_id = uuid4()
    document = json.dumps([RunKind.TASK.value, row.text], ensure_ascii=True, separators=(",", ":"))
    slot = row.execution in SLOT_HOLDING
    values = {
        "account_id": account_id,
        "subject": row.subject,
        "application_id": application_id,
        "conversation_id": row.conversation_id,
        "submission_id": row.submission_id,
        "fingerprint": hashlib.sha256(document.encode("ascii")).digest(),
        "run_id": row.run_id,
        "correlation_id": row.correlation_id,
        "attempt_token": uuid4(),
        "execution": row.execution.value,
        "persistence": row.persistence.value,
        "attention": row.attention,
        "lease": row.lease_seconds,
        "slot": slot,
        "fenced": row.fenced,
        "started": row.native_run_id is not None,
        "native_run_id": row.native_run_id,
        "unknown": row.execution is Execution.UNKNOWN,
        "pending": row.persistence is Persistence.PENDING,
        "over": row.execution in OVER,
        "released": row.execution is Execution.RELEASED or row.resolution == "not_executed",
        "resolution": row.resolution,
        "item_id": item_id(row.run_id, USER_POSITION),
        "text": row.text,
        "thread_id": f"thread-{row.run_id}",
        "endpoint_fingerprint": endpoint_fingerprint(base_url),
        "binding_fingerprint": binding_fingerprint(base_url, "agent", Profile.BRIDGE),
    }
    for statement in _INSERTS:
        await connection.execute(statement, values)
    if row.fenced:
        await connection.execute(_BINDING, values)
        await connection.execute("insert into evidence (run_id, kind) values (%s, 'fence')", (row.run_id,))
    if row.execution is Execution.SUCCEEDED:
        detail = json.dumps({"outcome": "success"})
        await connection.execute("insert into evidence (run_id, kind, detail) values (%s, 'run_finished', %s)", (row.run_id, detail))
    kept = _KEPT.get(row.persistence)
    if kept is None:
        return
    body = kept.canonical()
    await connection.execute(
        "insert into snapshot (run_id, revision, complete, body, sha256) values (%s, 1, %s, %s, %s)",
        (row.run_id, kept.complete, body, hashlib.sha256(body).digest()),
    )
    if row.persistence is Persistence.SAVED:
        for item in kept.items:
            assert isinstance(item, MessageItem)
            await connection.execute(
                "insert into item (run_id, position, conversation_id, sequence, item_id, type, role, text, complete)"
                " values (%s, %s, %s, 1, %s, 'message', 'assistant', %s, %s)",
                (row.run_id, item.position, row.conversation_id, item_id(row.run_id, item.position), item.text, item.complete),
            )


_INSERTS: Final = (
    "insert into account (account_id, subject) values (%(account_id)s, %(subject)s)",
    "insert into conversation (conversation_id, application_id, account_id, title, last_sequence)"
    " values (%(conversation_id)s, %(application_id)s, %(account_id)s, 'a row', 1)",
    "insert into submission (account_id, application_id, submission_id, fingerprint, run_id, conversation_id, created_conversation)"
    " values (%(account_id)s, %(application_id)s, %(submission_id)s, %(fingerprint)s, %(run_id)s, %(conversation_id)s, true)",
    "insert into run (run_id, account_id, application_id, conversation_id, submission_id, sequence, execution, persistence, attention,"
    " attempt_token, correlation_id, lease_until, config_version, token_version, user_slot, application_slot, fence_at, started_at,"
    " native_run_id, next_lookup_at, unknown_at, next_save_at, resolution_outcome, resolution_reason, resolved_at, finished_at)"
    " select %(run_id)s, %(account_id)s, %(application_id)s, %(conversation_id)s, %(submission_id)s, 1, %(execution)s, %(persistence)s,"
    " %(attention)s, %(attempt_token)s, %(correlation_id)s, now() + make_interval(secs => %(lease)s::float8), a.config_version,"
    " a.token_version, case when %(slot)s then 1 end, case when %(slot)s then"
    " (select coalesce(max(r.application_slot), 0) + 1 from run r where r.application_id = %(application_id)s) end,"
    " case when %(fenced)s then now() end, case when %(started)s then now() end, %(native_run_id)s,"
    " case when %(unknown)s and %(started)s then now() end, case when %(unknown)s then now() end, case when %(pending)s then now() end,"
    " %(resolution)s, case when %(resolution)s::text is not null then 'because' end,"
    " case when %(resolution)s::text is not null then now() end, case when %(over)s then now() end"
    " from application a where a.application_id = %(application_id)s",
    "insert into item (run_id, position, conversation_id, sequence, item_id, type, role, text, complete)"
    " values (%(run_id)s, 0, %(conversation_id)s, 1, %(item_id)s, 'message', 'user', %(text)s, true)",
    "select note_verdicts_v1(%(account_id)s, %(application_id)s, %(submission_id)s, %(run_id)s, 'message',"
    " sha256(convert_to(%(text)s, 'UTF8')), null, '{none}', '{null}', '{0}', 'allowed', '{}', null)",
    "insert into quota_usage as u (quota_rule_id, bucket, window_start, used)"
    " select q.quota_rule_id, %(account_id)s::text, quota_window_start_v1(q.calendar_window, now(), 'UTC'),"
    " case when %(released)s then 0 else 1 end from quota_rule q where q.scope = 'user' and q.removed_at is null",
    "insert into quota_charge (run_id, quota_rule_id, bucket, window_start, refunded_at)"
    " select %(run_id)s, q.quota_rule_id, %(account_id)s::text, quota_window_start_v1(q.calendar_window, now(), 'UTC'),"
    " case when %(released)s then now() end from quota_rule q where q.scope = 'user' and q.removed_at is null",
)
_BINDING: Final = (
    "insert into binding (conversation_id, thread_id, endpoint_fingerprint, fingerprint)"
    " values (%(conversation_id)s, %(thread_id)s, %(endpoint_fingerprint)s, %(binding_fingerprint)s)"
)
