-- Runs as operators see them, in deleted conversations too: their slots are held as well. No native id, and no text but by `text`.

-- name: runs
-- A page of runs of one filter, by since when they need somebody; or one run by its id. Of all runs, who asks for the newest only reads them
-- by the index of their time.
with page as (
    select r.run_id, coalesce(r.finished_at, r.unknown_at, r.created_at) as since_at
    from run r
    where (%(run_id)s::uuid is null or r.run_id = %(run_id)s::uuid)
        and (%(application_id)s::uuid is null or r.application_id = %(application_id)s::uuid)
        and (%(filter)s::text = 'all'
            or (%(filter)s::text = 'unresolved'
                and run_is_unresolved_v1(r.execution, r.persistence, r.acknowledged_at, r.resolved_at))
            or (%(filter)s::text = 'attention' and r.attention = 'operator')
            or (%(filter)s::text = 'active' and r.user_slot is not null)
            or (%(filter)s::text = 'waiting' and r.execution = 'waiting' and r.answered_by is null))
        and (%(created_within_seconds)s::double precision is null
            or r.created_at > now() - make_interval(secs => %(created_within_seconds)s::double precision))
        and (%(older_than_seconds)s::double precision is null
            or coalesce(r.finished_at, r.unknown_at, r.created_at)
                < now() - make_interval(secs => %(older_than_seconds)s::double precision))
        and (%(after_at)s::timestamptz is null
            or (%(oldest_first)s::boolean
                and (coalesce(r.finished_at, r.unknown_at, r.created_at), r.run_id) > (%(after_at)s::timestamptz, %(after_id)s::uuid))
            or (not %(oldest_first)s::boolean
                and (coalesce(r.finished_at, r.unknown_at, r.created_at), r.run_id) < (%(after_at)s::timestamptz, %(after_id)s::uuid)))
    order by
        case when %(oldest_first)s::boolean then coalesce(r.finished_at, r.unknown_at, r.created_at) end,
        case when %(oldest_first)s::boolean then r.run_id end,
        since_at desc, r.run_id desc
    limit %(limit)s::integer
)
select
    r.run_id, r.conversation_id, r.submission_id, r.kind, r.execution, r.persistence, r.reason,
    r.resolution_outcome, r.resolution_reason, r.answered_by, r.native_status, r.attention,
    extract(epoch from r.next_lookup_at - clock_timestamp())::double precision as lookup_in_seconds,
    r.created_at, r.updated_at, r.finished_at, 0::bigint as snapshot_revision, null::bytea as snapshot_body,
    i.interrupt_id, i.title as prompt_title, i.description as prompt_description, i.comment_max_chars,
    i.expires_at at time zone 'UTC' as expires_at,
    p.since_at, r.application_id, a.name as application_name, u.subject,
    run_is_unresolved_v1(r.execution, r.persistence, r.acknowledged_at, r.resolved_at) as unresolved,
    c.deleted_at is not null as conversation_deleted,
    case when b.blocking_run_id = r.run_id then b.code end as blocks_conversation,
    r.fence_at, r.started_at, r.native_run_id is not null as native_run_id_known,
    can_be_looked_up_v1(r.native_run_id, r.application_id) as can_be_looked_up, r.unknown_at, r.lookups, r.next_lookup_at,
    coalesce(r.lease_until > clock_timestamp(), false) as lease_live,
    r.acknowledged_at, r.resolved_at, r.resolved_by,
    s.complete as stored_complete, s.sha256 as stored_sha256, octet_length(s.body) as stored_bytes,
    r.fence_at + make_interval(secs => %(gate_seconds)s::double precision) as gate_over_at,
    coalesce(clock_timestamp() >= r.fence_at + make_interval(secs => %(gate_seconds)s::double precision), false) as gate_over
from page p
join run r on r.run_id = p.run_id
join application a on a.application_id = r.application_id
join account u on u.account_id = r.account_id
join conversation c on c.conversation_id = r.conversation_id
left join snapshot s on s.run_id = r.run_id
left join interrupt i on i.run_id = r.run_id and r.execution = 'waiting'
cross join lateral conversation_block_v2(r.conversation_id) b
order by
    case when %(oldest_first)s::boolean then p.since_at end, case when %(oldest_first)s::boolean then r.run_id end,
    p.since_at desc, r.run_id desc

-- name: evidence
-- What is recorded about a run, oldest first; of more than the limit the newest. The verdicts that admitted its text come before all else.
select f.at, f.kind, f.detail
from (
    select 0 as part, v.verdict_id as id, v.at, 'moderated' as kind, jsonb_strip_nulls(jsonb_build_object(
        'provider', v.provider, 'version', v.version, 'outcome', v.outcome, 'duration_seconds', v.duration_seconds,
        'text_kind', v.text_kind, 'text_sha256', encode(v.text_sha256, 'hex'))) as detail
    from moderation_verdict v
    where v.run_id = %(run_id)s::uuid
    union all
    (select 1, e.evidence_id, e.at, e.kind, e.detail from evidence e
    where e.run_id = %(run_id)s::uuid
    order by e.evidence_id desc
    limit %(limit)s::integer)
) f
order by f.part, f.id

-- name: text
-- What the user wrote and what is stored of the answer; not of a conversation that its owner deleted.
select i.text as message, s.body as snapshot_body
from run r
join conversation c on c.conversation_id = r.conversation_id and c.deleted_at is null
left join item i on i.run_id = r.run_id and i.position = 0
left join snapshot s on s.run_id = r.run_id
where r.run_id = %(run_id)s::uuid

-- name: lock
-- The run, held to the end of the transaction, with all that a resolution rests on.
select
    r.execution, r.persistence, r.started_at is not null or r.native_run_id is not null as seen_executing,
    r.resolution_outcome, r.resolution_reason,
    r.fence_at + make_interval(secs => %(gate_seconds)s::double precision) as gate_over_at,
    extract(epoch from r.fence_at + make_interval(secs => %(gate_seconds)s::double precision) - clock_timestamp())::double precision
        as gate_over_in_seconds
from run r
where r.run_id = %(run_id)s::uuid
for update

-- name: resolve
-- An operator's resolution, once: unknown or waiting -> closed; over and pending or incomplete -> incomplete. not_executed returns the
-- charge, and by the trigger run_free_question lets go of the question that a resume run would have answered. The guards are those of
-- domain/resolution.py.
with moved as (
    update run r set
        execution = %(execution)s::text, persistence = %(persistence)s::text, attention = null,
        user_slot = null, application_slot = null, lease_until = null, next_lookup_at = null, lookup_claim = null, next_save_at = null,
        resolution_outcome = %(outcome)s::text, resolution_reason = %(reason)s::text, resolved_by = %(actor)s::text,
        resolved_at = clock_timestamp(), finished_at = coalesce(r.finished_at, clock_timestamp()), updated_at = clock_timestamp()
    where r.run_id = %(run_id)s::uuid and r.resolution_outcome is null
        and r.execution = %(execution_before)s::text and r.persistence = %(persistence_before)s::text
        and ((%(execution)s::text = 'closed' and r.execution = any (%(closable)s::text[]))
            or (%(execution)s::text = r.execution and r.execution = %(outcome)s::text and r.persistence = any (%(unsaved)s::text[])))
        and (%(outcome)s::text <> 'not_executed'
            or (r.execution <> 'waiting' and r.started_at is null and r.native_run_id is null))
        and (r.fence_at + make_interval(secs => %(gate_seconds)s::double precision) <= clock_timestamp()
            or (%(outcome)s::text <> 'not_executed' and (r.started_at is not null or r.native_run_id is not null)))
    returning r.run_id, r.conversation_id
), noted as (
    insert into evidence (run_id, kind, detail)
    select m.run_id, 'resolved', jsonb_build_object(
        'outcome', %(outcome)s::text, 'was_execution', %(execution_before)s::text, 'was_persistence', %(persistence_before)s::text)
    from moved m
)
select m.run_id, case when %(outcome)s::text = 'not_executed' then refund_v1(array[m.run_id])::text end as refunded
from moved m

-- name: give_up
-- A resolved run got complete text afterwards, which cannot be saved: pending -> incomplete, by the same resolution again. The bytes stay.
with moved as (
    update run r set persistence = 'incomplete', attention = null, next_save_at = null, updated_at = clock_timestamp()
    where r.run_id = %(run_id)s::uuid and r.persistence = 'pending'
        and r.resolution_outcome = %(outcome)s::text and r.resolution_reason = %(reason)s::text
    returning r.run_id, r.execution
), noted as (
    insert into evidence (run_id, kind, detail)
    select m.run_id, 'resolved',
        jsonb_build_object('outcome', %(outcome)s::text, 'was_execution', m.execution, 'was_persistence', 'pending')
    from moved m
)
select m.run_id, null::text as refunded from moved m
