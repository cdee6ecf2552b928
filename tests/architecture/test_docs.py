"""The generated pages are as the code has them, and they name everything there is."""

import importlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from gateway.domain.evidence import EVIDENCE_DOCS, EvidenceKind
from gateway.domain.reasons import Reason
from gateway.settings import Settings

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_docs", ROOT / "tools" / "generate_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_page_is_stale(generator: ModuleType) -> None:
    assert generator.stale_pages(ROOT / "docs") == []


def test_a_stale_page_is_found(generator: ModuleType, tmp_path: Path) -> None:
    for name, page in generator.PAGES.items():
        (tmp_path / f"{name}.md").write_text(page(), encoding="utf-8")
    (tmp_path / "states.md").write_text("old", encoding="utf-8")
    (tmp_path / "reasons.md").unlink()
    assert generator.stale_pages(tmp_path) == ["reasons", "states"]


def test_each_reason_has_a_note_for_operators(generator: ModuleType) -> None:
    assert set(generator.REASON_NOTES) == set(Reason)


def test_each_setting_is_listed(generator: ModuleType) -> None:
    page = generator.settings_page()
    for field in Settings.model_fields.values():
        assert f"| `{field.validation_alias}` |" in page


def test_the_interface_names_no_setting_that_is_missing(generator: ModuleType) -> None:
    """The names of interface.md, by hand: that page is not part of this repository."""
    page = generator.settings_page()
    for name in _interface_names():
        assert f"`{name}`" in page, name


def _interface_names() -> Iterator[str]:
    yield from ("DATABASE_URL", "GATEWAY_DATABASE_DIRECT_URL", "API_ENCRYPTION_KEY", "API_ENCRYPTION_KEYS_PREVIOUS")
    yield from ("AGENT_MAX_ACTIVE_PER_USER", "AGENT_MAX_ACTIVE_PER_APP", "GATEWAY_HOST", "GATEWAY_PORT", "GATEWAY_PAGES")
    yield from ("GATEWAY_JWT_KEY", "GATEWAY_JWKS_URL", "GATEWAY_JWT_ISSUER", "GATEWAY_JWT_AUDIENCE", "GATEWAY_SESSION_COOKIE")
    yield from ("GATEWAY_ALLOWED_ORIGINS", "GATEWAY_ACCOUNTS", "GATEWAY_JWT_LEEWAY_SECONDS", "GATEWAY_JWT_SUBJECT_CLAIM")
    yield from ("GATEWAY_JWT_GROUPS_CLAIM", "GATEWAY_JWT_ROLES_CLAIM", "GATEWAY_QUOTA_ZONE", "GATEWAY_RETENTION_DELETED_DAYS")
    yield from ("GATEWAY_RETENTION_EVIDENCE_DAYS", "GATEWAY_RETENTION_AUDIT_DAYS", "GATEWAY_TRUSTED_UPSTREAM_HOSTS")
    yield from ("GATEWAY_CONNECT_SECONDS", "GATEWAY_STREAM_IDLE_SECONDS", "GATEWAY_STREAM_TOTAL_SECONDS", "GATEWAY_MAX_FRAME_BYTES")
    yield from ("GATEWAY_MAX_KEPT_FRAME_BYTES", "GATEWAY_MAX_STREAM_BYTES", "GATEWAY_MAX_EVENTS", "GATEWAY_MAX_TEXT_BYTES")
    yield from ("GATEWAY_MAX_MESSAGES", "GATEWAY_MAX_TOOLS", "GATEWAY_LEASE_SECONDS", "GATEWAY_HEARTBEAT_SECONDS")
    yield from ("GATEWAY_SEND_WINDOW_SECONDS", "GATEWAY_RECONCILE_SECONDS", "GATEWAY_LOOKUP_FIRST_SECONDS", "GATEWAY_LOOKUP_MAX")
    yield from ("GATEWAY_CHECKPOINT_SECONDS", "GATEWAY_BROWSER_HEARTBEAT_SECONDS", "GATEWAY_DRAIN_DELAY_SECONDS")
    yield from ("GATEWAY_DRAIN_SECONDS", "GATEWAY_DATABASE_POOL_MAX", "GATEWAY_MODERATION", "GATEWAY_MODERATION_DENY_FILE")
    yield from ("GATEWAY_MODERATION_SECONDS", "API_ENCRYPTION_KEY_FILE", "DATABASE_URL_FILE", "GATEWAY_JWT_KEY_FILE")


def test_each_command_leads_to_a_function(generator: ModuleType) -> None:
    for words, leaf in generator._leaves(generator.build_parser(demo=False), ()):
        module, _, function = leaf.get_default("command").partition(":")
        if module == "demo":  # has tests of its own
            continue
        assert callable(getattr(importlib.import_module(f"gateway.cli.{module}"), function)), words


def test_each_kind_of_evidence_that_sql_writes_is_in_the_table() -> None:
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "sql").rglob("*.sql"))]
    # what a statement goes on with behind its `from` is no kind
    kind = re.compile(r"insert into evidence \([^)]*\)\s+(?:select|values \()(?:(?!\bfrom\b)[^'])*'([a-z_]+)'")
    written = {word for text in texts for word in kind.findall(text)}
    assert written - {one.value for one in EvidenceKind} == set()
    assert len(written) > 5
    assert set(EVIDENCE_DOCS) == set(EvidenceKind)
