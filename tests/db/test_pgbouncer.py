"""Database behind PgBouncer in transaction mode, three server connections for eight clients (building-blocks.md 3.3)."""

import asyncio
import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from gateway.store.database import Database
from gateway.store.errors import ConstraintViolated
from gateway.store.migrate import migrate
from gateway.store.statements import Statement
from tests.support.postgres import PostgresForTests, folder_for_server
from tests.support.require import missing

CLIENTS = 8
TRANSACTIONS = 40


@dataclass(frozen=True)
class Total:
    total: int


def sql(text: str) -> Statement:
    return Statement(name="test.statement", purpose="A test's own.", text=text)


LOCK = sql("select total from counter where id = %(id)s::int for update")
ADD = sql("update counter set total = total + 1 where id = %(id)s::int")
ADD_ONE = sql("insert into counter (id, total) values (%(id)s::int, 0)")
READ = sql("select sum(total)::int as total from counter")


@pytest.fixture
def pooled_url(postgres: PostgresForTests) -> Iterator[str]:
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    if program is None:
        missing("pgbouncer", "the database behind a transaction pooler is not tried here")
        raise AssertionError
    with postgres.empty_database() as url, folder_for_server() as folder:
        parts = conninfo_to_dict(url)
        options: dict[str, int | list[int]] = {}
        sockets = folder / "sockets"
        sockets.mkdir()
        if os.geteuid() == 0:  # it refuses to run as root
            entry = pwd.getpwnam("nobody")
            options = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
            os.chown(sockets, entry.pw_uid, entry.pw_gid)
        configuration = folder / "pgbouncer.ini"
        configuration.write_text(
            f"[databases]\n* = host={parts['host']} user=postgres\n[pgbouncer]\nlisten_addr =\nunix_socket_dir = {sockets}\n"
            "auth_type = any\npool_mode = transaction\ndefault_pool_size = 3\nmax_client_conn = 50\n",
            encoding="utf-8",
        )
        log = (folder / "log").open("w")
        process = subprocess.Popen([program, str(configuration)], stdout=log, stderr=log, cwd="/", **options)  # type: ignore[call-overload]
        try:
            until_listening(process, sockets, folder / "log")
            yield f"postgresql://postgres@/{parts['dbname']}?host={sockets}&port=6432"
        finally:
            process.terminate()
            process.wait(10)
            log.close()


def until_listening(process: "subprocess.Popen[bytes]", sockets: Path, log: Path) -> None:
    deadline = time.monotonic() + 10
    while not (sockets / ".s.PGSQL.6432").exists():
        assert process.poll() is None, log.read_text(encoding="utf-8")
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.anyio
async def test_many_clients_share_few_connections_without_a_mix_up(pooled_url: str) -> None:
    with psycopg.connect(pooled_url, autocommit=True, prepare_threshold=None) as connection:
        connection.execute("create table counter (id int constraint counter_once primary key, total int not null)")
        connection.execute("insert into counter values (0, 0), (1, 0)")

    async with await Database.open(pooled_url, pool_max=CLIENTS) as database:

        async def client(number: int) -> None:
            for turn in range(TRANSACTIONS):
                async with database.transaction() as tx:
                    await tx.one(LOCK, Total, {"id": number % 2})
                    await tx.execute(ADD, {"id": number % 2})
                    if turn % 4:
                        await tx.commit()
                async with database.transaction() as tx:
                    with pytest.raises(ConstraintViolated):
                        await tx.execute(ADD_ONE, {"id": 0})
                await database.one(READ, Total)

        await asyncio.gather(*(client(number) for number in range(CLIENTS)))
        assert await database.one(READ, Total) == Total(CLIENTS * TRANSACTIONS * 3 // 4)


def test_migrations_run_through_the_pooler_too(pooled_url: str) -> None:
    assert migrate(pooled_url).is_ready
    assert migrate(pooled_url).applied == ()
