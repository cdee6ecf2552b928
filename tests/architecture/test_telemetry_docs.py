"""Dashboard, alert rules and runbook name metrics that exist, with labels that they have; each alert has its entry."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from gateway.metrics import FAMILIES, Family, Kind
from tools.telemetry_pages import log_calls

ROOT = Path(__file__).resolve().parents[2]
BY_NAME = {family.name: family for family in FAMILIES}
SUFFIXES = ("_bucket", "_sum", "_count")
ADDED_BY_PROMETHEUS = {"le", "instance", "job", "namespace", "pod"}


def alerts() -> list[dict[str, object]]:
    rules = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text(encoding="utf-8"))
    return [rule for group in rules["groups"] for rule in group["rules"]]


def expressions() -> Iterator[str]:
    for rule in alerts():
        yield str(rule["expr"])
    dashboard = json.loads((ROOT / "deploy/grafana/gateway.json").read_text(encoding="utf-8"))
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel["targets"])


def family_of(name: str) -> Family | None:
    for suffix in SUFFIXES:
        found = BY_NAME.get(name.removesuffix(suffix))
        if name.endswith(suffix) and found is not None and found.kind is Kind.HISTOGRAM:
            return found
    return BY_NAME.get(name)


def faults(expression: str) -> Iterator[str]:
    labels = set(ADDED_BY_PROMETHEUS)
    for name in re.findall(r"\bgateway_\w+", expression):
        family = family_of(name)
        if family is None:
            yield f"there is no {name}"
        else:
            labels |= set(family.labels)
    used = re.findall(r"by \(([^)]*)\)", expression)
    used += re.findall(r"[{,]\s*(\w+)\s*[=!]~?", expression)
    yield from (f"no label {name} in {expression}" for part in used for name in re.split(r"[,\s]+", part) if name and name not in labels)


def test_each_metric_and_label_that_is_asked_for_exists() -> None:
    assert [fault for expression in expressions() for fault in faults(expression)] == []


@pytest.mark.parametrize(
    "wrong", ["max(gateway_unresolved_run)", "sum by (app) (gateway_unresolved_runs)", 'gateway_live_runs{state="x"} > 1']
)
def test_a_wrong_name_is_found(wrong: str) -> None:
    assert list(faults(wrong)) != []


def test_each_metric_is_on_the_dashboard_or_in_an_alert() -> None:
    shown = {family_of(name) for expression in expressions() for name in re.findall(r"\bgateway_\w+", expression)}
    numbers_beside = {"gateway_draining", "gateway_application_slots_held", "gateway_replicas"}
    numbers_beside |= {f"gateway_database_pool_{name}_total" for name in ("requests", "queued", "errors")}
    assert {family.name for family in FAMILIES if family not in shown} == numbers_beside


def test_each_alert_has_its_entry_in_the_runbook() -> None:
    text = (ROOT / "docs/runbook.md").read_text(encoding="utf-8")
    names = [str(rule["alert"]) for rule in alerts()]
    assert re.findall(r"^## (\w+)$", text, flags=re.MULTILINE) == names
    for rule in alerts():
        annotations = rule["annotations"]
        assert isinstance(annotations, dict)
        assert annotations["runbook"] == f"docs/runbook.md#{str(rule['alert']).lower()}"


def test_the_oldest_unresolved_run_of_an_application_comes_first() -> None:
    assert "gateway_unresolved_oldest_seconds" in str(alerts()[0]["expr"])
    assert "app_id" in str(alerts()[0]["expr"])


def test_log_events_are_words() -> None:
    assert [call for call in log_calls(ROOT) if not re.fullmatch(r"[a-z][a-z0-9_]*|\(named by its caller\)", call.event)] == []
