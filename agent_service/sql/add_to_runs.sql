-- For files of versions before the native profile, whose table of runs lacks these columns. See schema.sql.
alter table runs add column assistant text not null default '';
alter table runs add column metadata text not null default '{}' check (json_valid(metadata));
