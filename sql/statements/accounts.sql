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

-- name: one
-- One account by its id or its subject.
select account_id, subject, state, groups, roles, created_at, updated_at
from account
where account_id = %(id)s::uuid or subject = %(name)s::text

-- name: page
-- Accounts in the order of their subjects, after a given one, and none before a given subject.
select a.account_id, a.subject, a.state, a.groups, a.roles, a.created_at, a.updated_at
from account a
where (%(after)s::uuid is null or a.subject > (select l.subject from account l where l.account_id = %(after)s::uuid))
    and a.subject >= %(subject_from)s::text
order by a.subject
limit %(page_size)s::integer

-- name: lock
-- One account under the lock that admission takes.
select account_id, subject, state, groups, roles, created_at, updated_at
from account
where account_id = %(id)s::uuid or subject = %(name)s::text
for no key update

-- name: save
-- Writes a locked account as it shall be.
update account set state = %(state)s::text, groups = %(groups)s::text[], roles = %(roles)s::text[], updated_at = now()
where account_id = %(account_id)s::uuid
