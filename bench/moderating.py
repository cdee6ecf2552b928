"""The share of local moderation in a run: CPU of judging a text and keeping the verdict, in turns with that of whole runs.

What is measured is `Moderation.check` as the gate calls it: digest, the chain `local` with deny rules and secrets, the verdict. Its row is
written by admission's own statement and is in neither figure apart. The runs beside it are those of `full`, moderation included.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final
from uuid import uuid4

import uvloop

from bench.relaying import full_cpu
from bench.report import Better, Finding, Row
from bench.world import DENY_RULES, TEXT, World
from gateway.admission.chains import SettingsChain
from gateway.admission.local_rules import LocalRules
from gateway.admission.moderation import Asked, Moderation, TextKind
from gateway.domain.ids import AccountId, ApplicationId, SubmissionId
from gateway.domain.limits import MAX_TEXT_CHARACTERS
from gateway.store.database import Database

_TEXTS: Final = {
    "ordinary": TEXT,
    "long": (TEXT + ". ") * 18,
    "Russian": "Привет, это сообщение обычной длины для разговора",
    "longest": (TEXT + " ") * (MAX_TEXT_CHARACTERS // (len(TEXT) + 1)),
}
_TIMES: Final = {"ordinary": 20_000, "long": 5_000, "Russian": 5_000, "longest": 200}


def moderation(world: World, *, rounds: int) -> list[Finding]:
    """Its share at the text that every other measurement sends; longer ones are told beside it."""
    runs = full_cpu(world, rounds=rounds)
    checks = [_per_1000(world) for _ in range(rounds)]
    told = ", ".join(f"{name} ({len(text)}): {sorted(check[name] for check in checks)[rounds // 2]:.3f}" for name, text in _TEXTS.items())
    row = Row(
        goal="moderation",
        what="local moderation of an ordinary message, as a share of a full run",
        unit="CPU s per 1000",
        ours=[check["ordinary"] for check in checks],
        peer=runs,
        peer_name="full runs",
        better=Better.LOWER,
        must=0.05,
        aim=0.02,
        notes=[f"CPU s per 1000 by text (characters): {told}"],
    )
    return [row]


def _per_1000(world: World) -> dict[str, float]:
    """In a process of its own on the subject's core."""
    core = "" if world.cores.subject is None else str(world.cores.subject)
    answer = subprocess.run([sys.executable, "-m", "bench.moderating", core], capture_output=True, text=True, check=False, timeout=120)
    if answer.returncode:
        raise RuntimeError(answer.stderr[-4000:])
    return {name: float(figure) for name, figure in (line.split() for line in answer.stdout.splitlines())}


async def _measured() -> None:
    # Nothing is written of a text that is allowed; the pool connects to nothing.
    database = await Database.open("postgresql:///nowhere?host=/nowhere", pool_min=0)
    checker = Moderation(database, SettingsChain([LocalRules(DENY_RULES)]).chain_of, 5.0, time.monotonic)
    for name, text in _TEXTS.items():
        asked = Asked(text, TextKind.MESSAGE, AccountId(uuid4()), ApplicationId(uuid4()))
        began_at = time.process_time()
        for _ in range(_TIMES[name]):
            (await checker.check(asked, SubmissionId("s"), None)).params()
        print(name, (time.process_time() - began_at) / _TIMES[name] * 1000)
    await database.close()


def main(pin: Callable[[int | None], None]) -> None:
    """The child of `_per_1000`: prints a line for each text."""
    pin(int(sys.argv[1]) if sys.argv[1] else None)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_measured())


if __name__ == "__main__":
    from bench.machine import pin_this_process

    main(pin_this_process)
