-- Admission and fence as versioned functions: one round trip each, because round trips are their cost (docs/decisions/0003).

-- Why a conversation takes no new task, and the run that is the cause: the one copy of design.md "A conversation takes no new task".
create function conversation_block_v1(p_conversation_id uuid, out code text, out blocking_run_id uuid)
language sql stable as $$
    select why.code, why.run_id
    from (
        select 1 as rank, c.blocked_reason as code, null::uuid as run_id
        from conversation c where c.conversation_id = p_conversation_id and c.blocked_reason is not null
        union all
        select 2, 'binding_invalidated', null
        from binding b where b.conversation_id = p_conversation_id and b.invalidated_at is not null
        union all
        select case
                when r.execution in ('reserved', 'dispatched', 'running', 'unknown') then 3
                when r.persistence = 'pending' then 4
                when r.execution = 'waiting' then 5
                else 6 end,
            case
                when r.execution in ('reserved', 'dispatched', 'running', 'unknown') then 'run_active'
                when r.persistence = 'pending' then 'save_pending'
                when r.execution = 'waiting' then 'waiting_for_decision'
                else 'incomplete_answer' end,
            r.run_id
        from run r
        where r.conversation_id = p_conversation_id
            and (r.execution in ('reserved', 'dispatched', 'running', 'unknown')
                or r.persistence = 'pending'
                or (r.execution = 'waiting' and r.answered_by is null)
                or (r.execution = 'succeeded' and r.persistence = 'incomplete'
                    and r.acknowledged_at is null and r.resolved_at is null))
    ) why
    order by why.rank
    limit 1
$$;

-- The start of the calendar window that holds `p_at`, in the zone of the deployment.
create function quota_window_start_v1(p_window text, p_at timestamptz, p_zone text) returns timestamptz
language sql stable as $$
    select date_trunc(p_window, p_at at time zone p_zone) at time zone p_zone
$$;

create function quota_window_end_v1(p_window text, p_at timestamptz, p_zone text) returns timestamptz
language sql stable as $$
    select (date_trunc(p_window, p_at at time zone p_zone) + ('1 ' || p_window)::interval) at time zone p_zone
$$;

-- Why an application takes no new task; null when it does. Human approval needs the native profile, which this version does not serve.
create function application_closed_v1(
    p_backend_type text, p_human_input boolean, p_enabled boolean, p_provider_enabled boolean, p_has_token boolean) returns text
language sql immutable as $$
    select case
        when p_backend_type <> 'langchain' or p_human_input then 'backend_not_served'
        when not (p_enabled and p_provider_enabled and p_has_token) then 'app_disabled' end
$$;

-- Admission (contract C5): submission, slots, charge, user message, run and, for a first message, the conversation. All or nothing: any
-- verdict but 'admitted' is rolled back by the caller. Locks in the fixed order: application, user, conversation, quota rows. The insert of
-- the submission comes first and waits for a concurrent or lost transaction with the same id, before any lock is held.
create function admit_v1(
    p_account_id uuid, p_application_id uuid, p_submission_id text, p_fingerprint bytea,
    p_conversation_id uuid, p_new_conversation_id uuid, p_title text,
    p_run_id uuid, p_attempt_token uuid, p_correlation_id uuid, p_item_id uuid, p_text text,
    p_groups text[], p_max_per_user integer, p_max_per_application integer, p_lease_seconds double precision, p_quota_zone text,
    out verdict text, out run_id uuid, out conversation_id uuid, out created_conversation boolean, out fingerprint bytea,
    out config_version bigint, out token_version bigint, out created_at timestamptz,
    out blocking_run_id uuid, out blocked text, out retry_after_seconds integer)
language plpgsql as $$
declare
    v_application application%rowtype;
    v_submission submission%rowtype;
    v_account_state text;
    v_conversation conversation%rowtype;
    v_user_slot integer;
    v_application_slot integer;
    v_sequence bigint;
    v_rule record;
    v_provider_enabled boolean;
begin
    conversation_id := coalesce(p_conversation_id, p_new_conversation_id);
    created_conversation := p_conversation_id is null;
    insert into submission as s (account_id, application_id, submission_id, fingerprint, run_id, conversation_id, created_conversation)
    values (p_account_id, p_application_id, p_submission_id, p_fingerprint, p_run_id, conversation_id, created_conversation)
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
    if not found then
        verdict := 'not_found';
        return;
    end if;
    select p.enabled into v_provider_enabled from provider p where p.provider_id = v_application.provider_id;
    verdict := application_closed_v1(v_application.backend_type, v_application.human_input, v_application.enabled, v_provider_enabled,
        v_application.token_ciphertext is not null);
    if verdict is not null then
        return;
    end if;

    select a.state into v_account_state from account a where a.account_id = p_account_id for no key update;
    if v_account_state is distinct from 'active' then
        verdict := 'account_inactive';
        return;
    end if;

    if p_conversation_id is null then
        insert into conversation as c (conversation_id, application_id, account_id, title, last_sequence)
        values (p_new_conversation_id, p_application_id, p_account_id, p_title, 1);
        v_sequence := 1;
    else
        select * into v_conversation from conversation c
        where c.conversation_id = p_conversation_id and c.application_id = p_application_id and c.account_id = p_account_id
            and c.deleted_at is null
        for no key update;
        if not found then
            verdict := 'not_found';
            return;
        end if;
        select b.code, b.blocking_run_id into blocked, blocking_run_id from conversation_block_v1(p_conversation_id) b;
        if blocked is not null then
            verdict := 'conversation_refused';
            return;
        end if;
        v_sequence := v_conversation.last_sequence + 1;
        update conversation c set last_sequence = v_sequence, updated_at = now() where c.conversation_id = p_conversation_id;
    end if;

    -- The smallest free number, while fewer than allowed are held: after a limit was lowered, higher numbers may still be.
    select min(n) into v_user_slot from generate_series(1, p_max_per_user) n
    where not exists (select from run r where r.account_id = p_account_id and r.user_slot = n)
        and (select count(*) from run r where r.account_id = p_account_id and r.user_slot is not null) < p_max_per_user;
    if v_user_slot is null then
        verdict := 'user_busy';
        select r.run_id into blocking_run_id from run r
        where r.account_id = p_account_id and r.user_slot is not null order by r.created_at limit 1;
        return;
    end if;
    select min(n) into v_application_slot from generate_series(1, p_max_per_application) n
    where not exists (select from run r where r.application_id = p_application_id and r.application_slot = n)
        and (select count(*) from run r where r.application_id = p_application_id and r.application_slot is not null)
            < p_max_per_application;
    if v_application_slot is null then
        verdict := 'app_busy';
        return;
    end if;

    run_id := p_run_id;
    config_version := v_application.config_version;
    token_version := v_application.token_version;
    created_at := now();
    insert into run as r (run_id, account_id, application_id, conversation_id, submission_id, sequence, execution, attempt_token,
        correlation_id, lease_until, config_version, token_version, user_slot, application_slot)
    values (p_run_id, p_account_id, p_application_id, conversation_id, p_submission_id, v_sequence, 'reserved', p_attempt_token,
        p_correlation_id, clock_timestamp() + make_interval(secs => p_lease_seconds), v_application.config_version,
        v_application.token_version, v_user_slot, v_application_slot);
    insert into item (run_id, position, conversation_id, sequence, item_id, type, role, text, complete)
    values (p_run_id, 0, conversation_id, v_sequence, p_item_id, 'message', 'user', p_text, true);

    -- quota rows last, by rule id: the fixed lock order. A window starts and ends by the database's clock.
    for v_rule in
        select q.quota_rule_id, q.task_limit,
            case q.scope when 'user' then p_account_id::text when 'app' then p_application_id::text else q.group_name end as bucket,
            quota_window_start_v1(q.calendar_window, now(), p_quota_zone) as window_start,
            quota_window_end_v1(q.calendar_window, now(), p_quota_zone) as window_end
        from quota_rule q
        where q.removed_at is null
            and (q.application_id is null or q.application_id = p_application_id)
            and (q.scope <> 'group' or q.group_name = any (p_groups))
        order by q.quota_rule_id
    loop
        insert into quota_usage as u (quota_rule_id, bucket, window_start, used)
        values (v_rule.quota_rule_id, v_rule.bucket, v_rule.window_start, 1)
        on conflict on constraint quota_usage_pkey do update set used = u.used + 1 where u.used < v_rule.task_limit;
        if not found then
            verdict := 'quota_exhausted';
            retry_after_seconds := greatest(1, ceil(extract(epoch from v_rule.window_end - clock_timestamp())))::integer;
            return;
        end if;
        insert into quota_charge (run_id, quota_rule_id, bucket, window_start)
        values (p_run_id, v_rule.quota_rule_id, v_rule.bucket, v_rule.window_start);
    end loop;
    verdict := 'admitted';
end
$$;

-- The fence (design.md "From request to POST" 4): after its commit the one POST may have been sent. Any verdict but 'dispatched' changed
-- nothing. The endpoint's thread is bound to the conversation here, and nowhere else.
create function fence_v1(
    p_run_id uuid, p_attempt_token uuid, p_thread_id text, p_endpoint_fingerprint bytea, p_fingerprint bytea,
    p_lease_seconds double precision,
    out verdict text, out fenced_at timestamptz)
language plpgsql as $$
declare
    v_run run%rowtype;
    v_application application%rowtype;
    v_binding binding%rowtype;
begin
    select * into v_run from run r where r.run_id = p_run_id for update;
    if not found or v_run.execution <> 'reserved' or v_run.attempt_token <> p_attempt_token then
        verdict := 'not_ours';
        return;
    end if;
    if v_run.lease_until <= clock_timestamp() then
        verdict := 'lease_lost';
        return;
    end if;
    select * into v_application from application a where a.application_id = v_run.application_id;
    if v_application.config_version <> v_run.config_version or v_application.token_version <> v_run.token_version then
        verdict := 'configuration_changed';
        return;
    end if;
    if not v_application.enabled
        or not (select p.enabled from provider p where p.provider_id = v_application.provider_id) then
        verdict := 'app_disabled';
        return;
    end if;
    if (select a.state from account a where a.account_id = v_run.account_id) <> 'active' then
        verdict := 'rights_changed';
        return;
    end if;
    if (select c.deleted_at from conversation c where c.conversation_id = v_run.conversation_id) is not null then
        verdict := 'conversation_deleted';
        return;
    end if;
    select * into v_binding from binding b where b.conversation_id = v_run.conversation_id;
    if found then
        if v_binding.invalidated_at is not null or v_binding.fingerprint <> p_fingerprint or v_binding.thread_id <> p_thread_id then
            verdict := 'binding_invalidated';
            return;
        end if;
    else
        insert into binding (conversation_id, thread_id, endpoint_fingerprint, fingerprint)
        values (v_run.conversation_id, p_thread_id, p_endpoint_fingerprint, p_fingerprint)
        on conflict on constraint binding_thread_fresh do nothing;
        if not found then
            verdict := 'thread_not_fresh';
            return;
        end if;
    end if;
    fenced_at := clock_timestamp();
    update run r set execution = 'dispatched', fence_at = fenced_at, updated_at = fenced_at,
        lease_until = clock_timestamp() + make_interval(secs => p_lease_seconds)
    where r.run_id = p_run_id;
    insert into evidence (run_id, kind) values (p_run_id, 'fence');
    verdict := 'dispatched';
end
$$;

-- Who may see an application (contract A6): the one copy of the rule, for every statement that asks.
create function application_visible_v1(
    p_visibility text, p_application_groups text[], p_owner_subject text, p_users text[], p_subject text, p_groups text[]) returns boolean
language sql immutable as $$
    select case p_visibility
        when 'public' then true
        when 'group' then p_application_groups && p_groups
        else coalesce(p_owner_subject = p_subject, false) or p_subject = any (p_users) end
$$;

-- What a caller is here: the account, its groups (the union of the claim's and ours), and whether the application is visible to it.
-- No row: there is no such account.
create function access_v1(
    p_subject text, p_claimed_groups text[], p_application_id uuid,
    out account_id uuid, out account_state text, out all_groups text[], out account_roles text[], out visible boolean)
returns setof record
language sql stable as $$
    select a.account_id, a.state, g.all_groups, a.roles,
        exists (
            select from application p
            where p.application_id = p_application_id
                and application_visible_v1(p.visibility, p.groups, p.owner_subject, p.users, p_subject, g.all_groups))
    from account a
    cross join lateral (select coalesce(array_agg(distinct x), '{}') as all_groups from unnest(a.groups || p_claimed_groups) x) g
    where a.subject = p_subject
$$;

-- Returns the charges of runs that were never executed, once each (contract C4). Takes the usage rows in admission's order, so that the
-- two never wait for each other in a circle.
create function refund_v1(p_run_ids uuid[]) returns void
language plpgsql as $$
begin
    perform from quota_usage u
    where exists (
        select from quota_charge q
        where q.run_id = any (p_run_ids) and q.refunded_at is null
            and q.quota_rule_id = u.quota_rule_id and q.bucket = u.bucket and q.window_start = u.window_start)
    order by u.quota_rule_id, u.bucket, u.window_start
    for update;
    with returned as (
        update quota_charge q set refunded_at = clock_timestamp()
        where q.run_id = any (p_run_ids) and q.refunded_at is null
        returning q.quota_rule_id, q.bucket, q.window_start
    ), lowered as (
        select t.quota_rule_id, t.bucket, t.window_start, count(*) as tasks from returned t group by 1, 2, 3
    )
    update quota_usage u set used = u.used - l.tasks
    from lowered l
    where u.quota_rule_id = l.quota_rule_id and u.bucket = l.bucket and u.window_start = l.window_start;
end
$$;

-- The items of a run from the parallel arrays that the program makes of a snapshot. Repeating it writes nothing again.
create function write_items_v1(
    p_run_id uuid, p_conversation_id uuid, p_sequence bigint, p_positions integer[], p_item_ids uuid[], p_types text[], p_texts text[],
    p_completes boolean[], p_names text[], p_statuses text[], p_parents integer[]) returns void
language sql as $$
    insert into item (run_id, position, conversation_id, sequence, item_id, type, role, text, complete, name, status, parent_position)
    select p_run_id, i.position, p_conversation_id, p_sequence, i.item_id, i.type, case when i.type = 'message' then 'assistant' end,
        i.text, i.complete, i.name, i.status, i.parent
    from unnest(p_positions, p_item_ids, p_types, p_texts, p_completes, p_names, p_statuses, p_parents)
        as i (position, item_id, type, text, complete, name, status, parent)
    on conflict (run_id, position) do nothing
$$;
