-- Retention: small batches, oldest first, one claimer each; never what is unresolved or holds a slot.

-- name: erase_conversations
-- What was said in conversations that are deleted for so many days; who they were and what was submitted stays.
with due as (
    select c.conversation_id from conversation c
    where c.deleted_at < clock_timestamp() - make_interval(days => %(days)s::integer) and c.erased_at is null
        and not exists (
            select from run r
            where r.conversation_id = c.conversation_id
                and (r.user_slot is not null
                    or run_is_unresolved_v1(r.execution, r.persistence, r.acknowledged_at, r.resolved_at)))
    order by c.deleted_at
    limit %(limit)s::integer
    for update skip locked
), items as (
    delete from item i using due d where i.conversation_id = d.conversation_id returning 1
), snapshots as (
    delete from snapshot s using due d, run r where r.conversation_id = d.conversation_id and s.run_id = r.run_id returning 1
), questions as (
    update interrupt q set title = '-', description = ''
    from due d, run r
    where r.conversation_id = d.conversation_id and q.run_id = r.run_id
), comments as (
    update decision a set comment = null
    from due d, run r
    where r.conversation_id = d.conversation_id and a.run_id = r.run_id and a.comment is not null
), erased as (
    update conversation c set erased_at = clock_timestamp(), title = '-'
    from due d where c.conversation_id = d.conversation_id returning 1
)
select (select count(*) from erased) as conversations, (select count(*) from items) as items, (select count(*) from snapshots) as snapshots

-- name: remove_evidence
-- Evidence that is older than so many days, of runs that are over and resolved.
with due as (
    select e.evidence_id from evidence e
    join run r on r.run_id = e.run_id
    where e.at < clock_timestamp() - make_interval(days => %(days)s::integer)
        and r.finished_at < clock_timestamp() - make_interval(days => %(days)s::integer)
        and not run_is_unresolved_v1(r.execution, r.persistence, r.acknowledged_at, r.resolved_at)
    order by e.evidence_id
    limit %(limit)s::integer
    for update of e skip locked
), removed as (
    delete from evidence e using due d where e.evidence_id = d.evidence_id returning 1
)
select count(*) as removed from removed

-- name: remove_verdicts
-- What moderators said, older than so many days; of runs only those that are over.
with due as (
    select v.verdict_id from moderation_verdict v
    left join run r on r.run_id = v.run_id
    where v.at < clock_timestamp() - make_interval(days => %(days)s::integer)
        and (v.run_id is null
            or (r.finished_at is not null
                and not run_is_unresolved_v1(r.execution, r.persistence, r.acknowledged_at, r.resolved_at)))
    order by v.verdict_id
    limit %(limit)s::integer
    for update of v skip locked
), removed as (
    delete from moderation_verdict v using due d where v.verdict_id = d.verdict_id returning 1
)
select count(*) as removed from removed

-- name: prune_audit
-- The oldest entries of the audit trail, behind an anchor.
select audit_prune_v1(%(days)s::integer, %(limit)s::integer) as removed
