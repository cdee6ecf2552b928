-- name: claim
-- Take runs that are due for a look-up: one claimer each. The next one is set before anybody asks, with jittered backoff; the last one of
-- the budget already calls an operator. Runs with a live lease are never looked up.
with due as (
    select r.run_id from run r
    where r.execution = 'unknown' and can_be_looked_up_v1(r.native_run_id, r.application_id)
        and (%(run_id)s::uuid is null or r.run_id = %(run_id)s::uuid)
        and r.next_lookup_at <= clock_timestamp()
        and (r.lease_until is null or r.lease_until < clock_timestamp())
        and r.lookups < %(budget)s::integer + r.lookups_granted
        and (r.unknown_at > clock_timestamp() - make_interval(secs => %(longest_age_seconds)s::double precision) or r.lookups_granted > 0)
    order by r.next_lookup_at
    limit %(limit)s::integer
    for update skip locked
), claimed as (
    update run r set
        lookup_claim = %(claim)s::uuid, native_lookup_claim = %(claim)s::uuid,
        lookups = r.lookups + 1,
        next_lookup_at = clock_timestamp() + make_interval(secs =>
            least(%(first_seconds)s::double precision * power(2, least(r.lookups, 20)), %(longest_seconds)s::double precision)
            * (0.8 + 0.4 * random())),
        updated_at = clock_timestamp(),
        attention = case when r.lookups + 1 >= %(budget)s::integer + r.lookups_granted then 'operator' else r.attention end
    from due d
    where r.run_id = d.run_id
    returning r.run_id, r.application_id, r.conversation_id, r.native_run_id, r.correlation_id
)
select c.run_id, c.application_id, c.conversation_id, c.native_run_id, c.correlation_id, b.thread_id, b.fingerprint,
    i.native_id as answered_native_id, i.digest as answered_digest,
    (select coalesce(array_agg(o.native_run_id), '{}') from run o
        where o.conversation_id = c.conversation_id and o.native_run_id is not null and o.run_id <> c.run_id) as earlier_native_run_ids,
    exists (select from evidence e
        where e.run_id = c.run_id and e.kind = 'stream_broken' and e.detail ->> 'detail' = 'native_changed') as two_native_runs
from claimed c
join binding b on b.conversation_id = c.conversation_id
left join decision d on d.run_id = c.run_id
left join interrupt i on i.interrupt_id = d.interrupt_id

-- name: grant
-- One look-up more, now, because a person asked for it; not while one is under way or was a moment ago.
update run r set lookups_granted = greatest(r.lookups_granted, r.lookups + 1 - %(budget)s::integer), next_lookup_at = clock_timestamp()
where r.run_id = %(run_id)s::uuid and r.execution = 'unknown' and can_be_looked_up_v1(r.native_run_id, r.application_id)
    and r.updated_at < clock_timestamp() - make_interval(secs => %(pause_seconds)s::double precision)

-- name: note
-- A look-up that proved nothing: what it said, when that is a word we know.
with noted as (
    insert into evidence (run_id, kind, detail)
    select r.run_id, 'looked_up', jsonb_build_object('status', %(status)s::text)
    from run r
    where r.run_id = %(run_id)s::uuid and r.lookup_claim = %(claim)s::uuid and r.execution = 'unknown'
)
update run r set native_status = coalesce(%(native_status)s::text, r.native_status), updated_at = clock_timestamp(), lookup_claim = null
where r.run_id = %(run_id)s::uuid and r.lookup_claim = %(claim)s::uuid and r.execution = 'unknown'

-- name: settle
-- A look-up that said how the run ended, or that it waits for a person. It never brings text: what is not complete stays incomplete, open
-- to a late token holder. Locks in the fixed order: conversation, run.
with held as (
    select c.conversation_id from conversation c
    where c.conversation_id = %(conversation_id)s::uuid and %(blocks)s::text is not null
    for no key update
), moved as (
    update run r set
        execution = %(execution)s::text, reason = %(reason)s::text, native_status = %(native_status)s::text, attention = %(attention)s::text,
        persistence = case when %(over)s::boolean then 'incomplete' else r.persistence end,
        user_slot = null, application_slot = null, lookup_claim = null, next_lookup_at = null,
        updated_at = clock_timestamp(), finished_at = case when %(over)s::boolean then clock_timestamp() end
    where r.run_id = %(run_id)s::uuid and r.lookup_claim = %(claim)s::uuid and r.execution = 'unknown'
        and r.persistence = any (%(persistence_sources)s::text[])
        and (select count(*) from held) >= 0
    returning r.run_id, r.conversation_id, r.execution
), blocked as (
    update conversation c set blocked_reason = coalesce(c.blocked_reason, %(blocks)s::text), updated_at = now()
    from moved m, held h
    where c.conversation_id = m.conversation_id and h.conversation_id = m.conversation_id
), noted as (
    insert into evidence (run_id, kind, detail)
    select m.run_id, 'looked_up', jsonb_build_object('status', %(status)s::text) from moved m
)
select m.run_id,
    case when m.execution = 'waiting' then
        ask_v1(m.run_id, %(interrupt_id)s::uuid, %(native_interrupt_id)s::text, %(prompt_title)s::text, %(prompt_description)s::text,
            %(comment_max_chars)s::integer, %(expires_at)s::timestamptz, %(digest)s::bytea)::text end as asked
from moved m

-- name: found
-- A look-up that found the run's native id by the mark of its dispatch.
update run r set native_run_id = %(native_run_id)s::text
where r.run_id = %(run_id)s::uuid and r.lookup_claim = %(claim)s::uuid and r.execution = 'unknown' and r.native_run_id is null

-- name: refuse
-- This run cannot be looked up any more (another endpoint or assistant, or nothing usable), or its look-up needs somebody to judge it: an
-- operator has to see it.
with noted as (
    insert into evidence (run_id, kind, detail)
    select r.run_id, 'lookup_refused', jsonb_build_object('why', %(why)s::text)
    from run r
    where r.run_id = %(run_id)s::uuid and r.lookup_claim = %(claim)s::uuid and r.execution = 'unknown'
)
update run r set
    attention = 'operator', reason = coalesce(%(reason)s::text, r.reason), next_lookup_at = null, lookup_claim = null,
    updated_at = clock_timestamp()
where r.run_id = %(run_id)s::uuid and r.lookup_claim = %(claim)s::uuid and r.execution = 'unknown'

-- name: exhaust
-- What look-ups could not settle within their budget or a day calls an operator.
update run r set attention = 'operator', updated_at = clock_timestamp()
where r.execution = 'unknown' and r.attention is distinct from 'operator'
    and (not can_be_looked_up_v1(r.native_run_id, r.application_id) or r.unknown_at < clock_timestamp() - make_interval(secs => %(longest_age_seconds)s::double precision)
        or r.lookups >= %(budget)s::integer + r.lookups_granted)
