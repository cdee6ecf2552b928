-- name: conversations
-- One page of a user's conversations in an application, newest activity first, each with what blocks it.
-- Conversations that hold nothing but released runs are not listed: their only messages were never sent.
with page as (
    select c.conversation_id, c.title, c.created_at, c.updated_at
    from conversation c
    where c.account_id = %(account_id)s::uuid and c.application_id = %(application_id)s::uuid and c.deleted_at is null
        and (%(after_at)s::timestamptz is null
            or (c.updated_at, c.conversation_id) < (%(after_at)s::timestamptz, %(after_id)s::uuid))
        and exists (select from run r where r.conversation_id = c.conversation_id and r.execution <> 'released')
    order by c.updated_at desc, c.conversation_id desc
    limit %(limit)s::integer
)
select p.conversation_id, p.title, p.created_at, p.updated_at, b.code as blocked, b.blocking_run_id
from page p
left join lateral conversation_block_v2(p.conversation_id) b on true
order by p.updated_at desc, p.conversation_id desc

-- name: conversation
-- One conversation of this user and application, with what blocks it.
select c.conversation_id, c.title, c.created_at, c.updated_at, b.code as blocked, b.blocking_run_id
from conversation c
left join lateral conversation_block_v2(c.conversation_id) b on true
where c.conversation_id = %(conversation_id)s::uuid
    and c.account_id = %(account_id)s::uuid and c.application_id = %(application_id)s::uuid and c.deleted_at is null

-- name: items
-- One page of a conversation in order: saved items, and what is known of answers that are not saved, from their snapshots.
-- Order is run.sequence and position only; no time is looked at (field case O-42).
with owned as (
    select c.conversation_id
    from conversation c
    where c.conversation_id = %(conversation_id)s::uuid
        and c.account_id = %(account_id)s::uuid and c.application_id = %(application_id)s::uuid and c.deleted_at is null
), saved as (
    select i.run_id, i.sequence, i.position, i.type, i.role, i.text, i.complete, i.name, i.status, i.parent_position
    from item i
    where i.conversation_id = (select o.conversation_id from owned o)
        and (i.sequence, i.position) > (%(after_sequence)s::bigint, %(after_position)s::integer)
    order by i.sequence, i.position
    limit %(limit)s::integer
), seen as (
    select r.run_id, r.sequence, e.position, e.type, case when e.type = 'message' then 'assistant' end as role,
        e.text, e.complete, e.name, e.status, e.parent as parent_position
    from run r
    join snapshot s on s.run_id = r.run_id
    cross join lateral jsonb_to_recordset(convert_from(s.body, 'UTF8')::jsonb -> 'items')
        as e (position integer, type text, text text, complete boolean, name text, status text, parent integer)
    where r.conversation_id = (select o.conversation_id from owned o)
        and r.persistence in ('partial', 'pending', 'incomplete')
        and (r.sequence, e.position) > (%(after_sequence)s::bigint, %(after_position)s::integer)
        -- one look into the index for each: how many items a snapshot has, no statistics know
        and (select i.run_id from item i where i.run_id = r.run_id and i.position = e.position) is null
    order by r.sequence, e.position
    limit %(limit)s::integer
), page as (
    select * from saved
    union all
    select * from seen
    order by sequence, position
    limit %(limit)s::integer
)
select p.run_id, p.sequence, p.position, p.type, p.role, p.text, p.complete, p.name, p.status, p.parent_position,
    r.execution, r.reason, r.resolution_outcome
from page p
join run r on r.run_id = p.run_id
order by p.sequence, p.position

-- name: items_before
-- As items, read from the end: the page before a place, the nearest first.
with owned as (
    select c.conversation_id
    from conversation c
    where c.conversation_id = %(conversation_id)s::uuid
        and c.account_id = %(account_id)s::uuid and c.application_id = %(application_id)s::uuid and c.deleted_at is null
), saved as (
    select i.run_id, i.sequence, i.position, i.type, i.role, i.text, i.complete, i.name, i.status, i.parent_position
    from item i
    where i.conversation_id = (select o.conversation_id from owned o)
        and (i.sequence, i.position) < (%(before_sequence)s::bigint, %(before_position)s::integer)
    order by i.sequence desc, i.position desc
    limit %(limit)s::integer
), seen as (
    select r.run_id, r.sequence, e.position, e.type, case when e.type = 'message' then 'assistant' end as role,
        e.text, e.complete, e.name, e.status, e.parent as parent_position
    from run r
    join snapshot s on s.run_id = r.run_id
    cross join lateral jsonb_to_recordset(convert_from(s.body, 'UTF8')::jsonb -> 'items')
        as e (position integer, type text, text text, complete boolean, name text, status text, parent integer)
    where r.conversation_id = (select o.conversation_id from owned o)
        and r.persistence in ('partial', 'pending', 'incomplete')
        and (r.sequence, e.position) < (%(before_sequence)s::bigint, %(before_position)s::integer)
        -- one look into the index for each: how many items a snapshot has, no statistics know
        and (select i.run_id from item i where i.run_id = r.run_id and i.position = e.position) is null
    order by r.sequence desc, e.position desc
    limit %(limit)s::integer
), page as (
    select * from saved
    union all
    select * from seen
    order by sequence desc, position desc
    limit %(limit)s::integer
)
select p.run_id, p.sequence, p.position, p.type, p.role, p.text, p.complete, p.name, p.status, p.parent_position,
    r.execution, r.reason, r.resolution_outcome
from page p
join run r on r.run_id = p.run_id and r.conversation_id = %(conversation_id)s::uuid
order by p.sequence desc, p.position desc

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
