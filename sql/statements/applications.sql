-- Applications: configuration, token, what users see of them. Locks: provider first, then applications with ids ascending.

-- name: create
-- A new application, enabled.
insert into application (
    application_id, provider_id, name, description, visibility, groups, owner_subject, users, backend_type, assistant_id, human_input,
    app_type, is_marketplace_app, tags, token_version, token_ciphertext, token_key_id)
values (
    %(application_id)s::uuid, %(provider_id)s::uuid, %(name)s::text, %(description)s::text, %(visibility)s::text, %(groups)s::text[],
    %(owner_subject)s::text, %(users)s::text[], %(backend_type)s::text, %(assistant_id)s::text, %(human_input)s::boolean,
    %(app_type)s::text, %(is_marketplace_app)s::boolean, %(tags)s::text[],
    case when %(token_ciphertext)s::bytea is null then 0 else 1 end, %(token_ciphertext)s::bytea, %(token_key_id)s::text)

-- name: one
-- One application by its id or its name, as operators see it.
select
    a.application_id, a.name, a.description, a.visibility, a.groups, a.owner_subject, a.users, a.backend_type, a.assistant_id,
    a.human_input, a.app_type, a.is_marketplace_app, a.tags, a.enabled, a.config_version, a.token_version, a.token_ciphertext,
    a.token_key_id, a.created_at, a.updated_at, a.provider_id, p.name as provider_name, p.base_url, p.enabled as provider_enabled,
    application_closed_v2(a.backend_type, a.enabled, p.enabled, a.token_ciphertext is not null) as closed,
    (select count(*) from run r where r.application_id = a.application_id and r.application_slot is not null and r.execution = 'unknown')
        as unknown_runs
from application a
join provider p on p.provider_id = a.provider_id
where a.application_id = %(id)s::uuid or a.name = %(name)s::text

-- name: page
-- Applications in the order of their names, after a given one, as operators see them.
select
    a.application_id, a.name, a.description, a.visibility, a.groups, a.owner_subject, a.users, a.backend_type, a.assistant_id,
    a.human_input, a.app_type, a.is_marketplace_app, a.tags, a.enabled, a.config_version, a.token_version, a.token_ciphertext,
    a.token_key_id, a.created_at, a.updated_at, a.provider_id, p.name as provider_name, p.base_url, p.enabled as provider_enabled,
    application_closed_v2(a.backend_type, a.enabled, p.enabled, a.token_ciphertext is not null) as closed,
    (select count(*) from run r where r.application_id = a.application_id and r.application_slot is not null and r.execution = 'unknown')
        as unknown_runs
from application a
join provider p on p.provider_id = a.provider_id
where %(after)s::uuid is null or a.name > (select l.name from application l where l.application_id = %(after)s::uuid)
order by a.name
limit %(page_size)s::integer

-- name: lock
-- One application under the lock that admission takes.
select a.application_id
from application a
where a.application_id = %(id)s::uuid or a.name = %(name)s::text
for no key update

-- name: lock_of_provider
-- All applications of a provider under the lock that admission takes.
select a.application_id
from application a
where a.provider_id = %(provider_id)s::uuid
order by a.application_id
for no key update of a

-- name: runs_in_the_way
-- Runs of locked applications that hold a slot or whose save is pending, oldest first.
select way.run_id, way.execution, way.persistence
from (
    select r.run_id, r.execution, r.persistence, r.created_at
    from run r
    where r.application_id = any (%(application_ids)s::uuid[]) and r.application_slot is not null
    union all
    select r.run_id, r.execution, r.persistence, r.created_at
    from run r
    where r.application_id = any (%(application_ids)s::uuid[]) and r.persistence = 'pending' and r.application_slot is null
) way
order by way.created_at, way.run_id
limit %(page_size)s::integer

-- name: has_history
-- Whether the application ever had a conversation, deleted ones included.
select exists (select from conversation c where c.application_id = %(application_id)s::uuid) as found

-- name: save
-- Writes a locked application as it shall be.
update application set
    provider_id = %(provider_id)s::uuid, name = %(name)s::text, enabled = %(enabled)s::boolean, description = %(description)s::text, visibility = %(visibility)s::text,
    groups = %(groups)s::text[], owner_subject = %(owner_subject)s::text, users = %(users)s::text[],
    backend_type = %(backend_type)s::text, assistant_id = %(assistant_id)s::text, human_input = %(human_input)s::boolean,
    app_type = %(app_type)s::text, is_marketplace_app = %(is_marketplace_app)s::boolean, tags = %(tags)s::text[], updated_at = now()
where application_id = %(application_id)s::uuid

-- name: move
-- Locked applications answer from elsewhere from now on: a new configuration version, and, for a changed origin, no token.
update application set
    config_version = config_version + 1,
    token_version = token_version + case when %(drop_token)s::boolean then 1 else 0 end,
    token_ciphertext = case when %(drop_token)s::boolean then null else token_ciphertext end,
    token_key_id = case when %(drop_token)s::boolean then null else token_key_id end,
    updated_at = now()
where application_id = any (%(application_ids)s::uuid[])

-- name: invalidate_bindings
-- Ends the bindings of locked applications for good; the first invalidation stays.
update binding b set invalidated_at = now()
from conversation c
where c.conversation_id = b.conversation_id and c.application_id = any (%(application_ids)s::uuid[]) and b.invalidated_at is null

-- name: set_token
-- Replaces the token of a locked application.
update application set
    token_ciphertext = %(token_ciphertext)s::bytea, token_key_id = %(token_key_id)s::text, token_version = token_version + 1,
    updated_at = now()
where application_id = %(application_id)s::uuid

-- name: visible
-- The applications that a caller may see, or one of them, with what their availability depends on.
select
    a.application_id, a.name, a.description, a.app_type, a.is_marketplace_app, a.tags, a.visibility, a.human_input,
    application_closed_v2(a.backend_type, a.enabled, p.enabled, a.token_ciphertext is not null) as closed,
    a.token_ciphertext, a.token_key_id,
    (select count(*) from run r where r.application_id = a.application_id and r.application_slot is not null and r.execution = 'unknown')
        as unknown_runs
from application a
join provider p on p.provider_id = a.provider_id
where (%(application_id)s::uuid is null or a.application_id = %(application_id)s::uuid)
    and application_visible_v1(a.visibility, a.groups, a.owner_subject, a.users, %(subject)s::text, %(groups)s::text[])
order by a.name

-- name: usable
-- One frozen read of configuration, token and, for a conversation, its binding.
select
    a.application_id, a.enabled and p.enabled as enabled, a.backend_type, a.assistant_id, a.human_input, a.config_version, a.token_version,
    a.token_ciphertext, a.token_key_id, p.base_url, b.thread_id, b.fingerprint as bound_fingerprint,
    b.invalidated_at is not null as binding_invalidated
from application a
join provider p on p.provider_id = a.provider_id
left join conversation c on c.application_id = a.application_id and c.conversation_id = %(conversation_id)s::uuid
left join binding b on b.conversation_id = c.conversation_id
where a.application_id = %(application_id)s::uuid
