"""The released AG-UI clients (npm, `make clients`), run by node against a server of a test: what they accept, and what they made of it.

The folder `tests/ag_ui_client` pins them; it is a development tool, and no part of the gateway.
"""

import asyncio
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.support.require import missing

FOLDER: Final = Path(__file__).parent.parent / "ag_ui_client"
CLIENTS: Final = ("ag-ui-client-0", "ag-ui-client-1")
"""The last release before 1.0, and 1.0: names of dependencies in package.json."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRun:
    """One run of one client's HttpAgent. Without `body` it posts a RunAgentInput with the fields of `run_input`."""

    client: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    method: str = "POST"
    body: Mapping[str, object] | None = None
    run_input: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AgentSaw:
    """What the client saw and made: `error` is its refusal of the stream (or of the response), None when it accepted all of it.

    `pending`: the tool calls that it takes for its application's to answer; None where it does not say.
    """

    events: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    error: str | None
    pending: list[str] | None

    @property
    def types(self) -> list[str]:
        """The type of each event, in order."""
        return [event["type"] for event in self.events]

    @property
    def texts(self) -> list[str]:
        """The text of each message of the assistant that has one, in order."""
        return [message["content"] for message in self.messages if message["role"] == "assistant" and message.get("content")]


async def run_agents(runs: Sequence[AgentRun]) -> list[AgentSaw]:
    """Run them one after the other in one node. Skips the test (named, `ag-ui-client`) where node or the clients are not installed."""
    node = shutil.which("node")
    if node is None or not (FOLDER / "node_modules" / CLIENTS[0]).is_dir():
        missing("ag-ui-client", "node 18 or newer with `make clients` (npm) gives it")
    assert node is not None
    asked = [{"client": run.client, "url": run.url, "method": run.method, "headers": dict(run.headers)} for run in runs]
    for entry, run in zip(asked, runs, strict=True):
        entry |= {"input": run.run_input} if run.body is None else {"body": run.body}
    pipe = asyncio.subprocess.PIPE
    environment = {"PATH": os.environ["PATH"]}  # no proxy, no options of somebody's node
    process = await asyncio.create_subprocess_exec(
        node, "run_agents.mjs", cwd=FOLDER, env=environment, stdin=pipe, stdout=pipe, stderr=pipe
    )
    out, err = await process.communicate(json.dumps(asked).encode())
    assert process.returncode == 0, err.decode()
    saw = [AgentSaw(**json.loads(line)) for line in out.splitlines()]
    assert len(saw) == len(runs)
    return saw
