"""One process of ours that admits, for bench.admitting: the gate as `gateway serve` has it, at CLIENTS clients.

python -m bench.admission_client PLACE DOING CORES      says `ready`, waits for a line, prints admissions a second
"""

import asyncio
import hashlib
import os
import random
import sys
import time
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

import orjson
import uvloop

from bench.world import DENY_RULES, ENCRYPTION_KEY, TEXT
from gateway.admission.admitting import Admitted, Checked
from gateway.admission.chains import SettingsChain
from gateway.admission.gate import Gate
from gateway.admission.local_rules import LocalRules
from gateway.admission.moderation import Moderation, Opinion, Passed, Provider, TextKind
from gateway.admission.validation import parse_submission
from gateway.bindings.vault import KeyRing, Vault
from gateway.domain.ids import AccountId, ApplicationId
from gateway.domain.limits import ActiveLimits
from gateway.domain.problems import Refused
from gateway.identity.accounts import Access, AccessCheck, build_access
from gateway.identity.tokens import Claims
from gateway.store.database import Database

CLIENTS: Final = 8
SECONDS: Final = 4.0
GROUPS: Final = ("reading", "staff")
_LIMITS: Final = ActiveLimits(per_user=40, per_application=200)
"""No more than it takes: looking for a free slot is part of what both sides measure."""


@dataclass(frozen=True, slots=True)
class Place:
    """A migrated database with accounts numbered as `user-N`, and the applications of a measurement, from the first on."""

    url: str
    accounts: list[AccountId]
    applications: list[ApplicationId]
    limits: ActiveLimits = _LIMITS

    def only(self, *, applications: int, accounts: int) -> "Place":
        """The same database with fewer of both asked for."""
        return replace(self, accounts=self.accounts[:accounts], applications=self.applications[:applications])

    def as_json(self) -> bytes:
        """For `of_json`, in another process."""
        return orjson.dumps(self)

    @classmethod
    def of_json(cls, text: bytes) -> "Place":
        """The inverse of `as_json`."""
        given = orjson.loads(text)
        return cls(
            given["url"],
            [AccountId(UUID(one)) for one in given["accounts"]],
            [ApplicationId(UUID(one)) for one in given["applications"]],
            ActiveLimits(**given["limits"]),
        )


class Doing(StrEnum):
    """What a process of ours does: admissions alone, with the read before them, or all that the limits allow and then some."""

    ADMITTING = "admitting"
    READING = "reading"
    FILLING = "filling"


def _gate(database: Database, limits: ActiveLimits) -> Gate:
    return Gate(
        database=database,
        vault=Vault(KeyRing([ENCRYPTION_KEY])),
        access_check=AccessCheck(database, create_unknown=False),
        moderation=Moderation(database, SettingsChain([LocalRules(DENY_RULES)]).chain_of, 5.0, time.monotonic),
        limits=limits,
        lease_seconds=30.0,
        quota_zone="UTC",
        draining=lambda: False,
    )


async def _admit_for_a_while(place: Place, doing: Doing) -> float:
    """Say that we are ready, wait for the word, admit. Only who fills is ever refused."""
    filling = doing is Doing.FILLING
    async with await Database.open(place.url, pool_min=CLIENTS, pool_max=CLIENTS) as database:
        gate = _gate(database, place.limits)
        groups = frozenset(GROUPS)
        accesses = [
            build_access(Claims(f"user-{number}", groups, operator=False), account, list(GROUPS), [])
            for number, account in enumerate(place.accounts, 1)
        ]
        admitted = 0

        async def client(until: float) -> None:
            nonlocal admitted
            while time.perf_counter() < until:
                try:
                    outcome = await gate.admit(await _checked(gate, place, accesses, reading=doing is Doing.READING))
                except Refused:
                    if not filling:
                        raise
                    continue
                assert isinstance(outcome, Admitted)
                admitted += 1

        async def clients(seconds: float) -> float:
            nonlocal admitted
            admitted = 0
            began_at = time.perf_counter()
            await asyncio.gather(*(client(began_at + seconds) for _ in range(CLIENTS)))
            return admitted / (time.perf_counter() - began_at)

        if not filling:
            await clients(0.5)
        print("ready", flush=True)
        sys.stdin.readline()
        return await clients(SECONDS)


async def _checked(gate: Gate, place: Place, accesses: list[Access], *, reading: bool) -> Checked:
    number = random.randrange(len(accesses))
    application_id = random.choice(place.applications)
    body = orjson.dumps({"submission_id": str(uuid4()), "text": TEXT})
    if not reading:
        passed = Passed(TextKind.MESSAGE, hashlib.sha256(TEXT.encode()).digest(), None, (Opinion(Provider.LOCAL, "bench", 0.0001),))
        return Checked(accesses[number], application_id, parse_submission(body), passed)
    checked = await gate.check(Claims(f"user-{number + 1}", frozenset(GROUPS), operator=False), application_id, body)
    assert isinstance(checked, Checked)
    return checked


def main() -> None:
    """A child of bench.admitting: prints `ready`, and admissions a second once it was told to go."""
    path, doing, cores = sys.argv[1:4]
    if cores:
        os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    place = Place.of_json(Path(path).read_bytes())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(runner.run(_admit_for_a_while(place, Doing(doing))))


if __name__ == "__main__":
    main()
