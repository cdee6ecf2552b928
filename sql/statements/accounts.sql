-- People: one account a subject.

-- name: access
-- What a caller is here, and whether it may see the application; no row when there is no such account.
select account_id, account_state, all_groups, account_roles, visible
from access_v1(%(subject)s::text, %(groups)s::text[], %(application_id)s::uuid)

-- name: create
-- A new active account; changes nothing when the subject has one.
insert into account (account_id, subject, groups, roles)
values (%(account_id)s::uuid, %(subject)s::text, %(groups)s::text[], %(roles)s::text[])
on conflict on constraint account_subject_unique do nothing

-- name: by_subject
-- One account.
select account_id, subject, state, groups, roles, created_at, updated_at
from account
where subject = %(subject)s::text

-- name: page
-- Accounts in the order of their subjects, after a given one.
select account_id, subject, state, groups, roles, created_at, updated_at
from account
where subject > %(after)s::text
order by subject
limit %(page_size)s::integer

-- name: set
-- Replaces an account's own groups and roles; null leaves them as they are.
update account set
    groups = coalesce(%(groups)s::text[], groups), roles = coalesce(%(roles)s::text[], roles), updated_at = now()
where subject = %(subject)s::text

-- name: suspend
-- active -> suspended.
update account set state = 'suspended', updated_at = now()
where subject = %(subject)s::text and state = 'active'

-- name: activate
-- suspended -> active.
update account set state = 'active', updated_at = now()
where subject = %(subject)s::text and state = 'suspended'
