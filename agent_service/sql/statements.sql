-- name: insert_thread
-- A new thread.
insert into threads (thread_id, created_at) values (:thread_id, :now);

-- name: find_thread
-- Whether a thread was ever handed out.
select thread_id from threads where thread_id = :thread_id;

-- name: insert_run
-- A run that is accepted and about to begin; the partial unique index refuses a second active one.
insert into runs (run_id, thread_id, correlation_id, run_status, created_at, updated_at)
values (:run_id, :thread_id, :correlation_id, 'pending', :now, :now);

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
-- The status of one run of one thread.
select thread_id, run_id, run_status from runs where run_id = :run_id and thread_id = :thread_id;
