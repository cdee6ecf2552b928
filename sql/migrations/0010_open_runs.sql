-- What numbers of runs that wait for somebody are made of, at each scrape of each replica: few, however many are over. run_unsettled also
-- holds, for good, answered questions and failed runs without their answer.
-- Nothing can be written to `run` while it is built here. Where that would last, it is built before, concurrently, and found here: the
-- handbook says how.
-- squawk-ignore require-concurrent-index-creation
create index if not exists run_open on run (application_id)
    where run_is_unresolved_v1(execution, persistence, acknowledged_at, resolved_at)
    or attention = 'operator'
    or (execution = 'waiting' and answered_by is null);
