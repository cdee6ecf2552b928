"""Settings: defaults, reading, and one report of all faults that never shows a value."""

import base64
import os
from pathlib import Path

import pytest

from gateway.domain.limits import ActiveLimits, StreamBounds
from gateway.settings import Settings, SettingsInvalid, load_settings, setting_docs

KEY = base64.b64encode(b"k" * 32).decode()
OTHER_KEY = base64.b64encode(b"o" * 32).decode()
JWT_KEY = "j" * 32
SERVING = {
    "DATABASE_URL": "postgresql://localhost/gateway",
    "API_ENCRYPTION_KEY": KEY,
    "GATEWAY_JWT_KEY": JWT_KEY,
    "GATEWAY_MODERATION": "none",
}


def faults(environ: dict[str, str], *, serving: bool = False) -> dict[str, str]:
    with pytest.raises(SettingsInvalid) as caught:
        load_settings(environ, serving=serving)
    return {fault.name: fault.sentence for fault in caught.value.faults}


def test_nothing_set_gives_the_documented_defaults() -> None:
    settings = load_settings({})
    assert settings == Settings()
    assert (settings.host, settings.port, settings.pages, settings.accounts) == ("127.0.0.1", 8080, True, "auto")
    assert (settings.lease_seconds, settings.heartbeat_seconds, settings.send_window_seconds) == (30, 5, 5)
    assert (settings.reconcile_seconds, settings.lookup_first_seconds, settings.lookup_max) == (5, 2, 30)
    assert (settings.checkpoint_seconds, settings.browser_heartbeat_seconds) == (2, 15)
    assert (settings.drain_delay_seconds, settings.drain_seconds, settings.database_pool_max) == (5, 60, 10)
    assert (settings.jwt_leeway_seconds, settings.jwt_subject_claim) == (30, "sub")
    assert (settings.jwt_groups_claim, settings.jwt_roles_claim, settings.quota_zone) == ("groups", "roles", "UTC")
    assert (settings.moderation, settings.moderation_seconds, settings.retention_audit_days) == (None, 5, None)
    assert settings.bounds == StreamBounds()
    assert settings.active_limits == ActiveLimits()
    assert settings.encryption_keys == ()


def test_every_setting_can_be_set_by_its_name_alone() -> None:
    values = {
        "AGENT_MAX_ACTIVE_PER_USER": "3",
        "AGENT_MAX_ACTIVE_PER_APP": "7",
        "GATEWAY_LEASE_SECONDS": "45.5",
        "GATEWAY_PAGES": "off",
        "GATEWAY_MAX_TOOLS": "9",
        "GATEWAY_STREAM_IDLE_SECONDS": "0.25",
        "GATEWAY_ALLOWED_ORIGINS": "https://Web.example:443, http://localhost:3000",
        "GATEWAY_TRUSTED_UPSTREAM_HOSTS": "Agent, 127.0.0.1,[::1]",
        "GATEWAY_MODERATION": "local,webhook:https://moderator.example/check",
        "GATEWAY_QUOTA_ZONE": "Europe/Berlin",
        "GATEWAY_DRAIN_DELAY_SECONDS": "0",
    }
    settings = load_settings(values)
    assert settings.active_limits == ActiveLimits(per_user=3, per_application=7)
    assert (settings.lease_seconds, settings.pages, settings.drain_delay_seconds) == (45.5, False, 0)
    assert (settings.bounds.tools, settings.bounds.idle_seconds) == (9, 0.25)
    assert settings.allowed_origins == ("https://web.example", "http://localhost:3000")
    assert settings.trusted_upstream_hosts == ("agent", "127.0.0.1", "::1")
    assert settings.moderation == ("local", "webhook:https://moderator.example/check")


def test_none_is_a_chain_and_empty_is_unset() -> None:
    assert load_settings({"GATEWAY_MODERATION": "none"}).moderation == ()
    assert load_settings({"GATEWAY_MODERATION": " ", "GATEWAY_PORT": ""}) == Settings()


def test_settings_are_frozen() -> None:
    with pytest.raises(ValueError):
        load_settings({}).port = 1


def test_constructing_settings_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_PORT", "9")
    assert Settings().port == 8080


def test_all_faults_come_at_once() -> None:
    found = faults(
        {
            "AGENT_MAX_ACTIVE_PER_USER": "0",
            "AGENT_MAX_ACTIVE_PER_APP": "-1",
            "GATEWAY_MAX_EVENTS": "1.5",
            "GATEWAY_PORT": "99999",
            "GATEWAY_DRAIN_SECONDS": "inf",
            "GATEWAY_CONNECT_SECONDS": "nan",
            "GATEWAY_LEASE_SECONDS": "4",
            "GATEWAY_QUOTA_ZONE": "Mars/Olympus",
            "GATEWAY_ALLOWED_ORIGINS": "https://web.example/path",
            "GATEWAY_ACCOUNTS": "some",
            "GATEWAY_SESSION_COOKIE": "a b",
            "GATEWAY_TRUSTED_UPSTREAM_HOSTS": "http://agent",
            "GATEWAY_MODERATION": "none,local",
            "GATEWAY_HEARBEAT_SECONDS": "5",
            "DATABASE_URL": "mysql://x",
            "API_ENCRYPTION_KEY": "short",
        },
        serving=True,
    )
    assert set(found) == {
        "AGENT_MAX_ACTIVE_PER_USER",
        "AGENT_MAX_ACTIVE_PER_APP",
        "GATEWAY_MAX_EVENTS",
        "GATEWAY_PORT",
        "GATEWAY_DRAIN_SECONDS",
        "GATEWAY_CONNECT_SECONDS",
        "GATEWAY_SEND_WINDOW_SECONDS",
        "GATEWAY_HEARTBEAT_SECONDS",
        "GATEWAY_QUOTA_ZONE",
        "GATEWAY_ALLOWED_ORIGINS",
        "GATEWAY_ACCOUNTS",
        "GATEWAY_SESSION_COOKIE",
        "GATEWAY_TRUSTED_UPSTREAM_HOSTS",
        "GATEWAY_MODERATION",
        "GATEWAY_HEARBEAT_SECONDS",
        "GATEWAY_JWT_KEY",
        "DATABASE_URL",
        "API_ENCRYPTION_KEY",
    }
    assert "GATEWAY_HEARTBEAT_SECONDS" in found["GATEWAY_HEARBEAT_SECONDS"]


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({"GATEWAY_SEND_WINDOW_SECONDS": "15.1"}, "GATEWAY_SEND_WINDOW_SECONDS"),
        ({"GATEWAY_HEARTBEAT_SECONDS": "30"}, "GATEWAY_HEARTBEAT_SECONDS"),
        ({"GATEWAY_STREAM_IDLE_SECONDS": "901"}, "GATEWAY_STREAM_IDLE_SECONDS"),
        ({"GATEWAY_MAX_KEPT_FRAME_BYTES": "5000000"}, "GATEWAY_MAX_KEPT_FRAME_BYTES"),
        ({"GATEWAY_MAX_FRAME_BYTES": "999999999"}, "GATEWAY_MAX_FRAME_BYTES"),
        ({"GATEWAY_JWT_KEY": JWT_KEY, "GATEWAY_JWKS_URL": "https://idp.example/keys"}, "GATEWAY_JWT_KEY"),
        ({"API_ENCRYPTION_KEYS_PREVIOUS": KEY}, "API_ENCRYPTION_KEYS_PREVIOUS"),
        ({"GATEWAY_JWT_KEY": "ü" * 15}, "GATEWAY_JWT_KEY"),
        ({"GATEWAY_JWT_KEY": "-----BEGIN PUBLIC KEY-----" + "x" * 100}, "GATEWAY_JWT_KEY"),
        ({"GATEWAY_PORT": "tcp://10.0.0.1:8080"}, "GATEWAY_PORT"),
        ({"GATEWAY_SECRETS_DIR": "/no/such/directory"}, "GATEWAY_SECRETS_DIR"),
    ],
)
def test_a_rule_names_its_setting(environ: dict[str, str], name: str) -> None:
    assert set(faults(environ)) == {name}


def test_a_server_needs_more_than_a_command() -> None:
    assert load_settings(SERVING, serving=True).moderation == ()
    for name in SERVING:
        assert set(faults({key: value for key, value in SERVING.items() if key != name}, serving=True)) == {name}


def test_a_key_set_needs_issuer_and_audience() -> None:
    environ = {**SERVING, "GATEWAY_JWKS_URL": "https://idp.example/keys", "GATEWAY_JWT_ISSUER": "https://idp.example"}
    del environ["GATEWAY_JWT_KEY"]
    assert load_settings({**environ, "GATEWAY_JWT_AUDIENCE": "gateway"}, serving=True).jwks_url == "https://idp.example/keys"
    assert set(faults(environ, serving=True)) == {"GATEWAY_JWT_AUDIENCE"}
    del environ["GATEWAY_JWT_ISSUER"]
    assert set(faults({**environ, "GATEWAY_JWT_AUDIENCE": "gateway"}, serving=True)) == {"GATEWAY_JWT_ISSUER"}


@pytest.mark.parametrize(
    "url",
    [
        "http://idp.example/keys",
        "https://user:secret@idp.example/keys",
        "https://idp.example/keys#x",
        "https://169.254.169.254/keys",
        "https://127.0.0.1/keys",
        "https://10.0.0.1/keys",
        "https://idp.example/keys?a b",
        "ftp://idp.example/keys",
        "file:///etc/keys.json",
        "idp.example/keys",
    ],
)
def test_a_key_set_has_an_address_as_providers_have(url: str) -> None:
    assert set(faults({"GATEWAY_JWKS_URL": url})) == {"GATEWAY_JWKS_URL"}


def test_a_key_set_may_be_in_the_own_network_or_have_a_query() -> None:
    own = {"GATEWAY_JWKS_URL": "http://idp:8080/realms/a/certs", "GATEWAY_TRUSTED_UPSTREAM_HOSTS": "idp"}
    assert load_settings(own).jwks_url == own["GATEWAY_JWKS_URL"]
    assert load_settings({"GATEWAY_JWKS_URL": "https://idp.example/keys?p=b2c_1_sign_in"}).jwks_url is not None


def test_names_that_others_put_there_are_no_faults() -> None:
    load_settings(
        {
            "GATEWAY_TEST_REQUIRE": "pg15",
            "GATEWAY_TOKEN": "x",
            "GATEWAY_URL": "http://127.0.0.1:1",
            "GATEWAY_SERVICE_HOST": "10.0.0.1",
            "GATEWAY_SERVICE_PORT_HTTP": "80",
            "GATEWAY_PORT_8080_TCP_ADDR": "10.0.0.1",
            "PATH": os.defpath,
        }
    )


def test_keys_are_newest_first_and_hidden() -> None:
    settings = load_settings({"API_ENCRYPTION_KEY": KEY, "API_ENCRYPTION_KEYS_PREVIOUS": f" {OTHER_KEY}, "})
    assert settings.encryption_keys == (b"k" * 32, b"o" * 32)
    assert KEY not in f"{settings!r} {settings}"
    assert OTHER_KEY not in f"{settings!r} {settings}"


def test_a_secret_may_be_a_file(tmp_path: Path) -> None:
    for name, value in {"API_ENCRYPTION_KEY": KEY, "GATEWAY_JWT_KEY": JWT_KEY, "DATABASE_URL": "postgresql://db/x"}.items():
        (tmp_path / name).write_text(f"{value}\n")
    by_file = load_settings({f"{name}_FILE": str(tmp_path / name) for name in ("API_ENCRYPTION_KEY", "GATEWAY_JWT_KEY", "DATABASE_URL")})
    by_directory = load_settings({"GATEWAY_SECRETS_DIR": str(tmp_path)})
    assert by_file == by_directory
    assert by_file.encryption_keys == (b"k" * 32,)
    over = load_settings({"GATEWAY_SECRETS_DIR": str(tmp_path), "DATABASE_URL": "postgresql://other/x"})
    assert over.database_url is not None
    assert over.database_url.get_secret_value() == "postgresql://other/x"


def test_files_that_cannot_be_read_are_faults(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "bytes").write_bytes(b"\xff")
    found = faults(
        {
            "API_ENCRYPTION_KEY_FILE": "tok_CANARY/as/a/path",
            "API_ENCRYPTION_KEYS_PREVIOUS_FILE": str(tmp_path / "bytes"),
            "DATABASE_URL_FILE": str(tmp_path / "empty"),
            "GATEWAY_JWT_KEY": JWT_KEY,
            "GATEWAY_JWT_KEY_FILE": str(tmp_path / "empty"),
        }
    )
    assert set(found) == {"API_ENCRYPTION_KEY_FILE", "API_ENCRYPTION_KEYS_PREVIOUS_FILE", "DATABASE_URL_FILE", "GATEWAY_JWT_KEY_FILE"}
    assert "CANARY" not in str(found)


@pytest.mark.parametrize("name", [doc.name for doc in setting_docs()])
def test_no_report_shows_a_value(name: str) -> None:
    invalid: SettingsInvalid | None = None
    try:
        load_settings({name: "tok_CANARY\x00,/"})
    except SettingsInvalid as caught:
        invalid = caught
    if invalid is None:
        assert name not in {doc.name for doc in setting_docs() if doc.secret}
        return
    assert "CANARY" not in f"{invalid} {invalid!r} {invalid.faults}"
    assert (invalid.__cause__, invalid.__context__) == (None, None)
