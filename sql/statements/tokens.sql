-- Stored tokens as ciphertexts, for who encrypts them under another key or asks whether they open.

-- name: page
-- Tokens in the order of their owners, after a given one; with a key's id only those that are under another.
select a.application_id as owner_id, a.name, a.token_ciphertext as envelope, a.token_key_id as key_id
from application a
where a.token_ciphertext is not null
    and (%(but_key_id)s::text is null or a.token_key_id <> %(but_key_id)s::text)
    and (%(after)s::uuid is null or a.application_id > %(after)s::uuid)
order by a.application_id
limit %(page_size)s::integer

-- name: replace
-- The same token in another envelope, while it is still the one that was read. Its version stays: nothing that uses it notices.
update application set token_ciphertext = %(envelope)s::bytea, token_key_id = %(key_id)s::text
where application_id = %(owner_id)s::uuid and token_ciphertext = %(read_envelope)s::bytea
