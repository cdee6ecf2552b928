-- name: claim
-- Take pending runs whose save is due: one claimer each; the next try is set before anything is written.
with due as (
    select r.run_id from run r
    where r.persistence = 'pending' and r.next_save_at <= clock_timestamp()
        and (%(run_id)s::uuid is null or r.run_id = %(run_id)s::uuid)
    order by r.next_save_at
    limit %(limit)s::integer
    for update skip locked
), claimed as (
    update run r set next_save_at = clock_timestamp() + make_interval(secs => %(again_seconds)s::double precision * (0.8 + 0.4 * random()))
    from due d
    where r.run_id = d.run_id
    returning r.run_id
)
select c.run_id, s.body, s.sha256
from claimed c
join snapshot s on s.run_id = c.run_id

-- name: due_now
-- A person asked for the save of this run: it is due at once.
update run r set next_save_at = clock_timestamp() where r.run_id = %(run_id)s::uuid and r.persistence = 'pending'

-- name: save
-- Write the items of a pending run from its stored bytes, once: whoever does it, the same rows.
with moved as (
    update run r set persistence = 'saved', next_save_at = null, attention = null, updated_at = clock_timestamp()
    from snapshot s
    where r.run_id = %(run_id)s::uuid and r.persistence = 'pending'
        and s.run_id = r.run_id and s.sha256 = %(sha256)s::bytea
    returning r.run_id, r.conversation_id, r.sequence
), noted as (
    insert into evidence (run_id, kind) select m.run_id, 'saved' from moved m
)
select m.run_id, write_items_v1(m.run_id, m.conversation_id, m.sequence,
    %(positions)s::integer[], %(item_ids)s::uuid[], %(types)s::text[], %(texts)s::text[], %(completes)s::boolean[],
    %(names)s::text[], %(statuses)s::text[], %(parents)s::integer[])::text as written
from moved m
