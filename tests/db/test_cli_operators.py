"""Operators' commands on a real database: what they do, print and refuse; tokens never show."""

import base64
import json
import re
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from gateway.bindings.vault import KeyRing
from gateway.cli import main
from tests.db.world import everything_in

KEY = base64.b64encode(b"k" * 32).decode()
OTHER_KEY = base64.b64encode(b"o" * 32).decode()


class Shell:
    """One operator's terminal: every command's output is kept, so that it can be searched for secrets."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path, url: str) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        self.folder = folder
        self.url = url
        self.said = ""

    def __call__(self, *argv: str, status: int = 0) -> str:
        """Run a command; gives stdout, or stderr where it was to fail."""
        assert main(argv) == status, (argv, "".join(self._capsys.readouterr()))
        out, err = self._capsys.readouterr()
        self.said += out + err
        assert "Traceback" not in err
        assert out == "" or status == 0
        return out if status == 0 else err

    def json(self, *argv: str) -> Any:
        return json.loads(self(*argv, "--json"))

    def error(self, *argv: str, status: int = 1) -> Any:
        return json.loads(self(*argv, "--json", status=status))["error"]

    def file(self, content: str | bytes, name: str = "file") -> str:
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    def stdin(self, content: bytes) -> None:
        self._monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=BytesIO(content)))

    def setenv(self, name: str, value: str) -> None:
        self._monkeypatch.setenv(name, value)


@pytest.fixture
def shell(database_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shell:
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("API_ENCRYPTION_KEY", KEY)
    monkeypatch.setenv("GATEWAY_TRUSTED_UPSTREAM_HOSTS", "127.0.0.1")
    return Shell(capsys, monkeypatch, tmp_path, database_url)


@pytest.fixture
def shell_with_app(shell: Shell) -> Shell:
    shell("providers", "create", "p", "--base-url", "https://agent.example")
    shell("apps", "create", "a", "--provider", "p", "--assistant", "agent", "--token-file", shell.file("tok_CANARY\n"))
    return shell


def test_providers(shell: Shell) -> None:
    UUID(shell("providers", "create", "p", "--base-url", "https://Agent.example/").strip())
    listed = shell.json("providers", "list")["providers"]
    assert [(row["name"], row["base_url"], row["enabled"]) for row in listed] == [("p", "https://agent.example", True)]
    assert shell.json("providers", "disable", "p") == {"enabled": False, "changed": True}
    assert shell.json("providers", "disable", "p") == {"enabled": False, "changed": False}
    assert shell.json("providers", "show", "p")["enabled"] is False
    shell("providers", "enable", "p")
    moved = {"changed": ["base_url"], "moved": True, "token_dropped": True}
    assert shell.json("providers", "set", "p", "--base-url", "http://127.0.0.1:8123") == moved
    nothing = {"changed": [], "moved": False, "token_dropped": False}
    assert shell.json("providers", "set", "p", "--base-url", "http://127.0.0.1:8123/", "--rename", "p") == nothing
    assert "http://127.0.0.1:8123" in shell("providers", "show", "p")
    assert shell.json("providers", "set", "p", "--rename", "new") == nothing | {"changed": ["name"]}
    shell("providers", "set", "new", "--rename", "p")
    shell("providers", "set", "p", status=2)
    assert shell.error("providers", "create", "p", "--base-url", "https://agent.example")["code"] == "already_exists"
    for verb in ("show", "disable", "enable"):
        assert shell.error("providers", verb, "nowhere")["code"] == "not_found"


def test_o34_a_url_with_a_password_is_refused_unseen(shell: Shell) -> None:
    error = shell.error("providers", "create", "p", "--base-url", "https://u:pw_CANARY@agent.example")
    assert (error["code"], error["field"]) == ("configuration_invalid", "base_url")
    shell("providers", "create", "p", "--base-url", "https://u:pw_CANARY@agent.example", status=1)
    assert "CANARY" not in shell.said + everything_in(shell.url)


def test_apps(shell_with_app: Shell) -> None:
    shell = shell_with_app
    shown = shell.json("apps", "show", "a")
    config = {"assistant_id": "agent", "human_input": False}
    assert (shown["provider"], shown["config"]["langchain"], shown["visibility"], shown["token"]) == ("p", config, "public", "readable")
    assert re.search(r"^assistant id +agent$", shell("apps", "show", "a"), re.MULTILINE)
    file = shell.file('{"backend_type": "langchain", "langchain": {"assistant_id": "x", "human_input": true}}', "config.json")
    created = shell.json(
        "apps", "create", "b", "--provider", "p", "--config", file, "--description", "about", "--visibility", "private",
        "--owner", "alice", "--user", "bob", "--user", "carol", "--token-file", shell.file("tok_CANARY"),
    )  # fmt: skip
    shown = shell.json("apps", "show", "b")
    assert (shown["app_id"], shown["owner"], shown["users"]) == (created["app_id"], "alice", ["bob", "carol"])
    assert (shown["available"], shown["unavailable"]) == (True, None)
    shell("apps", "create", "c", "--provider", "p", "--config", shell.file("{}", "dify.json"))
    assert [(row["name"], row["token"]) for row in shell.json("apps", "list")["apps"]] == [
        ("a", "readable"),
        ("b", "readable"),
        ("c", "none"),
    ]
    nothing = {"changed": [], "moved": False, "token_dropped": False}
    for change, report in (
        (["--visibility", "group", "--group", "staff"], nothing | {"changed": ["groups", "visibility"]}),
        (["--assistant", "other"], nothing | {"changed": ["assistant_id"], "moved": True}),
        (["--assistant", "other", "--rename", "a"], nothing),
        (["--rename", "z"], nothing | {"changed": ["name"]}),
    ):
        assert shell.json("apps", "set", "a", *change) == report
    shell("apps", "set", "z", "--rename", "a")
    shell("apps", "set", "b", "--no-owner")
    assert shell.json("apps", "show", "b")["owner"] is None
    shell("providers", "create", "q", "--base-url", "https://elsewhere.example")
    assert "set-token a" in shell("apps", "set", "a", "--provider", "q")
    assert shell.json("apps", "disable", "a", "--wait") == {"enabled": False, "changed": True}
    assert shell.json("apps", "enable", "a") == {"enabled": True, "changed": True}
    assert shell.error("apps", "set", "a", "--provider", "nowhere")["message"] == "There is no such provider."
    assert shell.error("apps", "set", "a", "--visibility", "private")["field"] == "owner"
    assert "CANARY" not in shell.said


@pytest.mark.parametrize("raw", [b"tok_CANARY\n", b" tok_CANARY", b"tok_CANARY"])
def test_o34_a_token_from_a_file_or_standard_input_is_stored_unseen(shell: Shell, raw: bytes) -> None:
    shell("providers", "create", "p", "--base-url", "https://agent.example")
    shell("apps", "create", "a", "--provider", "p", "--assistant", "agent", "--token-file", shell.file(raw))
    shell.stdin(raw)
    shell("apps", "create", "b", "--provider", "p", "--assistant", "agent", "--token-file", "-")
    assert "readable" in shell("apps", "list")
    shell("apps", "show", "a")
    assert "CANARY" not in shell.said + everything_in(shell.url)


def test_o34_a_token_that_no_header_can_hold_is_refused_unseen(shell_with_app: Shell) -> None:
    shell = shell_with_app
    for raw in ("tök_CANARY", "", "tok_CANARY\r\nX-Evil: 1"):
        error = shell.error("apps", "create", "b", "--provider", "p", "--assistant", "agent", "--token-file", shell.file(raw))
        assert (error["code"], error["field"]) == ("configuration_invalid", "token")
        shell("apps", "set-token", "a", "--token-file", shell.file(raw), status=1)
    assert "CANARY" not in shell.said + everything_in(shell.url)
    assert [row["name"] for row in shell.json("apps", "list")["apps"]] == ["a"]


def test_o36_a_missing_key_shows_at_its_application(shell_with_app: Shell) -> None:
    shell = shell_with_app
    shell.setenv("API_ENCRYPTION_KEY", OTHER_KEY)
    shell("apps", "create", "b", "--provider", "p", "--assistant", "agent", "--token-file", shell.file("tok_CANARY"))
    assert {row["name"]: row["token"] for row in shell.json("apps", "list")["apps"]} == {"a": "no_key", "b": "readable"}
    shell.setenv("API_ENCRYPTION_KEYS_PREVIOUS", KEY)
    assert {row["token"] for row in shell.json("apps", "list")["apps"]} == {"readable"}


def test_o36_rekey_moves_every_token_once_and_says_which_do_not_open(shell_with_app: Shell) -> None:
    shell, new = shell_with_app, KeyRing([base64.b64decode(OTHER_KEY)]).key_ids[0]
    shell("apps", "create", "b", "--provider", "p", "--assistant", "agent", "--token-file", shell.file("tok_CANARY_B"))
    shell.setenv("API_ENCRYPTION_KEY", OTHER_KEY)
    error = shell.error("keys", "rekey")
    assert (error["code"], error["moved"]) == ("tokens_unreadable", 0)
    assert sorted((token["app"], token["fault"]) for token in error["unreadable"]) == [("a", "no_key"), ("b", "no_key")]
    shell.setenv("API_ENCRYPTION_KEYS_PREVIOUS", KEY)
    for dry_run, moved in ((True, 2), (True, 2), (False, 2), (False, 0)):
        done = shell.json("keys", "rekey", *(["--dry-run"] if dry_run else []))
        assert done == {"key_id": new, "moved": moved, "dry_run": dry_run, "unreadable": []}
    assert f"0 were encrypted anew under the key {new}" in shell("keys", "rekey")
    shell.setenv("API_ENCRYPTION_KEYS_PREVIOUS", "")
    assert {row["token"] for row in shell.json("apps", "list")["apps"]} == {"readable"}
    entries = [entry for entry in shell.json("audit", "list")["audit"] if entry["act"] == "keys_rekey"]
    assert sorted(entry["detail"]["name"] for entry in entries) == ["a", "b"]
    assert "CANARY" not in shell.said + everything_in(shell.url)


def test_a_blocked_change_lists_the_runs_in_the_way(shell_with_app: Shell) -> None:
    shell = shell_with_app
    run_id = a_running_run(shell.url)
    for argv in (("apps", "set", "a", "--assistant", "x"), ("providers", "set", "p", "--base-url", "https://x.example")):
        error = shell.error(*argv)
        assert (error["code"], error["runs"][0]["run_id"]) == ("change_blocked", run_id)
        assert run_id in shell(*argv, status=1)
        assert "--wait" in error["next_step"]


def a_running_run(url: str) -> str:
    run_id = str(uuid4())
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("insert into account (account_id, subject) values (gen_random_uuid(), 'alice')")
        connection.execute(
            """
            with made as (
                insert into conversation (conversation_id, application_id, account_id, title)
                select gen_random_uuid(), application_id, account_id, 'hi' from application, account
                returning conversation_id, application_id, account_id
            )
            insert into run (run_id, account_id, application_id, conversation_id, submission_id, sequence, execution, attempt_token,
                correlation_id, config_version, token_version, user_slot, application_slot, fence_at, lease_until)
            select %(run_id)s, account_id, application_id, conversation_id, 's', 1, 'running', gen_random_uuid(), gen_random_uuid(),
                1, 1, 1, 1, now(), now() from made
            """,
            {"run_id": run_id},
        )
    return run_id


def test_disable_wait_returns_when_the_last_run_is_over(shell_with_app: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = shell_with_app
    run_id = a_running_run(shell.url)
    end_at_first_pause(monkeypatch, lambda: over(shell.url, run_id))
    out = shell("apps", "disable", "a", "--wait")
    assert f"{run_id} (running)" in shell.said
    assert "no run is active" in out


def over(url: str, run_id: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            """update run set execution = 'succeeded', persistence = 'saved', user_slot = null, application_slot = null,
               finished_at = now() where run_id = %s""",
            (run_id,),
        )


def end_at_first_pause(monkeypatch: pytest.MonkeyPatch, end: Callable[[], None]) -> None:
    """The command's own pause is the signal that it saw the run."""
    from gateway.cli import apps

    async def pause(_: float) -> None:
        end()

    monkeypatch.setattr(apps, "asyncio", SimpleNamespace(sleep=pause))


def test_accounts(shell: Shell) -> None:
    created = shell.json("accounts", "create", "alice", "--group", "b", "--group", "a", "--role", "operator")
    assert (created["state"], created["groups"], created["roles"]) == ("active", ["a", "b"], ["operator"])
    assert shell.error("accounts", "create", "alice")["code"] == "already_exists"
    assert shell.json("accounts", "suspend", "alice")["state"] == "suspended"
    assert shell.json("accounts", "suspend", "alice")["state"] == "suspended"
    assert shell.json("accounts", "activate", "alice")["state"] == "active"
    assert shell.json("accounts", "set", "alice", "--no-roles", "--group", "c")["groups"] == ["c"]
    shell("accounts", "create", "bob")
    listed = shell.json("accounts", "list")["accounts"]
    assert [(row["subject"], row["roles"]) for row in listed] == [("alice", []), ("bob", [])]
    assert "alice" in shell("accounts", "list")
    for verb in (("suspend",), ("activate",), ("set", "--no-groups")):
        assert shell.error("accounts", verb[0], "nobody", *verb[1:])["message"] == "There is no such account."
    assert shell.error("accounts", "create", "a\nb")["field"] == "subject"


def test_quotas(shell_with_app: Shell) -> None:
    shell = shell_with_app
    assert shell.json("quotas", "list") == {"quotas": []}
    rule = shell.json("quotas", "set", "--scope", "user", "--limit", "10", "--window", "day")["quota_rule_id"]
    assert shell("quotas", "set", "--scope", "user", "--limit", "20", "--window", "day").strip() == rule
    others = [
        shell.json("quotas", "set", "--scope", "user", "--limit", "1", "--window", "hour"),
        shell.json("quotas", "set", "--scope", "user", "--limit", "2", "--window", "day", "--app", "a"),
        shell.json("quotas", "set", "--scope", "group", "--group", "g", "--limit", "3", "--window", "day"),
        shell.json("quotas", "set", "--scope", "app", "--app", "a", "--limit", "4", "--window", "month"),
    ]
    assert len({rule, *(other["quota_rule_id"] for other in others)}) == 5
    listed = shell.json("quotas", "list")["quotas"]
    assert [(row["scope"], row["app"], row["group"], row["limit"], row["window"]) for row in listed] == [
        ("user", None, None, 20, "day"),
        ("user", None, None, 1, "hour"),
        ("user", "a", None, 2, "day"),
        ("group", None, "g", 3, "day"),
        ("app", "a", None, 4, "month"),
    ]
    shell("quotas", "remove", rule)
    assert shell.error("quotas", "remove", rule)["code"] == "not_found"
    assert len(shell.json("quotas", "list")["quotas"]) == 4
    assert shell.json("quotas", "set", "--scope", "user", "--limit", "5", "--window", "day")["quota_rule_id"] != rule
    assert shell.error("quotas", "set", "--scope", "app", "--app", "nowhere", "--limit", "1", "--window", "day")["code"] == "not_found"


def test_quotas_that_slide_and_of_members(shell_with_app: Shell) -> None:
    shell = shell_with_app
    for window, shown in (("1h", "1h"), ("24h", "1d"), ("36h", "36h"), ("30d", "30d"), ("366d", "366d")):
        assert shell.json("quotas", "set", "--scope", "user", "--group", "staff", "--limit", "1", "--window", window)["window"] == shown
    assert [row["group"] for row in shell.json("quotas", "list")["quotas"]] == ["staff"] * 5
    for window in ("0h", "1m", "367d", "8785h", "week", "1", "01h", "1.5h", "99999d"):
        assert shell.error("quotas", "set", "--scope", "user", "--limit", "1", "--window", window, status=2)


def test_the_heaviest(shell_with_app: Shell) -> None:
    shell = shell_with_app
    assert shell.json("quotas", "heaviest") == {"heaviest": []}
    a_running_run(shell.url)
    assert [(row["what"], row["name"], row["tasks"]) for row in shell.json("quotas", "heaviest", "--window", "1h")["heaviest"]] == [
        ("user", "alice", 1),
        ("app", "a", 1),
    ]
    with psycopg.connect(shell.url, autocommit=True) as connection:
        connection.execute("update run set created_at = created_at - interval '61 min'")
    assert shell.json("quotas", "heaviest", "--window", "1h") == {"heaviest": []}
    assert len(shell.json("quotas", "heaviest", "--window", "2h")["heaviest"]) == 2
    assert shell.error("quotas", "heaviest", "--window", "day")["field"] == "window"


def test_moderation(shell_with_app: Shell) -> None:
    shell = shell_with_app
    assert shell.json("moderation", "show") == {"chains": []}
    shell.setenv("GATEWAY_MODERATION", "local")
    shell("moderation", "set", "local", "openai:https://judge.example/v1", "webhook:http://127.0.0.1:9/hook/", "--as", "olga")
    shell("moderation", "set", "--app", "a", "--token-file", shell.file("tok_CANARY\n"), "webhook:https://judge.example", "--as", "olga")
    chains = shell.json("moderation", "show")["chains"]
    assert [(chain["of"], chain["app"], chain["moderators"]) for chain in chains] == [
        ("settings", None, [{"moderator": "local"}]),
        (
            "all",
            None,
            [
                {"moderator": "local"},
                {"moderator": "openai:https://judge.example/v1/moderations", "token": "none"},
                {"moderator": "webhook:http://127.0.0.1:9/hook/", "token": "none"},
            ],
        ),
        ("a", "a", [{"moderator": "webhook:https://judge.example", "token": "readable"}]),
    ]
    assert "webhook:https://judge.example (token: readable)" in shell("moderation", "show")
    entries = [entry for entry in shell.json("audit", "list")["audit"] if entry["act"] == "moderation_set"]
    assert [(entry["actor"], entry["target"]["kind"], entry["detail"]) for entry in entries] == [
        ("cli:olga", "application", {"moderators": ["webhook:https://judge.example"], "new_tokens": 1}),
        (
            "cli:olga",
            "gateway",
            {
                "moderators": ["local", "openai:https://judge.example/v1/moderations", "webhook:http://127.0.0.1:9/hook/"],
                "new_tokens": 0,
            },
        ),
    ]
    shell("moderation", "set", "--app", "a", "default")
    shell("moderation", "set", "none")
    assert [(chain["of"], chain["moderators"]) for chain in shell.json("moderation", "show")["chains"]][1:] == [("all", [])]
    assert shell.error("moderation", "set", "--app", "nowhere", "local")["code"] == "not_found"
    assert shell.error("moderation", "set", "webhook:http://judge.example")["field"] == "moderators"
    assert shell.error("moderation", "set", "local", "--token-file", shell.file("tok_CANARY"))["field"] == "tokens"
    assert "CANARY" not in shell.said
    assert "CANARY" not in everything_in(shell.url)


def test_a_moderators_token_moves_to_the_newest_key(shell_with_app: Shell) -> None:
    shell = shell_with_app
    shell("moderation", "set", "--token-file", shell.file("tok_CANARY"), "webhook:https://judge.example")
    shell.setenv("API_ENCRYPTION_KEY", OTHER_KEY)
    assert shell.json("moderation", "show")["chains"][0]["moderators"][0]["token"] == "no_key"
    shell.setenv("API_ENCRYPTION_KEYS_PREVIOUS", KEY)
    assert shell.json("keys", "rekey")["moved"] == 2
    shell.setenv("API_ENCRYPTION_KEYS_PREVIOUS", "")
    assert shell.json("moderation", "show")["chains"][0]["moderators"][0]["token"] == "readable"
    assert shell.json("keys", "rekey")["moved"] == 0


def test_migrate_and_an_old_schema(empty_database_url: str, shell: Shell) -> None:
    shell.setenv("GATEWAY_DATABASE_DIRECT_URL", empty_database_url)
    error = shell.error("migrate", "--check")
    assert (error["code"], error["current"]) == ("migrations_pending", 0)
    shell.setenv("DATABASE_URL", empty_database_url)
    assert "gateway migrate" in shell.error("apps", "list")["next_step"]
    report = shell.json("migrate")
    assert report["applied"]
    assert report["pending"] == []
    assert shell.json("migrate")["applied"] == []
    assert "The schema is at version" in shell("migrate", "--check")
    assert shell.json("apps", "list") == {"apps": []}
