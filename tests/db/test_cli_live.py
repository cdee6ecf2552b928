"""Commands that call services: set-token and check ask a real upstream server, chat talks to a real gateway."""

import asyncio
import base64
import json
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.cli import main
from gateway.store.embedded import EmbeddedPostgres
from tests.db.world import everything_in
from tests.support.issuer import AUDIENCE, ISSUER, ec, issuing, public, rsa
from tests.support.postgres import PostgresForTests, folder_for_server
from tests.support.scripted_upstream import ScriptedUpstream
from tests.support.stack import ENCRYPTION_KEY, Stack, environment, token
from tests.support.upstream_script import Answer, Script, event, failed, finished, gate, message, started, tool

pytestmark = pytest.mark.anyio


class Shell:
    """A terminal beside the servers of the test: commands run in a thread with an event loop of their own."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.said = ""
        self._out = self._err = ""

    async def __call__(self, *argv: str, status: int = 0) -> tuple[str, str]:
        got = await asyncio.to_thread(main, argv)
        self._read()
        out, err = self._out, self._err
        self._out = self._err = ""
        self.said += out + err
        assert got == status, (argv, out, err)
        assert "Traceback" not in err
        return out, err

    async def until_told(self, words: str) -> None:
        """Return once the command that runs now has written `words` to stderr."""
        async with asyncio.timeout(60):
            while words not in self._err:
                await asyncio.sleep(0.02)
                self._read()

    def _read(self) -> None:
        out, err = self._capsys.readouterr()
        self._out, self._err = self._out + out, self._err + err

    async def json(self, *argv: str) -> Any:
        return json.loads((await self(*argv, "--json"))[0])


@pytest.fixture(scope="module")
def durable_postgres() -> Iterator[PostgresForTests]:
    """A server of its own: `check` has something to say about the other tests' fast one."""
    with folder_for_server() as folder, EmbeddedPostgres(folder / "postgres") as server:
        opened = PostgresForTests(server)
        yield opened
        opened.close()


@pytest.fixture
def database_url(durable_postgres: PostgresForTests) -> Iterator[str]:
    with durable_postgres.migrated_database() as url:
        yield url


@pytest.fixture
def shell(database_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    for name, value in environment(database_url).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("GATEWAY_URL", raising=False)
    monkeypatch.setenv("GATEWAY_TOKEN", token("ada"))
    made = Shell(capsys)
    with capture_logs() as logged:  # the servers of a test run in this process, and would write between the commands' own lines
        yield made
    assert "CANARY" not in f"{made.said} {logged}"
    assert "CANARY" not in everything_in(database_url)


async def with_app(shell: Shell, upstream: ScriptedUpstream, folder: Path) -> None:
    (folder / "old").write_text("tok_CANARY_OLD\n")
    (folder / "new").write_text("tok_CANARY_NEW\n")
    await shell("providers", "create", "p", "--base-url", upstream.base_url)
    await shell("apps", "create", "a", "--provider", "p", "--assistant", "agent", "--token-file", str(folder / "old"))


async def test_a_token_replaces_the_old_one_once_the_service_takes_it(shell: Shell, tmp_path: Path) -> None:
    async with ScriptedUpstream(token="tok_CANARY_NEW") as upstream:
        await with_app(shell, upstream, tmp_path)
        _, err = await shell("apps", "set-token", "a", "--token-file", str(tmp_path / "old"), status=1)
        assert "Nothing was changed" in err
        assert (await shell.json("apps", "show", "a"))["token_version"] == 1
        assert await shell.json("apps", "set-token", "a", "--token-file", str(tmp_path / "new")) == {"changed": True}
        assert (await shell.json("apps", "show", "a"))["token_version"] == 2
        assert "Bearer tok_CANARY_NEW" in str(upstream.requests[-1].headers)
    _, err = await shell("apps", "set-token", "a", "--token-file", str(tmp_path / "new"), status=1)
    assert "Upstream check failed" in err


async def test_a_busy_application_is_disabled_waited_for_and_takes_no_token_before(shell: Shell, database_url: str, tmp_path: Path) -> None:
    (tmp_path / "new").write_text("tok_CANARY_NEW")
    async with Stack.over(database_url) as stack:
        application = await stack.application()
        replica = await stack.replica()
        held = [*started(), event("TEXT_MESSAGE_START", messageId="m", role="assistant"), gate("rest"), finished()]
        stack.upstream.use(Script(ag_ui=[Answer(frames=held)]))
        run_id = (await replica.client("ada").submit(application, "s", "hi")).json()["run_id"]
        await stack.upstream.waiting_at("rest")
        stack.upstream.token = "tok_CANARY_NEW"
        asked = len(stack.upstream.requests)
        _, err = await shell("apps", "set-token", "app-0", "--token-file", str(tmp_path / "new"), "--json", status=1)
        refused = json.loads(err)["error"]
        assert (refused["code"], [one["run_id"] for one in refused["runs"]]) == ("change_blocked", [run_id])
        assert len(stack.upstream.requests) == asked
        disabling = asyncio.create_task(shell("apps", "disable", "app-0", "--wait"))
        await shell.until_told(run_id)
        assert not (await replica.client("ben").get(f"/api/internal/apps/{application}")).json()["available"]
        assert not disabling.done()
        stack.upstream.release("rest")
        out, _ = await disabling
        assert out == "Disabled, and no run is active or unsaved.\n"
        assert (await replica.client("ada").run(application, run_id))["persistence"] == "saved"
        await shell("apps", "set-token", "app-0", "--token-file", str(tmp_path / "new"))


async def test_check_finds_what_is_well_and_what_is_not(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ScriptedUpstream(token="tok_CANARY_NEW") as upstream:
        await with_app(shell, upstream, tmp_path)
        out, err = await shell("check", status=1)
        assert "GET /capabilities failed" in out
        assert "1 of 6 checks failed" in err
        await shell("apps", "set-token", "a", "--token-file", str(tmp_path / "new"))
        checks = (await shell.json("check"))["checks"]
        assert [(check["about"], check["ok"]) for check in checks] == [
            ("settings", True),
            ("database", True),
            ("schema", True),
            ("keys", True),
            ("durability", True),
            ("app a at p", True),
        ]
        upstream.use(Script(assistant_id="another"))
        out, _ = await shell("check", status=1)
        assert "app a at p" in out
    await shell("apps", "disable", "a")
    assert "disabled, not asked" in (await shell("check"))[0]
    await shell("apps", "enable", "a")
    monkeypatch.setenv("API_ENCRYPTION_KEY", "b" * 43 + "=")
    assert "its token does not open: no_key" in (await shell("check", status=1))[0]
    await shell("apps", "disable", "a")
    assert "its token does not open: no_key" in (await shell("check", status=1))[0]


async def test_check_asks_the_identity_provider(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    async with issuing(public(rsa()), public(ec())) as issuer:
        monkeypatch.delenv("GATEWAY_JWT_KEY")
        for name, value in (("JWKS_URL", issuer.url), ("JWT_ISSUER", ISSUER), ("JWT_AUDIENCE", AUDIENCE)):
            monkeypatch.setenv(f"GATEWAY_{name}", value)
        checks = (await shell.json("check"))["checks"]
        assert checks[1] == {"about": "identity provider", "ok": True, "says": "answers with 2 usable keys"}
        issuer.entries = [{"kty": "oct", "k": "AAAA"}]
        assert "gives no keys: no_usable_key" in (await shell("check", status=1))[0]
        issuer.away = True
        out, _ = await shell("check", status=1)
        assert "gives no keys: disconnected" in out
        assert "schema" in out  # one that is away hides nothing else


async def test_o36_check_finds_a_replica_with_other_keys_and_readiness_warns_of_it(shell: Shell, database_url: str) -> None:
    other = base64.b64encode(b"another-key-for-encryption-of-32").decode()
    async with Stack.over(database_url) as stack:
        first = await stack.replica()
        await first.gateway.heartbeat.beat()
        assert (await first.http.get("/readyz")).json()["warnings"] == []
        assert (await shell.json("check"))["checks"][3] == {"about": "keys", "ok": True, "says": "every replica that lives has these"}
        second = await stack.replica(stack.settings(API_ENCRYPTION_KEY=other))
        await second.gateway.heartbeat.beat()
        for replica in (first, second):
            answer = await replica.http.get("/readyz")
            assert (answer.status_code, answer.json()["ready"], answer.json()["warnings"]) == (200, True, ["key_rings_differ"])
        out, _ = await shell("check", status=1)
        assert f"replica {second.gateway.heartbeat.replica_id} has {second.gateway.vault.key_ids[0]};" in out
        assert str(first.gateway.heartbeat.replica_id) not in out
        # The same keys in another order encrypt under another one.
        both = {"API_ENCRYPTION_KEY": other, "API_ENCRYPTION_KEYS_PREVIOUS": ENCRYPTION_KEY}
        third = await stack.replica(stack.settings(**both))
        await third.gateway.heartbeat.beat()
        assert (
            f"replica {third.gateway.heartbeat.replica_id} has {', '.join(third.gateway.vault.key_ids)}"
            in (await shell("check", status=1))[0]
        )
    # Replicas that have ended in order are nobody's concern any more.
    assert "every replica that lives has these" in (await shell("check"))[0]


async def test_check_of_an_empty_database_names_the_migration(
    shell: Shell, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", empty_database_url)
    assert "run gateway migrate" in (await shell("check", status=1))[0]
    monkeypatch.setenv("DATABASE_URL", "postgresql://127.0.0.1:1/none")
    assert "not reachable" in (await shell("check", status=1))[0]


async def test_chat_prints_the_answer_and_nothing_that_a_terminal_obeys(
    shell: Shell, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Stack.over(database_url) as stack:
        application_id = await stack.application()
        replica = await stack.replica()
        url = ("--url", replica.base_url)
        frames = [*started(), *tool("t1", "weather"), *message("m1", "It is ", "21 \x1b[2Jdegrees"), finished()]
        stack.upstream.use(Script(ag_ui=[Answer(frames=frames)]))
        assert await shell("chat", "app-0", "hi", *url) == ("It is 21 \ufffd[2Jdegrees\n", "[weather]\n")
        run = await shell.json("chat", str(application_id), "hi", *url)
        assert (run["execution"], run["persistence"]) == ("succeeded", "saved")
        again = await shell.json("chat", "app-0", "and now?", *url, "--conversation", run["conversation_id"])
        assert again["conversation_id"] == run["conversation_id"]
        monkeypatch.setattr(sys, "stdin", StringIO("one\n\ntwo\n"))
        out, _ = await shell("chat", "app-0", "--json", *url)
        talk = [json.loads(line) for line in out.splitlines()]
        assert [run["execution"] for run in talk] == ["succeeded", "succeeded"]
        assert talk[0]["conversation_id"] == talk[1]["conversation_id"] != run["conversation_id"]


async def test_chat_asks_no_proxy_of_the_environment_for_this_machine(
    shell: Shell, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Stack.over(database_url) as stack:
        await stack.application()
        replica = await stack.replica()
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, "http://127.0.0.1:1")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        assert "hi" in (await shell("chat", "app-0", "hi", "--url", replica.base_url))[0]


async def test_chat_says_why_nothing_came_of_it(shell: Shell, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Stack.over(database_url) as stack:
        await stack.application()
        replica = await stack.replica()
        url = ("--url", replica.base_url)
        stack.upstream.use(Script(ag_ui=[Answer(frames=[*started(), *message("m1", "so far"), failed("tok_CANARY")])]))
        out, err = await shell("chat", "app-0", "hi", *url, status=1)
        assert out == "so far\n"
        # Broken off in a message: still a whole line.
        broken = [*started(), *message("m1", "so far")[:-1], failed("tok_CANARY")]
        stack.upstream.use(Script(ag_ui=[Answer(frames=broken)]))
        assert (await shell("chat", "app-0", "hi", *url, status=1))[0] == "so far\n"
        assert "The run did not succeed: failed." in err
        assert "upstream_error" in err
        stack.upstream.use(Script(ag_ui=[Answer(frames=[*started(), event("TEXT_MESSAGE_END", messageId="nobody")])]))
        _, err = await shell("chat", "app-0", "hi", *url, status=1)
        assert "unknown" in err
        _, err = await shell("chat", "app-0", "hi", *url, status=1)
        assert "Another message is being answered" in err
        assert "no such application" in (await shell("chat", "app-9", "hi", *url, status=1))[1]
        monkeypatch.setenv("GATEWAY_TOKEN", "tok_CANARY")
        assert "Not signed in" in (await shell("chat", "app-0", "hi", *url, status=1))[1]
    assert "cannot be reached" in (await shell("chat", "app-0", "hi", *url, status=1))[1]
