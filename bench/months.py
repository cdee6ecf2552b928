"""Months of traffic in a database: users, conversations, runs with all that hangs on them, as the gateway would have left it.

python -m bench.months --runs 250000      fills the migrated database of DATABASE_URL; four items a run
"""

import argparse
import os
from typing import Final

import psycopg

_STEPS: Final = (
    """
    insert into account (account_id, subject)
    select md5('account' || n)::uuid, 'month-user-' || n from generate_series(1, greatest(%(runs)s::int / 200, 10)) n
    """,
    """
    insert into provider (provider_id, name, base_url) values (md5('provider')::uuid, 'months', 'https://months.example')
    """,
    """
    insert into application (application_id, provider_id, name, backend_type, assistant_id)
    select md5('application' || n)::uuid, md5('provider')::uuid, 'months-' || n, 'langchain', 'agent' from generate_series(1, 20) n
    """,
    # eight runs a conversation, over half a year
    """
    insert into conversation (conversation_id, application_id, account_id, title, last_sequence, created_at, updated_at, deleted_at)
    select md5('conversation' || n)::uuid, md5('application' || n %% 20 + 1)::uuid,
        md5('account' || n %% greatest(%(runs)s::int / 200, 10) + 1)::uuid, 'conversation ' || n, 8, at, at,
        case when n %% 50 = 0 then at end
    from (select n, now() - interval '180 days' * (1 - n::float8 / (%(runs)s::int / 8 + 1)) as at
        from generate_series(0, %(runs)s::int / 8) n) c
    """,
    """
    insert into run (run_id, account_id, application_id, conversation_id, submission_id, sequence, execution, persistence, attempt_token,
        correlation_id, config_version, token_version, fence_at, started_at, native_run_id, created_at, updated_at, finished_at)
    select md5('run' || n)::uuid, c.account_id, c.application_id, c.conversation_id, 'month-' || n, n %% 8 + 1, 'succeeded', 'saved',
        gen_random_uuid(), gen_random_uuid(), 1, 1, c.created_at, c.created_at, 'native-' || n, c.created_at, c.created_at, c.created_at
    from generate_series(0, %(runs)s::int - 1) n
    join conversation c on c.conversation_id = md5('conversation' || n / 8)::uuid
    """,
    """
    insert into binding (conversation_id, thread_id, endpoint_fingerprint, fingerprint, created_at)
    select c.conversation_id, 'thread-' || c.conversation_id, sha256('endpoint'), sha256('endpoint'), c.created_at from conversation c
    """,
    """
    insert into submission (account_id, application_id, submission_id, fingerprint, run_id, conversation_id, created_conversation,
        created_at)
    select r.account_id, r.application_id, r.submission_id, sha256(r.submission_id::bytea), r.run_id, r.conversation_id, r.sequence = 1,
        r.created_at
    from run r where r.submission_id like 'month-%%'
    """,
    """
    insert into item (run_id, position, conversation_id, sequence, item_id, type, role, text, complete, created_at)
    select r.run_id, p, r.conversation_id, r.sequence, md5(r.run_id::text || p)::uuid, 'message',
        case p when 0 then 'user' else 'assistant' end,
        repeat('words of a message ', 10), true, r.created_at
    from run r, generate_series(0, 3) p where r.submission_id like 'month-%%'
    """,
    """
    insert into snapshot (run_id, revision, complete, body, sha256, updated_at)
    select s.run_id, 1, true, s.body, sha256(s.body), s.created_at
    from (select r.run_id, r.created_at, convert_to(repeat('{"text":"words of a message"}', 20), 'UTF8') as body
        from run r where r.submission_id like 'month-%%') s
    """,
    """
    insert into evidence (run_id, kind, at)
    select r.run_id, k, r.created_at from run r, unnest(array['fenced', 'started', 'run_finished']) k where r.submission_id like 'month-%%'
    """,
    """
    insert into moderation_verdict (at, account_id, application_id, submission_id, run_id, text_kind, text_sha256, position, provider,
        outcome, duration_seconds)
    select r.created_at, r.account_id, r.application_id, r.submission_id, r.run_id, 'message', sha256(r.submission_id::bytea), 0, 'local',
        'allowed', 0.001
    from run r where r.submission_id like 'month-%%'
    """,
)


def fill(url: str, *, runs: int) -> None:
    """Add `runs` saved runs (rounded to whole conversations of eight) to a migrated database, and bring its statistics up to date."""
    with psycopg.connect(url, autocommit=True) as connection:
        for step in _STEPS:
            connection.execute(step.encode(), {"runs": runs})
        connection.execute("vacuum analyze")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=250_000)
    fill(os.environ["DATABASE_URL"], runs=parser.parse_args().runs)
