"""What is deployed fits the program: no repeats and no buffers, few rights, settings by their names; manifests are valid.

Numbers that depend on one another are in test_deploy_dependencies.py.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from gateway.settings import SECRETS_DIR, setting_docs
from tests.support.require import missing

ROOT: Final = Path(__file__).resolve().parents[2]
DEPLOY: Final = ROOT / "deploy"
KUBERNETES: Final = DEPLOY / "kubernetes"
OVERLAYS: Final = ("small", "high-availability")
Document = dict[str, Any]


def documents(path: Path) -> list[Document]:
    return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]


def one(kind: str, name: str = "gateway", folder: str = "base") -> Document:
    found = [d for path in (KUBERNETES / folder).glob("*.yaml") for d in documents(path) if d.get("kind") == kind]
    return next(d for d in found if d["metadata"]["name"] == name)


def pod() -> Document:
    spec: Document = one("Deployment")["spec"]["template"]["spec"]
    return spec


def text(path: str) -> str:
    return (DEPLOY / path).read_text(encoding="utf-8")


def found(pattern: str, written: str) -> str:
    """What the first group of `pattern` matches."""
    match = re.search(pattern, written)
    assert match is not None, f"{pattern} is not there"
    return str(match[1])


def test_liveness_asks_the_process_alone() -> None:
    assert pod()["containers"][0]["livenessProbe"]["httpGet"]["path"] == "/healthz"


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


def test_the_network_policy_holds_the_gateway_and_no_database() -> None:
    """Labels that the base adds are added to selectors by labels, so a selector of somebody else's pods must not be one."""
    policy = one("NetworkPolicy")["spec"]
    added = documents(KUBERNETES / "base" / "kustomization.yaml")[0]["labels"][0]
    assert added["includeSelectors"] is True
    assert policy["podSelector"] == {"matchLabels": added["pairs"]}
    others = [peer["podSelector"] for rule in policy["egress"] for peer in rule["to"] if "podSelector" in peer]
    database = {"key": "gateway.example/database", "operator": "In", "values": ["true"]}
    assert others == [{"matchExpressions": [database]}]
    overlay = "overlays/high-availability"
    postgres, pooler = one("Cluster", "gateway-postgres", overlay)["spec"], one("Pooler", "gateway-pooler", overlay)["spec"]
    for labels in (postgres["inheritedMetadata"]["labels"], pooler["template"]["metadata"]["labels"]):
        assert labels == {"gateway.example/database": "true"}


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
    policy = next(d for d in documents(rendered) if d["kind"] == "NetworkPolicy")["spec"]
    assert policy["podSelector"] == one("NetworkPolicy")["spec"]["podSelector"]
    egress = one("NetworkPolicy")["spec"]["egress"]
    assert policy["egress"][: len(egress)] == egress
    pods = next(d for d in documents(rendered) if d["kind"] == "Deployment")["spec"]["template"]["spec"]
    assert pods["containers"][0]["image"].startswith("registry.example/gateway:")


RESOURCES: Final = sorted(path for path in KUBERNETES.rglob("*.yaml") if path.name != "kustomization.yaml")


@pytest.mark.parametrize("path", RESOURCES, ids=lambda path: path.relative_to(KUBERNETES).as_posix())
def test_each_resource_is_valid_also_where_nothing_renders_it(path: Path) -> None:
    """Those of Kubernetes itself, that is; of kinds that operators bring only the form of YAML."""
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
