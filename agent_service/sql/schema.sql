-- Threads and runs of the agent service, beside the checkpointer's own tables in the same SQLite file.
-- Run statuses are those of agent_service/records.py (RunStatus); a test compares the two.
create table if not exists threads (
    thread_id text primary key,
    created_at text not null
) strict;

create table if not exists runs (
    run_id text primary key,
    thread_id text not null references threads (thread_id),
    correlation_id text not null,
    assistant text not null default '',
    metadata text not null default '{}' check (json_valid(metadata)),
    run_status text not null check (run_status in ('pending', 'running', 'success', 'error', 'interrupted')),
    created_at text not null,
    updated_at text not null
) strict;

-- The listing of a thread's runs.
create index if not exists runs_of_thread on runs (thread_id);

-- One run per thread at a time: the database itself refuses the second.
create unique index if not exists runs_one_active_per_thread on runs (thread_id) where run_status in ('pending', 'running');
