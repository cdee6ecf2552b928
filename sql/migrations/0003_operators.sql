-- The operators' part: the trail of what they did, and who resolved a run. The trail is append-only and each entry carries the hash of the
-- one before, so that whoever changes, removes or adds one behind our back shows up in `gateway audit verify`.

alter table run add column resolved_by text;

-- Whether a run waits for somebody to settle it: the one copy of design.md "Unresolved".
create function run_is_unresolved_v1(
    p_execution text, p_persistence text, p_acknowledged_at timestamptz, p_resolved_at timestamptz) returns boolean
language sql immutable as $$
    select p_execution = 'unknown'
        or p_persistence = 'pending'
        or (p_execution = 'succeeded' and p_persistence = 'incomplete' and p_acknowledged_at is null and p_resolved_at is null)
$$;

-- No secrets and no message text in here. `audit_id` counts from 1 without gaps: it is given under the lock of audit_v1.
create table audit (
    audit_id bigint primary key constraint audit_id_form check (audit_id > 0),
    at timestamptz not null,
    actor text not null constraint audit_actor_form check (char_length(actor) between 1 and 250),
    act text not null constraint audit_act_known check (act in (
        'run_text_read', 'run_lookup', 'run_save_retry', 'run_resolve',
        'provider_create', 'provider_set', 'provider_disable', 'provider_enable',
        'app_create', 'app_set', 'app_disable', 'app_enable', 'app_set_token',
        'account_create', 'account_set', 'account_suspend', 'account_activate',
        'quota_set', 'quota_remove',
        'moderation_set', 'keys_rekey', 'admission_close', 'admission_open')),
    target_kind text not null constraint audit_target_known check (target_kind in (
        'run', 'provider', 'application', 'account', 'quota_rule', 'gateway')),
    target_id text not null constraint audit_target_id_form check (char_length(target_id) between 1 and 200),
    reason text constraint audit_reason_form check (char_length(reason) between 1 and 1000),
    detail jsonb not null default '{}' constraint audit_detail_form check (jsonb_typeof(detail) = 'object'),
    -- one entry follows each: two writers at once, or an entry slipped in between, cannot make two chains
    previous_sha256 bytea not null constraint audit_one_chain unique
        constraint audit_previous_form check (octet_length(previous_sha256) = 32),
    sha256 bytea not null constraint audit_hash_form check (octet_length(sha256) = 32)
);
create index audit_of_target on audit (target_kind, target_id, audit_id);

create function audit_append_only_v1() returns trigger
language plpgsql as $$
begin
    raise exception 'the audit trail is append-only' using errcode = 'restrict_violation';
end
$$;

create trigger audit_append_only before update or delete or truncate on audit
    for each statement execute function audit_append_only_v1();
-- also where triggers are switched off for a session (session_replication_role)
alter table audit enable always trigger audit_append_only;

-- An entry as the one text that is hashed: a JSON array, so that no two entries read alike; jsonb writes its keys in one order, and the time
-- is in microseconds, whatever zone and style a session has.
create function audit_text_v1(
    p_previous_sha256 bytea, p_audit_id bigint, p_at timestamptz, p_actor text, p_act text, p_target_kind text, p_target_id text,
    p_reason text, p_detail jsonb) returns text
language sql stable as $$
    select jsonb_build_array(
        encode(p_previous_sha256, 'hex'), p_audit_id, (extract(epoch from p_at) * 1000000)::bigint, p_actor, p_act, p_target_kind,
        p_target_id, p_reason, p_detail)::text
$$;

-- Appends an entry, in the transaction of the act itself and last in it: its lock is the last of the fixed order, and held to the commit.
-- The first entry follows 32 zero bytes.
create function audit_v1(
    p_actor text, p_act text, p_target_kind text, p_target_id text, p_reason text, p_detail jsonb) returns bigint
language plpgsql as $$
declare
    v_audit_id bigint;
    v_previous_sha256 bytea;
    v_at timestamptz;
begin
    perform pg_advisory_xact_lock(hashtextextended('audit', 0));
    -- a statement of its own, begun after the lock: it sees what the one before us committed
    select a.audit_id, a.sha256 into v_audit_id, v_previous_sha256 from audit a order by a.audit_id desc limit 1;
    v_audit_id := coalesce(v_audit_id, 0) + 1;
    v_previous_sha256 := coalesce(v_previous_sha256, decode(repeat('00', 32), 'hex'));
    v_at := clock_timestamp();
    insert into audit (audit_id, at, actor, act, target_kind, target_id, reason, detail, previous_sha256, sha256)
    values (v_audit_id, v_at, p_actor, p_act, p_target_kind, p_target_id, p_reason, p_detail, v_previous_sha256,
        sha256(convert_to(audit_text_v1(
            v_previous_sha256, v_audit_id, v_at, p_actor, p_act, p_target_kind, p_target_id, p_reason, p_detail), 'UTF8')));
    return v_audit_id;
end
$$;
