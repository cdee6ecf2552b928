"""The command line without a database: usage, exit statuses, what goes where, and that no secret and no traceback is shown."""

import asyncio
import base64
import io
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gateway.cli import main
from gateway.cli.failures import explained
from gateway.cli.output import printable
from gateway.domain.problems import PROBLEMS, Code, Refused
from gateway.identity.tokens import HmacIdentity
from gateway.settings import Fault, SettingsInvalid, setting_docs
from gateway.store.errors import (
    AnswerLost,
    ConstraintViolated,
    DatabaseUnavailable,
    DeadlockOrSerialization,
    StatementFailed,
)

JWT_KEY = "j" * 32
KEY = base64.b64encode(b"k" * 32).decode()


@pytest.fixture(autouse=True)
def only_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [doc.name for doc in setting_docs()]:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["nothing"],
        ["apps"],
        ["apps", "create", "a"],
        ["apps", "create", "a", "--provider", "p", "--assistant", "x", "--config", "y"],
        ["quotas", "set", "--scope", "user", "--limit", "0", "--window", "day"],
        ["quotas", "set", "--scope", "user", "--limit", "1", "--window", "week"],
        ["quotas", "set", "--scope", "app", "--limit", "1", "--window", "day"],
        ["quotas", "set", "--scope", "group", "--limit", "1", "--window", "day"],
        ["quotas", "set", "--scope", "app", "--app", "a", "--group", "g", "--limit", "1", "--window", "day"],
        ["quotas", "set", "--scope", "user", "--limit", "1", "--window", "367d"],
        ["quotas", "remove", "1"],
        ["apps", "create", "a", "--provider", "p", "--assistant", "x"],
        ["apps", "create", "a", "--provider", "p", "--assistant", "x", "--token-file", "f", "--group", "g"],
        ["apps", "create", "a", "--provider", "p", "--assistant", "x", "--token-file", "f", "--owner", "o"],
        ["apps", "set", "a"],
        ["accounts", "set", "a"],
        ["accounts", "set", "a", "--group", "g", "--no-groups"],
        ["accounts", "create", "a", "--role", "king"],
        ["token", ""],
        ["token", "a", "--lifetime-seconds", "0"],
        ["chat", "app", "hi"],
        ["chat", "app", "hi", "--url", "http://u:pw@host"],
    ],
)
def test_wrong_usage_is_2(argv: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GATEWAY_TOKEN", raising=False)
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "argv",
    [
        ["tok_CANARY"],
        ["apps", "tok_CANARY"],
        ["apps", "set-token", "a", "--token-file", "f", "tok_CANARY"],
        ["apps", "set-token", "a", "--token-file", "tok_CANARY"],
        ["apps", "set-token", "a", "--token=tok_CANARY"],
        ["apps", "disable", "a", "--wait=tok_CANARY"],
        ["apps", "create", "a", "--config", "tok_CANARY", "--provider", "p"],
        ["accounts", "create", "a", "--role", "tok_CANARY (choose"],
        ["accounts", "create", "a", "--role", "it's tok_CANARY"],
        ["quotas", "set", "--limit", "tok_CANARY", "--scope", "user", "--window", "day"],
        ["runs", "show", "tok_CANARY"],
        ["token", "a", "--lifetime-seconds", "tok_CANARY"],
    ],
)
def test_what_was_typed_where_it_does_not_belong_is_not_repeated(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) in (1, 2)
    assert "CANARY" not in "".join(capsys.readouterr())


@pytest.mark.parametrize("argv", [["--help"], ["apps", "--help"], ["apps", "set-token", "--help"], ["--version"]])
def test_help_is_0(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 0
    assert capsys.readouterr().out


def test_help_loads_nothing_heavy() -> None:
    code = "import sys; from gateway.cli import main; main(['--help']); print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for module in ("asyncio", "psycopg", "pydantic", "httpx", "aiohttp", "cryptography", "starlette", "structlog"):
        assert f"'{module}'" not in loaded, module


@pytest.mark.parametrize(
    "argv", [["apps", "list"], ["providers", "list"], ["accounts", "list"], ["quotas", "list"], ["migrate"], ["migrate", "--check"]]
)
def test_without_a_database_url_commands_say_so(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 1
    assert capsys.readouterr() == (
        "",
        "gateway: DATABASE_URL is not set.\nNext: Set it to a PostgreSQL server; `gateway demo` brings one of its own.\n",
    )


@pytest.mark.parametrize("argv", [["serve"], ["check"]])
def test_a_server_reports_all_faults_of_the_settings(
    argv: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWAY_PORT", "tok_CANARY")
    monkeypatch.setenv("API_ENCRYPTION_KEY", "tok_CANARY")
    assert main([*argv, "--json"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    error = json.loads(err)["error"]
    assert [fault["name"] for fault in error["faults"]] == [
        "API_ENCRYPTION_KEY",
        "DATABASE_URL",
        "GATEWAY_JWT_KEY",
        "GATEWAY_MODERATION",
        "GATEWAY_PORT",
    ]
    assert main(argv) == 1
    assert "CANARY" not in err + "".join(capsys.readouterr())


def test_a_token_is_what_the_server_accepts(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_JWT_KEY", JWT_KEY)
    monkeypatch.setenv("GATEWAY_JWT_GROUPS_CLAIM", "teams")
    assert main(["token", "alice", "--role", "operator", "--group", "a", "--group", "b"]) == 0
    token = capsys.readouterr().out.strip()
    assert main(["--json", "token", "alice"]) == 0
    assert json.loads(capsys.readouterr().out).keys() == {"token"}
    monkeypatch.delenv("GATEWAY_JWT_KEY")
    from gateway.identity.tokens import ClaimNames, TokenChecks

    claims = asyncio.run(HmacIdentity(JWT_KEY.encode(), TokenChecks(claim_names=ClaimNames(groups="teams"))).verify(token))
    assert (claims.subject, claims.groups, claims.operator) == ("alice", frozenset({"a", "b"}), True)


def test_without_a_local_key_there_is_no_token(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_JWKS_URL", "https://idp.example/keys")
    assert main(["token", "alice"]) == 1
    assert "GATEWAY_JWT_KEY is not set" in capsys.readouterr().err


def test_o34_a_token_given_as_a_path_is_not_shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://127.0.0.1:1/none")
    monkeypatch.setenv("API_ENCRYPTION_KEY", KEY)
    assert main(["apps", "set-token", "app", "--token-file", "tok_CANARY"]) == 2
    assert "CANARY" not in "".join(capsys.readouterr())


@pytest.mark.parametrize("content", [b"\xfftok_CANARY", b"tok_CANARY" * 9999])
def test_o34_a_file_that_is_no_token_is_not_shown(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://127.0.0.1:1/none")
    monkeypatch.setenv("API_ENCRYPTION_KEY", KEY)
    (tmp_path / "token").write_bytes(content)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    for path in (str(tmp_path / "token"), "-"):
        assert main(["apps", "set-token", "app", "--token-file", path]) == 1
    assert "CANARY" not in "".join(capsys.readouterr())


def test_a_database_that_is_away_is_a_failure_with_a_next_step(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://user:pw_CANARY@127.0.0.1:1/none")
    assert main(["migrate", "--check", "--json"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert json.loads(err)["error"]["code"] == "database_unavailable"
    assert "CANARY" not in err


@pytest.mark.parametrize("text", ['{"backend_type": "langchain", "backend_type": "dify"}', "{", ""])
def test_a_configuration_must_be_strict_json(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(text)
    assert main(["apps", "create", "a", "--provider", "p", "--config", str(tmp_path / "config.json")]) == 1
    assert "strict JSON" in capsys.readouterr().err


def test_every_fault_of_the_layers_below_is_explained_without_its_text() -> None:
    faults: list[Exception] = [
        *(Refused(code) for code in PROBLEMS),
        SettingsInvalid([Fault("GATEWAY_PORT", "it is wrong.")]),
        DatabaseUnavailable("tok_CANARY"),
        AnswerLost("tok_CANARY"),
        DeadlockOrSerialization("tok_CANARY"),
        StatementFailed("accounts.page", "42P01"),
        ConstraintViolated("account_subject_form"),
        RuntimeError("tok_CANARY"),
        KeyError("tok_CANARY"),
    ]
    for fault in faults:
        failed = explained(fault)
        assert failed.exit_status == 1
        assert failed.message
        assert failed.next_step
        assert "CANARY" not in f"{failed.message} {failed.next_step} {failed.details}"
    assert explained(Refused(Code.CHANGE_BLOCKED, extra={"runs": [{"run_id": "r"}]})).details == {"runs": [{"run_id": "r"}]}


def test_a_terminal_obeys_nothing_that_is_shown() -> None:
    assert printable("a\x1b[2Jb\r\x07\x9bc\nd\te\ud800") == "a\ufffd[2Jb\ufffd\ufffd\ufffdc\nd\te\ufffd"
