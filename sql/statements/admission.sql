-- name: context
-- Everything that the checks before admission ask about, in one read: caller, application, replay, conversation.
select
    acc.account_id,
    acc.account_state,
    acc.all_groups,
    acc.account_roles,
    acc.visible,
    application_closed_v2(a.backend_type, a.enabled, p.enabled, a.token_ciphertext is not null) as closed,
    a.token_ciphertext,
    a.token_key_id,
    s.run_id as submitted_run_id,
    s.fingerprint as submitted_fingerprint,
    s.conversation_id as submitted_conversation_id,
    s.created_conversation as submitted_created_conversation,
    coalesce(%(conversation_id)s::uuid, n.conversation_id) is not null as conversation_named,
    c.conversation_id is not null as conversation_found,
    b.code as blocked,
    b.blocking_run_id,
    moderation_chain_v1(a.application_id) as chain_id
from access_v1(%(subject)s::text, %(groups)s::text[], %(application_id)s::uuid) acc
left join application a on acc.visible and a.application_id = %(application_id)s::uuid
left join provider p on p.provider_id = a.provider_id
left join submission s on s.account_id = acc.account_id and s.application_id = a.application_id
    and s.submission_id = %(submission_id)s::text
left join conversation_alias n on n.account_id = acc.account_id and n.application_id = a.application_id
    and n.client_thread = %(client_thread)s::text
left join conversation c on c.account_id = acc.account_id and c.application_id = a.application_id
    and c.conversation_id = coalesce(%(conversation_id)s::uuid, n.conversation_id) and c.deleted_at is null
left join lateral conversation_block_v2(c.conversation_id) b on c.conversation_id is not null

-- name: submitted
-- The run of a submission, when there is one: what a refusal looks up once more.
select s.run_id, s.fingerprint, s.conversation_id, s.created_conversation
from submission s
where s.account_id = %(account_id)s::uuid and s.application_id = %(application_id)s::uuid
    and s.submission_id = %(submission_id)s::text

-- name: admit
-- The admission transaction's one statement; the caller commits only the verdict admitted. The application may have been hidden from the
-- caller while a moderator thought.
select case when m.verdict = 'admitted' and not acc.visible then 'not_found' else m.verdict end as verdict, m.run_id, m.conversation_id,
    m.created_conversation, m.fingerprint, m.config_version, m.token_version, m.created_at, m.blocking_run_id, m.blocked, m.quota
from access_v1(%(subject)s::text, %(claimed_groups)s::text[], %(application_id)s::uuid) acc
cross join admit_named_v1(
    %(account_id)s::uuid, %(application_id)s::uuid, %(submission_id)s::text, %(fingerprint)s::bytea,
    %(conversation_id)s::uuid, %(new_conversation_id)s::uuid, %(title)s::text,
    %(run_id)s::uuid, %(attempt_token)s::uuid, %(correlation_id)s::uuid, %(item_id)s::uuid, %(text)s::text,
    %(groups)s::text[], %(max_per_user)s::integer, %(max_per_application)s::integer, %(lease_seconds)s::double precision,
    %(quota_zone)s::text, %(text_sha256)s::bytea, %(chain_id)s::uuid, %(providers)s::text[], %(versions)s::text[],
    %(durations)s::double precision[], %(client_thread)s::text) m

-- name: attempt
-- What admission wrote for a run: versions pinned, and whether the row carries our attempt token.
select r.run_id, r.conversation_id, r.config_version, r.token_version, r.created_at, r.attempt_token = %(attempt_token)s::uuid as ours
from run r
where r.run_id = %(run_id)s::uuid

-- name: await_admissions
-- The lock that closing takes alone: whoever saw admission open has committed or given up once it is had.
select pg_advisory_xact_lock(hashtextextended('admission', 0))::text as locked

-- name: close
-- No run is admitted from the commit on, by any replica. No row: it was closed already.
insert into admission_closed (actor, reason) values (%(actor)s::text, %(reason)s::text)
on conflict (one) do nothing
returning closed_at

-- name: open
-- Runs are admitted again. No row: it was open.
delete from admission_closed returning closed_at

-- name: closed
-- Since when, by whom and why admission is closed; no row while it is open.
select c.closed_at, c.actor, c.reason from admission_closed c
