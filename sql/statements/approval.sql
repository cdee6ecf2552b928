-- name: answered
-- The question that a resume run answers, as it was saved, and upstream's ids of the conversation's runs so far.
select i.native_id, i.digest,
    (select coalesce(array_agg(o.native_run_id), '{}') from run o
        where o.conversation_id = r.conversation_id and o.native_run_id is not null and o.run_id <> r.run_id) as earlier_native_run_ids
from decision d
join run r on r.run_id = d.run_id
join interrupt i on i.interrupt_id = d.interrupt_id
where d.run_id = %(run_id)s::uuid

-- name: question
-- A run of this owner and whether it may be answered: what the checks before a claim ask about.
select r.execution, r.answered_by, i.interrupt_id, i.comment_max_chars, coalesce(i.expires_at <= clock_timestamp(), false) as expired
from run r
join conversation c on c.conversation_id = r.conversation_id and c.deleted_at is null
left join interrupt i on i.run_id = r.run_id
where r.run_id = %(run_id)s::uuid and r.account_id = %(account_id)s::uuid and r.application_id = %(application_id)s::uuid

-- name: run_of_question
-- The run that asked a question in the conversation that an AG-UI client of this owner calls so.
select i.run_id
from conversation_alias n
join run r on r.conversation_id = n.conversation_id
join interrupt i on i.run_id = r.run_id
where n.account_id = %(account_id)s::uuid and n.application_id = %(application_id)s::uuid and n.client_thread = %(client_thread)s::text
    and i.interrupt_id = %(interrupt_id)s::uuid

-- name: decide
-- The transaction of a decision; the caller commits only the verdict admitted. The application may have been hidden from the
-- caller while a moderator thought.
select case when m.verdict = 'admitted' and not acc.visible then 'not_found' else m.verdict end as verdict, m.run_id, m.conversation_id,
    m.created_conversation, m.fingerprint, m.config_version, m.token_version, m.created_at, m.blocking_run_id, m.blocked, m.quota
from access_v1(%(subject)s::text, %(claimed_groups)s::text[], %(application_id)s::uuid) acc
cross join decide_v1(
    %(account_id)s::uuid, %(application_id)s::uuid, %(submission_id)s::text, %(fingerprint)s::bytea,
    %(waiting_run_id)s::uuid, %(interrupt_id)s::uuid, %(action)s::text, %(comment)s::text,
    %(run_id)s::uuid, %(attempt_token)s::uuid, %(correlation_id)s::uuid,
    %(max_per_user)s::integer, %(max_per_application)s::integer, %(lease_seconds)s::double precision,
    %(text_sha256)s::bytea, %(chain_id)s::uuid, %(providers)s::text[], %(versions)s::text[], %(durations)s::double precision[]) m
