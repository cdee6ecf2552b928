-- Numbers for Prometheus: asked at a scrape, from partial indexes only, so that history does not make them dearer.

-- name: gauges
-- One row a number: the metric's name, its one label or none, its value.
with held as materialized (
    select r.application_id, r.execution, r.lease_until, r.attention
    from run r
    where r.user_slot is not null
), open as materialized (
    select r.run_id, r.application_id, r.persistence, coalesce(r.unknown_at, r.finished_at, r.created_at) as since_at
    from run r
    where run_is_unresolved_v1(r.execution, r.persistence, r.acknowledged_at, r.resolved_at)
)
select 'gateway_active_runs' as family, s.execution as label, count(h.execution)::double precision as value
from unnest(%(slot_holding)s::text[]) as s (execution)
left join held h on h.execution = s.execution
group by s.execution
union all
select 'gateway_application_slots_held', h.application_id::text, count(*) from held h group by h.application_id
union all
select 'gateway_unresolved_runs', o.application_id::text, count(*) from open o group by o.application_id
union all
select 'gateway_unresolved_oldest_seconds', o.application_id::text, extract(epoch from clock_timestamp() - min(o.since_at))
from open o group by o.application_id
union all
select 'gateway_attention_runs', null, count(*)
from run r where r.attention = 'operator'
union all
select 'gateway_saving_backlog_runs', null, count(*) from open o where o.persistence = 'pending'
union all
select 'gateway_saving_oldest_seconds', null, extract(epoch from clock_timestamp() - min(o.since_at))
from open o where o.persistence = 'pending' having count(*) > 0
union all
select 'gateway_lease_left_seconds', null, extract(epoch from min(h.lease_until) - clock_timestamp())
from held h where h.execution = any (%(live)s::text[]) having count(*) > 0
union all
select 'gateway_replicas', null, count(*)
from replica p where p.heartbeat_at > clock_timestamp() - make_interval(secs => %(lease_seconds)s::double precision)
union all
select 'gateway_admission_closed', null, count(*) from admission_closed

-- name: durability
-- What commits of this database are worth: one row. `standbys` and `synchronous` count what streams from here; null where only a
-- superuser or a member of pg_monitor may see it.
select
    current_setting('synchronous_commit') as synchronous_commit, current_setting('fsync') as fsync,
    current_setting('full_page_writes') as full_page_writes, pg_is_in_recovery() as in_recovery,
    current_setting('synchronous_standby_names') <> '' as synchronous_asked,
    (select count(*) from pg_stat_replication p where p.state is not null or p.sync_state is not null) as standbys,
    (select count(*) from pg_stat_replication p where p.sync_state in ('sync', 'quorum')) as synchronous,
    (select count(*) from pg_stat_replication p where p.state is null and p.sync_state is null) as hidden
