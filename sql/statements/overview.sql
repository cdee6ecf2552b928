-- Live numbers for operators.

-- name: totals
-- What is under way, what waits for somebody, and how long a save has been pending.
select
    clock_timestamp() as at,
    count(*) filter (where r.application_slot is not null) as active_runs,
    count(*) filter (where r.execution = 'waiting' and r.answered_by is null) as waiting_runs,
    count(*) filter (where run_is_unresolved_v1(r.execution, r.persistence, r.acknowledged_at, r.resolved_at)) as unresolved_runs,
    count(*) filter (where r.attention = 'operator') as attention_runs,
    count(*) filter (where r.persistence = 'pending') as pending_saves,
    extract(epoch from clock_timestamp() - min(r.finished_at) filter (where r.persistence = 'pending'))::double precision
        as oldest_pending_seconds
from run r
where r.application_slot is not null
    or run_is_unresolved_v1(r.execution, r.persistence, r.acknowledged_at, r.resolved_at)
    or r.attention = 'operator'
    or (r.execution = 'waiting' and r.answered_by is null)

-- name: applications
-- The same by application, those with the most under way first; of more than the limit those with the least are left out.
select
    a.application_id, a.name, a.enabled and p.enabled as enabled,
    count(r.run_id) filter (where r.application_slot is not null) as active_runs,
    count(r.run_id) filter (where r.execution = 'unknown') as unknown_runs,
    count(r.run_id) filter (where run_is_unresolved_v1(r.execution, r.persistence, r.acknowledged_at, r.resolved_at)) as unresolved_runs,
    count(r.run_id) filter (where r.persistence = 'pending') as pending_saves
from application a
join provider p on p.provider_id = a.provider_id
left join run r on r.application_id = a.application_id
    and (r.application_slot is not null or run_is_unresolved_v1(r.execution, r.persistence, r.acknowledged_at, r.resolved_at))
group by a.application_id, a.name, a.enabled, p.enabled
order by active_runs desc, unresolved_runs desc, a.name
limit %(limit)s::integer

-- name: refusals
-- Runs of a period that came to nothing, by why: what was not sent, and what the service did not do.
select r.execution, r.reason, count(*) as runs
from run r
where r.created_at > now() - make_interval(secs => %(period_seconds)s::double precision)
    and r.execution in ('released', 'failed') and r.reason is not null
group by r.execution, r.reason
order by runs desc, r.execution, r.reason

-- name: moderation
-- Texts of a period of which nothing came because of moderation, by what it said.
select v.outcome, count(*) as texts
from moderation_verdict v
where v.run_id is null and v.at > now() - make_interval(secs => %(period_seconds)s::double precision) and v.outcome <> 'allowed'
group by v.outcome
order by v.outcome
