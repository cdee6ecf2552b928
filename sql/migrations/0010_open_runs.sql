-- What numbers of runs that wait for somebody are made of, at each scrape of each replica: few, however many are over. run_unsettled also
-- holds, for good, answered questions and failed runs without their answer.
-- squawk-ignore require-concurrent-index-creation
create index run_open on run (application_id)
    where run_is_unresolved_v1(execution, persistence, acknowledged_at, resolved_at)
    or attention = 'operator'
    or (execution = 'waiting' and answered_by is null);
