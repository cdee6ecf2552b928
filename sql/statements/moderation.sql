-- What moderators said, and who is asked. The verdicts of what is admitted are written by admission.

-- name: note_without_run
-- The verdicts on a text of which nothing came: it was refused, or could not be checked.
select note_verdicts_v1(
    %(account_id)s::uuid, %(application_id)s::uuid, %(submission_id)s::text, null, %(text_kind)s::text, %(text_sha256)s::bytea,
    %(chain_id)s::uuid, %(providers)s::text[], %(versions)s::text[], %(durations)s::double precision[], %(outcome)s::text,
    %(categories)s::text[], %(fault)s::text)::text as noted
