"""G8, G9, G11: admissions a second from our own code (bench.admission_client).

The peer of G8 and G9 is pgbench running the same SQL against the same server and the same rows.

"The same SQL": begin, admit_v3 with the same kinds of values, commit. pgbench sends it prepared; ours are not prepared, because
they must pass a transaction pooler. Users and applications are drawn at random, as many as make contention rare; one quota rule for each
user. The tables are emptied before every measurement.

G8's second row adds the read before it (admission.context) on both sides. G9 is G8 with one application: its row is locked from admission
to the end of COMMIT. There, as for G11, somebody ends runs all the time, so that slots are free. G11 is two processes against one, and
what they have admitted together once nothing more is.
"""

import asyncio
import hashlib
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final
from uuid import uuid4

import psycopg

from bench.admission_client import CLIENTS, GROUPS, SECONDS, Doing, Place
from bench.machine import find_tool
from bench.report import Better, Finding, Row, Skipped
from bench.world import TEXT, World, new_application
from gateway.domain.ids import AccountId, ApplicationId
from gateway.domain.limits import ActiveLimits
from gateway.domain.quota import CalendarWindow, Scope, Window
from gateway.store.database import Database
from gateway.store.migrate import migrate
from gateway.store.quotas import set_rule
from gateway.store.statements import statement

_USERS: Final = 5000
_APPLICATIONS: Final = 400
_FULL_USERS: Final = 400
_FULL_APPLICATIONS: Final = 100
_FULL_LIMITS: Final = ActiveLimits(per_user=2, per_application=5)
"""Where everything that may be admitted is: 500 runs, and users who have no slot left before that."""
_NO_PGBENCH: Final = "there is no pgbench here (Debian: apt-get install postgresql-contrib or postgresql-15)"
_END_RUNS: Final = """
    update run set execution = 'released', user_slot = null, application_slot = null, lease_until = null, finished_at = clock_timestamp()
    where user_slot is not null
"""
_EMPTY: Final = (
    "truncate run, submission, conversation, item, quota_usage, quota_charge, evidence, snapshot, binding, moderation_verdict cascade"
)


def admissions(world: World, *, rounds: int) -> list[Finding]:
    """G8, and the variant with the read before it."""
    pgbench = find_tool("pgbench")
    if pgbench is None:
        return [Skipped("G8", _NO_PGBENCH)]
    place = _prepare(world)
    findings: list[Finding] = []
    for doing in (Doing.ADMITTING, Doing.READING):
        reading = doing is Doing.READING
        ours, peer = _against_pgbench(world, pgbench, place, doing, rounds)
        findings.append(
            Row(
                goal="G8+" if reading else "G8",
                what=f"admissions at {CLIENTS} clients, fsync on" + (", with the read before them" if reading else ""),
                unit="admissions/s",
                ours=ours,
                peer=peer,
                peer_name="pgbench",
                better=Better.HIGHER,
                must=None if reading else 0.60,
                aim=None if reading else 0.75,
            )
        )
    return findings


def one_hot_application(world: World, *, rounds: int) -> list[Finding]:
    """G9."""
    pgbench = find_tool("pgbench")
    if pgbench is None:
        return [Skipped("G9", _NO_PGBENCH)]
    place = _prepare(world).only(applications=1, accounts=_USERS)
    with _runs_end(place):
        ours, peer = _against_pgbench(world, pgbench, place, Doing.ADMITTING, rounds)
    row = Row(
        goal="G9",
        what=f"admissions of one application at {CLIENTS} clients, fsync on",
        unit="admissions/s",
        ours=ours,
        peer=peer,
        peer_name="pgbench",
        better=Better.HIGHER,
        must=0.8,
        aim=1.5,
    )
    return [row]


def two_replicas(world: World, *, rounds: int) -> list[Finding]:
    """G11. Everything may use both cores, for both sides: pinned to one, two processes would only share what one has."""
    place = _prepare(world)
    two: list[float] = []
    one: list[float] = []
    with _both_cores(world), _runs_end(place):
        for round_number in range(rounds):
            for rates, replicas in [(one, 1), (two, 2)][:: 1 if round_number % 2 else -1]:
                _empty(place)
                rates.append(sum(_ours(world, place, Doing.ADMITTING, replicas=replicas, pinned=False)))
    row = Row(
        goal="G11",
        what=f"admissions of two replicas with {CLIENTS} clients each, against one; nothing is pinned",
        unit="admissions/s",
        ours=two,
        peer=one,
        peer_name="one replica",
        better=Better.HIGHER,
        must=1.0,
        aim=1.6,
        notes=[_overshoots(world, place)],
    )
    return [row]


def _overshoots(world: World, place: Place) -> str:
    """What two replicas admitted when nothing ends. Raises RuntimeError for one run too many, and when no limit was reached."""
    few = replace(place.only(applications=_FULL_APPLICATIONS, accounts=_FULL_USERS), limits=_FULL_LIMITS)
    with _both_cores(world):
        _empty(place)
        _ours(world, few, Doing.FILLING, replicas=2, pinned=False)
    with psycopg.connect(place.url) as connection:
        held = connection.execute("select account_id, application_id, conversation_id from run where user_slot is not null").fetchall()
    users, applications, conversations = (Counter(row[column] for row in held) for column in range(3))
    over = [*(n - _FULL_LIMITS.per_user for n in users.values()), *(n - _FULL_LIMITS.per_application for n in applications.values())]
    over += [n - 1 for n in conversations.values()]
    too_many = sum(n for n in over if n > 0)
    full = sum(n == _FULL_LIMITS.per_application for n in applications.values())
    if too_many or full < _FULL_APPLICATIONS / 2:
        raise RuntimeError(f"{too_many} runs too many; {full} of {_FULL_APPLICATIONS} applications full")
    users_full = sum(n == _FULL_LIMITS.per_user for n in users.values())
    return (
        f"overshoots: {too_many} of {len(held)} runs; full were {full} of {_FULL_APPLICATIONS} applications "
        f"({_FULL_LIMITS.per_application} each) and {users_full} of {_FULL_USERS} users ({_FULL_LIMITS.per_user} each)"
    )


def _against_pgbench(world: World, pgbench: str, place: Place, doing: Doing, rounds: int) -> tuple[list[float], list[float]]:
    script = world.folder / f"{doing}-{len(place.applications)}.sql"
    script.write_text(_script(place, reading=doing is Doing.READING), encoding="utf-8")
    ours: list[float] = []
    peer: list[float] = []
    for _ in range(rounds):
        _empty(place)
        ours += _ours(world, place, doing)
        _empty(place)
        peer.append(_pgbench_rate(world, pgbench, place, script))
    return ours, peer


@contextmanager
def _runs_end(place: Place) -> Iterator[None]:
    """Twenty times a second every run is over, so that limits of real size are not reached."""
    over = threading.Event()

    def ending() -> None:
        with psycopg.connect(place.url, autocommit=True) as connection:
            while not over.wait(0.05):
                connection.execute(_END_RUNS)

    thread = threading.Thread(target=ending)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def _both_cores(world: World) -> Iterator[None]:
    """Postgres on both cores: processes that it makes meanwhile inherit that."""
    pid, cores = world.postgres.server_pid, world.cores
    if pid is None or cores.subject is None or cores.rest is None:
        yield
        return
    os.sched_setaffinity(pid, {cores.subject, cores.rest})
    try:
        yield
    finally:
        os.sched_setaffinity(pid, {cores.rest})


@cache
def _prepare(world: World) -> Place:
    url = world.postgres.create_database("admissions")
    migrate(url)
    accounts = [AccountId(uuid4()) for _ in range(_USERS)]
    applications = asyncio.run(_applications(url))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "insert into account (account_id, subject, state)"
            " select u, 'user-' || n, 'active' from unnest(%s::uuid[]) with ordinality t (u, n)",
            (accounts,),
        )
        # pgbench draws numbers; these tables turn them into ids. It never sees our arrays.
        for name, ids in (("bench_account", accounts), ("bench_application", applications)):
            connection.execute(f"create table {name} (n bigint primary key, id uuid not null)")
            connection.execute(f"insert into {name} select n, u from unnest(%s::uuid[]) with ordinality t (u, n)", (ids,))
        connection.execute("analyze")
    return Place(url, accounts, applications)


async def _applications(url: str) -> list[ApplicationId]:
    async with await Database.open(url, pool_max=2) as database:
        day = Window(CalendarWindow.DAY, None)
        await set_rule(database, scope=Scope.USER, window=day, task_limit=1_000_000, application_id=None, group_name=None)
        return [await new_application(database, f"app-{number}", "http://127.0.0.1:9") for number in range(_APPLICATIONS)]


def _empty(place: Place) -> None:
    with psycopg.connect(place.url, autocommit=True) as connection:
        connection.execute(_EMPTY)
        connection.execute("checkpoint")


# --- pgbench ------------------------------------------------------------------------------------------------------------------------------


def _script(place: Place, *, reading: bool) -> str:
    """The statements of sql/statements/admission.sql with their parameters in place."""
    account = "(select id from bench_account where n = :u)"
    application = "(select id from bench_application where n = :a)"
    fresh = "gen_random_uuid()"
    groups = "array['" + "','".join(GROUPS) + "']"
    values = {
        "subject": "'user-' || :u",
        "groups": groups,
        "claimed_groups": groups,
        "account_id": account,
        "application_id": application,
        "submission_id": f"{fresh}::text",
        "fingerprint": r"'\x" + "ab" * 32 + "'",
        "conversation_id": "null",
        "client_thread": "null",
        "new_conversation_id": fresh,
        "title": f"'{TEXT}'",
        "run_id": fresh,
        "attempt_token": fresh,
        "correlation_id": fresh,
        "item_id": fresh,
        "text": f"'{TEXT}'",
        "max_per_user": str(place.limits.per_user),
        "max_per_application": str(place.limits.per_application),
        "lease_seconds": "30",
        "quota_zone": "'UTC'",
        "text_sha256": r"'\x" + hashlib.sha256(TEXT.encode()).hexdigest() + "'",
        "chain_id": "null",
        "providers": "'{local}'",
        "versions": "'{bench}'",
        "durations": "'{0.0001}'",
    }

    def filled(name: str) -> str:
        text = re.sub(r"%\((\w+)\)s(::[\w ]+(?:\[\])?)?", lambda found: f"({values[found[1]]}){found[2] or ''}", statement(name).text)
        return " ".join(line for line in text.splitlines() if not line.startswith("--"))

    lines = [rf"\set u random(1, {len(place.accounts)})", rf"\set a random(1, {len(place.applications)})"]
    if reading:
        lines.append(filled("admission.context") + ";")
    return "\n".join([*lines, "begin;", filled("admission.admit") + ";", "commit;"]) + "\n"


def _pgbench_rate(world: World, pgbench: str, place: Place, script: Path) -> float:
    command = [pgbench, "-n", "-M", "prepared", "-c", str(CLIENTS), "-j", "1", "-T", f"{SECONDS:.0f}", "-f", str(script), place.url]
    if world.cores.subject is not None:
        command = [sys.executable, "-c", "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); os.execv(sys.argv[2], sys.argv[2:])",
                   str(world.cores.subject), *command]  # fmt: skip
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS + 60)
    rate = re.search(r"tps = ([\d.]+)", answer.stdout)
    sent = re.search(r"actually processed: (\d+)", answer.stdout)
    if answer.returncode or rate is None or sent is None:
        raise RuntimeError(f"pgbench failed: {answer.stderr[-2000:]}")
    with psycopg.connect(place.url) as connection:
        admitted = connection.execute("select count(*) from run").fetchone()
    if admitted != (int(sent[1]),):
        raise RuntimeError(f"pgbench sent {sent[1]} admissions, and {admitted} runs are there: refusals are cheaper")
    return float(rate[1])


# --- ours ---------------------------------------------------------------------------------------------------------------------------------


def _ours(world: World, place: Place, doing: Doing, *, replicas: int = 1, pinned: bool = True) -> list[float]:
    """Admissions a second of each of so many processes at once, on the subject's core: this process shares its core with Postgres."""
    path = world.folder / "place.json"
    path.write_bytes(place.as_json())
    cores = sorted({core for core in (world.cores.subject, None if pinned else world.cores.rest) if core is not None})
    command = [sys.executable, "-m", "bench.admission_client", str(path), doing, ",".join(map(str, cores))]
    children = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(replicas)]
    try:
        for child in children:
            assert child.stdout is not None
            if child.stdout.readline() != "ready\n":
                raise RuntimeError("a process of ours did not come up; its words are above")
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        return [float(child.communicate(timeout=SECONDS + 60)[0]) for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait()
