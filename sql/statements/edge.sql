-- What `gateway check --through` needs to see that nobody on the way sends a request twice.

-- name: arrived
-- Count one arrival of this check's request; old checks go.
with old as (
    delete from edge_check c where c.at < clock_timestamp() - interval '1 hour'
)
insert into edge_check as c (check_id) values (%(check_id)s::uuid)
on conflict (check_id) do update set seen = c.seen + 1
returning c.seen
