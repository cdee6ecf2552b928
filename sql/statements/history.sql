-- name: conversations
-- One page of a user's conversations in an application, newest activity first, each with what blocks it and the run in the way; or that one.
-- One statement, so one moment: whatever else happens, `blocked` and the run say the same (a run that is over blocks nothing).
-- Conversations that hold nothing but released runs are not listed: their only messages were never sent.
with page as (
    select c.conversation_id, c.title, c.created_at, c.updated_at
    from conversation c
    where c.account_id = %(account_id)s::uuid and c.application_id = %(application_id)s::uuid and c.deleted_at is null
        and (%(conversation_id)s::uuid is null or c.conversation_id = %(conversation_id)s::uuid)
        and (%(after_at)s::timestamptz is null
            or (c.updated_at, c.conversation_id) < (%(after_at)s::timestamptz, %(after_id)s::uuid))
        and exists (
            select from run r
            where r.conversation_id = c.conversation_id and (r.execution <> 'released' or %(conversation_id)s::uuid is not null))
    order by c.updated_at desc, c.conversation_id desc
    limit %(limit)s::integer
)
select
    p.conversation_id, p.title, p.created_at as conversation_created_at, p.updated_at as conversation_updated_at, b.code as blocked,
    r.run_id, r.submission_id, r.kind, r.execution, r.persistence, r.reason,
    r.resolution_outcome, r.resolution_reason, r.answered_by, r.native_status, r.attention,
    extract(epoch from r.next_lookup_at - clock_timestamp())::double precision as lookup_in_seconds,
    r.created_at, r.updated_at, r.finished_at, 0::bigint as snapshot_revision, null::bytea as snapshot_body,
    i.interrupt_id, i.title as prompt_title, i.description as prompt_description, i.comment_max_chars,
    i.expires_at at time zone 'UTC' as expires_at
from page p
left join lateral conversation_block_v2(p.conversation_id) b on true
left join run r on r.run_id = b.blocking_run_id
left join interrupt i on i.run_id = r.run_id and r.execution = 'waiting'
order by p.updated_at desc, p.conversation_id desc

-- name: items
-- One page of a conversation, from a place on (step 1) or from there back (step -1), the nearest first: saved items, and what is known of
-- answers that are not saved, from their snapshots. Order is run.sequence and position only; no time is looked at (field case O-42).
with owned as (
    select c.conversation_id
    from conversation c
    where c.conversation_id = %(conversation_id)s::uuid
        and c.account_id = %(account_id)s::uuid and c.application_id = %(application_id)s::uuid and c.deleted_at is null
), saved as (
    -- two branches, because an index is read in an order that is written down; the other one costs nothing
    (select i.*
    from item i
    where %(step)s::integer > 0 and i.conversation_id = (select o.conversation_id from owned o)
        and (i.sequence, i.position) > (%(sequence)s::bigint, %(position)s::integer)
    order by i.sequence, i.position
    limit %(limit)s::integer)
    union all
    (select i.*
    from item i
    where %(step)s::integer < 0 and i.conversation_id = (select o.conversation_id from owned o)
        and (i.sequence, i.position) < (%(sequence)s::bigint, %(position)s::integer)
    order by i.sequence desc, i.position desc
    limit %(limit)s::integer)
), seen as (
    select r.run_id, r.sequence, e.position, e.type, case when e.type = 'message' then 'assistant' end as role,
        e.text, e.complete, e.name, e.status, e.parent as parent_position
    from run r
    join snapshot s on s.run_id = r.run_id
    cross join lateral jsonb_to_recordset(convert_from(s.body, 'UTF8')::jsonb -> 'items')
        as e (position integer, type text, text text, complete boolean, name text, status text, parent integer)
    where r.conversation_id = (select o.conversation_id from owned o)
        and r.persistence in ('partial', 'pending', 'incomplete')
        and (r.sequence * %(step)s::integer, e.position * %(step)s::integer)
            > (%(sequence)s::bigint * %(step)s::integer, %(position)s::integer * %(step)s::integer)
        -- one look into the index for each: how many items a snapshot has, no statistics know
        and (select i.run_id from item i where i.run_id = r.run_id and i.position = e.position) is null
), known as (
    select v.run_id, v.sequence, v.position, v.type, v.role, v.text, v.complete, v.name, v.status, v.parent_position from saved v
    union all
    select * from seen
), page as (
    select * from known k
    order by k.sequence * %(step)s::integer, k.position * %(step)s::integer
    limit %(limit)s::integer
)
select p.run_id, p.sequence, p.position, p.type, p.role, p.text, p.complete, p.name, p.status, p.parent_position,
    r.execution, r.reason, r.resolution_outcome
from page p
join run r on r.run_id = p.run_id
order by p.sequence * %(step)s::integer, p.position * %(step)s::integer

-- name: rename
-- A new title. Not activity: the conversation keeps its place in the list.
update conversation c set title = %(title)s::text
where c.conversation_id = %(conversation_id)s::uuid
    and c.account_id = %(account_id)s::uuid and c.application_id = %(application_id)s::uuid and c.deleted_at is null
returning c.conversation_id

-- name: remove
-- Soft delete, once. A run that is active goes on.
update conversation c set deleted_at = clock_timestamp()
where c.conversation_id = %(conversation_id)s::uuid
    and c.account_id = %(account_id)s::uuid and c.application_id = %(application_id)s::uuid and c.deleted_at is null
returning c.conversation_id, c.deleted_at

-- name: active_run
-- The run that goes on in a conversation. Read after the conversation's lock was taken, so that it sees who was admitted before.
select r.run_id from run r
where r.conversation_id = %(conversation_id)s::uuid and r.execution in ('reserved', 'dispatched', 'running', 'unknown')

-- name: run_exists
-- Whether this run may still be watched: its owner's, in a conversation that is not deleted.
select r.run_id
from run r
join conversation c on c.conversation_id = r.conversation_id and c.deleted_at is null
where r.run_id = %(run_id)s::uuid and r.account_id = %(account_id)s::uuid and r.application_id = %(application_id)s::uuid
