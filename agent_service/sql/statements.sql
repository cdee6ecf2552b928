-- name: insert_thread
-- A new thread.
insert into threads (thread_id, created_at) values (:thread_id, :now);

-- name: find_thread
-- Whether a thread was ever handed out.
select thread_id from threads where thread_id = :thread_id;

-- name: insert_run
-- A run that is accepted and about to begin; the partial unique index refuses a second active one.
insert into runs (run_id, thread_id, correlation_id, assistant, metadata, run_status, created_at, updated_at)
values (:run_id, :thread_id, :correlation_id, :assistant, :metadata, 'pending', :now, :now);

-- name: discard_run
-- A run that was refused after it had taken the thread: it never was.
delete from runs where run_id = :run_id and run_status = 'pending' returning run_id;

-- name: mark_running
-- The run's task began.
update runs set run_status = 'running', updated_at = :now where run_id = :run_id and run_status = 'pending' returning run_id;

-- name: finish_run
-- A run is over; one that is over already keeps its status.
update runs set run_status = :run_status, updated_at = :now where run_id = :run_id and run_status in ('pending', 'running') returning run_id;

-- name: fail_abandoned_runs
-- At start-up: what a process that is gone left behind will never go on.
update runs set run_status = 'error', updated_at = :now where run_status in ('pending', 'running') returning run_id;

-- name: find_run
-- One run of one thread.
select thread_id, run_id, run_status, assistant, metadata, created_at, updated_at from runs where run_id = :run_id and thread_id = :thread_id;

-- name: list_runs
-- The runs of a thread, newest first; of one status where one is given.
select thread_id, run_id, run_status, assistant, metadata, created_at, updated_at from runs
where thread_id = :thread_id and (:run_status is null or run_status = :run_status)
order by rowid desc limit :limit offset :offset;

-- name: first_assistant
-- The assistant that a thread belongs to: that of its first run.
select assistant from runs where thread_id = :thread_id order by rowid limit 1;
