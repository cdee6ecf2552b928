"""Settings, the command line's refusals, and what fits behind `--agent`."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver

from agent_service import cli
from agent_service.agent_loading import AgentDoesNotFitError, load_agent
from agent_service.records import RunStatus
from agent_service.settings import PREFIX, Settings, SettingsError, read_settings
from agent_service.store import load_statements

ROOT = Path(__file__).parents[2]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _no_settings_of_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"{PREFIX}{name}".upper(), raising=False)
    monkeypatch.chdir(tmp_path)


def test_every_fault_is_reported_at_once_and_no_value(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("AGENT_SERVICE_MODEL", "openai")
    monkeypatch.setenv("AGENT_SERVICE_PACE_SECONDS", "-1")
    monkeypatch.setenv("AGENT_SERVICE_TOKEN", "secret with spaces")
    with pytest.raises(SettingsError) as caught:
        read_settings({"port": 70000})
    names = {fault.split(" ")[0].removeprefix(PREFIX) for fault in caught.value.faults}
    assert names == {"DATABASE", "OPENAI_API_KEY", "OPENAI_MODEL", "PACE_SECONDS", "PORT", "TOKEN"}
    assert "secret" not in str(caught.value)
    assert cli.main(["serve"]) == 2
    assert "AGENT_SERVICE_DATABASE is required" in capsys.readouterr().err


def test_secrets_come_from_files_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-a-file\n")
    monkeypatch.setenv("AGENT_SERVICE_TOKEN_FILE", str(tmp_path / "token"))
    settings = read_settings({"database": tmp_path / "x.db"})
    assert settings.token is not None
    assert settings.token.get_secret_value() == "from-a-file"
    assert "from-a-file" not in repr(settings)
    monkeypatch.setenv("AGENT_SERVICE_TOKEN", "both")
    with pytest.raises(SettingsError, match="given twice"):
        read_settings({"database": tmp_path / "x.db"})
    monkeypatch.delenv("AGENT_SERVICE_TOKEN")
    monkeypatch.setenv("AGENT_SERVICE_TOKEN_FILE", str(tmp_path / "none"))
    with pytest.raises(SettingsError, match="cannot be read: FileNotFoundError"):
        read_settings({"database": tmp_path / "x.db"})


def test_wrong_usage_is_2_and_help_is_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert cli.main(["serve", "--port", "many"]) == 2
    assert cli.main(["serve", "--help"]) == 0
    assert "MODULE:GRAPH" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("own_graph", "not of the form MODULE:GRAPH"),
        ("no_such_module_here:graph", "cannot import 'no_such_module_here': ModuleNotFoundError"),
        ("tests.support.own_graph:nothing", "has no 'nothing'"),
        ("tests.support.own_graph:number", "is a int; it must be a LangGraph graph"),
        ("tests.support.own_graph:make_with", "needs arguments"),
        ("tests.support.own_graph:make_and_fail", "failed to build its graph: RuntimeError: no such model"),
        ("tests.support.own_graph:unfinished", "does not compile"),
        ("tests.support.own_graph:elsewhere", r"takes \['question'\] as input; it must take `messages`"),
    ],
)
def test_what_does_not_fit_is_said_clearly(name: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "token").write_text("t")
    given = ["serve", "--agent", name, "--database", str(tmp_path / "x.db"), "--token-file", str(tmp_path / "token"), "--port", "0"]
    assert cli.main(given) == 1
    told = capsys.readouterr().err
    assert re.search(says, told), told


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["graph", "builder", "make", "make_later", "asking", "remembering"])
async def test_graphs_builders_and_factories_fit(name: str) -> None:
    ours: BaseCheckpointSaver[str] = InMemorySaver()
    loaded = await load_agent(f"tests.support.own_graph:{name}", checkpointer=ours, directory=ROOT)
    assert (loaded.checkpointer is ours) == (name != "remembering"), "a checkpointer of its own is kept"


@pytest.mark.anyio
async def test_the_working_directory_is_importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "graph_of_the_working_directory.py").write_text("from tests.support.own_graph import graph\n")
    monkeypatch.setattr("sys.path", [str(ROOT)])
    assert await load_agent("graph_of_the_working_directory:graph", checkpointer=InMemorySaver(), directory=tmp_path)
    with pytest.raises(AgentDoesNotFitError):
        await load_agent("graph_of_another_directory:graph", checkpointer=InMemorySaver(), directory=tmp_path)


def test_the_command_line_alone_imports_nothing_of_weight_and_nothing_of_the_gateway() -> None:
    heavy = "[name for name in sys.modules if name.split('.')[0] in ('langchain', 'langgraph', 'langchain_core', 'starlette', 'gateway')]"
    told = subprocess.run(
        [sys.executable, "-c", f"import sys, agent_service.cli; print({heavy})"], cwd=ROOT, capture_output=True, check=True
    )
    assert told.stdout.strip() == b"[]"


def test_an_unusable_database_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "token").write_text("t")
    (tmp_path / "x.db").write_text("this is no database " * 100)
    given = ["serve", "--database", str(tmp_path / "x.db"), "--token-file", str(tmp_path / "token"), "--port", "0"]
    assert cli.main(given) == 1
    assert "file is not a database" in capsys.readouterr().err


def test_the_schema_knows_the_statuses_of_the_code() -> None:
    schema = (ROOT / "agent_service" / "sql" / "schema.sql").read_text()
    listed = re.search(r"check \(run_status in \(([^)]*)\)\)", schema)
    assert listed is not None
    assert {name.strip(" '") for name in listed[1].split(",")} == {status.value for status in RunStatus}


def test_every_statement_has_a_purpose() -> None:
    assert len(load_statements((ROOT / "agent_service" / "sql" / "statements.sql").read_text())) == 10
    with pytest.raises(ValueError, match="does not say"):
        load_statements("-- name: x\nselect 1;\n")


def test_the_page_lists_every_setting() -> None:
    page = (ROOT / "docs" / "agent-service.md").read_text()
    listed = re.findall(r"^\| `(AGENT_SERVICE_\w+)`", page, re.MULTILINE)
    assert sorted(listed) == sorted(f"{PREFIX}{name}".upper() for name in Settings.model_fields)
