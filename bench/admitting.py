"""G8: admissions a second from our own code, in turns with pgbench running the same SQL against the same server and the same rows.

"The same SQL": begin, admit_v3 with the same kinds of values, commit. pgbench sends it prepared; ours are not prepared, because
they must pass a transaction pooler. The second row adds the read before it (admission.context) on both sides. Users and applications are
drawn at random, as many as make contention rare; one quota rule for each user. The tables are emptied before every measurement.
"""

import asyncio
import hashlib
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

import orjson
import psycopg
import uvloop

from bench.machine import find_tool
from bench.report import Better, Finding, Row, Skipped
from bench.world import DENY_RULES, ENCRYPTION_KEY, TEXT, World, new_application
from gateway.admission.admitting import Admitted, Checked
from gateway.admission.chains import SettingsChain
from gateway.admission.gate import Gate
from gateway.admission.local_rules import LocalRules
from gateway.admission.moderation import Moderation, Opinion, Passed, Provider, TextKind
from gateway.admission.validation import parse_submission
from gateway.bindings.vault import KeyRing, Vault
from gateway.domain.ids import AccountId, ApplicationId
from gateway.domain.limits import ActiveLimits
from gateway.domain.quota import CalendarWindow, Scope, Window
from gateway.identity.accounts import Access, AccessCheck, build_access
from gateway.identity.tokens import Claims
from gateway.store.database import Database
from gateway.store.migrate import migrate
from gateway.store.quotas import set_rule
from gateway.store.statements import statement

CLIENTS: Final = 8
_SECONDS: Final = 4.0
_USERS: Final = 5000
_APPLICATIONS: Final = 400
_USER_SLOTS: Final = 40
_APPLICATION_SLOTS: Final = 200
"""A round's admissions keep their slots: no more than it takes, because looking for a free one is part of what both sides measure."""
_GROUPS: Final = ("reading", "staff")
_EMPTY: Final = "truncate run, submission, conversation, item, quota_usage, quota_charge, evidence, snapshot, binding cascade"


@dataclass(frozen=True, slots=True)
class _Place:
    """A migrated database with accounts numbered as `user-N`."""

    url: str
    accounts: list[AccountId]
    applications: list[ApplicationId]


def admissions(world: World, *, rounds: int) -> list[Finding]:
    """G8, and the variant with the read before it."""
    pgbench = find_tool("pgbench")
    if pgbench is None:
        return [Skipped("G8", "there is no pgbench here (Debian: apt-get install postgresql-contrib or postgresql-15)")]
    place = _prepare(world)
    findings: list[Finding] = []
    for reading in (False, True):
        script = world.folder / f"admit-{reading}.sql"
        script.write_text(_script(reading=reading), encoding="utf-8")
        ours: list[float] = []
        peer: list[float] = []
        for _ in range(rounds):
            _empty(place)
            ours.append(_our_rate(world, place, reading=reading))
            _empty(place)
            peer.append(_pgbench_rate(world, pgbench, place, script))
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


def _prepare(world: World) -> _Place:
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
    return _Place(url, accounts, applications)


async def _applications(url: str) -> list[ApplicationId]:
    async with await Database.open(url, pool_max=2) as database:
        day = Window(CalendarWindow.DAY, None)
        await set_rule(database, scope=Scope.USER, window=day, task_limit=1_000_000, application_id=None, group_name=None)
        return [await new_application(database, f"app-{number}", "http://127.0.0.1:9") for number in range(_APPLICATIONS)]


def _empty(place: _Place) -> None:
    with psycopg.connect(place.url, autocommit=True) as connection:
        connection.execute(_EMPTY)
        connection.execute("checkpoint")


# --- pgbench ------------------------------------------------------------------------------------------------------------------------------


def _script(*, reading: bool) -> str:
    """The statements of sql/statements/admission.sql with their parameters in place."""
    account = "(select id from bench_account where n = :u)"
    application = "(select id from bench_application where n = :a)"
    fresh = "gen_random_uuid()"
    groups = "array['" + "','".join(_GROUPS) + "']"
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
        "max_per_user": str(_USER_SLOTS),
        "max_per_application": str(_APPLICATION_SLOTS),
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

    lines = [rf"\set u random(1, {_USERS})", rf"\set a random(1, {_APPLICATIONS})"]
    if reading:
        lines.append(filled("admission.context") + ";")
    return "\n".join([*lines, "begin;", filled("admission.admit") + ";", "commit;"]) + "\n"


def _pgbench_rate(world: World, pgbench: str, place: _Place, script: Path) -> float:
    command = [pgbench, "-n", "-M", "prepared", "-c", str(CLIENTS), "-j", "1", "-T", f"{_SECONDS:.0f}", "-f", str(script), place.url]
    if world.cores.subject is not None:
        command = [sys.executable, "-c", "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); os.execv(sys.argv[2], sys.argv[2:])",
                   str(world.cores.subject), *command]  # fmt: skip
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS + 60)
    rate = re.search(r"tps = ([\d.]+)", answer.stdout)
    if answer.returncode or rate is None:
        raise RuntimeError(f"pgbench failed: {answer.stderr[-2000:]}")
    return float(rate[1])


# --- ours ---------------------------------------------------------------------------------------------------------------------------------


def _our_rate(world: World, place: _Place, *, reading: bool) -> float:
    """In a process of its own on the subject's core: this one shares its core with Postgres."""
    given = {"url": place.url, "accounts": [str(a) for a in place.accounts], "applications": [str(a) for a in place.applications]}
    path = world.folder / "place.json"
    path.write_bytes(orjson.dumps(given))
    core = "" if world.cores.subject is None else str(world.cores.subject)
    command = [sys.executable, "-m", "bench.admitting", str(path), "reading" if reading else "admitting", core]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS + 60)
    if answer.returncode:
        raise RuntimeError(answer.stderr[-4000:])
    return float(answer.stdout)


def _gate(database: Database) -> Gate:
    return Gate(
        database=database,
        vault=Vault(KeyRing([ENCRYPTION_KEY])),
        access_check=AccessCheck(database, create_unknown=False),
        moderation=Moderation(database, SettingsChain([LocalRules(DENY_RULES)]).chain_of, 5.0, time.monotonic),
        limits=ActiveLimits(per_user=_USER_SLOTS, per_application=_APPLICATION_SLOTS),
        lease_seconds=30.0,
        quota_zone="UTC",
        draining=lambda: False,
    )


async def _admit_for_a_while(place: _Place, *, reading: bool) -> float:
    async with await Database.open(place.url, pool_min=CLIENTS, pool_max=CLIENTS) as database:
        gate = _gate(database)
        groups = frozenset(_GROUPS)
        accesses = [
            build_access(Claims(f"user-{number}", groups, operator=False), account, list(_GROUPS), [])
            for number, account in enumerate(place.accounts, 1)
        ]
        admitted = 0

        async def client(until: float) -> None:
            nonlocal admitted
            while time.perf_counter() < until:
                outcome = await gate.admit(await _checked(gate, place, accesses, reading=reading))
                assert isinstance(outcome, Admitted)
                admitted += 1

        async def clients(seconds: float) -> float:
            nonlocal admitted
            admitted = 0
            began_at = time.perf_counter()
            await asyncio.gather(*(client(began_at + seconds) for _ in range(CLIENTS)))
            return admitted / (time.perf_counter() - began_at)

        await clients(0.5)
        return await clients(_SECONDS)


async def _checked(gate: Gate, place: _Place, accesses: list[Access], *, reading: bool) -> Checked:
    number = random.randrange(len(accesses))
    application_id = random.choice(place.applications)
    body = orjson.dumps({"submission_id": str(uuid4()), "text": TEXT})
    if not reading:
        passed = Passed(TextKind.MESSAGE, hashlib.sha256(TEXT.encode()).digest(), None, (Opinion(Provider.LOCAL, "bench", 0.0001),))
        return Checked(accesses[number], application_id, parse_submission(body), passed)
    checked = await gate.check(Claims(f"user-{number + 1}", frozenset(_GROUPS), operator=False), application_id, body)
    assert isinstance(checked, Checked)
    return checked


def main(pin: Callable[[int | None], None]) -> None:
    """The child of `_our_rate`: prints admissions a second."""
    path, kind, core = sys.argv[1:4]
    pin(int(core) if core else None)
    given = orjson.loads(Path(path).read_bytes())
    place = _Place(
        given["url"],
        [AccountId(UUID(text)) for text in given["accounts"]],
        [ApplicationId(UUID(text)) for text in given["applications"]],
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(runner.run(_admit_for_a_while(place, reading=kind == "reading")))


if __name__ == "__main__":
    from bench.machine import pin_this_process

    main(pin_this_process)
