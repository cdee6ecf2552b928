-- Stored tokens as ciphertexts, for who encrypts them under another key or asks whether they open.

-- name: page
-- Tokens of applications and of moderators in the order of their owners, after a given one; with a key's id only those under another.
select t.owner_id, t.of_moderator, t.name, t.envelope, t.key_id
from (
    select a.application_id as owner_id, false as of_moderator, a.name, a.token_ciphertext as envelope, a.token_key_id as key_id
    from application a
    where a.token_ciphertext is not null
    union all
    select m.token_owner, true, m.kind || ':' || m.url, m.token_ciphertext, m.token_key_id
    from moderator m
    where m.token_ciphertext is not null
) t
where (%(but_key_id)s::text is null or t.key_id <> %(but_key_id)s::text)
    and (%(after)s::uuid is null or t.owner_id > %(after)s::uuid)
order by t.owner_id
limit %(page_size)s::integer

-- name: replace
-- The same token in another envelope, while it is still the one that was read. Its version stays: nothing that uses it notices.
with of_application as (
    update application set token_ciphertext = %(envelope)s::bytea, token_key_id = %(key_id)s::text
    where application_id = %(owner_id)s::uuid and token_ciphertext = %(read_envelope)s::bytea
    returning 1
), of_moderator as (
    update moderator set token_ciphertext = %(envelope)s::bytea, token_key_id = %(key_id)s::text
    where token_owner = %(owner_id)s::uuid and token_ciphertext = %(read_envelope)s::bytea
    returning 1
)
select 1 from of_application union all select 1 from of_moderator
