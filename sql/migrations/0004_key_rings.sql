-- Which keys a replica's ring holds, by their public ids, first the one that encrypts. Null: a replica of a version that does not say.

alter table replica add column key_ids text[];
