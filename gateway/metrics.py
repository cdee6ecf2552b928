"""What is counted of one replica: every metric there is, in one table, and the registry that holds them. docs/metrics.md is made from here.

Names and labels are stable, and labels are bounded: words of closed lists, routes of the table, ids of applications. Nothing is counted
for an event of a stream; counters are touched where a request, a run or a call ends. What is a number in the database is asked for when
somebody scrapes (`gateway.scraping`), so replicas agree on it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

disable_created_metrics()  # type: ignore[no-untyped-call] # a gauge beside each series that says when it began: nobody asks for it

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_LATENCY: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_DURATION: Final = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0)
_LAG: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


class Kind(StrEnum):
    """The types of Prometheus that are used here."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """One metric. `shared`: every replica shows the same number, which is the database's; take the maximum, not the sum."""

    name: str
    kind: Kind
    about: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    shared: bool = False


_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM

HTTP_REQUESTS: Final = Family("gateway_http_requests_total", _C, "Answers by method, route and status.", ("method", "route", "status"))
HTTP_SECONDS: Final = Family("gateway_http_first_byte_seconds", _H, "From a request to the head of its answer.", ("route",), _LATENCY)
ADMISSIONS: Final = Family(
    "gateway_admissions_total", _C, "Submissions by result: admitted, replayed, or the code of the refusal.", ("result",)
)
STEPS: Final = Family(
    "gateway_step_seconds", _H, "Commits of runs and calls to agent services that were answered, by step (post: to the response's head).",
    ("step",), _LATENCY,
)  # fmt: skip
MODERATOR: Final = Family(
    "gateway_moderator_seconds", _H, "Asking one moderator, by its kind and what came of it.", ("moderator", "outcome"), _LATENCY
)
RUNS_ENDED: Final = Family("gateway_runs_ended_total", _C, "Runs that this replica settled, by state and reason.", ("execution", "reason"))
STREAM_SECONDS: Final = Family("gateway_stream_seconds", _H, "Upstream streams, from the POST to the end of the run.", (), _DURATION)
FIRST_TEXT: Final = Family("gateway_first_text_seconds", _H, "From the POST to the first visible text or tool step.", (), _LATENCY)
STREAM_BYTES: Final = Family("gateway_stream_bytes_total", _C, "Bytes of upstream streams that have ended.")
STREAM_EVENTS: Final = Family("gateway_stream_events_total", _C, "Events of upstream streams that have ended.")
STREAM_FAULTS: Final = Family(
    "gateway_stream_faults_total", _C, "Streams that were given up, by fault ([events](events.md)); bounds are among them.", ("fault",)
)  # fmt: skip
LOOKUPS: Final = Family("gateway_lookups_total", _C, "Look-ups by what they said.", ("status",))
LEASES_LOST: Final = Family(
    "gateway_leases_lost_total", _C, "Runs that this replica's reconciler took from a process that is gone.", ("execution",)
)
SAVES: Final = Family("gateway_saves_total", _C, "Pending answers that were tried to save later, by result.", ("result",))
SWEEP_FAILURES: Final = Family("gateway_sweep_failures_total", _C, "Steps of the reconciler that failed, and are tried again.")
RETENTION_REMOVED: Final = Family("gateway_retention_removed_total", _C, "Rows that retention removed, by table.", ("table",))
LOOP_LAG: Final = Family("gateway_event_loop_lag_seconds", _H, "How late a timer of the event loop fires.", (), _LAG)

LIVE_RUNS: Final = Family("gateway_live_runs", _G, "Runs that this replica executes now.")
BROWSER_STREAMS: Final = Family("gateway_browser_streams", _G, "Event streams to browsers that this replica writes now.")
DRAINING: Final = Family("gateway_draining", _G, "1 once this replica was told to stop.")
HEARTBEAT_AGE: Final = Family("gateway_heartbeat_age_seconds", _G, "Since this replica's last good heartbeat; absent before the first.")
POOL_SIZE: Final = Family("gateway_database_pool_connections", _G, "Connections of this replica's pool, by state.", ("state",))
POOL_QUEUE: Final = Family("gateway_database_pool_waiting", _G, "Statements that wait for a connection now.")
POOL_REQUESTS: Final = Family("gateway_database_pool_requests_total", _C, "Connections that were asked for.")
POOL_QUEUED: Final = Family("gateway_database_pool_queued_total", _C, "Of those, how many had to wait.")
POOL_WAIT: Final = Family("gateway_database_pool_wait_seconds_total", _C, "How long they waited, together.")
POOL_ERRORS: Final = Family("gateway_database_pool_errors_total", _C, "Connections that were not to be had in time.")

DATABASE_UP: Final = Family("gateway_database_up", _G, "1 when the database answered this scrape. The numbers below are absent otherwise.")
ACTIVE_RUNS: Final = Family("gateway_active_runs", _G, "Runs that hold a slot, by state.", ("execution",), shared=True)
APP_SLOTS: Final = Family("gateway_application_slots_held", _G, "Slots held, of applications with any.", ("app_id",), shared=True)
UNRESOLVED: Final = Family(
    "gateway_unresolved_runs", _G, "Runs that wait for somebody to settle them, by application.", ("app_id",), shared=True
)
UNRESOLVED_AGE: Final = Family(
    "gateway_unresolved_oldest_seconds", _G, "Age of the oldest unresolved run, by application.", ("app_id",), shared=True
)  # fmt: skip
ATTENTION: Final = Family("gateway_attention_runs", _G, "Runs that ask for an operator.", shared=True)
SAVING: Final = Family("gateway_saving_backlog_runs", _G, "Complete answers whose items are not written yet.", shared=True)
SAVING_AGE: Final = Family("gateway_saving_oldest_seconds", _G, "Age of the oldest of them; absent when there is none.", shared=True)
LEASE_LEFT: Final = Family(
    "gateway_lease_left_seconds", _G, "Of the run whose lease ends first: what is left; negative when it is over.", shared=True
)  # fmt: skip
REPLICAS: Final = Family("gateway_replicas", _G, "Replicas that said within a lease that they live.", shared=True)
ADMISSION_CLOSED: Final = Family("gateway_admission_closed", _G, "1 while an operator keeps new work out of all replicas.", shared=True)

COUNTED: Final = (
    HTTP_REQUESTS, HTTP_SECONDS, ADMISSIONS, STEPS, MODERATOR, RUNS_ENDED, STREAM_SECONDS, FIRST_TEXT, STREAM_BYTES, STREAM_EVENTS,
    STREAM_FAULTS, LOOKUPS, LEASES_LOST, SAVES, SWEEP_FAILURES, RETENTION_REMOVED, LOOP_LAG,
)  # fmt: skip
"""Kept in this process."""
READ: Final = (
    LIVE_RUNS, BROWSER_STREAMS, DRAINING, HEARTBEAT_AGE, POOL_SIZE, POOL_QUEUE, POOL_REQUESTS, POOL_QUEUED, POOL_WAIT, POOL_ERRORS,
)  # fmt: skip
"""Read from this process when somebody scrapes."""
ASKED: Final = (
    DATABASE_UP, ACTIVE_RUNS, APP_SLOTS, UNRESOLVED, UNRESOLVED_AGE, ATTENTION, SAVING, SAVING_AGE, LEASE_LEFT, REPLICAS, ADMISSION_CLOSED,
)  # fmt: skip
"""Asked of the database when somebody scrapes."""
FAMILIES: Final = (*COUNTED, *READ, *ASKED)
"""All of them, in the order of docs/metrics.md."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One number of a family that is read or asked for; `labels` in the family's order."""

    family: Family
    value: float
    labels: tuple[str, ...] = ()


class Metrics:
    """The counted families of one replica. Each has its own registry, so several replicas in one process count apart."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        for family in COUNTED:
            if family.kind is Kind.COUNTER:
                self._counters[family.name] = Counter(family.name, family.about, family.labels, registry=self._registry)
            else:
                self._histograms[family.name] = Histogram(
                    family.name, family.about, family.labels, buckets=family.buckets, registry=self._registry
                )

    def count(self, family: Family, *labels: str, by: float = 1.0) -> None:
        """Raise a counter."""
        counter = self._counters[family.name]
        (counter.labels(*labels) if labels else counter).inc(by)

    def counted(self, family: Family) -> dict[str, int]:
        """The values of a counter with one label, by it."""
        samples = next(iter(self._counters[family.name].collect())).samples
        return {sample.labels[family.labels[0]]: int(sample.value) for sample in samples}

    def observe(self, family: Family, seconds: float, *labels: str) -> None:
        """Put a value into a histogram."""
        histogram = self._histograms[family.name]
        (histogram.labels(*labels) if labels else histogram).observe(seconds)

    def watch_process(self) -> None:
        """Also show CPU, memory, files and garbage collections of this process."""
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def text(self, samples: Iterable[Sample]) -> bytes:
        """The exposition: what was counted, and `samples`."""
        shown = CollectorRegistry(auto_describe=False)
        shown.register(_Samples(samples))
        return generate_latest(self._registry) + generate_latest(shown)


@dataclass(frozen=True, slots=True, eq=False)  # a registry keys its collectors
class _Samples(Collector):
    samples: Iterable[Sample]

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for sample in self.samples:
            name = sample.family.name
            if name not in families:
                made = CounterMetricFamily if sample.family.kind is Kind.COUNTER else GaugeMetricFamily
                families[name] = made(name, sample.family.about, labels=sample.family.labels)
            families[name].add_metric(sample.labels, sample.value)
        yield from families.values()
