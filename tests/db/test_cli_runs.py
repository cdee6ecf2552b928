"""`gateway runs` and `gateway audit` on a real database, beside a replica; and what every act of operators leaves in the trail."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from structlog.testing import capture_logs

from gateway.domain.ids import ApplicationId
from tests.db.test_cli_live import Shell
from tests.db.world import everything_in
from tests.support.scripted_upstream import Answer, Script, ScriptedUpstream, event, started
from tests.support.stack import Replica, Stack, environment

pytestmark = pytest.mark.anyio

HALF = [*started(), event("TEXT_MESSAGE_START", messageId="m1", role="assistant")]
HALF += [event("TEXT_MESSAGE_CONTENT", messageId="m1", delta="seen\x1b[2J")]
STILL = {"GATEWAY_RECONCILE_SECONDS": "3600", "AGENT_MAX_ACTIVE_PER_APP": "100"}


@pytest.fixture
def shell(database_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    for name, value in environment(database_url).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LOGNAME", "root")
    with capture_logs():
        yield Shell(capsys)


async def run_of(stack: Stack, replica: Replica, application: ApplicationId, script: Script, subject: str = "ada") -> str:
    stack.upstream.use(script)
    _, events = await replica.client(subject).ask(application, str(uuid4()), "the question")
    return str(events[0].data["runId"])


async def error_of(shell: Shell, *argv: str, status: int = 1) -> Any:
    return json.loads((await shell(*argv, "--json", status=status))[1])["error"]


async def test_an_unknown_run_from_the_list_to_its_resolution(shell: Shell, database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        replica = await stack.replica(stack.settings(**STILL))
        script = Script(ag_ui=[Answer(frames=HALF, ending="unfinished")], lookup_status={"*": "running"})
        run_id = await run_of(stack, replica, application, script)
        listed = (await shell.json("runs", "list"))["runs"]
        assert [(run["run_id"], run["execution"], run["app_name"], run["subject"]) for run in listed] == [
            (run_id, "unknown", "app-0", "ada")
        ]
        assert run_id in (await shell("runs", "list", "--state", "active", "--app", "app-0"))[0]
        assert (await shell.json("runs", "list", "--state", "attention"))["runs"] == []
        out, _ = await shell("runs", "show", run_id)
        assert "blocks        new tasks in its conversation (run_active), a slot of its owner and one of the application" in out
        assert "acts          lookup, resolve --outcome succeeded, resolve --outcome failed" in out
        assert "fence" in out
        assert "the question" not in out
        assert "not executed" not in out
        out, _ = await shell("runs", "show", run_id, "--text", "--as", "olga")
        assert "  the question" in out
        assert "  seen\ufffd[2J" in out
        run = await shell.json("runs", "lookup", run_id)
        assert (run["execution"], run["lookups"], run["native_status"]) == ("unknown", 1, "active")
        run = await shell.json("runs", "resolve", run_id, "--outcome", "failed", "--reason", "its worker died", "--as", "olga")
        assert (run["execution"], run["resolved_by"]) == ("closed", "cli:olga")
        assert "failed by cli:olga at" in (await shell("runs", "show", run_id))[0]
        assert (await shell.json("runs", "resolve", run_id, "--outcome", "failed", "--reason", "its worker died"))[
            "resolved_by"
        ] == "cli:olga"
        error = await error_of(shell, "runs", "resolve", run_id, "--outcome", "succeeded", "--reason", "x")
        assert (error["code"], "runs show" in error["next_step"]) == ("already_resolved", True)
        _, err = await shell("runs", "lookup", run_id)
        assert "Not looked up" in err
        _, err = await shell("runs", "retry-save", run_id)
        assert "Nothing to save" in err
        assert (await shell.json("runs", "list"))["runs"] == []
        entries = (await shell.json("audit", "list"))["audit"]
        assert [(entry["actor"], entry["act"]) for entry in entries][:3] == [
            ("cli:olga", "run_resolve"),
            ("cli:root", "run_lookup"),
            ("cli:olga", "run_text_read"),
        ]


async def test_what_is_too_early_says_from_when(shell: Shell, database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        replica = await stack.replica(stack.settings(**STILL))
        run_id = await run_of(stack, replica, application, Script(ag_ui=[Answer(http_status=500)]))
        error = await error_of(shell, "runs", "resolve", run_id, "--outcome", "not_executed", "--reason", "not in its log")
        assert (error["code"], error["why"]) == ("resolution_not_allowed", "too_early")
        out, _ = await shell("runs", "show", run_id)
        assert out.count(f"from {error['allowed_from']} on") == 3
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute("update run set fence_at = fence_at - interval '905 seconds'")
        out, _ = await shell("runs", "resolve", run_id, "--outcome", "not_executed", "--reason", "not in its log")
        assert "closed, incomplete" in out


async def test_a_pending_run_is_saved(shell: Shell, database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        replica = await stack.replica(stack.settings(**STILL))
        run_id = await run_of(stack, replica, application, Script())
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute("delete from item where position > 0")
            connection.execute("update run set persistence = 'pending', next_save_at = now() + interval '1 hour'")
        assert "retry-save, resolve --outcome succeeded" in (await shell("runs", "show", run_id))[0]
        assert (await shell.json("runs", "retry-save", run_id))["persistence"] == "saved"
        with psycopg.connect(database_url, autocommit=True) as connection:
            assert connection.execute("select count(*) from item").fetchone() == (4,)


async def test_long_lists_say_that_there_is_more(shell: Shell, database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        replica = await stack.replica(stack.settings(**STILL))
        runs = [await run_of(stack, replica, application, Script(ag_ui=[Answer(http_status=500)]), f"user-{n}") for n in range(3)]
        out, err = await shell("runs", "list", "--limit", "2", "--json")
        assert [run["run_id"] for run in json.loads(out)["runs"]] == [runs[2], runs[1]]
        assert "There are more than these 2" in err
        _, err = await shell("runs", "list", "--limit", "3")
        assert err == ""
        _, err = await shell("audit", "list", "--limit", "1")
        assert "There are more than these 1" in err


async def test_wrong_ids_and_names(shell: Shell) -> None:
    await shell("runs", "show", "1", status=2)
    error = await error_of(shell, "runs", "show", str(uuid4()))
    assert error["message"] == "There is no such run."
    assert (await error_of(shell, "runs", "resolve", str(uuid4()), "--outcome", "failed", "--reason", "x"))["code"] == "not_found"
    assert (await error_of(shell, "runs", "resolve", str(uuid4()), "--outcome", "failed", "--reason", " "))["code"] == "invalid_text"
    assert (await error_of(shell, "runs", "list", "--app", "nowhere"))["code"] == "not_found"
    await shell("runs", "lookup", str(uuid4()), "--as", "a\nb", status=2)
    await shell("runs", "resolve", str(uuid4()), "--outcome", "released", "--reason", "x", status=2)


async def test_verify_names_the_first_entry_that_was_changed(shell: Shell, database_url: str) -> None:
    assert await shell.json("audit", "verify") == {"entries": 0, "sha256": None}
    for name in ("a", "b", "c"):
        await shell("accounts", "create", name)
    verdict = await shell.json("audit", "verify")
    assert verdict["entries"] == 3
    assert verdict["sha256"] in (await shell("audit", "verify"))[0]
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("alter table audit disable trigger audit_append_only")
        connection.execute("update audit set actor = 'cli:nobody' where audit_id = 2")
    error = await error_of(shell, "audit", "verify")
    assert (error["code"], error["audit_id"], error["why"], error["good_entries"]) == ("audit_broken", 2, "hash_differs", 1)
    assert "entry 2 (hash_differs)" in (await shell("audit", "verify", status=1))[1]


async def test_every_act_of_configuration_is_recorded_and_no_secret_is(shell: Shell, database_url: str, tmp_path: Path) -> None:
    token_file, config = tmp_path / "token", tmp_path / "config.json"
    token_file.write_text("tok_CANARY")
    config.write_text('{"backend_type": "langchain", "langchain": {"assistant_id": "agent"}}')
    async with ScriptedUpstream(token="tok_CANARY") as upstream:
        acts = [
            ("provider_create", "providers", "create", "p", "--base-url", "http://127.0.0.1:1"),
            ("provider_set", "providers", "set", "p", "--base-url", upstream.base_url),
            ("provider_disable", "providers", "disable", "p"),
            ("provider_enable", "providers", "enable", "p"),
            ("app_create", "apps", "create", "a", "--provider", "p", "--assistant", "agent", "--token-file", str(token_file)),
            ("app_set", "apps", "set", "a", "--description", "text_CANARY", "--visibility", "group", "--group", "g"),
            ("app_disable", "apps", "disable", "a"),
            ("app_enable", "apps", "enable", "a"),
            ("app_set_token", "apps", "set-token", "a", "--token-file", str(token_file)),
            ("account_create", "accounts", "create", "ada", "--group", "g"),
            ("account_set", "accounts", "set", "ada", "--role", "operator"),
            ("account_suspend", "accounts", "suspend", "ada"),
            ("account_activate", "accounts", "activate", "ada"),
            ("quota_set", "quotas", "set", "--scope", "app", "--app", "a", "--limit", "10", "--window", "day"),
        ]
        for _, *argv in acts:
            await shell(*argv, "--as", "olga")
        rule = (await shell.json("quotas", "list"))["quotas"][0]["quota_rule_id"]
        await shell("quotas", "remove", rule, "--as", "olga")
        # What changes nothing is no act.
        for same in (
            ("providers", "enable", "p"),
            ("providers", "set", "p", "--base-url", upstream.base_url),
            ("apps", "enable", "a"),
            ("apps", "set", "a", "--config", str(config)),
            ("accounts", "activate", "ada"),
        ):
            await shell(*same)
        await shell("quotas", "remove", rule, status=1)
        await shell("apps", "create", "a", "--provider", "p", "--assistant", "agent", "--token-file", str(token_file), status=1)
    entries = (await shell.json("audit", "list"))["audit"][::-1]
    assert [(entry["act"], entry["actor"]) for entry in entries] == [
        (act, "cli:olga") for act in [*(act for act, *_ in acts), "quota_remove"]
    ]
    changed = next(entry for entry in entries if entry["act"] == "app_set")
    assert changed["detail"]["changed"] == ["description", "groups", "visibility"]
    assert "CANARY" not in str(entries)
    assert "tok_CANARY" not in everything_in(database_url)
    assert (await shell.json("audit", "verify"))["entries"] == len(entries)
