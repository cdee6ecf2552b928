-- name: beat
-- One statement a replica and beat: says that it lives, and renews exactly the runs whose tokens it holds.
with alive as (
    insert into replica as p (replica_id, key_ids) values (%(replica_id)s::uuid, %(key_ids)s::text[])
    on conflict (replica_id) do update set heartbeat_at = clock_timestamp()
)
update run r set lease_until = clock_timestamp() + make_interval(secs => %(lease_seconds)s::double precision)
from unnest(%(run_ids)s::uuid[], %(attempt_tokens)s::uuid[]) as held (run_id, attempt_token)
where r.run_id = held.run_id and r.attempt_token = held.attempt_token and r.lease_until is not null
    and r.execution = any (%(slot_holding)s::text[])

-- name: replicas
-- The replicas that live: those that said so within a lease.
select p.replica_id, p.started_at, extract(epoch from clock_timestamp() - p.heartbeat_at)::double precision as heartbeat_age_seconds, p.key_ids
from replica p
where p.heartbeat_at > clock_timestamp() - make_interval(secs => %(lease_seconds)s::double precision)
order by p.started_at, p.replica_id

-- name: lost
-- The replicas that said so within a period, and do not any more: they ended without leaving, or cannot reach the database.
select p.replica_id, p.started_at, extract(epoch from clock_timestamp() - p.heartbeat_at)::double precision as heartbeat_age_seconds, p.key_ids
from replica p
where p.heartbeat_at <= clock_timestamp() - make_interval(secs => %(lease_seconds)s::double precision)
    and p.heartbeat_at > clock_timestamp() - make_interval(secs => %(period_seconds)s::double precision)
order by p.heartbeat_at desc, p.replica_id
limit %(limit)s::integer

-- name: leave
-- A replica that has finished is not one that lives.
delete from replica where replica_id = %(replica_id)s::uuid

-- name: release_expired
-- Runs that were admitted by a process that is gone: nothing was sent, for the fence needs the lease.
with due as (
    select r.run_id from run r
    where r.execution = 'reserved' and r.lease_until < clock_timestamp()
    order by r.lease_until
    limit %(limit)s::integer
    for update skip locked
), moved as (
    update run r set
        execution = 'released', reason = %(reason)s::text, user_slot = null, application_slot = null, lease_until = null,
        updated_at = clock_timestamp(), finished_at = clock_timestamp()
    from due d
    where r.run_id = d.run_id
    returning r.run_id, r.updated_at
), noted as (
    insert into evidence (run_id, kind, detail)
    select m.run_id, 'lease_lost', jsonb_build_object('was', 'reserved') from moved m
)
select m.run_id, r.refunded
from moved m
cross join (select refund_v1(array_agg(f.run_id))::text as refunded from moved f having count(*) > 0) r

-- name: expire
-- Runs whose process is gone, or was too slow to say that it lives: their outcome is unknown. The lease stays, so that a holder that was
-- only slow can renew it.
with due as (
    select r.run_id, r.execution from run r
    where r.execution = any (%(live)s::text[]) and r.lease_until < clock_timestamp()
    order by r.lease_until
    limit %(limit)s::integer
    for update skip locked
), moved as (
    update run r set
        execution = 'unknown', reason = %(reason)s::text, unknown_at = clock_timestamp(), updated_at = clock_timestamp(),
        attention = case when not can_be_looked_up_v1(r.native_run_id, r.application_id) then 'operator' end,
        next_lookup_at = case when can_be_looked_up_v1(r.native_run_id, r.application_id)
            then clock_timestamp() + make_interval(secs => %(lookup_first_seconds)s::double precision) end
    from due d
    where r.run_id = d.run_id
    returning r.run_id, d.execution as was
), noted as (
    insert into evidence (run_id, kind, detail)
    select m.run_id, 'lease_lost', jsonb_build_object('was', m.was) from moved m
)
select m.run_id, null::text as refunded from moved m
