-- The tables of the gateway. Each invariant that a constraint can hold is held by one; docs/schema.md explains them.
-- Times are the database's clock. Order is explicit: run.sequence within a conversation, item.position within a run.

create table account (
    account_id uuid primary key,
    subject text not null constraint account_subject_unique unique
        constraint account_subject_form check (char_length(subject) between 1 and 200),
    state text not null default 'active' constraint account_state_known check (state in ('active', 'suspended')),
    groups text[] not null default '{}',
    roles text[] not null default '{}',
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now()
);

create table provider (
    provider_id uuid primary key,
    name text not null constraint provider_name_unique unique
        constraint provider_name_form check (char_length(name) between 1 and 100),
    base_url text not null constraint provider_base_url_form check (char_length(base_url) between 1 and 2000),
    enabled boolean not null default true,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now()
);

create table application (
    application_id uuid primary key,
    provider_id uuid not null references provider,
    name text not null constraint application_name_unique unique
        constraint application_name_form check (char_length(name) between 1 and 100),
    description text not null default '' constraint application_description_form check (char_length(description) <= 2000),
    visibility text not null default 'public'
        constraint application_visibility_known check (visibility in ('public', 'group', 'private')),
    groups text[] not null default '{}',
    owner_subject text,
    users text[] not null default '{}',
    -- contract A3: a missing backend_type means dify, which is listed here and served elsewhere
    backend_type text not null default 'dify' constraint application_backend_known check (backend_type in ('dify', 'langchain')),
    assistant_id text constraint application_assistant_form check (char_length(assistant_id) between 1 and 200),
    human_input boolean not null default false,
    app_type text not null default 'marketplace' constraint application_app_type_form check (char_length(app_type) between 1 and 100),
    is_marketplace_app boolean not null default true,
    tags text[] not null default '{}',
    enabled boolean not null default true,
    -- raised by each change of endpoint, assistant or profile; a run pins both versions at admission and the fence compares them
    config_version bigint not null default 1,
    token_version bigint not null default 0,
    token_ciphertext bytea,
    token_key_id text,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    constraint application_langchain_has_assistant check (backend_type <> 'langchain' or assistant_id is not null),
    constraint application_token_whole check ((token_ciphertext is null) = (token_key_id is null))
);
create index application_by_provider on application (provider_id);

create table conversation (
    conversation_id uuid primary key,
    application_id uuid not null references application,
    account_id uuid not null references account,
    title text not null constraint conversation_title_form check (char_length(title) between 1 and 200),
    last_sequence bigint not null default 0,
    -- set once, for good: why the conversation takes no further task (domain/reasons.py)
    blocked_reason text,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    deleted_at timestamptz,
    constraint conversation_owner unique (conversation_id, application_id, account_id)
);
create index conversation_list on conversation (account_id, application_id, updated_at desc, conversation_id desc)
    where deleted_at is null;

-- Outlives the rows of its conversation, so that a replay never executes again (contract F6): no foreign key to run.
create table submission (
    account_id uuid not null references account,
    application_id uuid not null references application,
    submission_id text not null constraint submission_id_form check (submission_id ~ '^[\x21-\x7e]{1,200}$'),
    fingerprint bytea not null constraint submission_fingerprint_form check (octet_length(fingerprint) = 32),
    run_id uuid not null constraint submission_run_unique unique,
    conversation_id uuid not null,
    created_conversation boolean not null,
    created_at timestamptz not null default now(),
    primary key (account_id, application_id, submission_id)
);

create table run (
    run_id uuid primary key,
    kind text not null default 'task' constraint run_kind_known check (kind in ('task', 'resume')),
    account_id uuid not null,
    application_id uuid not null,
    conversation_id uuid not null,
    submission_id text not null,
    sequence bigint not null,
    execution text not null constraint run_execution_known check (execution in (
        'reserved', 'dispatched', 'running', 'unknown', 'waiting', 'succeeded', 'failed', 'released', 'closed')),
    persistence text not null default 'none' constraint run_persistence_known check (persistence in (
        'none', 'partial', 'pending', 'saved', 'incomplete')),
    reason text,
    native_status text,
    attention text constraint run_attention_known check (attention in ('operator', 'user')),
    -- only the process that holds this in memory may execute, renew or complete the run
    attempt_token uuid not null,
    correlation_id uuid not null constraint run_correlation_unique unique,
    lease_until timestamptz,
    config_version bigint not null,
    token_version bigint not null,
    -- the slots: held by the row itself. The smallest free number is taken under the lock of the user and of the application.
    user_slot integer constraint run_user_slot_form check (user_slot > 0),
    application_slot integer constraint run_application_slot_form check (application_slot > 0),
    fence_at timestamptz,
    started_at timestamptz,
    native_run_id text,
    next_lookup_at timestamptz,
    lookup_claim uuid,
    lookups integer not null default 0,
    -- look-ups that a person asked for, on top of the budget
    lookups_granted integer not null default 0,
    -- since when the outcome is unknown: look-ups go on for at most a day
    unknown_at timestamptz,
    -- when to try again to write the items of a pending run
    next_save_at timestamptz,
    acknowledged_at timestamptz,
    resolution_outcome text constraint run_resolution_known check (resolution_outcome in ('succeeded', 'failed', 'not_executed')),
    resolution_reason text,
    resolved_at timestamptz,
    answered_by uuid references run,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    finished_at timestamptz,
    constraint run_of_its_conversation foreign key (conversation_id, application_id, account_id)
        references conversation (conversation_id, application_id, account_id),
    constraint run_one_per_submission unique (account_id, application_id, submission_id),
    constraint run_order unique (conversation_id, sequence),
    -- a slot is held exactly in the slot-holding states: none leaks, none is used twice
    constraint run_slots_are_the_state check (
        (execution in ('reserved', 'dispatched', 'running', 'unknown')) = (user_slot is not null)
        and (user_slot is null) = (application_slot is null)),
    -- what no process is responsible for can expire: no slot without a lease, or an unknown that somebody sees
    constraint run_live_has_lease check (execution not in ('reserved', 'dispatched', 'running') or lease_until is not null),
    -- nothing but reserved and released exists without a fence
    constraint run_fence_first check (execution in ('reserved', 'released') or fence_at is not null),
    constraint run_native_id_differs check (native_run_id is null or native_run_id <> correlation_id::text),
    constraint run_saved_is_over check (
        persistence not in ('saved', 'pending', 'incomplete') or execution in ('succeeded', 'failed', 'closed')),
    constraint run_released_has_nothing check (execution <> 'released' or persistence = 'none'),
    constraint run_resolution_whole check (
        (resolution_outcome is null) = (resolution_reason is null) and (resolution_outcome is null) = (resolved_at is null)),
    constraint run_closed_is_resolved check (execution <> 'closed' or resolution_outcome is not null),
    constraint run_finished_is_over check (
        (execution in ('succeeded', 'failed', 'released', 'closed')) = (finished_at is not null))
);
-- the limit of a conversation is one, whatever the code does
create unique index run_one_active_per_conversation on run (conversation_id)
    where execution in ('reserved', 'dispatched', 'running', 'unknown');
create unique index run_user_slot_unique on run (account_id, user_slot) where user_slot is not null;
create unique index run_application_slot_unique on run (application_id, application_slot) where application_slot is not null;
-- what can block a conversation, and what its history shows from a snapshot instead of items
create index run_unsettled on run (conversation_id)
    where execution in ('reserved', 'dispatched', 'running', 'unknown', 'waiting')
    or persistence in ('partial', 'pending', 'incomplete');

create index run_expiry on run (lease_until) where execution in ('reserved', 'dispatched', 'running');
create index run_lookup_due on run (next_lookup_at) where execution = 'unknown';
create index run_save_due on run (next_save_at) where persistence = 'pending';

-- What was seen of a run's answer: a checkpoint while it is incomplete, the known snapshot once it is complete.
create table snapshot (
    run_id uuid primary key references run,
    revision bigint not null,
    complete boolean not null,
    body bytea not null,
    sha256 bytea not null constraint snapshot_hash_is_of_body check (sha256 = sha256(body)),
    updated_at timestamptz not null default now()
);

create table item (
    run_id uuid not null references run,
    position integer not null constraint item_position_form check (position >= 0),
    conversation_id uuid not null references conversation,
    sequence bigint not null,
    item_id uuid not null constraint item_id_unique unique,
    type text not null,
    role text,
    text text,
    complete boolean,
    name text,
    status text constraint item_status_known check (status in ('started', 'called', 'returned')),
    parent_position integer,
    created_at timestamptz not null default now(),
    primary key (run_id, position),
    constraint item_is_message_or_tool check (
        (type = 'message' and role in ('user', 'assistant') and text is not null and complete is not null
            and name is null and status is null and parent_position is null)
        or (type = 'tool' and name is not null and status is not null and role is null and text is null and complete is null)),
    constraint item_user_message_is_first check ((role is not distinct from 'user') = (position = 0))
);
create index item_history on item (conversation_id, sequence, position);

-- conversation <-> application + native thread. A thread belongs to one conversation (contract C8).
create table binding (
    conversation_id uuid primary key references conversation,
    thread_id text not null constraint binding_thread_form check (char_length(thread_id) between 1 and 200),
    endpoint_fingerprint bytea not null constraint binding_endpoint_form check (octet_length(endpoint_fingerprint) = 32),
    fingerprint bytea not null constraint binding_fingerprint_form check (octet_length(fingerprint) = 32),
    created_at timestamptz not null default now(),
    invalidated_at timestamptz,
    constraint binding_thread_fresh unique (endpoint_fingerprint, thread_id)
);

-- Append-only facts about a run. No payloads.
create table evidence (
    evidence_id bigint generated always as identity primary key,
    run_id uuid not null references run,
    at timestamptz not null default clock_timestamp(),
    kind text not null constraint evidence_kind_form check (kind ~ '^[a-z_]{1,40}$'),
    detail jsonb not null default '{}'
);
create index evidence_of_run on evidence (run_id, evidence_id);

create table quota_rule (
    quota_rule_id uuid primary key,
    scope text not null constraint quota_scope_known check (scope in ('user', 'group', 'app')),
    application_id uuid references application,
    group_name text,
    task_limit bigint not null constraint quota_limit_form check (task_limit > 0),
    calendar_window text not null constraint quota_window_known check (calendar_window in ('hour', 'day', 'month')),
    created_at timestamptz not null default now(),
    removed_at timestamptz,
    constraint quota_app_names_application check (scope <> 'app' or application_id is not null),
    constraint quota_group_names_group check ((scope = 'group') = (group_name is not null))
);

-- Used tasks of one rule, for one user, group or application, in one window. The row is the lock that serialises them.
create table quota_usage (
    quota_rule_id uuid not null references quota_rule,
    bucket text not null,
    window_start timestamptz not null,
    used bigint not null constraint quota_used_form check (used >= 0),
    primary key (quota_rule_id, bucket, window_start)
);

-- One charge a run and rule; returned at most once.
create table quota_charge (
    run_id uuid not null references run,
    quota_rule_id uuid not null references quota_rule,
    bucket text not null,
    window_start timestamptz not null,
    charged_at timestamptz not null default now(),
    refunded_at timestamptz,
    primary key (run_id, quota_rule_id),
    constraint quota_charge_has_usage foreign key (quota_rule_id, bucket, window_start) references quota_usage
);

-- One row a replica that lives or lived: when it last said so.
create table replica (
    replica_id uuid primary key,
    started_at timestamptz not null default now(),
    heartbeat_at timestamptz not null default now()
);
