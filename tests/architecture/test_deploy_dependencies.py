"""Which setting depends on which (docs/handbook.md has the table): held for the settings' defaults and everything under deploy/.

Each dependency is a row; each row is shown to fail when one number of one file is changed.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from gateway.app import _CLOSE_SECONDS, _KEEP_ALIVE_SECONDS
from gateway.domain.limits import MAX_BROWSER_BODY_BYTES
from gateway.runs.supervisor import _SETTLE_SECONDS
from gateway.server import LAST_REQUESTS_SECONDS
from gateway.settings import Settings

ROOT: Final = Path(__file__).resolve().parents[2]
DEPLOY: Final = ROOT / "deploy"
MARGIN_SECONDS: Final = 10.0
RESERVED_CONNECTIONS: Final = 10
"""For operators, migrations, replication and monitoring."""

Document = dict[str, Any]
More = tuple[str, float, float]
"""What it is about, and two numbers: the first has to be more than the second."""


def seconds(written: str) -> float:
    match = re.fullmatch(r"(\d+)(ms|s|m)?", str(written).strip('"'))
    assert match is not None, written
    return float(match[1]) * {"ms": 0.001, "s": 1, "m": 60, None: 1}[match[2]]


@dataclass(frozen=True)
class Deployed:
    """What lies under deploy/, some of it changed: `changes` has the text of a file by its path."""

    changes: Mapping[str, str] = field(default_factory=dict)

    def text(self, path: str) -> str:
        return self.changes.get(path) or (DEPLOY / path).read_text(encoding="utf-8")

    def document(self, path: str) -> Any:
        return next(document for document in yaml.safe_load_all(self.text(path)) if document)

    def number(self, path: str, pattern: str) -> float:
        """What the first group of `pattern` matches, as seconds where it has a unit."""
        match = re.search(pattern, self.text(path))
        assert match is not None, f"{pattern} is not in {path}"
        return seconds(match[1])

    @cached_property
    def settings(self) -> Settings:
        """The defaults, and what the cluster's settings say beside them."""
        lines = self.text("kubernetes/base/settings.env").splitlines()
        told = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
        return Settings.model_validate(told)

    @property
    def deployment(self) -> Document:
        found: Document = self.document("kubernetes/base/deployment.yaml")["spec"]
        return found

    @property
    def pod(self) -> Document:
        found: Document = self.deployment["template"]["spec"]
        return found

    @property
    def container(self) -> Document:
        found: Document = self.pod["containers"][0]
        return found


def grace(it: Deployed) -> Iterator[More]:
    finishing = LAST_REQUESTS_SECONDS + _CLOSE_SECONDS + _SETTLE_SECONDS + MARGIN_SECONDS
    pre_stop = it.container["lifecycle"]["preStop"]["sleep"]["seconds"]
    cluster, defaults = it.settings, Settings()
    yield (
        "terminationGracePeriodSeconds",
        it.pod["terminationGracePeriodSeconds"],
        pre_stop + cluster.drain_delay_seconds + cluster.drain_seconds + finishing,
    )
    compose = seconds(it.document("compose/compose.yaml")["x-gateway"]["stop_grace_period"])
    yield "stop_grace_period", compose, defaults.drain_delay_seconds + defaults.drain_seconds + finishing


def noticing(it: Deployed) -> Iterator[More]:
    probe = it.container["readinessProbe"]
    assert probe["httpGet"]["path"] == "/readyz"
    yield "readiness probe", it.settings.drain_delay_seconds, probe["periodSeconds"] * probe["failureThreshold"]
    check = r"check inter (\S+) fall \d+", r"check inter \S+ fall (\d+)"
    every, times = (it.number("proxies/haproxy.cfg", pattern) for pattern in check)
    yield "haproxy", Settings().drain_delay_seconds, every * times
    every, times = (it.number("proxies/envoy.yaml", rf"\b{name}: (\S+)") for name in ("interval", "unhealthy_threshold"))
    yield "envoy", Settings().drain_delay_seconds, every * times


def kept_connections(it: Deployed) -> Iterator[More]:
    """Longest time that a proxy keeps an idle connection to a replica; 0 where it keeps none."""
    nginx = 0.0 if "proxy_set_header Connection close;" in it.text("proxies/nginx.conf") else 60.0
    haproxy = 0.0 if "option http-server-close" in it.text("proxies/haproxy.cfg") else 5.0
    envoy = it.number("proxies/envoy.yaml", r"common_http_protocol_options: \{idle_timeout: (\w+)\}")
    for name, kept in (("nginx", nginx), ("haproxy", haproxy), ("envoy", envoy)):
        yield name, Settings().drain_delay_seconds, kept
        yield name, _KEEP_ALIVE_SECONDS, kept


def patience_of_proxies(it: Deployed) -> Iterator[More]:
    longest = it.settings.stream_total_seconds + it.settings.connect_seconds
    waits = {
        "nginx": it.number("proxies/nginx.conf", r"proxy_read_timeout (\S+);"),
        "haproxy client": it.number("proxies/haproxy.cfg", r"timeout client (\S+)"),
        "haproxy server": it.number("proxies/haproxy.cfg", r"timeout server (\S+)"),
        "envoy stream": it.number("proxies/envoy.yaml", r"stream_idle_timeout: (\S+)"),
        "envoy route": it.number("proxies/envoy.yaml", r"(?m)^ +idle_timeout: (\S+)"),
    }
    for name in ("nginx", "haproxy"):
        annotations = it.document(f"kubernetes/ingress/{name}.yaml")["metadata"]["annotations"]
        waits |= {f"ingress {key}": seconds(text) for key, text in annotations.items() if re.search("timeout-server|read-timeout", key)}
    for name, wait in waits.items():
        yield name, wait, longest
    yield "envoy has no limit of a whole answer", float(bool(re.search(r"(?m)^ +timeout: 0s", it.text("proxies/envoy.yaml")))), 0


def heartbeats(it: Deployed) -> Iterator[More]:
    settings = it.settings
    yield "to browsers", settings.stream_idle_seconds, 2 * settings.browser_heartbeat_seconds
    yield "proxies' idle time-out", it.number("proxies/nginx.conf", r"proxy_read_timeout (\S+);"), 2 * settings.browser_heartbeat_seconds


def clients_of_poolers(it: Deployed) -> Iterator[More]:
    most = it.document("kubernetes/overlays/high-availability/autoscaler.yaml")["spec"]["maxReplicas"]
    surge = it.deployment["strategy"]["rollingUpdate"]["maxSurge"]
    pooler = it.document("kubernetes/overlays/high-availability/pooler.yaml")["spec"]["pgbouncer"]["parameters"]
    yield "Pooler", int(pooler["max_client_conn"]), (most + surge) * it.settings.database_pool_max
    replicas = len([name for name in it.document("compose/compose.yaml")["services"] if name.startswith("gateway-")])
    yield "compose", it.number("compose/pgbouncer.ini", r"max_client_conn = (\d+)"), replicas * Settings().database_pool_max


def connections_of_postgres(it: Deployed) -> Iterator[More]:
    pooler = it.document("kubernetes/overlays/high-availability/pooler.yaml")["spec"]
    cluster = it.document("kubernetes/overlays/high-availability/postgres.yaml")["spec"]["postgresql"]["parameters"]
    of_poolers = pooler["instances"] * int(pooler["pgbouncer"]["parameters"]["default_pool_size"])
    yield "Cluster", int(cluster["max_connections"]), of_poolers + RESERVED_CONNECTIONS
    most = it.number("compose/compose.yaml", r"max_connections=(\d+)")
    yield "compose", most, it.number("compose/pgbouncer.ini", r"default_pool_size = (\d+)") + RESERVED_CONNECTIONS


def bodies(it: Deployed) -> Iterator[More]:
    yield "nginx", it.number("proxies/nginx.conf", r"client_max_body_size (\d+)m;") * 2**20, MAX_BROWSER_BODY_BYTES
    annotations = it.document("kubernetes/ingress/nginx.yaml")["metadata"]["annotations"]
    size = annotations["nginx.ingress.kubernetes.io/proxy-body-size"].removesuffix("m")
    yield "ingress nginx", int(size) * 2**20, MAX_BROWSER_BODY_BYTES


def leases(it: Deployed) -> Iterator[More]:
    """The settings themselves refuse to start otherwise (gateway/settings.py); here, that the defaults leave something."""
    settings = it.settings
    yield "beats", settings.lease_seconds + 0.001, 6 * settings.heartbeat_seconds
    yield "send window", settings.lease_seconds, 2 * settings.send_window_seconds


ROWS: Final[Mapping[str, Callable[[Deployed], Iterator[More]]]] = {
    "grace period": grace,
    "drain delay": noticing,
    "how long an idle connection to a replica may be kept": kept_connections,
    "time-outs of every proxy": patience_of_proxies,
    "`GATEWAY_STREAM_IDLE_SECONDS`": heartbeats,
    "pooler's client connections": clients_of_poolers,
    "`max_connections` of Postgres": connections_of_postgres,
    "largest body that a proxy passes": bodies,
    "`GATEWAY_LEASE_SECONDS`": leases,
}
"""By the beginning of the row in docs/handbook.md."""


def faults(row: str, it: Deployed) -> list[str]:
    return [f"{about}: {more:g} is not more than {less:g}" for about, more, less in ROWS[row](it) if not more > less]


def test_o22_the_grace_period_covers_the_drain() -> None:
    """The manifests' half of the field case; the running half is in tests/replicas."""
    assert faults("grace period", Deployed()) == []
    assert faults("drain delay", Deployed()) == []


@pytest.mark.parametrize("row", ROWS)
def test_what_has_to_fit_together_does(row: str) -> None:
    assert faults(row, Deployed()) == []


def test_the_handbook_has_each_row() -> None:
    text = (ROOT / "docs/handbook.md").read_text(encoding="utf-8")
    table = text.partition("| this | is more than | because |")[2].partition("\n\n")[0]
    told = [line.split("|")[1].strip() for line in table.splitlines()[2:]]
    assert [re.sub(r" \(.*\)$", "", cell) for cell in told] == list(ROWS)


CHANGES: Final = (
    ("grace period", "kubernetes/base/deployment.yaml", "terminationGracePeriodSeconds: 100", "terminationGracePeriodSeconds: 85"),
    ("grace period", "kubernetes/base/deployment.yaml", "sleep: {seconds: 5}", "sleep: {seconds: 20}"),
    ("grace period", "kubernetes/base/settings.env", "GATEWAY_DRAIN_SECONDS=60", "GATEWAY_DRAIN_SECONDS=80"),
    ("grace period", "kubernetes/base/settings.env", "GATEWAY_DRAIN_DELAY_SECONDS=5", "GATEWAY_DRAIN_DELAY_SECONDS=20"),
    ("grace period", "compose/compose.yaml", "stop_grace_period: 100s", "stop_grace_period: 60s"),
    ("drain delay", "kubernetes/base/deployment.yaml", "periodSeconds: 2", "periodSeconds: 3"),
    ("drain delay", "kubernetes/base/settings.env", "GATEWAY_DRAIN_DELAY_SECONDS=5", "GATEWAY_DRAIN_DELAY_SECONDS=4"),
    ("drain delay", "proxies/haproxy.cfg", "inter 1s fall 2", "inter 1s fall 5"),
    ("drain delay", "proxies/envoy.yaml", "interval: 1s", "interval: 3s"),
    ("how long an idle connection to a replica may be kept", "proxies/nginx.conf", "Connection close", 'Connection ""'),
    ("how long an idle connection to a replica may be kept", "proxies/haproxy.cfg", "option http-server-close", ""),
    ("how long an idle connection to a replica may be kept", "proxies/envoy.yaml", "idle_timeout: 4s}", "idle_timeout: 60s}"),
    ("time-outs of every proxy", "proxies/nginx.conf", "proxy_read_timeout 960s", "proxy_read_timeout 60s"),
    ("time-outs of every proxy", "proxies/haproxy.cfg", "timeout client 960s", "timeout client 50s"),
    ("time-outs of every proxy", "proxies/haproxy.cfg", "timeout server 960s", "timeout server 900s"),
    ("time-outs of every proxy", "proxies/envoy.yaml", "stream_idle_timeout: 960s", "stream_idle_timeout: 300s"),
    ("time-outs of every proxy", "proxies/envoy.yaml", "idle_timeout: 960s\n", "idle_timeout: 300s\n"),
    ("time-outs of every proxy", "proxies/envoy.yaml", "timeout: 0s     #", "timeout: 15s     #"),
    ("time-outs of every proxy", "kubernetes/ingress/nginx.yaml", 'read-timeout: "960"', 'read-timeout: "60"'),
    ("time-outs of every proxy", "kubernetes/ingress/haproxy.yaml", "timeout-server: 960s", "timeout-server: 50s"),
    (
        "time-outs of every proxy",
        "kubernetes/base/settings.env",
        "GATEWAY_DRAIN_SECONDS",
        "GATEWAY_STREAM_TOTAL_SECONDS=960\nGATEWAY_DRAIN_SECONDS",
    ),
    ("`GATEWAY_STREAM_IDLE_SECONDS`", "kubernetes/base/settings.env", "GATEWAY_DRAIN_S", "GATEWAY_STREAM_IDLE_SECONDS=30\nGATEWAY_DRAIN_S"),
    (
        "pooler's client connections",
        "kubernetes/overlays/high-availability/pooler.yaml",
        'max_client_conn: "500"',
        'max_client_conn: "100"',
    ),
    ("pooler's client connections", "kubernetes/overlays/high-availability/autoscaler.yaml", "maxReplicas: 12", "maxReplicas: 50"),
    ("pooler's client connections", "kubernetes/base/settings.env", "POOL_MAX=10", "POOL_MAX=40"),
    ("pooler's client connections", "compose/pgbouncer.ini", "max_client_conn = 200", "max_client_conn = 20"),
    (
        "`max_connections` of Postgres",
        "kubernetes/overlays/high-availability/postgres.yaml",
        'max_connections: "100"',
        'max_connections: "80"',
    ),
    ("`max_connections` of Postgres", "kubernetes/overlays/high-availability/pooler.yaml", "instances: 2", "instances: 3"),
    ("`max_connections` of Postgres", "compose/compose.yaml", "max_connections=60", "max_connections=30"),
    ("largest body that a proxy passes", "kubernetes/ingress/nginx.yaml", "proxy-body-size: 1m", "proxy-body-size: 0m"),
    ("`GATEWAY_LEASE_SECONDS`", "kubernetes/base/settings.env", "GATEWAY_DRAIN_S", "GATEWAY_LEASE_SECONDS=10\nGATEWAY_DRAIN_S"),
)


@pytest.mark.parametrize(("row", "path", "before", "after"), CHANGES)
def test_one_number_that_does_not_fit_is_found(row: str, path: str, before: str, after: str) -> None:
    text = Deployed().text(path)
    assert before in text
    assert faults(row, Deployed({path: text.replace(before, after)})) != []


def test_each_row_is_shown_to_fail() -> None:
    assert {change[0] for change in CHANGES} == set(ROWS)
