"""docs/metrics.md and docs/logs.md, made from the table of metrics and from the log calls in the code."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.metrics import ASKED, COUNTED, READ, Family
from gateway.tracing import SCHEMA_URL

TRACES = [
    "## Traces",
    "",
    "The gateway takes `traceparent` from the caller where it is valid, begins a trace elsewhere, and sends `traceparent` with",
    "every call to an agent service, a moderator and an issuer. `tracestate` is not passed on. This costs nothing and is always on.",
    "",
    "With the extra `otel` and `GATEWAY_OTLP_ENDPOINT`, spans go to `<endpoint>/v1/traces` (OTLP over HTTP, protobuf, in batches by",
    "a thread; headers by `OTEL_EXPORTER_OTLP_HEADERS`): requests (`POST /api/…`, with route and status), runs (`invoke_agent`, by",
    f"OpenTelemetry's conventions for generative AI, pinned to `{SCHEMA_URL}`) and the steps of runs (`admission`, `fence`, `post`,",
    "…: those of `gateway_step_seconds`). They hold ids of ours, states and reasons; never a text, a tool's name, a user or an id",
    "of the agent service. A trace that the caller does not sample is not sent. A collector that is away costs spans, and nothing",
    "else.",
]

_LEVELS = {"debug", "info", "warning", "error"}


def metrics_lines() -> list[str]:
    """docs/metrics.md."""
    return [
        "# Metrics",
        "",
        "`GET /metrics` of each replica, for Prometheus. Anybody who can connect may read it: it holds no secret and no text, but ids",
        "of applications and how busy they are, so the proxy in front must not pass it on. Names and labels are stable; labels are",
        "words of closed lists, routes and ids of applications. Beside these come the `process_…`, `python_…` metrics of the Python",
        "client. Alert rules: [deploy/prometheus](../deploy/prometheus/alerts.yaml), each with an entry in the [runbook](runbook.md); a",
        "dashboard: [deploy/grafana](../deploy/grafana/gateway.json).",
        "",
        "## Counted by each replica",
        "",
        "Since its start; touched when a request, a run or a call ends, never for a single event of a stream.",
        "",
        *_table(COUNTED),
        "",
        "## Of each replica, read at the scrape",
        "",
        *_table(READ),
        "",
        "## Of the database, asked at the scrape",
        "",
        "Every replica shows the same numbers: take `max`, not `sum`. They are asked for within 2 s and kept for 5 s; when the database",
        "does not answer, only `gateway_database_up 0` is shown.",
        "",
        *_table(ASKED),
    ]


def _table(families: Sequence[Family]) -> list[str]:
    rows = [(f"`{f.name}`", f.kind.value, ", ".join(f"`{label}`" for label in f.labels) or "-", f.about) for f in families]
    return ["| metric | type | labels | meaning |", "| --- | --- | --- | --- |", *("| " + " | ".join(row) + " |" for row in rows)]


@dataclass(frozen=True, order=True)
class LogCall:
    """One call that writes a line."""

    event: str
    level: str
    fields: tuple[str, ...]
    module: str


def log_calls(root: Path) -> Iterator[LogCall]:
    """Every log call of the gateway. Raises ValueError for one whose event is not written out."""
    for path in sorted((root / "gateway").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not isinstance(node.func.value, ast.Name):
                continue
            if node.func.value.id not in {"_log", "_access"} or node.func.attr not in _LEVELS:
                continue
            name = ".".join(path.relative_to(root).with_suffix("").parts)
            fields = tuple(keyword.arg or "…" for keyword in node.keywords)
            event = node.args[0]
            words = event.value if isinstance(event, ast.Constant) else "(named by its caller)"
            yield LogCall(str(words), node.func.attr, fields, name)


def logs_lines(root: Path) -> list[str]:
    """docs/logs.md."""
    lines = [
        "# Logs",
        "",
        "One JSON object a line on standard error. Every line has `timestamp` (RFC 3339, UTC), `level`, `logger` and `event`; lines of",
        "a request and of the run that it started also have `request_id` (the `X-Request-Id` of the answer) and `trace_id` (W3C trace",
        "context). No line holds a text, a token, an id of the agent service or another program's error text: `error` is the class of",
        "an exception, `raised_at` the place in our code. What libraries log is reduced to `library_log` with its logger and level; the",
        "server's own life is passed on.",
        "",
        "| event | level | fields | from |",
        "| --- | --- | --- | --- |",
    ]
    for call in sorted(set(log_calls(root))):
        fields = ", ".join(f"`{name}`" for name in call.fields) or "-"
        lines.append(f"| `{call.event}` | {call.level} | {fields} | `{call.module}` |")
    return [*lines, "", *TRACES]
