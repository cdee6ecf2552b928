-- Which keys a replica's ring holds, by their public ids, first the one that encrypts. Null: a replica of a version that does not say.

alter table replica add column key_ids text[];

-- For the overview's look at one day in a table of years: rows lie in the order of their times, so ranges are enough. Built in one read of the
-- table (0.6 s for a million runs), for which admissions wait.
-- squawk-ignore require-concurrent-index-creation
create index run_by_time on run using brin (created_at);
