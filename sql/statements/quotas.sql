-- Quota rules; usage and charges are written by admission only.

-- name: lock_rules
-- One writer of rules at a time, until its transaction ends; admission does not wait for it.
select pg_advisory_xact_lock(hashtextextended('quota_rule', 0)) as locked

-- name: set_limit
-- A new limit for the rule of this scope, application, group and window, when there is one.
update quota_rule set task_limit = %(task_limit)s::bigint
where removed_at is null and scope = %(scope)s::text and application_id is not distinct from %(application_id)s::uuid
    and group_name is not distinct from %(group_name)s::text and members_of is not distinct from %(members_of)s::text
    and calendar_window = %(calendar_window)s::text and sliding_seconds is not distinct from %(sliding_seconds)s::bigint
returning quota_rule_id

-- name: create
-- A new rule.
insert into quota_rule (quota_rule_id, scope, application_id, group_name, members_of, task_limit, calendar_window, sliding_seconds)
values (
    %(quota_rule_id)s::uuid, %(scope)s::text, %(application_id)s::uuid, %(group_name)s::text, %(members_of)s::text,
    %(task_limit)s::bigint, %(calendar_window)s::text, %(sliding_seconds)s::bigint)

-- name: page
-- The rules in force, oldest first, after a given one; or one of them.
select q.quota_rule_id, q.scope, q.application_id, a.name as application_name, coalesce(q.group_name, q.members_of) as group_name,
    q.task_limit, case when q.sliding_seconds is null then q.calendar_window end as calendar_window, q.sliding_seconds, q.created_at
from quota_rule q
left join application a on a.application_id = q.application_id
where q.removed_at is null
    and (%(after)s::uuid is null
        or (q.created_at, q.quota_rule_id) > (select l.created_at, l.quota_rule_id from quota_rule l where l.quota_rule_id = %(after)s::uuid))
    and (%(quota_rule_id)s::uuid is null or q.quota_rule_id = %(quota_rule_id)s::uuid)
order by q.created_at, q.quota_rule_id
limit %(page_size)s::integer

-- name: usage
-- What is used of every rule that counts a caller's tasks in an application, and how many runs are active.
select
    (select coalesce(jsonb_agg(quota_state_v1(r.quota_rule_id, r.scope, r.group_name, r.application_id is not null, r.calendar_window,
        r.sliding_seconds, r.task_limit, u.used, u.used < r.task_limit, u.more_at, now())), '[]')
    from quota_rules_v1(%(account_id)s::uuid, %(application_id)s::uuid, %(groups)s::text[]) r
    cross join lateral quota_used_v1(r.quota_rule_id, r.bucket, r.task_limit, r.calendar_window, r.sliding_seconds, now(),
        %(quota_zone)s::text) u) as quota,
    (select count(*) from run r where r.account_id = %(account_id)s::uuid and r.user_slot is not null) as user_active,
    (select count(*) from run r where r.application_id = %(application_id)s::uuid and r.application_slot is not null) as application_active

-- name: heaviest_users
-- Who sent the most tasks lately; those that were never executed do not count.
select a.account_id, a.subject, count(*) as tasks
from run r
join account a on a.account_id = r.account_id
where r.kind = 'task' and r.created_at > now() - make_interval(secs => %(seconds)s::double precision)
    and r.execution <> 'released' and r.resolution_outcome is distinct from 'not_executed'
group by a.account_id
order by tasks desc, a.subject
limit %(page_size)s::integer

-- name: heaviest_applications
-- Which applications got the most tasks lately; those that were never executed do not count.
select a.application_id, a.name, count(*) as tasks
from run r
join application a on a.application_id = r.application_id
where r.kind = 'task' and r.created_at > now() - make_interval(secs => %(seconds)s::double precision)
    and r.execution <> 'released' and r.resolution_outcome is distinct from 'not_executed'
group by a.application_id
order by tasks desc, a.name
limit %(page_size)s::integer

-- name: remove
-- Ends a rule; what was charged under it stays.
update quota_rule set removed_at = now()
where quota_rule_id = %(quota_rule_id)s::uuid and removed_at is null
