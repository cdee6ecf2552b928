"""Requests that nobody thought of: schemathesis asks a whole running replica everything that its description allows, and what it forbids.

No 500, no status, media type, header or body that is not described, whatever is sent; and what needs a caller is refused without one. An
operator asks, who sees one application and has a run and a conversation there, so that ids lead somewhere. `--slow` asks more.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.stack import Stack, token
from tests.support.upstream_script import Answer, Script, finished, message, started

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(1500)]

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
    "allow_header_conformance",
    "ignored_auth",
)

USERS = ("--exclude-path-regex", "^/api/operator", "--exclude-operation-id", "delete_conversation")
OPERATORS = (
    *("--include-path-regex", r"^/api/operator|/conversations/\{conversation_id\}$"),
    *("--exclude-operation-id", "operator_check_edge"),  # it cuts connections when it is asked to
)
"""Last: what they switch off or delete is gone."""


def configuration(ids: Mapping[str, str]) -> str:
    """The ids that stand in paths: half of the operations would only ever see 404 without."""
    lines = [f'"path.{name}" = "{found}"' for name, found in ids.items()]
    return "\n".join(["[parameters]", *lines, ""])


async def asked(base_url: str, folder: Path, *arguments: str, headers: Mapping[str, str]) -> tuple[int, str]:
    """Exit status and report of one run of schemathesis."""
    sent = [part for name, text in headers.items() for part in ("-H", f"{name}: {text}")]
    # One more try where a connection breaks: that the server ends none in the middle of an answer is seen in its own log.
    network = ("--request-timeout", "20", "--request-retries", "1")
    fixed = ("--generation-database", "none", "--no-color", "--suppress-health-check", "all", "--warnings", "off", *network)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli"),
        *("--config-file", str(folder / "schemathesis.toml"), "run", f"{base_url}/openapi.json"),
        *("--checks", ",".join(CHECKS), *fixed, *sent, *arguments),
        cwd=folder,
        env={**os.environ, "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


@pytest.mark.parametrize("examples", [5, pytest.param(30, marks=pytest.mark.slow)])
async def test_any_request_gets_a_described_answer(
    database_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, examples: int
) -> None:
    async with Stack.over(database_url) as stack:
        application_id = await stack.application()
        stack.upstream.use(Script(ag_ui=[Answer(frames=[*started(), *message("m1", "Hello"), finished()])]))
        replica = await stack.replica(stack.settings(AGENT_MAX_ACTIVE_PER_USER="50", AGENT_MAX_ACTIVE_PER_APP="50"))
        client = replica.client("olga", roles=("operator",))
        run = (await client.submit(application_id, str(uuid4()), "hello")).json()
        rows = (await replica.http.get("/api/operator/providers", headers=client.headers)).json()["providers"]
        # Another's account, so that nobody suspends who asks.
        another = await replica.http.post("/api/operator/accounts", json={"subject": "ben"}, headers=client.headers)
        ids = {
            "app_id": str(application_id),
            "run_id": run["run_id"],
            "conversation_id": run["conversation_id"],
            "provider_id": rows[0]["provider_id"],
            "account_id": another.json()["account_id"],
        }
        (tmp_path / "schemathesis.toml").write_text(configuration(ids), encoding="utf-8")
        headers = {"Authorization": f"Bearer {token('olga', roles=('operator',))}"}
        for chosen in (USERS, OPERATORS):
            arguments = (*chosen, "--max-examples", str(examples), "--seed", "1")
            status, report = await asked(replica.base_url, tmp_path, *arguments, headers=headers)
            assert status == 0, report
            assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
