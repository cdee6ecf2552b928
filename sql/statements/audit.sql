-- The audit trail: appended to by acts, read by operators, never changed.

-- name: record
-- Appends an entry; the last statement of its act's transaction.
select audit_v1(
    %(actor)s::text, %(act)s::text, %(target_kind)s::text, %(target_id)s::text, %(reason)s::text, %(detail)s::jsonb) as audit_id

-- name: page
-- Entries, newest first, before a given one.
select a.audit_id, a.at, a.actor, a.act, a.target_kind, a.target_id, a.reason, a.detail, a.sha256
from audit a
where %(before)s::bigint is null or a.audit_id < %(before)s::bigint
order by a.audit_id desc
limit %(limit)s::integer

-- name: texts
-- Entries in the order of the chain, each with the text that its hash is of.
select a.audit_id, a.previous_sha256, a.sha256,
    audit_text_v1(a.previous_sha256, a.audit_id, a.at, a.actor, a.act, a.target_kind, a.target_id, a.reason, a.detail) as text
from audit a
where a.audit_id > %(after)s::bigint
order by a.audit_id
limit %(limit)s::integer

-- name: anchor
-- Where the chain begins after retention, and whether an entry of the chain that is left names this very beginning.
select n.audit_id, n.sha256, exists (
    select from audit a
    where a.audit_id > n.audit_id and a.act = 'audit_prune'
        and a.detail ->> 'through' = n.audit_id::text and a.detail ->> 'sha256' = encode(n.sha256, 'hex')) as recorded
from audit_anchor n
order by n.audit_id desc
limit 1
