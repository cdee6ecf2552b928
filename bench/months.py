"""Months of traffic in a database: users, conversations, runs with all that hangs on them, as the gateway would have left it.

python -m bench.months --runs 250000      fills the migrated database of DATABASE_URL; four items a run

A user has 32 conversations in two applications, a conversation eight runs, whatever the number of runs: what one read returns is of one
size in a small database and in a large one. One conversation in ten began with a question that somebody answered, one run in a hundred
failed by a look-up and is without its answer for good. Most accounts never asked anything.
"""

import argparse
import os
from typing import Final

import psycopg

from gateway.domain.snapshot import MessageItem, Snapshot

ITEMS_OF_A_RUN: Final = 4
RUNS_OF_A_CONVERSATION: Final = 8
RUNS_OF_A_USER: Final = 256
_APPLICATIONS: Final = 20
_TEXT: Final = "words of a message " * 10

_STEPS: Final = (
    """
    insert into account (account_id, subject)
    select md5('account' || n)::uuid, 'month-user-' || n from generate_series(0, %(accounts)s::int - 1) n
    """,
    """
    insert into provider (provider_id, name, base_url) values (md5('provider')::uuid, 'months', 'https://months.example')
    """,
    """
    insert into application (application_id, provider_id, name, backend_type, assistant_id)
    select md5('application' || n)::uuid, md5('provider')::uuid, 'months-' || n, 'langchain', 'agent'
    from generate_series(0, %(applications)s::int - 1) n
    """,
    """
    insert into quota_rule (quota_rule_id, scope, task_limit, calendar_window) values (md5('rule')::uuid, 'user', 1000000, 'day')
    """,
    # over half a year; a user's conversations are all over it, as the applications are
    """
    insert into conversation (conversation_id, application_id, account_id, title, last_sequence, created_at, updated_at, deleted_at)
    select md5('conversation' || n)::uuid,
        md5('application' || (n %% %(users)s::int * 7 + n / %(users)s::int %% 2) %% %(applications)s::int)::uuid,
        md5('account' || n %% %(users)s::int)::uuid, 'conversation ' || n, %(each)s::int, at, at,
        case when n / %(users)s::int %% 32 = 31 then at end
    from (select n, now() - interval '180 days' * (1 - n::float8 / %(conversations)s::int) as at
        from generate_series(0, %(conversations)s::int - 1) n) c
    """,
    """
    insert into conversation_alias (account_id, application_id, client_thread, conversation_id, created_at)
    select c.account_id, c.application_id, 'thread of ' || c.title, c.conversation_id, c.created_at from conversation c
    """,
    """
    insert into run (run_id, kind, account_id, application_id, conversation_id, submission_id, sequence, execution, persistence,
        attempt_token, correlation_id, config_version, token_version, fence_at, started_at, native_run_id, answered_by,
        created_at, updated_at, finished_at)
    select md5('run' || n)::uuid, case when asked and n %% %(each)s::int = 1 then 'resume' else 'task' end,
        c.account_id, c.application_id, c.conversation_id, 'month-' || n, n %% %(each)s::int + 1,
        case when asked and n %% %(each)s::int = 0 then 'waiting' when n %% 100 = 17 then 'failed' else 'succeeded' end,
        case when n %% 100 = 17 then 'incomplete' else 'saved' end,
        gen_random_uuid(), gen_random_uuid(), 1, 1, c.created_at, c.created_at, 'native-' || n,
        case when asked and n %% %(each)s::int = 0 then md5('run' || n + 1)::uuid end, c.created_at, c.created_at,
        case when not asked or n %% %(each)s::int <> 0 then c.created_at end
    from generate_series(0, %(runs)s::int - 1) n
    cross join lateral (select n / %(each)s::int %% 10 = 3 as asked) a
    join conversation c on c.conversation_id = md5('conversation' || n / %(each)s::int)::uuid
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
    from run r
    """,
    """
    insert into item (run_id, position, conversation_id, sequence, item_id, type, role, text, complete, created_at)
    select r.run_id, p, r.conversation_id, r.sequence, md5(r.run_id::text || p)::uuid, 'message',
        case p when 0 then 'user' else 'assistant' end,
        %(text)s::text, true, r.created_at
    from run r, generate_series(0, %(items)s::int - 1) p where p = 0 or r.persistence = 'saved'
    """,
    """
    insert into snapshot (run_id, revision, complete, body, sha256, updated_at)
    select r.run_id, 1, r.persistence = 'saved', b.body, sha256(b.body), r.created_at
    from run r
    cross join lateral (select case r.persistence when 'saved' then %(answer)s::bytea else %(seen)s::bytea end as body) b
    """,
    """
    insert into evidence (run_id, kind, at)
    select r.run_id, k, r.created_at from run r, unnest(array['fenced', 'started', 'run_finished']) k
    """,
    """
    insert into moderation_verdict (at, account_id, application_id, submission_id, run_id, text_kind, text_sha256, position, provider,
        outcome, duration_seconds)
    select r.created_at, r.account_id, r.application_id, r.submission_id, r.run_id, 'message', sha256(r.submission_id::bytea), 0, 'local',
        'allowed', 0.001
    from run r
    """,
    """
    insert into quota_usage (quota_rule_id, bucket, window_start, used)
    select md5('rule')::uuid, r.account_id::text, date_trunc('day', r.created_at), count(*) from run r
    group by r.account_id, date_trunc('day', r.created_at)
    """,
    """
    insert into quota_charge (run_id, quota_rule_id, bucket, window_start, charged_at)
    select r.run_id, md5('rule')::uuid, r.account_id::text, date_trunc('day', r.created_at), r.created_at from run r
    """,
    """
    insert into interrupt (interrupt_id, run_id, native_id, title, description, comment_max_chars, digest, created_at)
    select md5('interrupt' || r.run_id)::uuid, r.run_id, 'native', 'May I?', 'what the agent asked', 0, sha256('asked'), r.created_at
    from run r where r.answered_by is not null
    """,
    """
    insert into decision (run_id, interrupt_id, action, created_at)
    select r.answered_by, md5('interrupt' || r.run_id)::uuid, 'approve', r.created_at from run r where r.answered_by is not null
    """,
)


def fill(url: str, *, runs: int) -> None:
    """Put saved runs (whole conversations of eight) into a migrated database that is empty, and bring its statistics up to date.

    A minute for 250,000 runs. For a superuser foreign keys are not checked row by row.
    """
    conversations = max(runs // RUNS_OF_A_CONVERSATION, 1)
    answer = tuple(MessageItem(position, _TEXT, complete=True) for position in range(1, ITEMS_OF_A_RUN))
    values = {
        "runs": conversations * RUNS_OF_A_CONVERSATION,
        "conversations": conversations,
        "users": max(runs // RUNS_OF_A_USER, 1),
        "accounts": max(runs // 10, 2_000),
        "applications": _APPLICATIONS,
        "each": RUNS_OF_A_CONVERSATION,
        "items": ITEMS_OF_A_RUN,
        "text": _TEXT,
        "answer": Snapshot(answer, complete=True).canonical(),
        "seen": Snapshot(answer[:1], complete=False).canonical(),
    }
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("set synchronous_commit = off")
        if connection.execute("select current_setting('is_superuser')").fetchone() == ("on",):
            connection.execute("set session_replication_role = replica")
        for step in _STEPS:
            connection.execute(step.encode(), values)
        connection.execute("vacuum analyze")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=250_000)
    fill(os.environ["DATABASE_URL"], runs=parser.parse_args().runs)
