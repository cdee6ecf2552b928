"""The compose file and Envoy's configuration, read as the types of the compose specification and of Envoy's own API.

Neither program is needed: there is no daemon here, and no package of Envoy in the registries that tests may use. nginx and HAProxy run for
real in tests/edge and tests/replicas.
"""

import json
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.support.require import missing

ROOT: Final = Path(__file__).resolve().parents[2]
PYTHON: Final = ROOT / ".upstreams" / "validators" / "bin" / "python"
PATHS: Final = {"compose": "deploy/compose/compose.yaml", "envoy": "deploy/proxies/envoy.yaml"}


def fault(kind: str, document: Any) -> str:
    """What is wrong with it; empty when nothing is."""
    if not PYTHON.exists():
        missing("validators", "`make upstreams` brings them")
    command = [str(PYTHON), str(ROOT / "tests/support/validate_deployed.py"), kind]
    done = subprocess.run(command, input=json.dumps(document), capture_output=True, text=True, check=False)
    assert done.returncode == 0 or done.stderr
    return done.stderr if done.returncode else ""


def text(kind: str) -> str:
    return (ROOT / PATHS[kind]).read_text(encoding="utf-8")


def filled(written: str) -> str:
    """`${NAME:-default}` and `${NAME:?message}` as compose fills them in, an image where there is no default."""
    return re.sub(r"\$\{\w+:([-?])([^}]*)\}", lambda found: found[2] if found[1] == "-" else "example/image:1", written)


@pytest.mark.parametrize("kind", PATHS)
def test_it_is_of_its_type(kind: str) -> None:
    assert fault(kind, yaml.safe_load(filled(text(kind)))) == ""


@pytest.mark.parametrize(
    ("kind", "before", "after", "says"),
    [
        ("compose", "stop_grace_period: 100s", "stop_grace_period: soon", "duration"),
        ("compose", "ports:", "prots:", "prots"),
        ("compose", "secrets: [database_password]", "secrets: [no_such]", "no_such"),
        ("compose", "read_only: true", "read_only: surely", "boolean"),
        ("envoy", "connect_timeout", "conect_timeout", "conect_timeout"),
        ("envoy", "retry_on:", "retry_when:", "retry_when"),
        ("envoy", "stream_idle_timeout: 960s", "stream_idle_timeout: long", "duration"),
        ("envoy", "common_http_protocol_options", "http_options", "http_options"),
        ("envoy", "LEAST_REQUEST", "LEAST", "LEAST"),
    ],
)
def test_what_is_misspelt_is_found(kind: str, before: str, after: str, says: str) -> None:
    assert before in text(kind)
    assert says in fault(kind, yaml.safe_load(filled(text(kind).replace(before, after))))
