"""`gateway probe` against real servers: the reference service keeps the contract; each that is broken in one way fails by its clause."""

import asyncio
import contextlib
import json
import re
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.cli import main
from gateway.domain.evidence import ResponseFault
from gateway.http_client import CallFault, HttpClient, verified_tls
from gateway.probe.bridge import MOST_RUNS, probe_bridge
from gateway.probe.clauses import BRIDGE, WORDINGS, Clause
from gateway.probe.findings import Finding, Report, Result
from gateway.probe.watched import Target
from gateway.probe.words import _FAULTS, _RESPONSES, CALLS, OF_DETAILS
from gateway.sse_parser.faults import Detail
from gateway.upstream.endpoint import Endpoint, endpoint_of
from gateway.upstream.faults import UpstreamFault
from tests.contract.probe_cases import ADVISED, BEFORE_THE_RUN, BROKEN, GOOD, TOKEN, Case
from tests.support.agent_service_server import TOKEN as AGENT_TOKEN
from tests.support.agent_service_server import running_agent_service, service_settings
from tests.support.raw_server import refusing_port
from tests.support.scripted_upstream import Answer, Script, ScriptedUpstream

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def tls() -> ssl.SSLContext:
    return verified_tls()


@pytest.fixture
async def client(tls: ssl.SSLContext, anyio_backend: str) -> AsyncIterator[HttpClient]:
    async with HttpClient(connect_seconds=5, tls=tls, trusted_hosts=["127.0.0.1"]) as opened:
        yield opened


async def probed(client: HttpClient, base_url: str, case: Case, *, token: str | None = None, once: bool = False) -> Report:
    endpoint = endpoint_of(base_url=base_url, assistant_id="agent", token=token or case.token)
    assert isinstance(endpoint, Endpoint)
    heard: list[Finding] = []
    target = Target(client, endpoint, case.bounds, "Hello", settle_seconds=case.settle_seconds)
    report = await probe_bridge(target, once=once, tell=heard.append)
    assert {finding.clause for finding in report.findings} == set(BRIDGE), "each clause is told of"
    assert len(report.findings) == len(BRIDGE), "and once"
    assert [finding for finding in heard if finding in report.findings] == [
        finding for finding in report.findings if finding.result is not Result.SKIPPED
    ]
    assert "CANARY" not in repr(report), "nothing that the service wrote is told"
    return report


FINE = Case(clause=Clause.SUCCESS, rule="B9", script=Script(one_run_per_thread=True))


async def test_the_reference_service_keeps_the_contract(client: HttpClient, tmp_path: Path) -> None:
    async with running_agent_service(service_settings(tmp_path / "agent.db")) as service:
        report = await probed(client, str(service.base_url), FINE, token=AGENT_TOKEN)
    assert {finding.clause.value: finding.seen for finding in report.findings if finding.result is not Result.OK} == {}
    assert 2 <= report.agent_runs <= MOST_RUNS


async def test_a_service_with_no_lock_keeps_it_too(client: HttpClient) -> None:
    async with ScriptedUpstream(token=TOKEN) as upstream:
        report = await probed(client, upstream.base_url, FINE)
        assert upstream.counts().executions == report.agent_runs == MOST_RUNS
    assert {finding.clause for finding in report.findings if finding.result is not Result.OK} <= {Clause.TWO_AT_ONCE}
    assert report.first_broken is None


async def test_a_service_that_serialises_needs_no_advice(client: HttpClient) -> None:
    async with ScriptedUpstream(Script(ag_ui=[*BEFORE_THE_RUN, GOOD, GOOD, Answer(gate="second")]), token=TOKEN) as upstream:
        probing = asyncio.create_task(probed(client, upstream.base_url, FINE))
        await upstream.ended(7)
        upstream.release("second")
        report = await probing
    assert len(report.of(Result.OK)) == len(BRIDGE)


async def test_the_agent_is_run_once_when_asked_for(client: HttpClient) -> None:
    async with ScriptedUpstream(token=TOKEN) as upstream:
        report = await probed(client, upstream.base_url, FINE, once=True)
        assert upstream.counts().executions == report.agent_runs == 1
    assert report.first_broken is None
    assert {finding.clause for finding in report.of(Result.SKIPPED)} == {Clause.NEXT_MESSAGE, Clause.NATIVE_FRESH, Clause.TWO_AT_ONCE}


@pytest.mark.parametrize("name", BROKEN)
async def test_what_is_broken_fails_by_its_clause(client: HttpClient, name: str) -> None:
    case = BROKEN[name]
    async with ScriptedUpstream(case.script, token=TOKEN) as upstream:
        report = await probed(client, upstream.base_url, case)
        assert upstream.counts().executions >= report.agent_runs
    first = report.first_broken
    assert first is not None
    assert (first.clause, WORDINGS[first.clause].rule) == (case.clause, case.rule), first.seen
    assert first.seen
    if case.runs is not None:
        assert report.agent_runs == case.runs


@pytest.mark.parametrize("name", ADVISED)
async def test_what_costs_something_is_advice(client: HttpClient, name: str) -> None:
    case = ADVISED[name]
    async with ScriptedUpstream(case.script, token=TOKEN) as upstream:
        report = await probed(client, upstream.base_url, case)
    assert report.first_broken is None
    found = {finding.clause: finding.seen for finding in report.of(Result.ADVICE)}
    assert case.clause in found
    assert found.keys() <= {case.clause, Clause.TWO_AT_ONCE, Clause.TEXT, Clause.LOOKUP_AFTER}
    if case.runs is not None:
        assert report.agent_runs == case.runs


async def test_nobody_listens(client: HttpClient) -> None:
    with refusing_port() as port:
        report = await probed(client, f"http://127.0.0.1:{port}", FINE)
    assert report.first_broken == Finding(Clause.REACHABLE, Result.BROKEN, "GET /capabilities: no connection could be made")
    assert len(report.of(Result.SKIPPED)) == len(BRIDGE) - 1
    assert report.agent_runs == 0


def test_there_is_a_case_for_each_clause() -> None:
    assert {case.clause for case in BROKEN.values()} == {clause for clause in BRIDGE if not WORDINGS[clause].advice}
    assert {clause for clause in BRIDGE if WORDINGS[clause].advice} <= {case.clause for case in ADVISED.values()}
    assert len(BROKEN) >= 20


def test_there_are_words_for_everything() -> None:
    assert list(WORDINGS) == list(Clause)
    assert set(CALLS) == set(CallFault)
    assert set(OF_DETAILS) == set(Detail)
    assert set(_RESPONSES) == set(ResponseFault)
    with_a_status = {UpstreamFault.NO_REPLY, UpstreamFault.REDIRECT, UpstreamFault.UNAUTHORIZED, UpstreamFault.STATUS}
    assert set(_FAULTS) == set(UpstreamFault) - with_a_status


# The service of docs/probe.md


def service_of_the_docs() -> str:
    found = re.search(r"```python\n(# my_service\.py\n.*?)```", (ROOT / "docs" / "probe.md").read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


@contextlib.asynccontextmanager
async def serving(source: str, folder: Path) -> AsyncIterator[str]:
    """The base URL of a service in a process of its own, which takes TOKEN."""
    (folder / "my_service.py").write_text(source, encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-u", "my_service.py"),
        cwd=folder,
        env={"SERVICE_TOKEN": TOKEN, "PORT": "0"},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        while (found := re.search(rb"running on (http://[0-9.:]+)", await process.stderr.readline())) is None:
            assert process.returncode is None
        yield found[1].decode()
    finally:
        process.terminate()
        await process.communicate()


async def test_the_service_of_the_docs_keeps_the_contract(client: HttpClient, tmp_path: Path) -> None:
    async with serving(service_of_the_docs(), tmp_path) as base_url:
        report = await probed(client, base_url, FINE)
    assert {finding.clause.value: finding.seen for finding in report.findings if finding.result is not Result.OK} == {}


async def test_the_service_of_the_docs_broken_as_they_say(client: HttpClient, tmp_path: Path) -> None:
    right = '"value": {"run_id": native_run_id}'
    assert right in service_of_the_docs()
    async with serving(service_of_the_docs().replace(right, '"value": {"run_id": run_id}'), tmp_path) as base_url:
        report = await probed(client, base_url, FINE)
    assert report.first_broken is not None
    assert report.first_broken.clause is Clause.NATIVE_DIFFERS


# The command


async def gateway(*argv: str, token: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", *argv),
        cwd=ROOT,
        env={},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate(f"{token}\n".encode())
    assert process.returncode is not None
    assert "CANARY" not in (said := out.decode() + err.decode())
    assert "Traceback" not in said
    return process.returncode, out.decode(), err.decode()


async def test_the_command_tells_line_by_line_and_then_the_verdict() -> None:
    async with ScriptedUpstream(Script(one_run_per_thread=True), token=TOKEN) as upstream:
        status, out, err = await gateway("probe", upstream.base_url, "--assistant", "agent", "--token-file", "-", "--once", token=TOKEN)
    lines = out.splitlines()
    assert status == 0, err
    assert lines[0] == "ok       A1  the service answers"
    assert lines[-3] == "skipped  next_message, native_fresh, two_at_once"
    assert lines[-1] == "The contract is kept: 38 clauses kept, 0 broken, 0 with advice, 3 not seen; the agent ran once."
    assert "The agent is run once, with a short message." in err
    assert "GATEWAY_TRUSTED_UPSTREAM_HOSTS names 127.0.0.1" in err


async def test_the_command_names_the_first_broken_clause() -> None:
    case = BROKEN["our run id as the native one"]
    async with ScriptedUpstream(case.script, token=TOKEN) as upstream:
        status, out, err = await gateway("probe", upstream.base_url, "--assistant", "agent", "--token-file", "-", token=TOKEN)
        assert status == 1
        assert "BROKEN   B8  the native run id is not the runId that was sent\n" in out
        for word in ("expected:", "seen:", "do:"):
            assert f"             {word} " in out
        assert "The contract is broken: " in out
        assert "gateway: The first clause that is broken is B8: the native run id is not the runId that was sent." in err
        assert f"Next: {WORDINGS[Clause.NATIVE_DIFFERS].remedy}" in err
        status, out, err = await gateway("--json", "probe", upstream.base_url, "--assistant", "agent", "--token-file", "-", token=TOKEN)
    assert status == 1
    told = json.loads(out)
    assert told["verdict"] == "broken"
    assert told["first_broken"] == {"rule": "B8", "clause": "native_differs"}
    assert [one["clause"] for one in told["clauses"] if one["result"] == "broken"] == ["native_differs"]
    assert json.loads(err.splitlines()[-1])["error"]["rule"] == "B8"


@pytest.mark.parametrize(
    ("url", "token", "more"),
    [
        ("http://example.com", "tok_CANARY", []),
        ("https://u:pw_CANARY@example.com", "tok_CANARY", []),
        ("https://example.com?x=CANARY", "tok_CANARY", []),
        ("https://example.com", "tok_CANARY with a blank", []),
        ("https://example.com", "", []),
        ("https://example.com", "tok_CANARY", ["--text", "  "]),
        ("https://example.com", "tok_CANARY", ["--text", "x" * 16_001]),
        ("http://169.254.169.254", "tok_CANARY", []),
    ],
)
def test_what_cannot_be_asked_is_wrong_usage(
    url: str, token: str, more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_text(token)
    assert main(["probe", url, "--assistant", "agent", "--token-file", str(tmp_path / "token"), *more]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Next: " in err
    assert "CANARY" not in err
