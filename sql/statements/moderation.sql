-- What moderators said, and who is asked. The verdicts of what is admitted are written by admission.

-- name: note_without_run
-- The verdicts on a text of which nothing came: it was refused, or could not be checked.
select note_verdicts_v1(
    %(account_id)s::uuid, %(application_id)s::uuid, %(submission_id)s::text, null, %(text_kind)s::text, %(text_sha256)s::bytea,
    %(chain_id)s::uuid, %(providers)s::text[], %(versions)s::text[], %(durations)s::double precision[], %(outcome)s::text,
    %(categories)s::text[], %(fault)s::text)::text as noted

-- name: moderators
-- The moderators of a chain, in order.
select m.kind, m.url, m.token_owner, m.token_ciphertext, m.token_key_id
from moderator m
where m.chain_id = %(chain_id)s::uuid
order by m.position

-- name: lock_moderators
-- The same of a chain that ends, held: `keys rekey` may be changing a token, and what is kept of the chain is what came of that.
select m.kind, m.url, m.token_owner, m.token_ciphertext, m.token_key_id
from moderator m
where m.chain_id = %(chain_id)s::uuid
order by m.position
for update

-- name: in_force
-- Every chain in force with its moderators, in order; that of all applications first. A chain of none is one row without a kind.
select c.chain_id, c.application_id, a.name as application_name, c.created_at, m.kind, m.url, m.token_owner, m.token_ciphertext,
    m.token_key_id
from moderation_chain c
left join application a on a.application_id = c.application_id
left join moderator m on m.chain_id = c.chain_id
where c.replaced_at is null
order by a.name nulls first, c.application_id, m.position

-- name: lock_chains
-- One writer of chains at a time, until its transaction ends; who is asked does not wait for it.
select pg_advisory_xact_lock(hashtextextended('moderation_chain', 0)) as locked

-- name: end_chain
-- Ends the chain of an application, or that of all; its id, when there was one.
update moderation_chain set replaced_at = clock_timestamp()
where application_id is not distinct from %(application_id)s::uuid and replaced_at is null
returning chain_id

-- name: forget_tokens
-- The tokens of a chain that is over are of no use.
update moderator set token_owner = null, token_ciphertext = null, token_key_id = null
where chain_id = %(chain_id)s::uuid

-- name: create_chain
-- A chain, in force from the commit on.
insert into moderation_chain (chain_id, application_id) values (%(chain_id)s::uuid, %(application_id)s::uuid)

-- name: create_moderator
-- One moderator of a new chain.
insert into moderator (chain_id, position, kind, url, token_owner, token_ciphertext, token_key_id)
values (
    %(chain_id)s::uuid, %(position)s::integer, %(kind)s::text, %(url)s::text, %(token_owner)s::uuid, %(token_ciphertext)s::bytea,
    %(token_key_id)s::text)
