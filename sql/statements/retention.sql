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
-- Evidence that is older than so many days, of runs that are over and resolved: what is of that among the next rows after a given one.
-- Rows are in the order of their ids about as old as their ids say, so that the first batch without an old one is the last to look at; how
-- much there is that is young does not matter.
with seen as (
    select e.evidence_id, e.at < clock_timestamp() - make_interval(days => %(days)s::integer) as old
    from evidence e
    where e.evidence_id > %(after)s::bigint
    order by e.evidence_id
    limit %(limit)s::integer
), due as (
    select e.evidence_id
    from seen s
    join evidence e on e.evidence_id = s.evidence_id
    join run r on r.run_id = e.run_id
    where s.old
        and r.finished_at < clock_timestamp() - make_interval(days => %(days)s::integer)
        and not run_is_unresolved_v1(r.execution, r.persistence, r.acknowledged_at, r.resolved_at)
    for update of e skip locked
), removed as (
    delete from evidence e using due d where e.evidence_id = d.evidence_id returning 1
)
select (select count(*) from removed) as removed, max(s.evidence_id) as last, coalesce(bool_or(s.old), false) as more from seen s

-- name: remove_verdicts
-- What moderators said, older than so many days; of runs only those that are over. Batches as in remove_evidence.
with seen as (
    select v.verdict_id, v.at < clock_timestamp() - make_interval(days => %(days)s::integer) as old
    from moderation_verdict v
    where v.verdict_id > %(after)s::bigint
    order by v.verdict_id
    limit %(limit)s::integer
), due as (
    select v.verdict_id
    from seen s
    join moderation_verdict v on v.verdict_id = s.verdict_id
    left join run r on r.run_id = v.run_id
    where s.old
        and (v.run_id is null
            or (r.finished_at is not null
                and not run_is_unresolved_v1(r.execution, r.persistence, r.acknowledged_at, r.resolved_at)))
    for update of v skip locked
), removed as (
    delete from moderation_verdict v using due d where v.verdict_id = d.verdict_id returning 1
)
select (select count(*) from removed) as removed, max(s.verdict_id) as last, coalesce(bool_or(s.old), false) as more from seen s

-- name: prune_audit
-- The oldest entries of the audit trail, behind an anchor.
select audit_prune_v1(%(days)s::integer, %(limit)s::integer) as removed
