"""Traces over OTLP, for who sets GATEWAY_OTLP_ENDPOINT and has the extra `otel`; without it nothing here is wired or imported.

What is recorded: requests, runs, and the steps of runs, by ids and words of ours; never content. Attributes follow OpenTelemetry's
conventions for generative AI as of SCHEMA_URL; a later version changes this file, not whoever reads the traces unasked.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from gateway.domain.fault_points import At, FaultPoint, Kind, Moment
from gateway.domain.states import Execution
from gateway.domain.trace_context import Record, Span, TraceContext, current_trace, new_trace
from gateway.runs.live import LiveRun

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.37.0"
_SHUTDOWN_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True)
class Traces:
    """`record` takes finished spans and never waits: they are sent by a thread, in batches, and dropped when a collector is away."""

    record: Record
    shut_down: Callable[[], None]

    async def aclose(self) -> None:
        """Send what is left, for a moment at most."""
        closing = asyncio.get_running_loop().run_in_executor(None, self.shut_down)
        await asyncio.wait({closing}, timeout=_SHUTDOWN_SECONDS)


def traces_can_be_opened() -> bool:
    """Whether the extra `otel` is installed."""
    try:
        import opentelemetry.exporter.otlp.proto.http.trace_exporter
        import opentelemetry.sdk.trace  # noqa: F401 - looked for, not used
    except ImportError:
        return False
    return True


def open_traces(endpoint: str, *, service_version: str) -> Traces:
    """Send spans to `endpoint`/v1/traces. Headers for it are OTEL_EXPORTER_OTLP_HEADERS, the exporter's own. Needs the extra."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

    resource = Resource({"service.name": "agent-governance-gateway", "service.version": service_version}, SCHEMA_URL)
    scope = InstrumentationScope("gateway", service_version, SCHEMA_URL)
    processor = BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces"))

    def span_context(context: TraceContext, span_id: str) -> SpanContext:
        return SpanContext(int(context.trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    def record(span: Span) -> None:
        if not span.context.sampled:
            return
        processor.on_end(
            ReadableSpan(
                name=span.name,
                context=span_context(span.context, span.context.span_id),
                parent=span_context(span.context, span.parent_span_id) if span.parent_span_id else None,
                resource=resource,
                attributes=dict(span.attributes),
                kind=SpanKind.SERVER if span.server else SpanKind.INTERNAL,
                instrumentation_scope=scope,
                status=Status(StatusCode.ERROR) if span.failed else Status(StatusCode.UNSET),
                start_time=span.started_at_ns,
                end_time=span.ended_at_ns,
            )
        )

    return Traces(record, processor.shutdown)


@dataclass(frozen=True, slots=True)
class _Step:
    parent: TraceContext
    context: TraceContext
    started_at_ns: int


_step: Final[ContextVar[_Step | None]] = ContextVar("step", default=None)


def traced(at: At, record: Record) -> At:
    """`at`, and a span for each step of a run that is answered; calls to others carry the id of their step's span."""

    async def trace(point: FaultPoint) -> None:
        current, step = current_trace.get(), _step.get()
        if current is None:  # nobody asked for it: a sweep
            return await at(point)
        if point.moment is Moment.BEFORE:
            # A step that failed has no after; the next one is its sibling all the same.
            parent = step.parent if step is not None and step.context is current else current
            step = _Step(parent, parent.child(), time.time_ns())
            _step.set(step)
            current_trace.set(step.context)
            return await at(point)
        if step is not None and step.context is current:
            current_trace.set(step.parent)
            kind = "gateway.call" if point.step.kind is Kind.CALL else "gateway.commit"
            record(
                Span(
                    point.step.value,
                    step.context,
                    step.parent.span_id,
                    step.started_at_ns,
                    time.time_ns(),
                    attributes={kind: point.step.value},
                )
            )
        return await at(point)

    return trace


@dataclass(frozen=True, slots=True)
class TracedExecution:
    """Executes live runs, each as a span of the trace that submitted it."""

    execute: Callable[[LiveRun], Coroutine[Any, Any, None]]
    record: Record

    async def __call__(self, live: LiveRun) -> None:
        """As `execute`."""
        parent = current_trace.get()
        context = parent.child() if parent else new_trace(sampled=True)
        current_trace.set(context)
        started_at_ns = time.time_ns()
        try:
            await self.execute(live)
        finally:
            admitted, view = live.admitted, live.view
            attributes: dict[str, str | int] = {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.id": str(admitted.application_id),
                "gen_ai.conversation.id": str(admitted.conversation_id),
                "gateway.run.id": str(admitted.run_id),
                "gateway.run.execution": view.execution.value,
                "gateway.run.persistence": view.persistence.value,
            }
            if view.reason is not None:
                attributes["error.type"] = view.reason.value
            failed = view.execution not in (Execution.SUCCEEDED, Execution.WAITING)
            span_id = parent.span_id if parent else None
            self.record(Span("invoke_agent", context, span_id, started_at_ns, time.time_ns(), failed=failed, attributes=attributes))
