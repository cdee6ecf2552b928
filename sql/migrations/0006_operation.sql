-- Operation: admission that an operator can close for all replicas, retention of what people deleted and of the audit trail, settings of hot tables.

-- While this row is there no run is admitted, by any replica of any version: the trigger below refuses the insert, and every version
-- takes that for a database that cannot be asked: 503 admission_unavailable, nothing charged, nothing written.
create table admission_closed (
    one boolean primary key default true constraint admission_closed_once check (one),
    closed_at timestamptz not null default clock_timestamp(),
    actor text not null,
    reason text not null constraint admission_closed_reason_form check (char_length(reason) between 1 and 1000)
);

-- Whoever closes takes the lock alone, so that no admission that saw it open commits after it was told to be closed.
create function admission_open_v1() returns trigger
language plpgsql as $$
begin
    perform pg_advisory_xact_lock_shared(hashtextextended('admission', 0));
    -- a statement of its own, begun after the lock
    if exists (select from admission_closed) then
        raise exception 'admission is closed' using errcode = 'operator_intervention';
    end if;
    return null;
end
$$;
create trigger run_admission_open after insert on run for each statement execute function admission_open_v1();

-- How often a request of `gateway check --through` arrived at any replica: a second time means that somebody on the way repeats it.
create table edge_check (
    check_id uuid primary key,
    seen integer not null default 1,
    at timestamptz not null default clock_timestamp()
);

-- Retention. What a user said and was told in a conversation that is deleted for long is erased; ids, states and submissions stay, so that no
-- replay executes again (contract F6) and no thread is used twice (C8).
alter table conversation add column erased_at timestamptz
    constraint conversation_erased_is_deleted check (erased_at is null or deleted_at is not null);
-- squawk-ignore require-concurrent-index-creation
create index conversation_to_erase on conversation (deleted_at) where deleted_at is not null and erased_at is null;

-- The beginning of the audit trail can be taken away, oldest first, behind an anchor: the id and the hash of the last entry that went. The anchor
-- is named by an entry of the trail itself, so the chain that is left proves where it begins.
create table audit_anchor (
    audit_id bigint primary key,
    sha256 bytea not null constraint audit_anchor_hash_form check (octet_length(sha256) = 32),
    removed bigint not null constraint audit_anchor_removed_form check (removed > 0),
    at timestamptz not null default clock_timestamp()
);
create trigger audit_anchor_append_only before update or delete or truncate on audit_anchor
    for each statement execute function audit_append_only_v1();
alter table audit_anchor enable always trigger audit_anchor_append_only;

-- Nobody removes what is younger than thirty days, nor the newest entry, nor what is not there, whatever they set.
create function audit_anchor_holds_v1() returns trigger
language plpgsql as $$
begin
    if not exists (
        select from audit a
        where a.audit_id = new.audit_id and a.sha256 = new.sha256 and a.at < clock_timestamp() - interval '30 days'
            and exists (select from audit later where later.audit_id > a.audit_id))
    then
        raise exception 'an anchor is of an entry that is there, older than thirty days, and not the newest' using errcode = 'restrict_violation';
    end if;
    return new;
end
$$;
create trigger audit_anchor_holds before insert on audit_anchor for each row execute function audit_anchor_holds_v1();
alter table audit_anchor enable always trigger audit_anchor_holds;

-- A removal goes no further than an anchor of its own transaction.
create function audit_removal_is_anchored_v1() returns trigger
language plpgsql as $$
declare
    v_anchor bigint;
begin
    select max(n.audit_id) into v_anchor from audit_anchor n where n.xmin = pg_current_xact_id()::xid;
    if v_anchor is null or exists (select from removed r where r.audit_id > v_anchor) then
        raise exception 'the audit trail is append-only' using errcode = 'restrict_violation';
    end if;
    return null;
end
$$;
drop trigger audit_append_only on audit;
create trigger audit_append_only before update or truncate on audit
    for each statement execute function audit_append_only_v1();
alter table audit enable always trigger audit_append_only;
create trigger audit_removal_is_anchored after delete on audit referencing old table as removed
    for each statement execute function audit_removal_is_anchored_v1();
alter table audit enable always trigger audit_removal_is_anchored;

-- Takes away at most p_limit of the oldest entries that are older than p_days, and records that it did. Returns how many went.
create function audit_prune_v1(p_days integer, p_limit integer) returns bigint
language plpgsql as $$
declare
    v_audit_id bigint;
    v_sha256 bytea;
    v_removed bigint;
begin
    perform pg_advisory_xact_lock(hashtextextended('audit', 0));
    select o.audit_id, o.sha256 into v_audit_id, v_sha256
    from (
        select a.audit_id, a.sha256, a.at from audit a
        where a.audit_id < (select max(newest.audit_id) from audit newest)
        order by a.audit_id limit p_limit
    ) o
    where o.at < clock_timestamp() - make_interval(days => greatest(p_days, 30))
    order by o.audit_id desc limit 1;
    if v_audit_id is null then
        return 0;
    end if;
    select count(*) into v_removed from audit a where a.audit_id <= v_audit_id;
    insert into audit_anchor (audit_id, sha256, removed) values (v_audit_id, v_sha256, v_removed);
    delete from audit a where a.audit_id <= v_audit_id;
    perform audit_v1('gateway', 'audit_prune', 'gateway', 'audit', null, jsonb_build_object(
        'through', v_audit_id, 'removed', v_removed, 'sha256', encode(v_sha256, 'hex')));
    return v_removed;
end
$$;

-- squawk-ignore ban-drop-constraint
alter table audit drop constraint audit_act_known;
alter table audit add constraint audit_act_known check (act in (
    'run_text_read', 'run_lookup', 'run_save_retry', 'run_resolve',
    'provider_create', 'provider_set', 'provider_disable', 'provider_enable',
    'app_create', 'app_set', 'app_disable', 'app_enable', 'app_set_token',
    'account_create', 'account_set', 'account_suspend', 'account_activate',
    'quota_set', 'quota_remove',
    'moderation_set', 'keys_rekey', 'admission_close', 'admission_open', 'audit_prune')) not valid;

-- Rows that change many times: cleaned by their number, not by a share of a table that grows for months, so that their indexes stay small.
alter table run set (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500, autovacuum_analyze_scale_factor = 0.02);
alter table snapshot set (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500);
alter table conversation set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
alter table replica set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100, fillfactor = 50);
alter table quota_usage set (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 200, fillfactor = 70);
-- Tables that only grow: their statistics must follow, and an index-only look at what is new must not wait for a freeze.
alter table item set (autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
alter table evidence set (autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
