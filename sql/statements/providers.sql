-- Providers: services that host applications.

-- name: create
-- A new provider.
insert into provider (provider_id, name, base_url)
values (%(provider_id)s::uuid, %(name)s::text, %(base_url)s::text)

-- name: one
-- One provider by its id or its name.
select provider_id, name, base_url, enabled, created_at, updated_at
from provider
where provider_id = %(id)s::uuid or name = %(name)s::text

-- name: page
-- Providers in the order of their names, after a given one.
select p.provider_id, p.name, p.base_url, p.enabled, p.created_at, p.updated_at
from provider p
where %(after)s::uuid is null or p.name > (select l.name from provider l where l.provider_id = %(after)s::uuid)
order by p.name
limit %(page_size)s::integer

-- name: lock
-- One provider, locked before its applications are: also an application that is being made for it waits.
select provider_id, name, base_url, enabled, created_at, updated_at
from provider
where provider_id = %(id)s::uuid or name = %(name)s::text
for update

-- name: hold
-- One provider that an application is about to name: its base URL does not change until this transaction ends.
select provider_id, name, base_url, enabled, created_at, updated_at
from provider
where provider_id = %(id)s::uuid or name = %(name)s::text
for key share

-- name: save
-- Writes a locked provider as it shall be.
update provider set name = %(name)s::text, base_url = %(base_url)s::text, enabled = %(enabled)s::boolean, updated_at = now()
where provider_id = %(provider_id)s::uuid
