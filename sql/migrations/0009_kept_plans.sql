-- The statements of every run as functions: a connection keeps their plans, through a transaction pooler too, where a statement sent as
-- text is planned each time. What a run needs of its application is read by its admission, under the lock of admission.

-- Everything that the checks before admission ask about, in one read: caller, application, replay, conversation.
create function context_v1(
    p_subject text, p_groups text[], p_application_id uuid, p_submission_id text, p_conversation_id uuid, p_client_thread text)
returns table (
    account_id uuid, account_state text, all_groups text[], account_roles text[], visible boolean, closed text, token_ciphertext bytea,
    token_key_id text, submitted_run_id uuid, submitted_fingerprint bytea, submitted_conversation_id uuid, submitted_created_conversation boolean,
    conversation_named boolean, conversation_found boolean, blocked text, blocking_run_id uuid, chain_id uuid)
language plpgsql stable as $$
#variable_conflict use_column
begin
    return query
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
        coalesce(p_conversation_id, n.conversation_id) is not null as conversation_named,
        c.conversation_id is not null as conversation_found,
        b.code as blocked,
        b.blocking_run_id,
        moderation_chain_v1(a.application_id) as chain_id
    from access_v1(p_subject, p_groups, p_application_id) acc
    left join application a on acc.visible and a.application_id = p_application_id
    left join provider p on p.provider_id = a.provider_id
    left join submission s on s.account_id = acc.account_id and s.application_id = a.application_id
        and s.submission_id = p_submission_id
    left join conversation_alias n on n.account_id = acc.account_id and n.application_id = a.application_id
        and n.client_thread = p_client_thread
    left join conversation c on c.account_id = acc.account_id and c.application_id = a.application_id
        and c.conversation_id = coalesce(p_conversation_id, n.conversation_id) and c.deleted_at is null
    left join lateral conversation_block_v2(c.conversation_id) b on c.conversation_id is not null;
end
$$;

-- Admission, as admit_named_v1; and the application may have been hidden from the caller while a moderator thought. With the verdict
-- 'admitted' comes what the run needs of its application and of its conversation's binding, under the locks that pin their versions.
create function admit_v3(
    p_subject text, p_claimed_groups text[],
    p_account_id uuid, p_application_id uuid, p_submission_id text, p_fingerprint bytea,
    p_conversation_id uuid, p_new_conversation_id uuid, p_title text,
    p_run_id uuid, p_attempt_token uuid, p_correlation_id uuid, p_item_id uuid, p_text text,
    p_groups text[], p_max_per_user integer, p_max_per_application integer, p_lease_seconds double precision, p_quota_zone text,
    p_text_sha256 bytea, p_chain_id uuid, p_providers text[], p_versions text[], p_durations double precision[], p_client_thread text,
    out verdict text, out run_id uuid, out conversation_id uuid, out created_conversation boolean, out fingerprint bytea,
    out config_version bigint, out token_version bigint, out created_at timestamptz,
    out blocking_run_id uuid, out blocked text, out quota jsonb,
    out backend_type text, out assistant_id text, out human_input boolean, out base_url text, out token_ciphertext bytea,
    out token_key_id text, out thread_id text, out bound_fingerprint bytea, out binding_invalidated boolean)
language plpgsql as $$
begin
    select m.verdict, m.run_id, m.conversation_id, m.created_conversation, m.fingerprint, m.config_version, m.token_version, m.created_at,
        m.blocking_run_id, m.blocked, m.quota
    into verdict, run_id, conversation_id, created_conversation, fingerprint, config_version, token_version, created_at,
        blocking_run_id, blocked, quota
    from admit_named_v1(p_account_id, p_application_id, p_submission_id, p_fingerprint, p_conversation_id, p_new_conversation_id, p_title,
        p_run_id, p_attempt_token, p_correlation_id, p_item_id, p_text, p_groups, p_max_per_user, p_max_per_application, p_lease_seconds,
        p_quota_zone, p_text_sha256, p_chain_id, p_providers, p_versions, p_durations, p_client_thread) m;
    if verdict <> 'admitted' then
        return;
    end if;
    if not exists (select from access_v1(p_subject, p_claimed_groups, p_application_id) acc where acc.visible) then
        verdict := 'not_found';
        return;
    end if;
    select a.backend_type, a.assistant_id, a.human_input, p.base_url, a.token_ciphertext, a.token_key_id
    into backend_type, assistant_id, human_input, base_url, token_ciphertext, token_key_id
    from application a
    join provider p on p.provider_id = a.provider_id
    where a.application_id = p_application_id;
    if not created_conversation then
        select b.thread_id, b.fingerprint, b.invalidated_at is not null into thread_id, bound_fingerprint, binding_invalidated
        from binding b where b.conversation_id = admit_v3.conversation_id;
    end if;
end
$$;

-- dispatched -> running at RUN_STARTED, and the native run id as soon as it is known. Repeating it changes nothing.
create function start_v1(
    p_run_id uuid, p_attempt_token uuid, p_native_run_id text, p_lookup_first_seconds double precision, p_sources text[])
returns table (updated_at timestamptz)
language plpgsql as $$
#variable_conflict use_column
begin
    return query
    with moved as (
        update run r set
            execution = case when r.execution = 'dispatched' then 'running' else r.execution end,
            started_at = coalesce(r.started_at, clock_timestamp()),
            native_run_id = coalesce(r.native_run_id, p_native_run_id),
            -- expired meanwhile, with nothing to be looked up by: now there is
            attention = case when r.execution = 'unknown' and p_native_run_id is not null and r.native_run_id is null
                then null else r.attention end,
            next_lookup_at = case when r.execution = 'unknown' and p_native_run_id is not null and r.native_run_id is null
                then clock_timestamp() + make_interval(secs => p_lookup_first_seconds) else r.next_lookup_at end,
            updated_at = clock_timestamp()
        where r.run_id = p_run_id and r.attempt_token = p_attempt_token
            and r.execution = any (p_sources)
            and (r.started_at is null or (r.native_run_id is null and p_native_run_id is not null))
        returning r.run_id, r.native_run_id, r.updated_at
    ), noted as (
        insert into evidence (run_id, kind, detail)
        select m.run_id, 'started', jsonb_build_object('native_run_id_known', m.native_run_id is not null) from moved m
    )
    select m.updated_at from moved m;
end
$$;

-- One transaction for the end of a run: execution, evidence, snapshot, items. Guarded by the states, never by the lease; text of the
-- token holder is taken also when somebody else settled the execution first, and what it saw of a run that expired to unknown. Locks in
-- the fixed order: conversation, run.
create function settle_v1(
    p_run_id uuid, p_attempt_token uuid, p_conversation_id uuid, p_sources text[], p_execution text, p_reason text, p_attention text,
    p_blocks text, p_persistence_sources text[], p_persistence text, p_holds_slot boolean, p_over boolean, p_late_text boolean,
    p_over_states text[], p_started boolean, p_native_run_id text, p_lookup_first_seconds double precision, p_complete boolean,
    p_body bytea, p_sha256 bytea, p_positions integer[], p_item_ids uuid[], p_types text[], p_texts text[], p_completes boolean[],
    p_names text[], p_statuses text[], p_parents integer[], p_evidence_kind text, p_evidence_detail jsonb, p_interrupt_id uuid,
    p_native_interrupt_id text, p_prompt_title text, p_prompt_description text, p_comment_max_chars integer, p_expires_at timestamptz,
    p_digest bytea)
returns table (
    execution text, persistence text, updated_at timestamptz, finished_at timestamptz, asked text, written text)
language plpgsql as $$
#variable_conflict use_column
begin
    return query
    with held as (
        select c.conversation_id from conversation c
        where c.conversation_id = p_conversation_id and p_blocks is not null
        for no key update
    ), moved as (
        update run r set
            execution = case when r.execution = any (p_sources) then p_execution else r.execution end,
            reason = case when r.execution = any (p_sources) then p_reason else r.reason end,
            attention = case when r.execution = any (p_sources) then p_attention end,
            unknown_at = case when p_execution = 'unknown' then coalesce(r.unknown_at, clock_timestamp()) else r.unknown_at end,
            next_lookup_at = case
                when p_execution = 'unknown' and p_attention is distinct from 'operator'
                    and can_be_looked_up_v1(coalesce(r.native_run_id, p_native_run_id), r.application_id)
                then clock_timestamp() + make_interval(secs => p_lookup_first_seconds) end,
            next_save_at = case when p_persistence = 'pending' then clock_timestamp() end,
            persistence = case when r.persistence = any (p_persistence_sources) then p_persistence else r.persistence end,
            user_slot = case when p_holds_slot then r.user_slot end,
            application_slot = case when p_holds_slot then r.application_slot end,
            lease_until = null,
            lookup_claim = null,
            started_at = coalesce(r.started_at, case when p_started then clock_timestamp() end),
            native_run_id = coalesce(r.native_run_id, p_native_run_id),
            finished_at = case when p_over then coalesce(r.finished_at, clock_timestamp()) else r.finished_at end,
            updated_at = clock_timestamp()
        where r.run_id = p_run_id and r.attempt_token = p_attempt_token
            and (select count(*) from held) >= 0
            and (r.execution = any (p_sources)
                or (p_late_text and r.execution = any (p_over_states) and r.persistence = any (p_persistence_sources)))
        returning r.run_id, r.conversation_id, r.sequence, r.execution, r.persistence, r.updated_at, r.finished_at
    ), kept as (
        insert into snapshot as s (run_id, revision, complete, body, sha256)
        select m.run_id, 1, p_complete, p_body, p_sha256 from moved m
        where m.persistence = p_persistence and p_persistence <> 'none'
        on conflict (run_id) do update set
            revision = s.revision + 1, complete = excluded.complete, body = excluded.body, sha256 = excluded.sha256, updated_at = now()
        where not s.complete
    ), blocked as (
        update conversation c set
            blocked_reason = coalesce(c.blocked_reason, p_blocks), updated_at = now()
        from moved m, held h
        where c.conversation_id = m.conversation_id and h.conversation_id = m.conversation_id
    ), noted as (
        insert into evidence (run_id, kind, detail)
        select m.run_id, p_evidence_kind, p_evidence_detail from moved m
    )
    select m.execution, m.persistence, m.updated_at, m.finished_at,
        case when m.execution = 'waiting' and p_interrupt_id is not null then
            ask_v1(m.run_id, p_interrupt_id, p_native_interrupt_id, p_prompt_title, p_prompt_description,
                p_comment_max_chars, p_expires_at, p_digest)::text end as asked,
        case when m.persistence = 'saved' and p_persistence = 'saved' then
            write_items_v1(m.run_id, m.conversation_id, m.sequence,
                p_positions, p_item_ids, p_types, p_texts, p_completes,
                p_names, p_statuses, p_parents)::text end as written
    from moved m;
end
$$;
