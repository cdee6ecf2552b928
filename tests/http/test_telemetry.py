"""GET /metrics over real runs, the trace context over real calls, and traces sent to a real collector (contract F2)."""

import asyncio
import contextlib
import gzip
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from prometheus_client.parser import text_string_to_metric_families
from psycopg.conninfo import conninfo_to_dict

from gateway import metrics
from gateway.domain.trace_context import parse
from gateway.parts import traces_of
from gateway.settings import Settings, SettingsInvalid
from tests.support.raw_http import Connection, GoneError, read_body, read_head, send
from tests.support.scripted_upstream import Answer, Script, finished, gate, message, started
from tests.support.stack import Client, Replica, Stack
from tests.support.tcp_proxy import BlackHole, Pass, TcpProxy

pytestmark = pytest.mark.anyio

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@dataclass(frozen=True)
class Numbers:
    """One scrape."""

    values: dict[tuple[str, tuple[tuple[str, str], ...]], float]

    def of(self, name: str, **labels: str) -> float | None:
        return self.values.get((name, tuple(sorted(labels.items()))))


async def scrape(replica: Replica) -> Numbers:
    answer = await replica.http.get("/metrics")
    assert (answer.status_code, answer.headers["content-type"]) == (200, metrics.CONTENT_TYPE)
    families = text_string_to_metric_families(answer.text)
    return Numbers({(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples})


async def test_a_run_is_counted_where_it_ends(database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application, replica = await stack.application(), await stack.replica()
        ada = replica.client("ada")
        await ada.ask(application, "s1", "hi")
        await ada.ask(application, "s1", "hi")
        await ada.submit(application, "s2", "")
        stack.upstream.use(Script(ag_ui=[Answer(frames=(*started(), *message("m1", "half")))]))
        await ada.ask(application, "s3", "hi")
        now = await scrape(replica)
    assert now.of("gateway_admissions_total", result="admitted") == 2
    assert now.of("gateway_admissions_total", result="replayed") == 1
    assert now.of("gateway_admissions_total", result="invalid_text") == 1
    assert now.of("gateway_runs_ended_total", execution="succeeded", reason="none") == 1
    assert now.of("gateway_runs_ended_total", execution="unknown", reason="stream_ended") == 1
    assert now.of("gateway_stream_faults_total", fault="no_terminal_event") == 1
    assert now.of("gateway_stream_seconds_count") == 2
    assert now.of("gateway_first_text_seconds_count") == 2
    assert (now.of("gateway_stream_bytes_total") or 0) > 200
    for step in ("admission", "capabilities", "fence", "post", "settle"):
        assert (now.of("gateway_step_seconds_count", step=step) or 0) > 0, step
    assert now.of("gateway_active_runs", execution="unknown") == 1
    assert now.of("gateway_active_runs", execution="running") == 0
    assert now.of("gateway_unresolved_runs", app_id=str(application)) == 1
    assert now.of("gateway_application_slots_held", app_id=str(application)) == 1
    assert (now.of("gateway_unresolved_oldest_seconds", app_id=str(application)) or 0) > 0
    assert (now.of("gateway_database_up"), now.of("gateway_live_runs"), now.of("gateway_draining")) == (1, 0, 0)
    assert (now.of("gateway_database_pool_requests_total") or 0) > 5


async def test_streams_and_runs_of_this_replica_are_seen_while_they_last(database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application, replica = await stack.application(), await stack.replica()
        stack.upstream.use(Script(ag_ui=[Answer(frames=(*started(), *message("m1", "half"), gate("on"), finished()))]))
        async with replica.client("ada").stream(application, "s1", "hi"):
            await stack.upstream.waiting_at("on")
            now = await scrape(replica)
            assert (now.of("gateway_browser_streams"), now.of("gateway_live_runs")) == (1, 1)
            assert (now.of("gateway_lease_left_seconds") or 0) > 0
            stack.upstream.release()


async def test_labels_come_from_closed_lists(database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        replica = await stack.replica()
        for path in ("/metrics/a", "/b?x=canary", "/api/internal/apps/canary"):
            await replica.http.request("CANARY", path)
        text = (await replica.http.get("/metrics")).text
        assert "canary" not in text.lower()
        assert 'gateway_http_requests_total{method="other",route="unknown",status="404"} 2.0' in text
        shown = {family.name for family in text_string_to_metric_families(text) if family.name.startswith("gateway")}
        assert shown <= {family.name.removesuffix("_total") for family in metrics.FAMILIES}


async def test_a_database_that_is_away_is_told_in_time(database_url: str) -> None:
    parts = conninfo_to_dict(database_url)
    socket_path = str(Path(str(parts["host"])) / ".s.PGSQL.5432")
    async with TcpProxy(socket_path) as proxy, Stack.over(database_url) as stack:
        url = f"postgresql://postgres@127.0.0.1:{proxy.port}/{parts['dbname']}?sslmode=disable&gssencmode=disable"
        replica = await stack.replica(stack.settings(DATABASE_URL=url))
        proxy.fault = BlackHole()
        began_at = time.monotonic()
        now = await scrape(replica)
        assert now.of("gateway_database_up") == 0
        assert now.of("gateway_attention_runs") is None
        assert time.monotonic() - began_at < 10  # the question's deadline is 2 s; a scraper waits for 10
        proxy.fault = Pass()


@pytest.mark.parametrize(
    ("sent", "taken"),
    [
        (CALLER, True),
        ("cc" + CALLER[2:] + "-later", True),
        (CALLER + "-more", False),
        ("ff" + CALLER[2:], False),
        (CALLER.upper(), False),
        ("00-" + "0" * 32 + CALLER[35:], False),
        (CALLER[:36] + "0" * 16 + "-01", False),
        ("", False),
    ],
)
def test_a_context_is_taken_where_it_is_valid(sent: str, taken: bool) -> None:
    found = parse(sent)
    assert (found is not None) == taken
    if found is not None:
        assert (found.trace_id, found.span_id, found.sampled) == (CALLER[3:35], CALLER[36:52], True)


async def test_calls_to_upstream_carry_the_trace_of_their_request(database_url: str) -> None:
    async with Stack.over(database_url) as stack:
        application, replica = await stack.application(), await stack.replica()
        ada = replica.client("ada")
        await Client(ada.http, {**ada.headers, "traceparent": CALLER}).ask(application, "s1", "hi")
        requests = [request for request in stack.upstream.requests if not request.target.startswith("/_")]
        assert [request.target for request in requests] == ["/capabilities", "/threads", "/ag-ui"]
        sent = [parse(dict(request.headers)["traceparent"]) for request in requests]
        assert {context.trace_id for context in sent if context} == {CALLER[3:35]}
        assert CALLER[36:52] not in {context.span_id for context in sent if context}
        await Client(ada.http, {**ada.headers, "traceparent": "nonsense"}).ask(application, "s2", "hi")
        later = parse(dict(stack.upstream.requests[-1].headers)["traceparent"])
        assert later is not None
        assert later.trace_id != CALLER[3:35]


@dataclass
class Collector:
    """Takes OTLP over HTTP. `named` has come once a span of that name is here."""

    endpoint: str = ""
    spans: list[Span] = field(default_factory=list)
    raw: bytes = b""
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def named(self, name: str) -> Span:
        async with asyncio.timeout(30):
            while not (found := [span for span in self.spans if span.name == name]):
                self._news.clear()
                await self._news.wait()
        return found[0]

    async def serve(self, connection: Connection) -> None:
        with contextlib.suppress(GoneError):
            while True:
                _, target, headers = await read_head(connection)
                body = await read_body(connection, headers)
                assert target == "/v1/traces"
                self.raw += body
                batch = ExportTraceServiceRequest.FromString(
                    gzip.decompress(body) if dict(headers).get("content-encoding") == "gzip" else body
                )
                self.spans += [span for one in batch.resource_spans for scope in one.scope_spans for span in scope.spans]
                await send(connection, 200, {"content-type": "application/x-protobuf"}, b"")
                self._news.set()


@asynccontextmanager
async def collector() -> AsyncIterator[Collector]:
    made, tasks = Collector(), set[asyncio.Task[None]]()

    def opened(connection: Connection) -> None:
        tasks.add(asyncio.create_task(made.serve(connection)))

    server = await asyncio.get_running_loop().create_server(lambda: Connection(opened), "127.0.0.1", 0)
    made.endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield made
    server.close()
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        assert outcome is None or isinstance(outcome, asyncio.CancelledError)


async def test_a_run_is_one_trace_at_a_collector_and_holds_no_content(database_url: str) -> None:
    async with collector() as at_collector:
        async with Stack.over(database_url) as stack:
            application = await stack.application()
            replica = await stack.replica(stack.settings(GATEWAY_OTLP_ENDPOINT=at_collector.endpoint))
            ada = replica.client("ada")
            stack.upstream.use(Script(ag_ui=[Answer(frames=(*started(), *message("m1", "canary-answer")))]))
            await Client(ada.http, {**ada.headers, "traceparent": CALLER}).ask(application, "s1", "canary-question")
            sent = parse(dict(stack.upstream.requests[-1].headers)["traceparent"])
            await Client(ada.http, {**ada.headers, "traceparent": CALLER[:-1] + "0"}).get("/api/internal/me")
        # The replica is closed: what was left was sent.
        run, post = await at_collector.named("invoke_agent"), await at_collector.named("post")
        request = await at_collector.named("POST /api/internal/apps/{app_id}/agent/runs")
    assert {span.trace_id.hex() for span in at_collector.spans if span.parent_span_id} == {CALLER[3:35]}
    assert request.parent_span_id.hex() == CALLER[36:52]
    assert run.parent_span_id == request.span_id
    assert post.parent_span_id == run.span_id
    assert sent is not None
    assert post.span_id.hex() == sent.span_id
    attributes = {attribute.key: attribute.value.string_value for attribute in run.attributes}
    assert attributes["gen_ai.operation.name"] == "invoke_agent"
    assert (attributes["gateway.run.execution"], attributes["error.type"]) == ("unknown", "stream_ended")
    assert not [span for span in at_collector.spans if span.name == "GET /api/internal/me"]
    for canary in (b"canary", b"scripted-upstream-token", b"ada"):
        assert canary not in at_collector.raw


def test_traces_without_their_extra_are_a_fault_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(SettingsInvalid, match="GATEWAY_OTLP_ENDPOINT: traces need the extra otel"):
        traces_of(Settings(otlp_endpoint="http://127.0.0.1:1"))


def test_without_an_endpoint_nothing_of_it_is_imported() -> None:
    code = "import gateway.app, sys; sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
