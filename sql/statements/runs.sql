-- name: view
-- One run as its owner sees it, with its snapshot when that is newer than what the reader knows, and its question while it waits.
select
    r.run_id, r.conversation_id, r.submission_id, r.kind, r.execution, r.persistence, r.reason,
    r.resolution_outcome, r.resolution_reason, r.answered_by, r.native_status, r.attention,
    extract(epoch from r.next_lookup_at - clock_timestamp())::double precision as lookup_in_seconds,
    r.created_at, r.updated_at, r.finished_at, coalesce(s.revision, 0) as snapshot_revision,
    case when s.revision > %(known_revision)s::bigint then s.body end as snapshot_body,
    i.interrupt_id, i.title as prompt_title, i.description as prompt_description, i.comment_max_chars,
    i.expires_at at time zone 'UTC' as expires_at
from run r
join conversation c on c.conversation_id = r.conversation_id and c.deleted_at is null
left join snapshot s on s.run_id = r.run_id
left join interrupt i on i.run_id = r.run_id and r.execution = 'waiting'
where r.run_id = %(run_id)s::uuid and r.account_id = %(account_id)s::uuid and r.application_id = %(application_id)s::uuid

-- name: fence
-- reserved -> dispatched with all re-checks, and the binding; any verdict but dispatched changed nothing.
select verdict, fenced_at
from fence_v2(
    %(run_id)s::uuid, %(attempt_token)s::uuid, %(thread_id)s::text, %(endpoint_fingerprint)s::bytea, %(fingerprint)s::bytea,
    %(lease_seconds)s::double precision)

-- name: reread
-- The run as it is after an answer was lost or no row changed; waits for whoever holds the row.
select r.execution, r.persistence, r.updated_at, r.attempt_token = %(attempt_token)s::uuid as ours
from run r
where r.run_id = %(run_id)s::uuid
for update

-- name: start
-- dispatched -> running at RUN_STARTED, and the native run id as soon as it is known. Repeating it changes nothing.
select updated_at
from start_v1(
    %(run_id)s::uuid, %(attempt_token)s::uuid, %(native_run_id)s::text, %(lookup_first_seconds)s::double precision, %(sources)s::text[])

-- name: release
-- Proven never sent: the slots are free and the charge comes back, once.
with moved as (
    update run r set
        execution = 'released', reason = %(reason)s::text, user_slot = null, application_slot = null, lease_until = null,
        attention = null, persistence = 'none', updated_at = clock_timestamp(), finished_at = clock_timestamp()
    where r.run_id = %(run_id)s::uuid and r.attempt_token = %(attempt_token)s::uuid
        and r.execution = any (%(sources)s::text[]) and r.persistence = 'none'
    returning r.run_id, r.updated_at
), noted as (
    insert into evidence (run_id, kind, detail)
    select m.run_id, 'released', jsonb_build_object('proof', %(proof)s::text, 'reason', %(reason)s::text) from moved m
)
select m.updated_at, refund_v1(array[m.run_id])::text as refunded from moved m

-- name: settle
-- One transaction for the end of a run: execution, evidence, snapshot, items. Guarded by the states, never by the lease; text of the
select execution, persistence, updated_at, finished_at, asked, written
from settle_v1(
    %(run_id)s::uuid, %(attempt_token)s::uuid, %(conversation_id)s::uuid, %(sources)s::text[], %(execution)s::text, %(reason)s::text,
    %(attention)s::text, %(blocks)s::text, %(persistence_sources)s::text[], %(persistence)s::text, %(holds_slot)s::boolean,
    %(over)s::boolean, %(late_text)s::boolean, %(over_states)s::text[], %(started)s::boolean, %(native_run_id)s::text,
    %(lookup_first_seconds)s::double precision, %(complete)s::boolean, %(body)s::bytea, %(sha256)s::bytea, %(positions)s::integer[],
    %(item_ids)s::uuid[], %(types)s::text[], %(texts)s::text[], %(completes)s::boolean[], %(names)s::text[], %(statuses)s::text[],
    %(parents)s::integer[], %(evidence_kind)s::text, %(evidence_detail)s::jsonb, %(interrupt_id)s::uuid, %(native_interrupt_id)s::text,
    %(prompt_title)s::text, %(prompt_description)s::text, %(comment_max_chars)s::integer, %(expires_at)s::timestamptz, %(digest)s::bytea)

-- name: checkpoint
-- What was seen so far of a live stream; only the token holder writes it, and only forward.
with moved as (
    update run r set persistence = 'partial', updated_at = clock_timestamp()
    where r.run_id = %(run_id)s::uuid and r.attempt_token = %(attempt_token)s::uuid
        and r.execution = any (%(live)s::text[]) and r.persistence = any (%(persistence_sources)s::text[])
    returning r.run_id
)
insert into snapshot as s (run_id, revision, complete, body, sha256)
select m.run_id, %(revision)s::bigint, false, %(body)s::bytea, %(sha256)s::bytea from moved m
on conflict (run_id) do update set
    revision = excluded.revision, body = excluded.body, sha256 = excluded.sha256, updated_at = now()
where not s.complete and s.revision < excluded.revision

-- name: acknowledge
-- The owner accepts an incomplete answer of a run that succeeded; doing so again changes nothing.
with found as (
    select r.run_id, r.acknowledged_at is null as first_time
    from run r
    where r.run_id = %(run_id)s::uuid and r.account_id = %(account_id)s::uuid and r.application_id = %(application_id)s::uuid
        and r.execution = 'succeeded' and r.persistence = 'incomplete'
    for no key update
), moved as (
    update run r set acknowledged_at = clock_timestamp(), attention = null, updated_at = clock_timestamp()
    from found f
    where r.run_id = f.run_id and f.first_time
), noted as (
    insert into evidence (run_id, kind) select f.run_id, 'acknowledged' from found f where f.first_time
)
select f.first_time from found f
