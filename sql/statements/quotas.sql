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

-- name: list
-- The rules in force, oldest first.
select q.quota_rule_id, q.scope, q.application_id, a.name as application_name, coalesce(q.group_name, q.members_of) as group_name, q.task_limit,
    case when q.sliding_seconds is null then q.calendar_window end as calendar_window, q.sliding_seconds, q.created_at
from quota_rule q
left join application a on a.application_id = q.application_id
where q.removed_at is null
order by q.created_at, q.quota_rule_id

-- name: remove
-- Ends a rule; what was charged under it stays.
update quota_rule set removed_at = now()
where quota_rule_id = %(quota_rule_id)s::uuid and removed_at is null
