"""The migration runner on empty databases of both majors, with folders of its own, and once with this build's schema."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import psycopg
import pytest

from gateway.store.database import Database
from gateway.store.errors import DatabaseUnavailable
from gateway.store.migrate import LOCK_KEY, MigrationError, MigrationReport, check, load_migrations, migrate, needed_version, schema_version

ROOT: Final = Path(__file__).resolve().parents[2]
MIGRATIONS: Final = ROOT / "sql" / "migrations"
HANDBOOK: Final = ROOT / "docs" / "handbook.md"
INDEX: Final = "select indexrelid, pg_get_indexdef(indexrelid) from pg_index where indexrelid = 'run_open'::regclass and indisvalid"
FILES = {
    "0001_notes.sql": "create table note (id int primary key);\ncreate table other (id int);\n",
    "0002_text.sql": "alter table note add column text text;\n",
    "0003_function.sql": "create function two() returns int language plpgsql as $$\nbegin\n  return 2;\nend;\n$$;\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def tables(url: str) -> set[str]:
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute("select table_name from information_schema.tables where table_schema = 'public'")
        return {str(row[0]) for row in found}


def test_a_fresh_database_gets_every_file_once(empty_database_url_on_each: str, folder: Path) -> None:
    url = empty_database_url_on_each
    names = ("0001_notes", "0002_text", "0003_function")
    assert check(url, folder=folder) == MigrationReport(applied=(), pending=names, current=0, needed=3)
    assert tables(url) == set()
    assert migrate(url, folder=folder) == MigrationReport(applied=names, pending=(), current=3, needed=3)
    assert tables(url) == {"note", "other", "schema_migration"}
    assert migrate(url, folder=folder) == check(url, folder=folder) == MigrationReport(applied=(), pending=(), current=3, needed=3)


def test_a_new_file_is_applied_alone(empty_database_url: str, folder: Path) -> None:
    migrate(empty_database_url, folder=folder)
    (folder / "0004_more.sql").write_text("create table more (id int)", encoding="utf-8")
    assert not check(empty_database_url, folder=folder).is_ready
    assert migrate(empty_database_url, folder=folder).applied == ("0004_more",)


def test_an_edited_file_is_refused(empty_database_url_on_each: str, folder: Path) -> None:
    migrate(empty_database_url_on_each, folder=folder)
    (folder / "0002_text.sql").write_text("alter table note add column words text;\n", encoding="utf-8")
    (folder / "0004_more.sql").write_text("create table more (id int)", encoding="utf-8")
    for run in (migrate, check):
        with pytest.raises(MigrationError, match="0002_text was edited after it was applied"):
            run(empty_database_url_on_each, folder=folder)
    assert "more" not in tables(empty_database_url_on_each)


def test_line_ends_are_no_edit(empty_database_url: str, folder: Path) -> None:
    migrate(empty_database_url, folder=folder)
    (folder / "0001_notes.sql").write_bytes(FILES["0001_notes.sql"].replace("\n", "\r\n").encode())
    assert check(empty_database_url, folder=folder).is_ready


@pytest.mark.anyio
async def test_a_newer_schema_is_left_alone_and_served_on(empty_database_url_on_each: str, folder: Path) -> None:
    url = empty_database_url_on_each
    migrate(url, folder=folder)
    (folder / "0003_function.sql").unlink()
    before = tables(url)
    report = migrate(url, folder=folder)
    assert report == MigrationReport(applied=(), pending=(), current=3, needed=2)
    assert report.is_ready
    assert tables(url) == before
    async with await Database.open(url) as database:
        assert await schema_version(database) == 3


@pytest.mark.anyio
async def test_the_version_of_a_database_never_migrated_is_0(empty_database_url_on_each: str) -> None:
    async with await Database.open(empty_database_url_on_each) as database:
        assert await schema_version(database) == 0


def test_a_failing_file_leaves_nothing_and_the_ones_before_it_stay(empty_database_url_on_each: str, folder: Path) -> None:
    (folder / "0003_function.sql").write_text("create table half (id int); insert into note values (1), (1);", encoding="utf-8")
    with pytest.raises(MigrationError, match=r"0003_function failed and left nothing behind: .*\(SQLSTATE 23505\)") as failed:
        migrate(empty_database_url_on_each, folder=folder)
    assert "(1)" not in str(failed.value)
    assert tables(empty_database_url_on_each) == {"note", "other", "schema_migration"}
    (folder / "0003_function.sql").write_text("create table whole (id int)", encoding="utf-8")
    assert migrate(empty_database_url_on_each, folder=folder).applied == ("0003_function",)


def test_four_processes_at_once_apply_each_file_exactly_once(empty_database_url_on_each: str, folder: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from gateway.store.migrate import migrate\n"
        "print(','.join(migrate(sys.argv[1], folder=Path(sys.argv[2])).applied))"
    )
    command = [sys.executable, "-c", program, empty_database_url_on_each, str(folder)]
    # Our own hold on the lock is the starting signal: all four are at it before the first may go.
    with psycopg.connect(empty_database_url_on_each) as starter, psycopg.connect(empty_database_url_on_each, autocommit=True) as observer:
        starter.execute("select pg_advisory_xact_lock(%s)", (LOCK_KEY,))
        processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(4)]
        waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
        while observer.execute(waiting).fetchone() != (4,):
            assert all(process.poll() is None for process in processes)
        starter.rollback()
    outcomes = [process.communicate(timeout=30) for process in processes]
    assert [errors for _, errors in outcomes] == [""] * 4
    applied = [name for output, _ in outcomes for name in output.strip().split(",") if name]
    assert sorted(applied) == ["0001_notes", "0002_text", "0003_function"]


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("0003_gap.sql", "select 1", "out of order"),
        ("2_short.sql", "select 1", "out of order"),
        ("0001_twice.sql", "select 1", "out of order"),
        ("0002_commits.sql", "select 1;\nCOMMIT;\nselect 2;", "says COMMIT"),
    ],
)
def test_a_folder_that_breaks_the_rules_is_refused(tmp_path: Path, name: str, text: str, why: str) -> None:
    (tmp_path / "0001_first.sql").write_text("select 1", encoding="utf-8")
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(MigrationError, match=why):
        load_migrations(tmp_path)


def test_a_table_changed_by_hand_is_refused(empty_database_url: str, folder: Path) -> None:
    migrate(empty_database_url, folder=folder)
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute("delete from schema_migration where version = 2")
    with pytest.raises(MigrationError, match="gaps"):
        migrate(empty_database_url, folder=folder)


def test_without_a_server_it_says_so() -> None:
    with pytest.raises(DatabaseUnavailable):
        migrate("postgresql://postgres@/x?host=/nowhere")


def test_this_builds_schema(empty_database_url_on_each: str) -> None:
    report = migrate(empty_database_url_on_each)
    assert report.current == report.needed == needed_version() == len(report.applied)
    assert check(empty_database_url_on_each).is_ready


def test_one_file_at_a_time_gives_the_same_schema_as_all_at_once(
    empty_database_url_on_each: str, database_url_on_each: str, tmp_path: Path
) -> None:
    for migration in load_migrations():
        (tmp_path / f"{migration.name}.sql").write_text(migration.text, encoding="utf-8")
        assert migrate(empty_database_url_on_each, folder=tmp_path).applied == (migration.name,)
    columns = "select table_name, column_name, data_type, is_nullable, column_default from information_schema.columns"
    constraints = (
        "select conrelid::regclass::text, conname, pg_get_constraintdef(oid) from pg_constraint where connamespace = 'public'::regnamespace"
    )
    functions = "select proname, prosrc from pg_proc where pronamespace = 'public'::regnamespace"
    for query in (f"{columns} where table_schema = 'public' order by 1, 2", f"{constraints} order by 1, 2", f"{functions} order by 1"):
        found = []
        for url in (empty_database_url_on_each, database_url_on_each):
            with psycopg.connect(url, autocommit=True) as connection:
                found.append(connection.execute(query.encode()).fetchall())
        assert found[0] == found[1] != []


def test_the_index_that_the_handbook_builds_before_version_10_is_found(empty_database_url_on_each: str, tmp_path: Path) -> None:
    """Where `run` is large, building it inside the migration would keep heartbeats out for longer than a lease."""
    url = empty_database_url_on_each
    for path in sorted(MIGRATIONS.glob("000*.sql")):
        shutil.copy(path, tmp_path)
    migrate(url, folder=tmp_path)
    told = re.search(r"create index concurrently run_open.*?;", HANDBOOK.read_text(encoding="utf-8"), re.DOTALL)
    assert told is not None
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(told[0].encode())
        before = connection.execute(INDEX).fetchall()
        assert migrate(url).applied[0] == "0010_open_runs"
        assert connection.execute(INDEX).fetchall() == before
        connection.execute("drop index run_open")
        connection.execute((MIGRATIONS / "0010_open_runs.sql").read_bytes())
        [(_, definition)] = connection.execute(INDEX).fetchall()
    assert [definition] == [found for _, found in before]
