"""`gateway demo` as people run it: a process of its own, from an empty folder, and nothing left of it afterwards."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest

import gateway
from gateway.cli.demo_once import QUESTION
from gateway.cli.demo_seed import TASK
from gateway.store.embedded import EmbeddedPostgresError, find_binaries
from tests.support.postgres import folder_for_server
from tests.support.require import missing

CHECKOUT = Path(gateway.__file__).parent.parent
ANSWER = ["Let me look that up.", "The weather in Paris is 13 °C and windy."]
SECONDS = 100.0


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that is not there yet. Each test has its own: they may run side by side."""
    if sys.platform == "win32":
        missing("posix", "the demo needs Linux or macOS")
    if find_spec("langgraph") is None:
        missing("agent", "the extra [agent] is not installed")
    try:
        find_binaries()
    except EmbeddedPostgresError as error:
        missing("postgresql", error.message)
    with folder_for_server() as made:
        yield made / "demo"


def environment() -> dict[str, str]:
    """The current user's, without what would lead the demo elsewhere."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GATEWAY_", "API_ENCRYPTION_", "DATABASE_URL"))}
    return {**kept, "AGENT_SERVICE_PACE_SECONDS": "0"}


def command(folder: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "gateway", "demo", "--port", "0", "--data", str(folder), *arguments]


def run_demo(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command(folder, *arguments), cwd=CHECKOUT, env=environment(), capture_output=True, text=True, timeout=SECONDS, check=False
    )


@contextmanager
def serving(folder: Path) -> Iterator[tuple["subprocess.Popen[str]", dict[str, Any]]]:
    """A demo that serves, and what it says of itself."""
    progress = folder.with_name("progress")
    with progress.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(
            command(folder, "--json"), cwd=CHECKOUT, env=environment(), stdout=subprocess.PIPE, stderr=errors, text=True
        )
    assert process.stdout is not None
    try:
        told = process.stdout.readline()
        assert told, progress.read_text(encoding="utf-8")
        yield process, json.loads(told)
    finally:
        process.kill()
        process.communicate()


def until(condition: Callable[[], bool], what: str, seconds: float = 20) -> None:
    """Poll for what gives no signal, with a deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except FileNotFoundError:
        return not Path("/proc/self").exists()  # macOS: it answered the signal
    except ProcessLookupError:
        return False


def alive(told: dict[str, Any]) -> list[str]:
    """Which of a demo's processes are still there, the demo itself included."""
    return [name for name, pid in told["processes"].items() if is_alive(pid)]


def test_once_shows_the_answer_and_the_history_which_the_next_run_keeps(folder: Path) -> None:
    finished = run_demo(folder, "--once")
    assert finished.returncode == 0, finished.stderr
    said, _, saved = finished.stdout.partition("The saved history")
    lines = [line for line in said.splitlines() if line]
    assert lines[-4:] == [f"> {QUESTION}", ANSWER[0], "[tool get_weather: started, returned]", ANSWER[1]]
    in_order = [f"user       {QUESTION}", f"assistant  {ANSWER[0]}", "tool       get_weather (returned)", f"assistant  {ANSWER[1]}"]
    assert [line.strip() for line in saved.splitlines()[2:6]] == in_order
    assert "It is what was streamed." in saved
    for name in ("encryption.key", "jwt.key", "agent.token", "gateway.log", "agent.log", "agent.sqlite"):
        assert (folder / name).stat().st_mode & 0o777 == 0o600, name
    assert QUESTION not in (folder / "gateway.log").read_text(encoding="utf-8")

    port = (folder / "agent.port").read_text(encoding="utf-8")
    finished = run_demo(folder, "--once", "--json")
    assert finished.returncode == 0, finished.stderr
    record = json.loads(finished.stdout)
    assert record["agree"] is True
    assert record["run"]["execution"] == "succeeded"
    assert [item.get("text", item.get("name")) for item in record["history"]] == [QUESTION, ANSWER[0], "get_weather", ANSWER[1]]
    assert [conversation["title"] for conversation in record["conversations"]] == [QUESTION] * 2
    assert record["processes"].keys() == {"gateway", "agent", "postgres"}
    assert not alive(record)
    assert (folder / "agent.port").read_text(encoding="utf-8") == port


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_serving_users_see_what_they_may_and_whatever_ends_it_nothing_is_left(folder: Path) -> None:
    with serving(folder) as (process, told):
        assert {user["subject"] for user in told["users"]} == {"ada", "ben", "olga"}
        visible = {user["subject"]: apps_of(told["url"], user["token"]) for user in told["users"]}
        for_everybody = {"Assistant", "Approvals"}
        assert visible == {"ada": {*for_everybody, "Research assistant"}, "ben": for_everybody, "olga": for_everybody}
        assert httpx.get(f"{told['url']}/", trust_env=False).status_code == 200

        streamed = [answer_of(told["curl"]) for _ in range(2)]
        assert all(frame in streamed[0] for frame in ('"TOOL_CALL_START"', '"RUN_FINISHED"', "windy."))
        assert run_ids(streamed[0]) == run_ids(streamed[1])
        assert approved(told) == "Done. (This is a demo: nothing really happened.) You wrote: Go."
        refused = answer_of(told["curl"].replace(QUESTION, f"What is a {told['denied']}?").replace("curl-", "other-"))
        assert '"moderation_refused"' in refused

        second = run_demo(folder, "--once")
        assert second.returncode == 1
        assert f"in use by process {process.pid}; its page is {told['url']}" in second.stderr

        assert all(is_alive(pid) for pid in told["processes"].values())
        process.kill()
        process.wait(SECONDS)
        until(lambda: not alive(told), "the end of everything")

    with serving(folder) as (process, told):
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0
        assert not alive(told)


def test_without_the_extra_it_says_what_to_install(folder: Path) -> None:
    code = "import sys; sys.modules['langgraph'] = None; from gateway.cli import main; sys.exit(main(['demo', '--data', sys.argv[1]]))"
    finished = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        cwd=CHECKOUT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert finished.returncode == 1
    assert "pip install 'agent-governance-gateway[agent" in finished.stderr


def apps_of(url: str, token: str) -> set[str]:
    answer = httpx.get(f"{url}/api/internal/apps", headers={"Authorization": f"Bearer {token}"}, trust_env=False)
    assert answer.status_code == 200, answer.text
    assert all(app["available"] for app in answer.json()["apps"])
    return {app["name"] for app in answer.json()["apps"]}


def answer_of(curl: str) -> str:
    """What a shell gets for the command that people copy."""
    shell = subprocess.run(["/bin/sh", "-c", curl], capture_output=True, text=True, timeout=SECONDS, check=False)
    if shell.returncode == 127:
        missing("curl", "the demo's command for a terminal needs it")
    assert shell.returncode == 0, shell.stderr
    return shell.stdout


def approved(told: dict[str, Any]) -> str:
    """What the application that asks says after its prompt was approved, by its first user over the public API."""
    [app_id] = [app["app_id"] for app in told["apps"] if app["name"] == "Approvals"]
    headers = {"Authorization": f"Bearer {told['users'][0]['token']}", "Accept": "text/event-stream"}
    with httpx.Client(
        base_url=f"{told['url']}/api/internal/apps/{app_id}/agent", headers=headers, trust_env=False, timeout=SECONDS
    ) as client:
        asked = frames_of(client.post("/runs", json={"submission_id": "approval", "text": TASK}).text)[-1]
        [interrupt] = asked["outcome"]["interrupts"]
        decision = {"submission_id": "decision", "interrupt_id": interrupt["id"], "decision": "approve", "comment": "Go."}
        decided = frames_of(client.post(f"/runs/{asked['runId']}/decision", json=decision).text)
    assert decided[-1]["type"] == "RUN_FINISHED"
    return "".join(frame["delta"] for frame in decided if frame["type"] == "TEXT_MESSAGE_CONTENT")


def frames_of(streamed: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in streamed.splitlines() if line.startswith("data: ")]


def run_ids(streamed: str) -> set[str]:
    return {frame["runId"] for frame in frames_of(streamed) if "runId" in frame}
