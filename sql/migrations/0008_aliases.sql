-- What AG-UI clients call conversations: written in the transaction that admits the first run under a name.

create table conversation_alias (
    account_id uuid not null,
    application_id uuid not null,
    client_thread text not null constraint alias_thread_form check (char_length(client_thread) between 1 and 200),
    conversation_id uuid not null,
    created_at timestamptz not null default now(),
    primary key (account_id, application_id, client_thread),
    constraint alias_of_its_owner foreign key (conversation_id, application_id, account_id)
        references conversation (conversation_id, application_id, account_id)
);
create index alias_of_conversation on conversation_alias (conversation_id);

-- Admission, as admit_v2, where the client may have a name for the conversation. First uses of one name wait for each other, before every
-- other lock; whoever comes second finds the conversation of the first. A name of a deleted conversation stays its name: not_found.
create function admit_named_v1(
    p_account_id uuid, p_application_id uuid, p_submission_id text, p_fingerprint bytea,
    p_conversation_id uuid, p_new_conversation_id uuid, p_title text,
    p_run_id uuid, p_attempt_token uuid, p_correlation_id uuid, p_item_id uuid, p_text text,
    p_groups text[], p_max_per_user integer, p_max_per_application integer, p_lease_seconds double precision, p_quota_zone text,
    p_text_sha256 bytea, p_chain_id uuid, p_providers text[], p_versions text[], p_durations double precision[], p_client_thread text,
    out verdict text, out run_id uuid, out conversation_id uuid, out created_conversation boolean, out fingerprint bytea,
    out config_version bigint, out token_version bigint, out created_at timestamptz,
    out blocking_run_id uuid, out blocked text, out quota jsonb)
language plpgsql as $$
declare
    v_conversation_id uuid := p_conversation_id;
begin
    if p_client_thread is not null then
        perform pg_advisory_xact_lock(hashtextextended('alias ' || p_account_id || ' ' || p_application_id || ' ' || p_client_thread, 0));
        select n.conversation_id into v_conversation_id from conversation_alias n
        where n.account_id = p_account_id and n.application_id = p_application_id and n.client_thread = p_client_thread;
    end if;
    select a.verdict, a.run_id, a.conversation_id, a.created_conversation, a.fingerprint, a.config_version, a.token_version, a.created_at,
        a.blocking_run_id, a.blocked, a.quota
    into verdict, run_id, conversation_id, created_conversation, fingerprint, config_version, token_version, created_at,
        blocking_run_id, blocked, quota
    from admit_v2(p_account_id, p_application_id, p_submission_id, p_fingerprint, v_conversation_id, p_new_conversation_id, p_title,
        p_run_id, p_attempt_token, p_correlation_id, p_item_id, p_text, p_groups, p_max_per_user, p_max_per_application, p_lease_seconds,
        p_quota_zone, p_text_sha256, p_chain_id, p_providers, p_versions, p_durations) a;
    if verdict = 'admitted' and p_client_thread is not null and created_conversation then
        insert into conversation_alias (account_id, application_id, client_thread, conversation_id)
        values (p_account_id, p_application_id, p_client_thread, conversation_id);
    end if;
end
$$;
