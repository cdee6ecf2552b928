-- name: context
-- Everything that the checks before admission ask about, in one read: caller, application, replay, conversation.
select account_id, account_state, all_groups, account_roles, visible, closed, token_ciphertext, token_key_id, submitted_run_id,
    submitted_fingerprint, submitted_conversation_id, submitted_created_conversation, conversation_named, conversation_found,
    blocked, blocking_run_id, chain_id
from context_v1(
    %(subject)s::text, %(groups)s::text[], %(application_id)s::uuid, %(submission_id)s::text, %(conversation_id)s::uuid,
    %(client_thread)s::text)

-- name: submitted
-- The run of a submission, when there is one: what a refusal looks up once more.
select s.run_id, s.fingerprint, s.conversation_id, s.created_conversation
from submission s
where s.account_id = %(account_id)s::uuid and s.application_id = %(application_id)s::uuid
    and s.submission_id = %(submission_id)s::text

-- name: admit
-- The admission transaction's one statement; the caller commits only the verdict admitted.
select verdict, run_id, conversation_id, created_conversation, fingerprint, config_version, token_version, created_at, blocking_run_id,
    blocked, quota, backend_type, assistant_id, human_input, base_url, token_ciphertext, token_key_id, thread_id, bound_fingerprint,
    binding_invalidated
from admit_v3(
    %(subject)s::text, %(claimed_groups)s::text[],
    %(account_id)s::uuid, %(application_id)s::uuid, %(submission_id)s::text, %(fingerprint)s::bytea,
    %(conversation_id)s::uuid, %(new_conversation_id)s::uuid, %(title)s::text,
    %(run_id)s::uuid, %(attempt_token)s::uuid, %(correlation_id)s::uuid, %(item_id)s::uuid, %(text)s::text,
    %(groups)s::text[], %(max_per_user)s::integer, %(max_per_application)s::integer, %(lease_seconds)s::double precision,
    %(quota_zone)s::text, %(text_sha256)s::bytea, %(chain_id)s::uuid, %(providers)s::text[], %(versions)s::text[],
    %(durations)s::double precision[], %(client_thread)s::text)

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
