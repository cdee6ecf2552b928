-- Providers: services that host applications.

-- name: create
-- A new provider.
insert into provider (provider_id, name, base_url)
values (%(provider_id)s::uuid, %(name)s::text, %(base_url)s::text)

-- name: by_name
-- One provider.
select provider_id, name, base_url, enabled, created_at, updated_at
from provider
where name = %(name)s::text

-- name: list
-- All providers in the order of their names.
select provider_id, name, base_url, enabled, created_at, updated_at
from provider
order by name

-- name: lock
-- One provider, locked before its applications are: also an application that is being made for it waits.
select provider_id, name, base_url, enabled, created_at, updated_at
from provider
where name = %(name)s::text
for update

-- name: hold
-- One provider that an application is about to name: its base URL does not change until this transaction ends.
select provider_id, name, base_url, enabled, created_at, updated_at
from provider
where name = %(name)s::text
for key share

-- name: set_base_url
-- Moves a locked provider.
update provider set base_url = %(base_url)s::text, updated_at = now()
where provider_id = %(provider_id)s::uuid

-- name: enable
-- Allows use again.
update provider set enabled = true, updated_at = now()
where name = %(name)s::text and not enabled

-- name: disable
-- Stops new use at once; what runs goes on.
update provider set enabled = false, updated_at = now()
where name = %(name)s::text and enabled
