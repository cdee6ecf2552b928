"""What `gateway serve` refuses at its start, `gateway check` reports: the same faults, all at once, in words (contract F2)."""

import base64
from pathlib import Path

import pytest

from gateway.cli import main
from gateway.settings import setting_docs

KEY = base64.b64encode(b"k" * 32).decode()
GOOD = {
    "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
    "API_ENCRYPTION_KEY": KEY,
    "GATEWAY_JWT_KEY": KEY,
    "GATEWAY_MODERATION": "local",
}


def told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str, **changes: str) -> dict[str, str]:
    """The faults that a command tells, by their setting; it tells them before it opens anything."""
    for name in [doc.name for doc in setting_docs()]:
        monkeypatch.delenv(name, raising=False)
    for name, text in {**GOOD, **changes}.items():
        monkeypatch.setenv(name, text)
    assert main([command]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "gateway: The settings are not valid."
    assert lines[-1] == "Next: Correct them all; docs/settings.md lists every setting."
    faults = [line.strip().partition(" ") for line in lines[2:-1]]
    return {name: sentence.strip() for name, _, sentence in faults}


@pytest.mark.parametrize("command", ["check", "serve"])
def test_every_fault_is_told_at_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    deny_file = tmp_path / "deny.txt"
    deny_file.write_text("fine\n/(/\n", encoding="utf-8")
    changes = {
        "DATABASE_URL": "postgresql://h:port/db",
        "GATEWAY_MODERATION": "local,webhook:https://10.0.0.1/hook",
        "GATEWAY_MODERATION_DENY_FILE": str(deny_file),
        "GATEWAY_HEARTBEAT_SECONDS": "20",
        "GATEWAY_DRAIN_SECONDS": "-1",
        "GATEWAY_QUOTA_ZONE": "Mars/Base",
        "GATEWAY_JWT_KEY": "short",
        "API_ENCRYPTION_KEYS_PREVIOUS": "x",
        "GATEWAY_LEASE_SECOND": "30",
    }
    faults = told(capsys, monkeypatch, command, **changes)
    assert set(faults) == set(changes)
    assert faults["GATEWAY_MODERATION_DENY_FILE"] == "line 2: not a valid pattern."
    assert "GATEWAY_TRUSTED_UPSTREAM_HOSTS" in faults["GATEWAY_MODERATION"]
    assert faults["GATEWAY_LEASE_SECOND"].endswith("is GATEWAY_LEASE_SECONDS meant?")
    assert faults["DATABASE_URL"].startswith("this URL cannot be read: it is postgresql://")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("GATEWAY_MODERATION_DENY_FILE", "/nowhere/deny.txt", "the file cannot be read (No such file or directory)."),
        ("GATEWAY_MODERATION_DENY_FILE", "/", "the file cannot be read (Is a directory)."),
        ("GATEWAY_MODERATION", "local,local", "Each is there once."),
        ("GATEWAY_MODERATION", "openai:http://moderator.example", "Of a URL: "),
        ("GATEWAY_MODERATION", "locale", "this is none, or a comma-separated list of local, openai:URL, webhook:URL."),
        ("DATABASE_URL", "postgresql://[h/db", "this URL cannot be read"),
        ("DATABASE_URL", "postgresql://h/db?nosuch=1", "this URL cannot be read"),
        ("DATABASE_URL", "mysql://h/db", "this is a connection URL that begins with postgresql://."),
    ],
)
def test_what_only_trying_finds_is_told_before_anything_is_opened(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, text: str, says: str
) -> None:
    faults = told(capsys, monkeypatch, "check", **{name: text})
    assert list(faults) == [name]
    assert faults[name].startswith(says)


def test_a_deny_file_that_is_not_text_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "deny.txt").write_bytes(b"\xff\xfe")
    faults = told(capsys, monkeypatch, "check", GATEWAY_MODERATION_DENY_FILE=str(tmp_path / "deny.txt"))
    assert faults == {"GATEWAY_MODERATION_DENY_FILE": "the file cannot be read (not UTF-8 text)."}
