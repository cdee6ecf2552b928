-- Moderation that leaves a verdict for each text, chains per application, sliding windows of quota, and the admission that writes all of it.
-- Replicas of the version before go on with admit_v1. They know neither verdicts nor the new kinds of rules: set those when all replicas are new.

-- The moderators that an application's texts are shown to. A chain is never changed: setting one ends the one before, so that a verdict's
-- chain_id says for good who was asked.
create table moderation_chain (
    chain_id uuid primary key,
    -- null: of every application without a chain of its own
    application_id uuid references application,
    created_at timestamptz not null default now(),
    replaced_at timestamptz
);
create unique index moderation_chain_in_force on moderation_chain (application_id) nulls not distinct where replaced_at is null;

-- The moderators of a chain in the order in which they are asked; a chain without any is "none".
create table moderator (
    chain_id uuid not null references moderation_chain,
    position integer not null constraint moderator_position_form check (position >= 0),
    kind text not null constraint moderator_kind_known check (kind in ('local', 'openai', 'webhook')),
    url text constraint moderator_url_form check (char_length(url) between 1 and 2000),
    -- what the ciphertext is bound to: it stays when a chain is set anew with the same service and keeps its token
    token_owner uuid,
    token_ciphertext bytea,
    token_key_id text,
    primary key (chain_id, position),
    constraint moderator_service_has_url check ((kind = 'local') = (url is null)),
    constraint moderator_token_whole check (
        (token_ciphertext is null) = (token_key_id is null) and (token_ciphertext is null) = (token_owner is null)),
    constraint moderator_local_has_no_token check (kind <> 'local' or token_ciphertext is null)
);

-- What a moderator said of a text, never the text. With a run: written in the transaction that admitted it. Without: nothing came of the text.
create table moderation_verdict (
    verdict_id bigint generated always as identity primary key,
    at timestamptz not null default clock_timestamp(),
    account_id uuid not null references account,
    application_id uuid not null references application,
    submission_id text not null,
    run_id uuid references run,
    text_kind text not null constraint verdict_text_kind_known check (text_kind in ('message', 'comment')),
    text_sha256 bytea not null constraint verdict_digest_form check (octet_length(text_sha256) = 32),
    -- null: the chain of the replica's settings
    chain_id uuid references moderation_chain,
    position integer not null constraint verdict_position_form check (position >= 0),
    -- none: the chain is empty, and nobody was asked
    provider text not null constraint verdict_provider_known check (provider in ('none', 'local', 'openai', 'webhook')),
    version text constraint verdict_version_form check (char_length(version) between 1 and 200),
    outcome text not null constraint verdict_outcome_known check (outcome in ('allowed', 'refused', 'unavailable')),
    categories text[] not null default '{}',
    -- why no verdict came
    fault text constraint verdict_fault_form check (fault ~ '^[a-z_0-9]{1,40}$'),
    duration_seconds double precision not null constraint verdict_duration_form check (duration_seconds >= 0),
    -- what no verdict means; closed, always: the text is refused
    mode text not null default 'closed' constraint verdict_mode_known check (mode = 'closed'),
    constraint verdict_of_a_run_allows check (run_id is null or outcome = 'allowed'),
    constraint verdict_refused_has_category check ((outcome = 'refused') = (cardinality(categories) > 0)),
    constraint verdict_unavailable_has_fault check ((outcome = 'unavailable') = (fault is not null))
);
create index verdict_of_run on moderation_verdict (run_id) where run_id is not null;
create index verdict_without_run on moderation_verdict (at) where run_id is null;

-- Writes what was asked about one text, in order: all before the last allowed it, the last said `p_outcome`.
create function note_verdicts_v1(
    p_account_id uuid, p_application_id uuid, p_submission_id text, p_run_id uuid, p_text_kind text, p_text_sha256 bytea, p_chain_id uuid,
    p_providers text[], p_versions text[], p_durations double precision[], p_outcome text, p_categories text[], p_fault text) returns void
language sql as $$
    insert into moderation_verdict (account_id, application_id, submission_id, run_id, text_kind, text_sha256, chain_id, position, provider,
        version, duration_seconds, outcome, categories, fault)
    select p_account_id, p_application_id, p_submission_id, p_run_id, p_text_kind, p_text_sha256, p_chain_id, v.number - 1, v.provider,
        v.version, v.duration,
        case when v.number = cardinality(p_providers) then p_outcome else 'allowed' end,
        case when v.number = cardinality(p_providers) then p_categories else '{}' end,
        case when v.number = cardinality(p_providers) then p_fault end
    from unnest(p_providers, p_versions, p_durations) with ordinality as v (provider, version, duration, number)
$$;

-- The chain that is in force for an application; null: that of the replica's settings.
create function moderation_chain_v1(p_application_id uuid) returns uuid
language sql stable as $$
    select m.chain_id from moderation_chain m
    where m.replaced_at is null and (m.application_id = p_application_id or m.application_id is null)
    order by m.application_id nulls last
    limit 1
$$;

-- Rules with a window that slides, and limits on users for the members of a group. Replicas of the version before see neither column: to them
-- a rule counts in its calendar window, which is the next longer one, and a limit on members is one on all users.
alter table quota_rule
    add column sliding_seconds bigint constraint quota_sliding_form check (sliding_seconds between 60 and 366 * 86400),
    add column members_of text constraint quota_members_form check (scope = 'user' or members_of is null);

-- How long after its start a slice of a sliding window still counts: the window and the slice.
create function quota_reach_v1(p_sliding_seconds bigint) returns interval
language sql immutable as $$
    select make_interval(secs => p_sliding_seconds + p_sliding_seconds / 60.0)
$$;

-- The window of a rule that holds `p_at`, and when what was charged in it no longer counts. A sliding window is counted in slices of a
-- sixtieth of its length, each a row of quota_usage: a task counts until its whole slice has left the window, so that never more than the
-- limit lie in any window of that length.
create function quota_window_v1(
    p_calendar_window text, p_sliding_seconds bigint, p_at timestamptz, p_zone text, out window_start timestamptz, out leaves_at timestamptz)
language sql stable as $$
    select w.start,
        case
            when p_sliding_seconds is not null then w.start + quota_reach_v1(p_sliding_seconds)
            -- hours as time passes, days and months as the calendar of the zone has them: cut off, as a day may begin at one
            when p_calendar_window = 'hour' then w.start + interval '1 hour'
            else date_trunc(p_calendar_window, w.start at time zone p_zone + ('1 ' || p_calendar_window)::interval) at time zone p_zone end
    from (
        select case
            when p_sliding_seconds is null then date_trunc(p_calendar_window, p_at, p_zone)
            else date_bin(make_interval(secs => p_sliding_seconds / 60.0), p_at, timestamptz '2000-01-01 00:00:00Z') end as start
    ) w
$$;

-- Which rules count a task, and together with whose: the one copy of what scope, application and group mean.
create function quota_rules_v1(p_account_id uuid, p_application_id uuid, p_groups text[])
returns table (
    quota_rule_id uuid, scope text, application_id uuid, group_name text, task_limit bigint, calendar_window text, sliding_seconds bigint,
    bucket text)
language sql stable as $$
    select q.quota_rule_id, q.scope, q.application_id, g.group_name, q.task_limit,
        case when q.sliding_seconds is null then q.calendar_window end, q.sliding_seconds,
        case q.scope when 'user' then p_account_id::text when 'app' then p_application_id::text else g.group_name end
    from quota_rule q
    cross join lateral (select coalesce(q.group_name, q.members_of) as group_name) g
    where q.removed_at is null
        and (q.application_id is null or q.application_id = p_application_id)
        and (g.group_name is null or g.group_name = any (p_groups))
    order by q.quota_rule_id
$$;

-- What is used of one rule by one bucket at `p_at`, and when there will be more: `more_at` is when fewer than the limit are used again, or
-- where fewer are, when the oldest that are used no longer count. Null: nothing is used.
create function quota_used_v1(
    p_quota_rule_id uuid, p_bucket text, p_task_limit bigint, p_calendar_window text, p_sliding_seconds bigint, p_at timestamptz, p_zone text,
    out used bigint, out more_at timestamptz)
language sql stable as $$
    select coalesce(max(s.total), 0)::bigint, min(s.leaves_at) filter (where s.total - s.until_here < p_task_limit)
    from (
        select sum(u.used) over (order by u.window_start) as until_here, sum(u.used) over () as total,
            coalesce(u.window_start + quota_reach_v1(p_sliding_seconds), w.leaves_at) as leaves_at
        from quota_window_v1(p_calendar_window, p_sliding_seconds, p_at, p_zone) w
        join quota_usage u on u.quota_rule_id = p_quota_rule_id and u.bucket = p_bucket and u.used > 0
            and case when p_sliding_seconds is null then u.window_start = w.window_start
                else u.window_start > p_at - quota_reach_v1(p_sliding_seconds) end
    ) s
$$;

-- A rule and what is used of it, as people are told.
create function quota_state_v1(
    p_quota_rule_id uuid, p_scope text, p_group_name text, p_of_application boolean, p_calendar_window text, p_sliding_seconds bigint,
    p_task_limit bigint, p_used bigint, p_has_room boolean, p_more_at timestamptz, p_at timestamptz) returns jsonb
language sql stable as $$
    select jsonb_build_object(
        'quota_rule_id', p_quota_rule_id, 'scope', p_scope, 'group_name', p_group_name, 'of_application', p_of_application,
        'calendar_window', p_calendar_window, 'sliding_seconds', p_sliding_seconds, 'task_limit', p_task_limit, 'used', p_used,
        'has_room', p_has_room, 'more_at', p_more_at, 'more_in_seconds', extract(epoch from p_more_at - p_at))
$$;

-- Charges one task to every rule that counts it, in the order of their ids: the rows of usage, and for a sliding window the lock of its
-- bucket, are taken in one order by all. Every rule is looked at also when one has nothing left. `state` is what people are told: of each
-- rule its limit, what is used now, and when there is more; null where no rule counts the task. Nothing may stay of a charge
-- that is not `charged`: the caller rolls back. The run need not be there yet: its charges are what the caller writes by charged_*.
create function charge_quota_v1(
    p_account_id uuid, p_application_id uuid, p_groups text[], p_zone text,
    out charged boolean, out state jsonb, out charged_rules uuid[], out charged_buckets text[], out charged_windows timestamptz[])
language plpgsql as $$
declare
    v_rule record;
    v_at timestamptz;
    v_window record;
    v_used bigint;
    v_more_at timestamptz;
    v_has_room boolean;
begin
    charged := true;
    for v_rule in select * from quota_rules_v1(p_account_id, p_application_id, p_groups) loop
        if v_rule.sliding_seconds is not null then
            perform pg_advisory_xact_lock(hashtextextended('quota ' || v_rule.quota_rule_id || ' ' || v_rule.bucket, 0));
        end if;
        -- after the lock: what is charged is charged to when it is, by the clock of the database
        v_at := clock_timestamp();
        select * into v_window from quota_window_v1(v_rule.calendar_window, v_rule.sliding_seconds, v_at, p_zone);
        v_used := null;
        if v_rule.sliding_seconds is not null then
            select u.used, coalesce(u.more_at, v_window.leaves_at) into v_used, v_more_at
            from quota_used_v1(v_rule.quota_rule_id, v_rule.bucket, v_rule.task_limit, null, v_rule.sliding_seconds, v_at, p_zone) u;
        end if;
        if v_used is null or v_used < v_rule.task_limit then
            insert into quota_usage as u (quota_rule_id, bucket, window_start, used)
            values (v_rule.quota_rule_id, v_rule.bucket, v_window.window_start, 1)
            on conflict on constraint quota_usage_pkey do update set used = u.used + 1
            where u.used < v_rule.task_limit
            returning coalesce(v_used + 1, u.used) into v_used;
            v_has_room := found;
        else
            v_has_room := false;
        end if;
        charged := charged and v_has_room;
        if v_rule.sliding_seconds is null then
            v_more_at := v_window.leaves_at;
            if not v_has_room then
                select u.used into v_used from quota_usage u
                where u.quota_rule_id = v_rule.quota_rule_id and u.bucket = v_rule.bucket and u.window_start = v_window.window_start;
            end if;
        end if;
        state := coalesce(state, '[]') || quota_state_v1(v_rule.quota_rule_id, v_rule.scope, v_rule.group_name,
            v_rule.application_id is not null, v_rule.calendar_window, v_rule.sliding_seconds, v_rule.task_limit, v_used, v_has_room,
            v_more_at, v_at);
        charged_rules := charged_rules || v_rule.quota_rule_id;
        charged_buckets := charged_buckets || v_rule.bucket;
        charged_windows := charged_windows || v_window.window_start;
    end loop;
end
$$;

-- The smallest free numbers of a user and of an application, under the locks of both, while fewer than allowed are held: after a limit was
-- lowered, higher numbers may still be. Null: none is free; then `blocking_run_id` is the user's oldest active run, where it is the user's.
create function free_slots_v1(
    p_account_id uuid, p_application_id uuid, p_max_per_user integer, p_max_per_application integer,
    out user_slot integer, out application_slot integer, out blocking_run_id uuid)
language plpgsql as $$
begin
    select min(n) into user_slot from generate_series(1, p_max_per_user) n
    where not exists (select from run r where r.account_id = p_account_id and r.user_slot = n)
        and (select count(*) from run r where r.account_id = p_account_id and r.user_slot is not null) < p_max_per_user;
    if user_slot is null then
        select r.run_id into blocking_run_id from run r
        where r.account_id = p_account_id and r.user_slot is not null order by r.created_at limit 1;
        return;
    end if;
    select min(n) into application_slot from generate_series(1, p_max_per_application) n
    where not exists (select from run r where r.application_id = p_application_id and r.application_slot = n)
        and (select count(*) from run r where r.application_id = p_application_id and r.application_slot is not null)
            < p_max_per_application;
end
$$;

-- Admission, as admit_v1, and with it: the verdicts of moderation, which are of exactly this text or nothing is admitted; every quota rule
-- told; sliding windows. What a refusal would write and roll back again is written last. Locks in the fixed order: application, user,
-- conversation, quota buckets and rows by rule.
create function admit_v2(
    p_account_id uuid, p_application_id uuid, p_submission_id text, p_fingerprint bytea,
    p_conversation_id uuid, p_new_conversation_id uuid, p_title text,
    p_run_id uuid, p_attempt_token uuid, p_correlation_id uuid, p_item_id uuid, p_text text,
    p_groups text[], p_max_per_user integer, p_max_per_application integer, p_lease_seconds double precision, p_quota_zone text,
    p_text_sha256 bytea, p_chain_id uuid, p_providers text[], p_versions text[], p_durations double precision[],
    out verdict text, out run_id uuid, out conversation_id uuid, out created_conversation boolean, out fingerprint bytea,
    out config_version bigint, out token_version bigint, out created_at timestamptz,
    out blocking_run_id uuid, out blocked text, out quota jsonb)
language plpgsql as $$
declare
    v_application application%rowtype;
    v_submission submission%rowtype;
    v_account_state text;
    v_conversation conversation%rowtype;
    v_slots record;
    v_sequence bigint;
    v_charge record;
    v_provider_enabled boolean;
begin
    if p_text_sha256 is distinct from sha256(convert_to(p_text, 'UTF8')) or coalesce(cardinality(p_providers), 0) = 0 then
        raise exception 'no moderator was shown this text' using errcode = 'check_violation', constraint = 'admit_moderated_text';
    end if;
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
    verdict := application_closed_v2(v_application.backend_type, v_application.enabled, v_provider_enabled,
        v_application.token_ciphertext is not null);
    if verdict is not null then
        return;
    end if;

    select a.state into v_account_state from account a where a.account_id = p_account_id for no key update;
    if v_account_state is distinct from 'active' then
        verdict := 'account_inactive';
        return;
    end if;

    v_sequence := 1;
    if p_conversation_id is not null then
        select * into v_conversation from conversation c
        where c.conversation_id = p_conversation_id and c.application_id = p_application_id and c.account_id = p_account_id
            and c.deleted_at is null
        for no key update;
        if not found then
            verdict := 'not_found';
            return;
        end if;
        select b.code, b.blocking_run_id into blocked, blocking_run_id from conversation_block_v2(p_conversation_id) b;
        if blocked is not null then
            verdict := 'conversation_refused';
            return;
        end if;
        v_sequence := v_conversation.last_sequence + 1;
    end if;

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

    select * into v_charge from charge_quota_v1(p_account_id, p_application_id, p_groups, p_quota_zone);
    quota := v_charge.state;
    if not v_charge.charged then
        verdict := 'quota_exhausted';
        return;
    end if;

    run_id := p_run_id;
    config_version := v_application.config_version;
    token_version := v_application.token_version;
    created_at := now();
    if p_conversation_id is null then
        insert into conversation as c (conversation_id, application_id, account_id, title, last_sequence)
        values (p_new_conversation_id, p_application_id, p_account_id, p_title, v_sequence);
    else
        update conversation c set last_sequence = v_sequence, updated_at = now() where c.conversation_id = p_conversation_id;
    end if;
    insert into run as r (run_id, account_id, application_id, conversation_id, submission_id, sequence, execution, attempt_token,
        correlation_id, lease_until, config_version, token_version, user_slot, application_slot)
    values (p_run_id, p_account_id, p_application_id, conversation_id, p_submission_id, v_sequence, 'reserved', p_attempt_token,
        p_correlation_id, clock_timestamp() + make_interval(secs => p_lease_seconds), v_application.config_version,
        v_application.token_version, v_slots.user_slot, v_slots.application_slot);
    insert into item (run_id, position, conversation_id, sequence, item_id, type, role, text, complete)
    values (p_run_id, 0, conversation_id, v_sequence, p_item_id, 'message', 'user', p_text, true);
    perform note_verdicts_v1(p_account_id, p_application_id, p_submission_id, p_run_id, 'message', p_text_sha256, p_chain_id, p_providers,
        p_versions, p_durations, 'allowed', '{}', null);
    if v_charge.charged_rules is not null then
        insert into quota_charge (run_id, quota_rule_id, bucket, window_start)
        select p_run_id, c.rule, c.bucket, c.window_start
        from unnest(v_charge.charged_rules, v_charge.charged_buckets, v_charge.charged_windows) as c (rule, bucket, window_start);
    end if;
    verdict := 'admitted';
end
$$;
