"""What is deployed fits the program: grace periods, time-outs, body sizes, connections, settings by their names; manifests are valid."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from gateway.app import _CLOSE_SECONDS
from gateway.domain.limits import MAX_BROWSER_BODY_BYTES
from gateway.runs.supervisor import _SETTLE_SECONDS
from gateway.settings import SECRETS_DIR, Settings, setting_docs
from tests.support.require import missing

ROOT: Final = Path(__file__).resolve().parents[2]
DEPLOY: Final = ROOT / "deploy"
KUBERNETES: Final = DEPLOY / "kubernetes"
OVERLAYS: Final = ("small", "high-availability")
MARGIN_SECONDS: Final = 10.0
RESERVED_CONNECTIONS: Final = 10
"""For operators, migrations, replication and monitoring."""

Document = dict[str, Any]


def defaults() -> Settings:
    return Settings()


def documents(path: Path) -> list[Document]:
    return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]


def one(kind: str, name: str = "gateway", folder: str = "base") -> Document:
    found = [d for path in (KUBERNETES / folder).glob("*.yaml") for d in documents(path) if d.get("kind") == kind]
    return next(d for d in found if d["metadata"]["name"] == name)


def pod() -> Document:
    spec: Document = one("Deployment")["spec"]["template"]["spec"]
    return spec


def env_file() -> dict[str, str]:
    lines = (KUBERNETES / "base/settings.env").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def text(path: str) -> str:
    return (DEPLOY / path).read_text(encoding="utf-8")


def found(pattern: str, written: str) -> str:
    """What the first group of `pattern` matches."""
    match = re.search(pattern, written)
    assert match is not None, f"{pattern} is not there"
    return str(match[1])


def seconds(written: str) -> float:
    match = re.fullmatch(r"(\d+)(ms|s|m)?", written.strip('"'))
    assert match is not None, written
    return float(match[1]) * {"ms": 0.001, "s": 1, "m": 60, None: 1}[match[2]]


# O-22: the manifest's half; the running half is in tests/replicas


def test_o22_the_grace_period_covers_the_drain() -> None:
    environment, settings = env_file(), defaults()
    delay = float(environment.get("GATEWAY_DRAIN_DELAY_SECONDS", settings.drain_delay_seconds))
    budget = float(environment.get("GATEWAY_DRAIN_SECONDS", settings.drain_seconds))
    pre_stop = one("Deployment")["spec"]["template"]["spec"]["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    needed = delay + budget + _CLOSE_SECONDS + _SETTLE_SECONDS
    assert pod()["terminationGracePeriodSeconds"] >= pre_stop + needed + MARGIN_SECONDS
    compose = yaml.safe_load(text("compose/compose.yaml"))
    assert seconds(compose["x-gateway"]["stop_grace_period"]) >= settings.drain_delay_seconds + settings.drain_seconds + 20


def test_a_replica_that_stops_is_out_of_the_proxies_before_it_stops_listening() -> None:
    probe = pod()["containers"][0]["readinessProbe"]
    assert probe["httpGet"]["path"] == "/readyz"
    noticed = probe["periodSeconds"] * probe["failureThreshold"]
    assert noticed < defaults().drain_delay_seconds
    check = re.search(r"check inter (\S+) fall (\d+)", text("proxies/haproxy.cfg"))
    assert check is not None
    assert seconds(check[1]) * int(check[2]) < defaults().drain_delay_seconds


def test_liveness_asks_the_process_alone() -> None:
    assert pod()["containers"][0]["livenessProbe"]["httpGet"]["path"] == "/healthz"


def time_outs() -> Iterator[tuple[str, float]]:
    nginx, haproxy = text("proxies/nginx.conf"), text("proxies/haproxy.cfg")
    yield "nginx", seconds(found(r"proxy_read_timeout (\S+);", nginx))
    for side in ("client", "server"):
        yield f"haproxy {side}", seconds(found(rf"timeout {side} (\S+)", haproxy))
    envoy = text("proxies/envoy.yaml")
    yield "envoy stream", seconds(found(r"stream_idle_timeout: (\S+)", envoy))
    yield "envoy route", seconds(found(r" idle_timeout: (\S+)", envoy))
    for document in documents(KUBERNETES / "ingress/nginx.yaml"):
        yield "ingress nginx", seconds(document["metadata"]["annotations"]["nginx.ingress.kubernetes.io/proxy-read-timeout"])
    for document in documents(KUBERNETES / "ingress/haproxy.yaml"):
        yield "ingress haproxy", seconds(document["metadata"]["annotations"]["haproxy.org/timeout-server"])


def test_no_proxy_gives_up_before_the_longest_stream() -> None:
    settings = defaults()
    assert settings.browser_heartbeat_seconds * 2 < settings.stream_idle_seconds
    assert [name for name, wait in time_outs() if wait <= settings.stream_total_seconds + settings.connect_seconds] == []
    assert [line for line in text("proxies/envoy.yaml").splitlines() if re.match(r"\s+timeout: 0s", line)] != []


def test_no_proxy_repeats_a_post_buffers_or_hands_on_the_metrics() -> None:
    nginx, haproxy, envoy = text("proxies/nginx.conf"), text("proxies/haproxy.cfg"), text("proxies/envoy.yaml")
    assert re.findall(r"proxy_next_upstream ([^;]*);", nginx) == ["error"]  # without non_idempotent
    assert re.findall(r"retry-on (.*?)\s+#", haproxy) == ["conn-failure"]
    assert re.findall(r"retry_on: ([^,}]*)", envoy) == ["connect-failure"]
    assert re.search(r"proxy_buffering off;", nginx)
    assert "gzip off;" in nginx
    for line in (*nginx.splitlines(), *haproxy.splitlines(), *envoy.splitlines()):
        assert "compression" not in line.partition("#")[0]
    for name, written in (("nginx", nginx), ("haproxy", haproxy), ("envoy", envoy)):
        assert "/metrics" in written, name
    for path in (KUBERNETES / "ingress").glob("*.yaml"):
        assert "/metrics" not in path.read_text(encoding="utf-8")


def test_bodies_that_the_gateway_takes_pass_the_proxies() -> None:
    size = re.search(r"client_max_body_size (\d+)m;", text("proxies/nginx.conf"))
    assert size is not None
    assert int(size[1]) * 2**20 > MAX_BROWSER_BODY_BYTES


def test_connections_of_all_replicas_fit_the_database() -> None:
    pool = int(env_file()["GATEWAY_DATABASE_POOL_MAX"])
    scaler = one("HorizontalPodAutoscaler", folder="overlays/high-availability")["spec"]
    pooler = one("Pooler", "gateway-pooler", "overlays/high-availability")["spec"]
    cluster = one("Cluster", "gateway-postgres", "overlays/high-availability")["spec"]["postgresql"]["parameters"]
    surge = one("Deployment")["spec"]["strategy"]["rollingUpdate"]["maxSurge"]
    parameters = pooler["pgbouncer"]["parameters"]
    assert (scaler["maxReplicas"] + surge) * pool <= int(parameters["max_client_conn"])
    assert pooler["instances"] * int(parameters["default_pool_size"]) <= int(cluster["max_connections"]) - RESERVED_CONNECTIONS
    bouncer = text("compose/pgbouncer.ini")
    compose = yaml.safe_load(text("compose/compose.yaml"))["services"]
    most = int(next(part for part in compose["postgres"]["command"] if part.startswith("max_connections=")).partition("=")[2])
    assert int(found(r"default_pool_size = (\d+)", bouncer)) <= most - RESERVED_CONNECTIONS
    assert 2 * defaults().database_pool_max <= int(found(r"max_client_conn = (\d+)", bouncer))


def test_poolers_are_in_transaction_mode_and_commits_are_durable() -> None:
    assert "pool_mode = transaction" in text("compose/pgbouncer.ini")
    assert one("Pooler", "gateway-pooler", "overlays/high-availability")["spec"]["pgbouncer"]["poolMode"] == "transaction"
    postgres = one("Cluster", "gateway-postgres", "overlays/high-availability")["spec"]["postgresql"]
    assert postgres["parameters"]["synchronous_commit"] == "on"
    assert postgres["synchronous"] == {"method": "any", "number": 1, "dataDurability": "required"}


def test_pods_can_do_little() -> None:
    for spec in (pod(), one("Job", "gateway-migrate")["spec"]["template"]["spec"]):
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            limits = container["securityContext"]
            assert limits["readOnlyRootFilesystem"] is True
            assert limits["allowPrivilegeEscalation"] is False
            assert limits["capabilities"] == {"drop": ["ALL"]}
            assert "memory" in container["resources"]["limits"]


def test_settings_that_are_named_exist() -> None:
    known = {doc.name for doc in setting_docs()} | {f"{doc.name}_FILE" for doc in setting_docs() if doc.secret} | {SECRETS_DIR}
    known |= {"GATEWAY_IMAGE", "GATEWAY_PUBLISH"}  # of the compose file
    pattern = r"\b(?:GATEWAY|API_ENCRYPTION|AGENT_MAX|DATABASE_URL)\w*"
    wrong = [
        (path.relative_to(ROOT).as_posix(), name)
        for path in sorted(DEPLOY.rglob("*"))
        if path.is_file() and path.suffix not in {".json"} and "secrets" not in path.parts
        for name in re.findall(pattern, path.read_text(encoding="utf-8"))
        if name.isupper() and name not in known
    ]
    assert wrong == []


def test_every_file_can_be_read() -> None:
    for path in DEPLOY.rglob("*.yaml"):
        assert documents(path), path


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_manifests_are_valid(overlay: str, tmp_path: Path) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        missing("kubectl", "overlays are not rendered here")
        raise AssertionError
    rendered = tmp_path / "rendered.yaml"
    with rendered.open("w") as output:
        subprocess.run([kubectl, "kustomize", str(KUBERNETES / "overlays" / overlay)], check=True, stdout=output)
    validated(rendered)
    pods = next(d for d in documents(rendered) if d["kind"] == "Deployment")["spec"]["template"]["spec"]
    assert pods["containers"][0]["image"].startswith("registry.example/gateway:")


@pytest.mark.parametrize("path", sorted((KUBERNETES / "base").glob("*.yaml")), ids=lambda path: path.name)
def test_each_resource_of_the_base_is_valid(path: Path) -> None:
    if path.name != "kustomization.yaml":
        validated(path)


def validated(path: Path) -> None:
    command = [str(Path(sys.executable).parent / "kubernetes-validate"), "--strict", str(path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"})
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_misspelt_field_is_found(tmp_path: Path) -> None:
    wrong = tmp_path / "deployment.yaml"
    wrong.write_text(text("kubernetes/base/deployment.yaml").replace("readinessProbe", "readynessProbe"), encoding="utf-8")
    with pytest.raises(AssertionError, match="readynessProbe"):
        validated(wrong)
