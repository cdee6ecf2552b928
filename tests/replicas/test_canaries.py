"""A token typed in every place where somebody can type one, right or wrong: afterwards it is nowhere to be read (invariant 7, O-34).

One replica as a process, the commands, and a service that repeats the token in all that it answers. What is searched: all that was
answered and printed, the whole log of the replica and of the database server, a dump of the whole database.
"""

import asyncio
import base64
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from uuid import uuid4

import httpx
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from gateway.cli import main
from gateway.store.embedded import find_binaries
from gateway.web.operator_app_routes import NewAppBody, TokenBody
from tests.support.processes import ReplicaProcess, kept_environment, replica_process
from tests.support.scripted_upstream import Answer, Frame, Script, ScriptedUpstream, failed, message, started
from tests.support.stack import environment

pytestmark = pytest.mark.anyio

CANARY: Final = "tok_CANARY_0123456789"
OPERATOR: Final = "/api/operator"
CONFIG: Final = {"backend_type": "langchain", "langchain": {"assistant_id": "agent"}}
ECHO: Final = {"error": CANARY, "detail": [{"input": CANARY}]}
SAID: Final[list[Frame]] = [*started(), *message("m", "an answer"), failed(CANARY)]


def forms(secret: str) -> tuple[str, ...]:
    """How the secret would look where bytes are shown as text."""
    raw = secret.encode()
    # Inside a longer text base64 begins at one of three places; what is common to each is looked for.
    encoded = [base64.b64encode(b"x" * shift + raw)[4 if shift else 0 : -4].decode() for shift in range(3)]
    return (secret, secret.lower(), raw.hex(), raw.hex().upper(), secret[::-1], *encoded)


def hidden(where: str, text: str) -> None:
    for form in forms(CANARY):
        assert form not in text, f"{where}: {text[max(0, text.index(form) - 200) :][:400]}"


def dump(url: str) -> str:
    """All of the database, as pg_dump has it."""
    done = subprocess.run([find_binaries().folder / "pg_dump", "--dbname", url], capture_output=True, check=True, timeout=120)
    text = done.stdout.decode()
    assert "application_id" in text
    return text


class Place:
    """Where tokens are typed, and everything that comes back."""

    def __init__(self, replica: ReplicaProcess, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.replica = replica
        self.said: list[str] = []
        self._capsys, self._monkeypatch, self._folder = capsys, monkeypatch, folder
        self.headers = dict(replica.client("olga", roles=("operator",)).headers)

    async def typed(self, *argv: str, stdin: str | bytes = "", status: Sequence[int] = (0,)) -> str:
        """A command at a terminal; its output."""
        raw = stdin if isinstance(stdin, bytes) else stdin.encode()
        self._monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=BytesIO(raw)))
        got = await asyncio.to_thread(main, argv)
        out, err = self._capsys.readouterr()
        self.said.append(out + err)
        assert got in status, (argv, out, err)
        assert "Traceback" not in err
        return out

    def file(self, content: str | bytes) -> str:
        path = self._folder / str(uuid4())
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    async def sent(
        self, method: str, path: str, content: bytes | None = None, headers: Mapping[str, str] | None = None, *, status: int | None = None
    ) -> httpx.Response:
        """A request as it is on the wire; its answer."""
        kind = {} if content is None else {"Content-Type": "application/json"}
        answer = await self.replica.http.request(method, path, content=content, headers={**self.headers, **kind, **(headers or {})})
        self.said.append(f"{answer.status_code} {answer.headers} {answer.text}")
        assert status in (None, answer.status_code), answer.text
        assert answer.status_code < 500 or status is not None, answer.text
        return answer

    async def put(self, method: str, path: str, body: object, *, status: int | None = None) -> Any:
        return (await self.sent(method, path, json.dumps(body).encode(), status=status)).json()


@pytest.fixture
async def place(
    database_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> AsyncIterator[Place]:
    for name, value in environment(database_url).items():
        monkeypatch.setenv(name, value)
    async with replica_process(database_url, changes={"AGENT_MAX_ACTIVE_PER_APP": "100"}) as replica:
        yield Place(replica, capsys, monkeypatch, tmp_path)


async def commands(place: Place, upstream: ScriptedUpstream) -> None:
    """In files, on standard input, and where no token belongs."""
    await place.typed("providers", "create", "p", "--base-url", upstream.base_url)
    create = ("apps", "create", "--provider", "p", "--assistant", "agent")
    await place.typed(*create, "by file", "--token-file", place.file(CANARY))
    await place.typed(*create, "by input", "--token-file", "-", stdin=f" {CANARY}\r\n")
    set_token = ("apps", "set-token", "by file", "--token-file")
    await place.typed(*set_token, "-", stdin=CANARY)
    await place.typed(*set_token, place.file(f"{CANARY}_OLD"), status=(1,))
    for wrong in (f"{CANARY} x", f"ä{CANARY}", f"{CANARY}\n{CANARY}", CANARY * 250, CANARY * 1000, b"\xff" + CANARY.encode(), ""):
        await place.typed(*set_token, "-", stdin=wrong, status=(1,))
        await place.typed(*create, "never", "--token-file", place.file(wrong), status=(1,))
    await place.typed(*set_token, CANARY, status=(2,))
    await place.typed("apps", "set-token", "by file", CANARY, status=(2,))
    await place.typed("apps", "set-token", CANARY, "--token-file", "-", stdin=CANARY, status=(1,))
    for config in (f'{{"token": "{CANARY}"}}', f'{{"token": "{CANARY}', CANARY, f'{{"backend_type": "{CANARY}"}}'):
        await place.typed("apps", "create", "never", "--provider", "p", "--config", place.file(config), status=(1,))
    for url in (f"https://{CANARY}@agents.example", f"https://agents.example?key={CANARY}", CANARY, f"http://{CANARY}"):
        await place.typed("providers", "create", "never", "--base-url", url, status=(1,))
        await place.typed("moderation", "set", f"webhook:{url}", status=(1,))
    await place.typed("moderation", "set", "webhook:https://judge.example", "--token-file", "-", stdin=CANARY)
    await place.typed("moderation", "set", CANARY, status=(1,))
    await place.typed("moderation", "show")
    await place.typed("moderation", "set", "none")
    await place.typed("accounts", "create", "ada", "--role", CANARY, status=(2,))
    await place.typed("runs", "show", CANARY, status=(1, 2))
    await place.typed("chat", "by file", "hi", "--url", upstream.base_url, "--token-file", place.file(CANARY), status=(1, 2))
    for listing in (("apps", "list"), ("apps", "show", "by file", "--json"), ("audit", "list", "--json"), ("check",), ("keys", "rekey")):
        await place.typed(*listing, status=(0, 1))


async def requests(place: Place, upstream: ScriptedUpstream) -> dict[str, Any]:
    """In bodies good and bad, in addresses, in headers. Gives an application that works."""
    provider = await place.put("POST", f"{OPERATOR}/providers", {"name": "over http", "base_url": upstream.base_url}, status=201)
    good = {"name": "over http", "provider_id": provider["provider_id"], "config": CONFIG, "token": CANARY}
    app: dict[str, Any] = await place.put("POST", f"{OPERATOR}/apps", good, status=201)
    of_app, token = f"{OPERATOR}/apps/{app['app_id']}", f"{OPERATOR}/apps/{app['app_id']}/token"
    await place.put("PUT", token, {"token": CANARY}, status=200)
    await place.put("PUT", token, {"token": f"{CANARY}_OLD"}, status=422)
    never = {**good, "name": "never"}
    for wrong in (f"{CANARY} x", f"ä{CANARY}", f"{CANARY}\x00", CANARY * 250, [CANARY], {"value": CANARY}, {CANARY: 1}, 7, None):
        await place.put("PUT", token, {"token": wrong})
        if wrong is not None:
            await place.put("POST", f"{OPERATOR}/apps", {**never, "token": wrong})
    for field in ("name", "provider_id", "config", "visibility", "description", "groups", "owner", "users", "secret", "api_key"):
        for value in ({"token": CANARY}, f"{CANARY}\x00"):
            await place.put("POST", f"{OPERATOR}/apps", {**never, field: value})
            await place.put("PATCH", of_app, {field: value})
    for config in ({**CONFIG, "token": CANARY}, {CANARY: CONFIG}, {"backend_type": CANARY}, {"langchain": CANARY}):
        await place.put("PATCH", of_app, {"config": config}, status=422)
    for url in (f"https://{CANARY}@agents.example", f"https://agents.example#{CANARY}", CANARY, [CANARY]):
        await place.put("POST", f"{OPERATOR}/providers", {"name": "never", "base_url": url})
        await place.put("PUT", f"{OPERATOR}/moderation", {"moderators": [f"webhook:{url}"], "tokens": [CANARY]})
    await place.put("POST", f"{OPERATOR}/accounts", {"subject": f"{CANARY}\x00", "roles": [CANARY]})
    raw = CANARY.encode()
    for content in (
        b'{"token": "' + raw,
        b'{"token": "' + raw + b'", "token": "' + raw + b'"}',
        b'{"token": "\xff' + raw + b'"}',
        raw,
        b'"' + raw + b'"',
        b"[" * 100 + raw,
        b'{"token": "' + raw * 20_000 + b'"}',
        b"",
    ):
        for method, path in (("PUT", token), ("POST", f"{OPERATOR}/apps"), ("PATCH", of_app), ("POST", f"{OPERATOR}/providers")):
            await place.sent(method, path, content)
    await place.sent("PUT", token, b'{"token": "' + raw + b'"}', {"Content-Type": "text/plain"})
    await place.sent("DELETE", token, b'{"token": "' + raw + b'"}')
    for address in (
        f"{OPERATOR}/apps/{CANARY}",
        f"{OPERATOR}/apps?cursor={CANARY}",
        f"{OPERATOR}/{CANARY}",
        f"/api/internal/apps/{CANARY}/agent/runs",
    ):
        await place.sent("GET", address)
        await place.sent("PATCH", address, b'{"token": "' + raw + b'"}')
    for header in ("Authorization", "Cookie", "Accept", "Origin", "X-Api-Key", "traceparent", "Last-Event-ID"):
        for value in (CANARY, f"Bearer {CANARY}", f"session={CANARY}"):
            await place.sent("GET", f"{OPERATOR}/apps", headers={header: value})
    for listing in ("apps", "providers", "audit", "moderation", "overview", "accounts"):
        await place.sent("GET", f"{OPERATOR}/{listing}", status=200)
    return app


async def runs(place: Place, upstream: ScriptedUpstream, app_id: str) -> None:
    """The service repeats the token wherever it can say something."""
    answers = [Answer(http_status=status, json=ECHO, headers={"x-echo": CANARY}) for status in (400, 401, 429, 500, 302)]
    said = [Answer(frames=SAID, headers={"x-echo": CANARY}), Answer(frames=[*started(), {"raw": f"data: {CANARY}\n\n"}])]
    # First, while no good answer is remembered.
    scripts = [Script(capabilities=[answer]) for answer in (*answers, Answer(json={"assistant_id": CANARY}))]
    scripts += [Script(ag_ui=[answer]) for answer in (*answers, *said)]
    scripts += [Script(threads=[answer]) for answer in answers]
    for number, script in enumerate(scripts):
        upstream.use(script)
        client = place.replica.client(f"person-{number}")
        body = json.dumps({"submission_id": str(uuid4()), "text": "hi"}).encode()
        headers = {**client.headers, "Accept": "text/event-stream"}
        answer = await place.sent("POST", f"/api/internal/apps/{app_id}/agent/runs", body, headers, status=200)
        assert "RUN_ERROR" in answer.text
    for run in (await place.sent("GET", f"{OPERATOR}/runs?state=all&limit=200", status=200)).json()["runs"]:
        await place.sent("GET", f"{OPERATOR}/runs/{run['run_id']}?text=true", status=200)
        await place.sent("POST", f"{OPERATOR}/runs/{run['run_id']}/lookup", status=200)


async def broken(place: Place, database_url: str, app_id: str) -> None:
    """What nobody expects: statements that the database refuses, with the token at hand."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("alter table application add constraint nothing_more check (token_version < 0) not valid")
        await place.put("PUT", f"{OPERATOR}/apps/{app_id}/token", {"token": CANARY}, status=500)
        await place.typed("apps", "set-token", "by file", "--token-file", "-", stdin=CANARY, status=(1,))
        connection.execute("alter table application drop constraint nothing_more")
        connection.execute("alter table application rename column token_ciphertext to elsewhere")
        await place.put("PUT", f"{OPERATOR}/apps/{app_id}/token", {"token": CANARY}, status=500)
        await place.typed("apps", "set-token", "by file", "--token-file", "-", stdin=CANARY, status=(1,))
        connection.execute("alter table application rename column elsewhere to token_ciphertext")


async def test_o34_a_token_is_nowhere_to_be_read(place: Place, database_url: str) -> None:
    async with ScriptedUpstream(token=CANARY) as upstream:
        await commands(place, upstream)
        app = await requests(place, upstream)
        await broken(place, database_url, app["app_id"])
        await runs(place, upstream, app["app_id"])
        await place.sent("GET", "/metrics")
        await place.sent("GET", "/openapi.json")
        # It was really there, and is what the service got.
        assert f"Bearer {CANARY}" in {request.header("authorization") for request in upstream.requests}
    stored = dump(database_url)
    for name in ("by file", "by input", "over http"):
        assert name in stored
    assert "never" not in stored
    for number, said in enumerate(place.said):
        hidden(f"answer {number}", said)
    hidden("the log", place.replica.log)
    hidden("the database", stored)
    server_log = Path(str(conninfo_to_dict(database_url)["host"])).parent / "log"
    hidden("the database server's log", server_log.read_text(encoding="utf-8", errors="replace"))


async def test_o34_settings_that_are_wrong_are_told_without_what_they_hold(database_url: str, tmp_path: Path) -> None:
    """Settings are typed too: keys, passwords, files with secrets."""
    secret = tmp_path / "secret"
    secret.write_text(CANARY)
    wrong = {
        "API_ENCRYPTION_KEY": CANARY,
        "API_ENCRYPTION_KEYS_PREVIOUS": f"{CANARY},{CANARY}",
        "GATEWAY_JWT_KEY": CANARY[:12],
        "DATABASE_URL": f"postgresql://gateway:{CANARY}@[",
        "GATEWAY_PORT": CANARY,
        "GATEWAY_MODERATION": f"openai:https://{CANARY}@judge.example",
        "GATEWAY_ALLOWED_ORIGINS": CANARY,
    }
    files = {"API_ENCRYPTION_KEY": "", "API_ENCRYPTION_KEY_FILE": str(secret), "DATABASE_URL": "", "DATABASE_URL_FILE": str(secret)}
    for changes in ({**environment(database_url), **wrong}, {**environment(database_url), **files}):
        for argv in (("serve",), ("check",), ("apps", "list"), ("migrate",)):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "gateway", *argv, env={**kept_environment(), **changes}, stdout=-1, stderr=-1
            )  # fmt: skip
            async with asyncio.timeout(120):
                out, err = await process.communicate()
            assert process.returncode == 1, (argv, err)
            hidden(" ".join(argv), f"{out.decode()} {err.decode()} {out!r} {err!r}")


def test_o34_no_body_shows_its_token_in_its_own_text() -> None:
    """As an exception's local variables, or a careless log line, would show it."""
    bodies = [TokenBody(token=CANARY), NewAppBody.model_validate({"name": "a", "provider_id": str(uuid4()), "config": {}, "token": CANARY})]
    for body in bodies:
        hidden("a body", f"{body!r} {body}")
