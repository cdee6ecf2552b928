-- Human approval: questions, decisions, and the functions that know of them. Replicas of the version before go on with the functions of before,
-- which refuse applications with human_input.

-- What an agent asked a person: the one question of a waiting run. What is shown is kept as it was; `native_id` never leaves the gateway.
create table interrupt (
    interrupt_id uuid primary key,
    run_id uuid not null constraint interrupt_one_per_run unique references run,
    native_id text not null constraint interrupt_native_id_form check (char_length(native_id) between 1 and 200),
    title text not null constraint interrupt_title_form check (char_length(title) between 1 and 200),
    description text not null constraint interrupt_description_form check (char_length(description) <= 4000),
    comment_max_chars integer not null constraint interrupt_comment_form check (comment_max_chars between 0 and 2000),
    expires_at timestamptz,
    -- of all that is shown: an answer is an answer to exactly this
    digest bytea not null constraint interrupt_digest_form check (octet_length(digest) = 32),
    created_at timestamptz not null default now()
);

-- What a resume run delivers. Which of several decisions counts says run.answered_by of the waiting run: the claim.
create table decision (
    run_id uuid primary key references run,
    interrupt_id uuid not null references interrupt,
    action text not null constraint decision_action_known check (action in ('approve', 'reject')),
    comment text constraint decision_comment_form check (char_length(comment) <= 2000),
    created_at timestamptz not null default now()
);
create index decision_of_interrupt on decision (interrupt_id);

-- Only what was asked is answered. (Not validated: no row of before has it set.)
alter table run add constraint run_answered_was_asked check (answered_by is null or execution in ('waiting', 'closed')) not valid;

-- What was said before a question is saved like the answer of a run that is over. The state of a waiting run stays open, its words do not.
-- (Not validated: the constraint of before said more.)
-- squawk-ignore ban-drop-constraint
alter table run drop constraint run_saved_is_over;
alter table run add constraint run_saved_is_over check (
    persistence not in ('saved', 'pending', 'incomplete')
    or execution in ('succeeded', 'failed', 'closed')
    or (execution = 'waiting' and persistence <> 'incomplete')) not valid;

-- Proven never sent, by whomever and in whichever version: the question that a decision claimed can be answered again. In the transaction
-- that releases the resume run or closes it as not executed, and only where the claim is still its own.
create function free_question_v1() returns trigger
language plpgsql as $$
begin
    update run w set answered_by = null, updated_at = clock_timestamp()
    where w.conversation_id = new.conversation_id and w.answered_by = new.run_id;
    return null;
end
$$;

create trigger run_free_question after update of execution on run
    for each row
    when (new.kind = 'resume' and old.execution <> new.execution
        and (new.execution = 'released' or (new.execution = 'closed' and new.resolution_outcome = 'not_executed')))
    execute function free_question_v1();

-- Which look-up is by a program that asks for the thread's state, too: lookup_claim again. A replica of the version before knows only a run's
-- status, which says success of a run that waits for a person; it gets no claim of a run with human approval.
alter table run add column native_lookup_claim uuid;

create function native_lookup_v1() returns trigger
language plpgsql as $$
begin
    if exists (select from application a where a.application_id = new.application_id and a.human_input) then
        return null;
    end if;
    return new;
end
$$;

create trigger run_native_lookup before update of lookup_claim on run
    for each row
    when (new.lookup_claim is distinct from old.lookup_claim and new.lookup_claim is distinct from new.native_lookup_claim
        and new.lookup_claim is not null)
    execute function native_lookup_v1();

-- As application_closed_v1, for a program that serves human approval too.
create function application_closed_v2(p_backend_type text, p_enabled boolean, p_provider_enabled boolean, p_has_token boolean) returns text
language sql immutable as $$
    select case
        when p_backend_type <> 'langchain' then 'backend_not_served'
        when not (p_enabled and p_provider_enabled and p_has_token) then 'app_disabled' end
$$;

-- As conversation_block_v1, and: with human approval a conversation has one task (contract E5). A task that was never executed is none.
create function conversation_block_v2(p_conversation_id uuid, out code text, out blocking_run_id uuid)
language sql stable as $$
    select why.code, why.blocking_run_id
    from (
        select 1 as rank, b.code, b.blocking_run_id from conversation_block_v1(p_conversation_id) b where b.code is not null
        union all
        select 2, 'task_already_done', null
        from conversation c
        join application a on a.application_id = c.application_id and a.human_input
        where c.conversation_id = p_conversation_id
            and exists (
                select from run r
                where r.conversation_id = c.conversation_id and r.kind = 'task' and r.execution <> 'released'
                    and r.resolution_outcome is distinct from 'not_executed')
    ) why
    order by why.rank
    limit 1
$$;

-- Whether there is anything to look a run up by: its native id, or with human approval the mark that its dispatch carried.
create function can_be_looked_up_v1(p_native_run_id text, p_application_id uuid) returns boolean
language sql stable as $$
    select p_native_run_id is not null
        or exists (select from application a where a.application_id = p_application_id and a.human_input)
$$;

-- The question of a run that was moved to waiting, by whoever saw it first.
create function ask_v1(
    p_run_id uuid, p_interrupt_id uuid, p_native_id text, p_title text, p_description text, p_comment_max_chars integer,
    p_expires_at timestamptz, p_digest bytea) returns void
language sql as $$
    insert into interrupt (interrupt_id, run_id, native_id, title, description, comment_max_chars, expires_at, digest)
    values (p_interrupt_id, p_run_id, p_native_id, p_title, p_description, p_comment_max_chars, p_expires_at, p_digest)
    on conflict (run_id) do nothing
$$;

-- As fence_v1, and for a decision: the run still waits, the claim is ours, the question is not expired. Locks the resume run, then the one
-- that waits, as whoever releases does.
create function fence_v2(
    p_run_id uuid, p_attempt_token uuid, p_thread_id text, p_endpoint_fingerprint bytea, p_fingerprint bytea,
    p_lease_seconds double precision,
    out verdict text, out fenced_at timestamptz)
language plpgsql as $$
declare
    v_resumes boolean;
    v_asked record;
begin
    select r.kind = 'resume' into v_resumes from run r where r.run_id = p_run_id for update;
    if v_resumes then
        select w.execution, w.answered_by, i.expires_at into v_asked
        from decision d
        join interrupt i on i.interrupt_id = d.interrupt_id
        join run w on w.run_id = i.run_id
        where d.run_id = p_run_id
        for no key update of w;
        if v_asked.execution is distinct from 'waiting' or v_asked.answered_by is distinct from p_run_id then
            verdict := 'interrupt_changed';
            return;
        end if;
        if v_asked.expires_at <= clock_timestamp() then
            verdict := 'interrupt_expired';
            return;
        end if;
    end if;
    select f.verdict, f.fenced_at into verdict, fenced_at
    from fence_v1(p_run_id, p_attempt_token, p_thread_id, p_endpoint_fingerprint, p_fingerprint, p_lease_seconds) f;
end
$$;

-- A decision (contract E6, E7): submission, slots, resume run and the claim of the question, and nothing charged; of the comment the verdicts
-- of moderation. Any verdict but 'admitted' is rolled back by the caller. Locks in the fixed order: application, user, conversation, the run
-- that waits. One claim a question: whoever comes second finds it in answered_by, under the lock.
create function decide_v1(
    p_account_id uuid, p_application_id uuid, p_submission_id text, p_fingerprint bytea, p_waiting_run_id uuid, p_interrupt_id uuid,
    p_action text, p_comment text, p_run_id uuid, p_attempt_token uuid, p_correlation_id uuid,
    p_max_per_user integer, p_max_per_application integer, p_lease_seconds double precision,
    p_text_sha256 bytea, p_chain_id uuid, p_providers text[], p_versions text[], p_durations double precision[],
    out verdict text, out run_id uuid, out conversation_id uuid, out created_conversation boolean, out fingerprint bytea,
    out config_version bigint, out token_version bigint, out created_at timestamptz,
    out blocking_run_id uuid, out blocked text, out quota jsonb)
language plpgsql as $$
declare
    v_application application%rowtype;
    v_submission submission%rowtype;
    v_account_state text;
    v_waiting run%rowtype;
    v_interrupt interrupt%rowtype;
    v_slots record;
    v_sequence bigint;
begin
    if p_comment is not null
        and (p_text_sha256 is distinct from sha256(convert_to(p_comment, 'UTF8')) or coalesce(cardinality(p_providers), 0) = 0) then
        raise exception 'no moderator was shown this text' using errcode = 'check_violation', constraint = 'decide_moderated_text';
    end if;
    select r.conversation_id into conversation_id from run r
    where r.run_id = p_waiting_run_id and r.account_id = p_account_id and r.application_id = p_application_id;
    if not found then
        verdict := 'not_found';
        return;
    end if;
    created_conversation := false;
    insert into submission as s (account_id, application_id, submission_id, fingerprint, run_id, conversation_id, created_conversation)
    values (p_account_id, p_application_id, p_submission_id, p_fingerprint, p_run_id, conversation_id, false)
    on conflict on constraint submission_pkey do nothing;
    if not found then
        select * into v_submission from submission s
        where s.account_id = p_account_id and s.application_id = p_application_id and s.submission_id = p_submission_id;
        verdict := 'submitted';
        run_id := v_submission.run_id;
        conversation_id := v_submission.conversation_id;
        created_conversation := v_submission.created_conversation;
        fingerprint := v_submission.fingerprint;
        return;
    end if;

    select * into v_application from application a where a.application_id = p_application_id for no key update;
    verdict := application_closed_v2(v_application.backend_type, v_application.enabled,
        (select p.enabled from provider p where p.provider_id = v_application.provider_id), v_application.token_ciphertext is not null);
    if verdict is not null then
        return;
    end if;
    select a.state into v_account_state from account a where a.account_id = p_account_id for no key update;
    if v_account_state is distinct from 'active' then
        verdict := 'account_inactive';
        return;
    end if;
    select c.last_sequence + 1 into v_sequence from conversation c
    where c.conversation_id = decide_v1.conversation_id and c.deleted_at is null
    for no key update;
    if not found then
        verdict := 'not_found';
        return;
    end if;
    select * into v_waiting from run r where r.run_id = p_waiting_run_id for no key update;
    select * into v_interrupt from interrupt i where i.run_id = p_waiting_run_id;
    if v_waiting.execution <> 'waiting' or v_waiting.answered_by is not null
        or v_interrupt.interrupt_id is distinct from p_interrupt_id then
        verdict := 'interrupt_not_pending';
        blocking_run_id := coalesce(v_waiting.answered_by, p_waiting_run_id);
        return;
    end if;
    if v_interrupt.expires_at <= clock_timestamp() then
        verdict := 'interrupt_expired';
        return;
    end if;
    select b.code, b.blocking_run_id into blocked, blocking_run_id from conversation_block_v2(conversation_id) b;
    if blocked is distinct from 'waiting_for_decision' then
        verdict := 'conversation_refused';
        return;
    end if;
    blocked := null;
    blocking_run_id := null;

    select * into v_slots from free_slots_v1(p_account_id, p_application_id, p_max_per_user, p_max_per_application);
    if v_slots.user_slot is null then
        verdict := 'user_busy';
        blocking_run_id := v_slots.blocking_run_id;
        return;
    end if;
    if v_slots.application_slot is null then
        verdict := 'app_busy';
        return;
    end if;

    run_id := p_run_id;
    config_version := v_application.config_version;
    token_version := v_application.token_version;
    created_at := now();
    update conversation c set last_sequence = v_sequence, updated_at = now() where c.conversation_id = decide_v1.conversation_id;
    insert into run (run_id, kind, account_id, application_id, conversation_id, submission_id, sequence, execution, attempt_token,
        correlation_id, lease_until, config_version, token_version, user_slot, application_slot)
    values (p_run_id, 'resume', p_account_id, p_application_id, conversation_id, p_submission_id, v_sequence, 'reserved', p_attempt_token,
        p_correlation_id, clock_timestamp() + make_interval(secs => p_lease_seconds), v_application.config_version,
        v_application.token_version, v_slots.user_slot, v_slots.application_slot);
    insert into decision (run_id, interrupt_id, action, comment) values (p_run_id, p_interrupt_id, p_action, p_comment);
    update run r set answered_by = p_run_id, updated_at = clock_timestamp() where r.run_id = p_waiting_run_id;
    if p_comment is not null then
        perform note_verdicts_v1(p_account_id, p_application_id, p_submission_id, p_run_id, 'comment', p_text_sha256, p_chain_id,
            p_providers, p_versions, p_durations, 'allowed', '{}', null);
    end if;
    verdict := 'admitted';
end
$$;
