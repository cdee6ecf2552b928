"""Every setting of the gateway: its name, meaning, default and rules, and how they are read. docs/settings.md is generated from here.

What lives here: reading (environment, `*_FILE`, a secrets directory), and one report of all faults. What does not: what a setting is used
for, and faults that need more than the settings (a database that is away): `gateway check`.
No fault ever shows a value: a secret may stand in the wrong variable. Longer than other modules, because the table is one.
"""

import base64
import binascii
import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from gateway.bindings.urls import normalise_base_url
from gateway.domain.limits import ActiveLimits, StreamBounds
from gateway.domain.problems import Refused
from gateway.domain.text import is_storable
from gateway.store.connection_url import is_connection_url

KEY_BYTES: Final = 32
"""AES-256."""
MIN_JWT_KEY_BYTES: Final = 32
"""RFC 7518 3.2: an HS256 key has at least the size of the hash."""
SECRETS_DIR: Final = "GATEWAY_SECRETS_DIR"
CLIENT_NAMES: Final[Mapping[str, str]] = {
    "GATEWAY_URL": "where `gateway chat` finds the gateway, unless `--url` is given",
    "GATEWAY_TOKEN": "the bearer token that `gateway chat` sends, unless `--token-file` is given",
}
"""Read by commands that are clients of the public API, never by a server."""

_TEST_PREFIX: Final = "GATEWAY_TEST_"
_OUR_PREFIXES: Final = ("GATEWAY_", "API_ENCRYPTION_", "AGENT_MAX_")
# Kubernetes puts these into every pod of a namespace with a Service named "gateway" (enableServiceLinks); nobody wrote them.
_SERVICE_LINK: Final = re.compile(r"GATEWAY_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")
_LONGEST_SECONDS: Final = 7 * 24 * 3600.0
_MOST_DAYS: Final = 36_500
_LARGEST: Final = 2**31 - 1
"""Postgres integers: limits are passed to SQL functions."""
_COOKIE_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,100}")
_QUERY: Final = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@/%-]*")
_HOST: Final = re.compile(r"[0-9a-z._-]{1,253}|[0-9a-f:.]{2,45}")
_MODERATOR: Final = re.compile(r"local|(openai|webhook):https?://[^\s,]+")

_BOUNDS: Final = StreamBounds()
_LIMITS: Final = ActiveLimits()


class Group(StrEnum):
    """Headings of docs/settings.md, in their order."""

    DATABASE = "Database"
    SECRETS = "Encryption of service tokens"
    SERVER = "Server"
    IDENTITY = "Who is calling"
    LIMITS = "Limits, quota, retention"
    UPSTREAM = "Upstream"
    RUNS = "Runs"
    MODERATION = "Moderation"


@dataclass(frozen=True, slots=True)
class Fault:
    """One mistake: the variable and a sentence that says what to do. Never a value."""

    name: str
    sentence: str


class SettingsInvalid(Exception):
    """The settings have faults, all of them listed; nothing was started. Safe to print."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(sorted(faults, key=lambda fault: fault.name))
        super().__init__("\n".join(f"{fault.name}: {fault.sentence}" for fault in self.faults))


def _setting(name: str, group: Group, meaning: str, default: object = None, shown: str | None = None) -> Any:
    """A field whose one outside name is `name`. `shown` replaces the default in the docs."""
    extra: dict[str, Any] = {"group": group.value, "shown": shown}
    return Field(default=default, validation_alias=name, description=meaning, json_schema_extra=extra)


def _words(value: object) -> object:
    """Comma-separated text as a tuple of its trimmed, non-empty parts."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def _decoded_key(text: str) -> bytes:
    try:
        key = base64.b64decode(text.strip().replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise ValueError(f"each key is {KEY_BYTES} bytes in base64 (`openssl rand -base64 {KEY_BYTES}` makes one)")
    return key


def _is_key(value: SecretStr | None) -> SecretStr | None:
    if value is not None:
        _decoded_key(value.get_secret_value())
    return value


def _are_keys(value: SecretStr | None) -> SecretStr | None:
    for part in value.get_secret_value().split(",") if value is not None else ():
        if part.strip():
            _decoded_key(part)
    return value


def _is_jwt_key(value: SecretStr | None) -> SecretStr | None:
    if value is None:
        return value
    if not is_storable(value.get_secret_value()):
        raise ValueError("this is not UTF-8 text")
    if value.get_secret_value().startswith("-----BEGIN"):
        raise ValueError("this is a key pair's key; the HMAC key is a shared secret. For public keys set GATEWAY_JWKS_URL")
    if len(value.get_secret_value().encode("utf-8")) < MIN_JWT_KEY_BYTES:
        raise ValueError(f"the HMAC key has at least {MIN_JWT_KEY_BYTES} bytes (`openssl rand -base64 {MIN_JWT_KEY_BYTES}` makes one)")
    return value


def _is_database_url(value: SecretStr | None) -> SecretStr | None:
    if value is not None and not value.get_secret_value().startswith(("postgresql://", "postgres://")):
        raise ValueError("this is a connection URL that begins with postgresql://")
    if value is not None and not is_connection_url(value.get_secret_value()):
        raise ValueError("this URL cannot be read: it is postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with %XX for / @ : [ ] in a part")
    return value


def _are_origins(value: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_origin(text) for text in value)


def _origin(text: str) -> str:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    rebuilt = f"{parts.scheme}://{parts.netloc}"
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or text.lower() != rebuilt.lower():
        raise ValueError("each origin is scheme://host or scheme://host:port, with nothing after it, as a browser sends it")
    default_port = {"http": 80, "https": 443}[parts.scheme]
    return rebuilt.lower().removesuffix(f":{default_port}") if port == default_port else rebuilt.lower()


def _are_hosts(value: tuple[str, ...]) -> tuple[str, ...]:
    hosts = tuple(host.lower().removeprefix("[").removesuffix("]") for host in value)
    if not all(_HOST.fullmatch(host) for host in hosts):
        raise ValueError("these are host names or addresses, comma-separated, without scheme, port or wildcard")
    return hosts


def _is_key_set_url(text: str, trusted_hosts: Collection[str]) -> bool:
    """A base URL as providers have it, and a query, which some identity providers name a policy in."""
    address, _, query = text.partition("?")
    try:
        normalise_base_url(address, trusted_hosts)
    except Refused:
        return False
    return _QUERY.fullmatch(query) is not None


def _is_zone(value: str) -> str:
    if value == "UTC":  # known everywhere; the zone database may be missing from a small image
        return value
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError("this is no zone of the IANA zone database; write one like Europe/Berlin") from None
    return value


def _is_otlp_endpoint(value: str | None) -> str | None:
    parts = urlsplit(value or "http://unset")
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError("this is http(s)://host[:port][/path], without a password; OTEL_EXPORTER_OTLP_HEADERS may carry one")
    return value


def _is_cookie_name(value: str | None) -> str | None:
    if value is not None and not _COOKIE_NAME.fullmatch(value):
        raise ValueError("this is not a cookie name")
    return value


def _is_chain(value: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if value == ("none",):
        return ()
    if value is not None and not (value and all(_MODERATOR.fullmatch(moderator) for moderator in value)):
        raise ValueError("this is none, or a comma-separated list of local, openai:URL, webhook:URL")
    return value


Positive = Annotated[int, Field(gt=0, le=_LARGEST)]
Seconds = Annotated[float, Field(gt=0, le=_LONGEST_SECONDS, allow_inf_nan=False)]
SecondsOrNone = Annotated[float, Field(ge=0, le=_LONGEST_SECONDS, allow_inf_nan=False)]
"""Seconds of which zero is an honest amount."""
Days = Annotated[int, Field(gt=0, le=_MOST_DAYS)]
Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
DatabaseUrl = Annotated[SecretStr | None, AfterValidator(_is_database_url)]
ClaimName = Annotated[str, Field(min_length=1, max_length=100)]


class Settings(BaseSettings):
    """All settings, frozen. Made by `load_settings`; constructing it directly takes field names and reads nothing from outside."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", populate_by_name=True, hide_input_in_errors=True)

    database_url: DatabaseUrl = _setting(
        "DATABASE_URL", Group.DATABASE, "PostgreSQL connection URL. `demo` starts an embedded server without it; `serve` refuses to start"
    )
    database_direct_url: DatabaseUrl = _setting(
        "GATEWAY_DATABASE_DIRECT_URL", Group.DATABASE, "connection URL for migrations, when DATABASE_URL leads through a pooler"
    )
    database_pool_max: Positive = _setting("GATEWAY_DATABASE_POOL_MAX", Group.DATABASE, "connections of one replica", 10)

    encryption_key: Annotated[SecretStr | None, AfterValidator(_is_key)] = _setting(
        "API_ENCRYPTION_KEY", Group.SECRETS, "32 bytes in base64: encrypts service tokens. `serve` refuses to start without it"
    )
    encryption_keys_previous: Annotated[SecretStr | None, AfterValidator(_are_keys)] = _setting(
        "API_ENCRYPTION_KEYS_PREVIOUS", Group.SECRETS, "more such keys, comma-separated, that may only decrypt"
    )

    host: str = _setting("GATEWAY_HOST", Group.SERVER, "address to listen on", "127.0.0.1")
    port: Annotated[int, Field(ge=0, le=65535)] = _setting("GATEWAY_PORT", Group.SERVER, "port to listen on; 0 takes a free one", 8080)
    pages: bool = _setting("GATEWAY_PAGES", Group.SERVER, "whether the pages `/` and `/operator` are served: on or off", True, "on")
    browser_heartbeat_seconds: Seconds = _setting(
        "GATEWAY_BROWSER_HEARTBEAT_SECONDS", Group.SERVER, "time between the comment lines of a quiet stream to a browser", 15.0
    )
    drain_delay_seconds: SecondsOrNone = _setting(
        "GATEWAY_DRAIN_DELAY_SECONDS", Group.SERVER, "how long to listen on while not ready, after SIGTERM", 5.0
    )
    drain_seconds: SecondsOrNone = _setting("GATEWAY_DRAIN_SECONDS", Group.SERVER, "how long running streams may go on after that", 60.0)

    jwt_key: Annotated[SecretStr | None, AfterValidator(_is_jwt_key)] = _setting(
        "GATEWAY_JWT_KEY", Group.IDENTITY, "HMAC key (HS256) of bearer tokens: the UTF-8 bytes of this text, at least 32"
    )
    jwks_url: str | None = _setting(
        "GATEWAY_JWKS_URL", Group.IDENTITY, "address of your identity provider's key set (JWKS), instead of GATEWAY_JWT_KEY"
    )
    jwt_issuer: str | None = _setting(
        "GATEWAY_JWT_ISSUER", Group.IDENTITY, "the `iss` that a token must have; needed with a key set", None, "not checked"
    )
    jwt_audience: str | None = _setting(
        "GATEWAY_JWT_AUDIENCE", Group.IDENTITY, "the `aud` that a token must have; needed with a key set", None, "not checked"
    )
    jwt_leeway_seconds: SecondsOrNone = _setting(
        "GATEWAY_JWT_LEEWAY_SECONDS", Group.IDENTITY, "allowed difference of clocks for `exp`, `nbf` and `iat`", 30.0
    )
    jwt_subject_claim: ClaimName = _setting("GATEWAY_JWT_SUBJECT_CLAIM", Group.IDENTITY, "claim that names the user", "sub")
    jwt_groups_claim: ClaimName = _setting("GATEWAY_JWT_GROUPS_CLAIM", Group.IDENTITY, "claim that lists the user's groups", "groups")
    jwt_roles_claim: ClaimName = _setting("GATEWAY_JWT_ROLES_CLAIM", Group.IDENTITY, "claim that lists the user's roles", "roles")
    session_cookie: Annotated[str | None, AfterValidator(_is_cookie_name)] = _setting(
        "GATEWAY_SESSION_COOKIE", Group.IDENTITY, "name of the cookie that may carry the token", None, "no cookie is read"
    )
    allowed_origins: Annotated[Words, AfterValidator(_are_origins)] = _setting(
        "GATEWAY_ALLOWED_ORIGINS", Group.IDENTITY, "comma-separated origins that may use unsafe methods with the cookie", (), "none"
    )
    otlp_endpoint: Annotated[str | None, AfterValidator(_is_otlp_endpoint)] = _setting(
        "GATEWAY_OTLP_ENDPOINT", Group.SERVER, "base URL of an OpenTelemetry collector (OTLP over HTTP) for traces; needs the extra `otel`"
    )
    accounts: Literal["auto", "known"] = _setting(
        "GATEWAY_ACCOUNTS",
        Group.IDENTITY,
        "`auto` creates an active account at the first valid token; with `known` only accounts that operators made may enter",
        "auto",
    )

    max_active_per_user: Positive = _setting(
        "AGENT_MAX_ACTIVE_PER_USER", Group.LIMITS, "runs of one user that may be active at once", _LIMITS.per_user
    )
    max_active_per_app: Positive = _setting(
        "AGENT_MAX_ACTIVE_PER_APP", Group.LIMITS, "runs of one application that may be active at once", _LIMITS.per_application
    )
    quota_zone: Annotated[str, AfterValidator(_is_zone)] = _setting(
        "GATEWAY_QUOTA_ZONE", Group.LIMITS, "time zone of calendar windows", "UTC"
    )
    retention_deleted_days: Days | None = _setting(
        "GATEWAY_RETENTION_DELETED_DAYS", Group.LIMITS, "days to keep what was said in conversations that users deleted", None, "kept"
    )
    retention_evidence_days: Days | None = _setting(
        "GATEWAY_RETENTION_EVIDENCE_DAYS",
        Group.LIMITS,
        "days to keep the evidence of runs that are over, and moderators' verdicts",
        None,
        "kept",
    )
    retention_audit_days: Annotated[int, Field(ge=30, le=_MOST_DAYS)] | None = _setting(
        "GATEWAY_RETENTION_AUDIT_DAYS", Group.LIMITS, "days to keep the audit trail, 30 at least", None, "kept"
    )

    trusted_upstream_hosts: Annotated[Words, AfterValidator(_are_hosts)] = _setting(
        "GATEWAY_TRUSTED_UPSTREAM_HOSTS",
        Group.UPSTREAM,
        "comma-separated hosts for which plain HTTP and private addresses are allowed",
        (),
        "none",
    )
    connect_seconds: Seconds = _setting(
        "GATEWAY_CONNECT_SECONDS", Group.UPSTREAM, "time to connect to an upstream", _BOUNDS.connect_seconds
    )
    stream_idle_seconds: Seconds = _setting(
        "GATEWAY_STREAM_IDLE_SECONDS", Group.UPSTREAM, "longest silence of a stream; comments do not end it", _BOUNDS.idle_seconds
    )
    stream_total_seconds: Seconds = _setting(
        "GATEWAY_STREAM_TOTAL_SECONDS", Group.UPSTREAM, "longest duration of a stream", _BOUNDS.total_seconds
    )
    max_frame_bytes: Positive = _setting("GATEWAY_MAX_FRAME_BYTES", Group.UPSTREAM, "largest frame of a stream", _BOUNDS.frame_bytes)
    max_kept_frame_bytes: Positive = _setting(
        "GATEWAY_MAX_KEPT_FRAME_BYTES", Group.UPSTREAM, "largest frame whose content is kept", _BOUNDS.kept_frame_bytes
    )
    max_stream_bytes: Positive = _setting("GATEWAY_MAX_STREAM_BYTES", Group.UPSTREAM, "all bytes of a stream", _BOUNDS.stream_bytes)
    max_events: Positive = _setting("GATEWAY_MAX_EVENTS", Group.UPSTREAM, "events of a stream", _BOUNDS.events)
    max_text_bytes: Positive = _setting("GATEWAY_MAX_TEXT_BYTES", Group.UPSTREAM, "visible text of a run", _BOUNDS.text_bytes)
    max_messages: Positive = _setting("GATEWAY_MAX_MESSAGES", Group.UPSTREAM, "messages of a run", _BOUNDS.messages)
    max_tools: Positive = _setting("GATEWAY_MAX_TOOLS", Group.UPSTREAM, "tool steps of a run", _BOUNDS.tools)

    lease_seconds: Seconds = _setting("GATEWAY_LEASE_SECONDS", Group.RUNS, "how long a run belongs to a replica that is not heard of", 30.0)
    heartbeat_seconds: Seconds = _setting(
        "GATEWAY_HEARTBEAT_SECONDS", Group.RUNS, "period of renewing leases; at most a sixth of the lease", 5.0
    )
    send_window_seconds: Seconds = _setting(
        "GATEWAY_SEND_WINDOW_SECONDS", Group.RUNS, "time from fence to first byte; at most half the lease", 5.0
    )
    reconcile_seconds: Seconds = _setting("GATEWAY_RECONCILE_SECONDS", Group.RUNS, "period of the reconciler", 5.0)
    lookup_first_seconds: Seconds = _setting("GATEWAY_LOOKUP_FIRST_SECONDS", Group.RUNS, "first delay of the backoff of look-ups", 2.0)
    lookup_max: Positive = _setting("GATEWAY_LOOKUP_MAX", Group.RUNS, "look-ups of one run before an operator is asked", 30)
    checkpoint_seconds: Seconds = _setting("GATEWAY_CHECKPOINT_SECONDS", Group.RUNS, "shortest time between checkpoints of a stream", 2.0)

    moderation: Annotated[Annotated[tuple[str, ...], BeforeValidator(_words)] | None, AfterValidator(_is_chain)] = _setting(
        "GATEWAY_MODERATION",
        Group.MODERATION,
        "the default chain: `none`, or a comma-separated list of `local`, `openai:URL`, `webhook:URL`. `serve` needs one",
    )
    moderation_deny_file: Path | None = _setting(
        "GATEWAY_MODERATION_DENY_FILE", Group.MODERATION, "file with one term, `~term` (leet too) or `/pattern/` a line, for `local`"
    )
    moderation_secrets: Literal["refuse", "allow"] = _setting(
        "GATEWAY_MODERATION_SECRETS",
        Group.MODERATION,
        "whether `local` refuses keys, tokens and card numbers: `refuse` or `allow`",
        "refuse",
    )
    moderation_seconds: Seconds = _setting("GATEWAY_MODERATION_SECONDS", Group.MODERATION, "time for one moderator", 5.0)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # load_settings reads environment and files itself: the library's sources cannot do `*_FILE`, nor report each fault by its variable.
        return (init_settings,)

    @property
    def bounds(self) -> StreamBounds:
        """What one upstream stream may cost."""
        return StreamBounds(
            frame_bytes=self.max_frame_bytes,
            kept_frame_bytes=self.max_kept_frame_bytes,
            stream_bytes=self.max_stream_bytes,
            events=self.max_events,
            text_bytes=self.max_text_bytes,
            messages=self.max_messages,
            tools=self.max_tools,
            connect_seconds=self.connect_seconds,
            idle_seconds=self.stream_idle_seconds,
            total_seconds=self.stream_total_seconds,
        )

    @property
    def resolution_gate_seconds(self) -> float:
        """How long after its fence a POST may still be on its way (design.md "From request to POST" 5)."""
        return self.send_window_seconds + self.stream_total_seconds

    @property
    def active_limits(self) -> ActiveLimits:
        """How many runs may hold a slot at once."""
        return ActiveLimits(per_user=self.max_active_per_user, per_application=self.max_active_per_app)

    @property
    def encryption_keys(self) -> tuple[bytes, ...]:
        """The key ring, the encrypting key first; empty when no key is set."""
        if self.encryption_key is None:
            return ()
        texts = [self.encryption_key.get_secret_value()]
        if self.encryption_keys_previous is not None:
            texts += [part for part in self.encryption_keys_previous.get_secret_value().split(",") if part.strip()]
        return tuple(_decoded_key(text) for text in texts)


@dataclass(frozen=True, slots=True)
class SettingDoc:
    """One row of docs/settings.md. `secret`: it may also be given as `<name>_FILE`."""

    name: str
    group: Group
    meaning: str
    default: str
    secret: bool


def setting_docs() -> tuple[SettingDoc, ...]:
    """Every setting of a server, in the order of the class."""
    return tuple(_doc(field) for field in Settings.model_fields.values())


def load_settings(
    environ: Mapping[str, str], *, serving: bool = False, also: Callable[[Settings], Iterable[Fault]] = lambda _: ()
) -> Settings:
    """Read and check all settings. `serving`: also what only a server needs must be there. `also`: finds what only trying can find.

    A variable wins over a file of that name in the secrets directory; an empty value counts as unset. Raises SettingsInvalid with every
    fault at once.
    """
    values, faults = _read(environ)
    faulty = {fault.name for fault in faults}
    try:
        settings = Settings.model_validate(values)
    except ValidationError as invalid:
        found = {str(error["loc"][0]): error["msg"] for error in invalid.errors(include_input=False, include_url=False)}
        faults += [Fault(name, _sentence(name, message, values[name])) for name, message in found.items()]
        faulty |= found.keys()
        # The rest must still be checked against each other, so that one start shows everything.
        settings = Settings.model_validate({name: value for name, value in values.items() if name not in found})
    for rule in _RULES + (_SERVING_RULES if serving else ()):
        if not faulty.intersection(rule.about) and not rule.holds(settings):
            faults.append(Fault(rule.about[0], rule.sentence))
    told = {fault.name for fault in faults}
    faults += [fault for fault in also(settings) if fault.name not in told]
    if faults:
        raise SettingsInvalid(faults)
    return settings


@dataclass(frozen=True, slots=True)
class _Rule:
    about: tuple[str, ...]
    holds: Callable[[Settings], bool]
    sentence: str


_RULES: Final = (
    _Rule(
        ("GATEWAY_SEND_WINDOW_SECONDS", "GATEWAY_LEASE_SECONDS"),
        lambda s: s.send_window_seconds <= s.lease_seconds / 2,
        "it must be at most half of GATEWAY_LEASE_SECONDS.",
    ),
    _Rule(
        ("GATEWAY_HEARTBEAT_SECONDS", "GATEWAY_LEASE_SECONDS"),
        lambda s: s.heartbeat_seconds <= s.lease_seconds / 6,
        "it must be at most a sixth of GATEWAY_LEASE_SECONDS, so that an outage of the database between two beats loses no run.",
    ),
    _Rule(
        ("GATEWAY_STREAM_IDLE_SECONDS", "GATEWAY_STREAM_TOTAL_SECONDS"),
        lambda s: s.stream_idle_seconds <= s.stream_total_seconds,
        "it must be at most GATEWAY_STREAM_TOTAL_SECONDS.",
    ),
    _Rule(
        ("GATEWAY_MAX_KEPT_FRAME_BYTES", "GATEWAY_MAX_FRAME_BYTES"),
        lambda s: s.max_kept_frame_bytes <= s.max_frame_bytes,
        "it must be at most GATEWAY_MAX_FRAME_BYTES.",
    ),
    _Rule(
        ("GATEWAY_MAX_FRAME_BYTES", "GATEWAY_MAX_STREAM_BYTES"),
        lambda s: s.max_frame_bytes <= s.max_stream_bytes,
        "it must be at most GATEWAY_MAX_STREAM_BYTES.",
    ),
    _Rule(
        ("GATEWAY_JWT_KEY", "GATEWAY_JWKS_URL"),
        lambda s: s.jwt_key is None or s.jwks_url is None,
        "set either this or GATEWAY_JWKS_URL, not both.",
    ),
    _Rule(
        ("GATEWAY_JWKS_URL", "GATEWAY_TRUSTED_UPSTREAM_HOSTS"),
        lambda s: s.jwks_url is None or _is_key_set_url(s.jwks_url, s.trusted_upstream_hosts),
        "it must be an https:// address without user name and fragment; plain HTTP and private addresses are only for hosts that"
        " GATEWAY_TRUSTED_UPSTREAM_HOSTS names.",
    ),
    _Rule(
        ("API_ENCRYPTION_KEYS_PREVIOUS", "API_ENCRYPTION_KEY"),
        lambda s: s.encryption_keys_previous is None or s.encryption_key is not None,
        "previous keys can only decrypt; API_ENCRYPTION_KEY must be set as well.",
    ),
)
_SERVING_RULES: Final = (
    _Rule(("DATABASE_URL",), lambda s: s.database_url is not None, "it must be set: the gateway keeps everything in PostgreSQL."),
    _Rule(
        ("API_ENCRYPTION_KEY",),
        lambda s: s.encryption_key is not None,
        f"it must be set: service tokens are encrypted with it (`openssl rand -base64 {KEY_BYTES}` makes one).",
    ),
    _Rule(
        ("GATEWAY_MODERATION",),
        lambda s: s.moderation is not None,
        "it must be set: name the moderators, or write none to serve without moderation.",
    ),
    _Rule(
        ("GATEWAY_JWT_KEY", "GATEWAY_JWKS_URL"),
        lambda s: s.jwt_key is not None or s.jwks_url is not None,
        "it must be set: callers are known by tokens signed with it.",
    ),
    _Rule(
        ("GATEWAY_JWT_ISSUER", "GATEWAY_JWKS_URL"),
        lambda s: s.jwks_url is None or bool(s.jwt_issuer),
        "it must be set with GATEWAY_JWKS_URL: one key set may serve several issuers.",
    ),
    _Rule(
        ("GATEWAY_JWT_AUDIENCE", "GATEWAY_JWKS_URL"),
        lambda s: s.jwks_url is None or bool(s.jwt_audience),
        "it must be set with GATEWAY_JWKS_URL: else a token that was made for another application would enter here.",
    ),
)


def _fields() -> Mapping[str, FieldInfo]:
    return {str(field.validation_alias): field for field in Settings.model_fields.values()}


def _is_secret(field: FieldInfo) -> bool:
    return "SecretStr" in str(field.annotation)


def _read(environ: Mapping[str, str]) -> tuple[dict[str, str], list[Fault]]:
    """The set values by variable name, and the faults of reading them."""
    values: dict[str, str] = {}
    faults: list[Fault] = []
    fields = _fields()
    file_names = {f"{name}_FILE": name for name, field in fields.items() if _is_secret(field)}
    values |= _from_directory(environ.get(SECRETS_DIR, "").strip(), fields, faults)
    for file_name, name in file_names.items():
        path = environ.get(file_name, "").strip()
        if path and environ.get(name, "").strip():
            faults.append(Fault(file_name, f"set either this or {name}, not both."))
        elif path:
            _read_file(Path(path), file_name, name, values, faults)
    values |= {name: environ[name].strip() for name in fields if environ.get(name, "").strip()}
    known = {*fields, *file_names, *CLIENT_NAMES, SECRETS_DIR}
    faults += [_unknown(name, known) for name in environ if _looks_like_ours(name) and name not in known]
    return values, faults


def _from_directory(folder: str, fields: Mapping[str, FieldInfo], faults: list[Fault]) -> dict[str, str]:
    found: dict[str, str] = {}
    if not folder:
        return found
    if not Path(folder).is_dir():
        faults.append(Fault(SECRETS_DIR, "there is no such directory."))
    for name in fields:
        if (Path(folder) / name).is_file():
            _read_file(Path(folder) / name, name, name, found, faults)
    return found


def _read_file(path: Path, source: str, name: str, values: dict[str, str], faults: list[Fault]) -> None:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        # Not the path: the secret itself may stand where its file was asked for.
        faults.append(Fault(source, f"the file cannot be read ({getattr(error, 'strerror', None) or 'not UTF-8 text'})."))
        return
    if text:
        values[name] = text
    elif source != name:
        faults.append(Fault(source, "the file is empty."))


def _looks_like_ours(name: str) -> bool:
    return name.startswith(_OUR_PREFIXES) and not name.startswith(_TEST_PREFIX) and not _SERVICE_LINK.fullmatch(name)


def _unknown(name: str, known: Iterable[str]) -> Fault:
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.8)
    return Fault(name, f"there is no such setting{f'; is {near[0]} meant?' if near else '. docs/settings.md lists them all.'}")


def _sentence(name: str, message: str, value: str) -> str:
    if name == "GATEWAY_PORT" and "://" in value:
        return "this is a service link of Kubernetes, not a port; set enableServiceLinks: false, or set the variable."
    text = message.removeprefix("Value error, ").replace("Input should be", "it should be", 1)
    return text if text.endswith((".", "?")) else f"{text}."


def _doc(field: FieldInfo) -> SettingDoc:
    extra = field.json_schema_extra
    assert isinstance(extra, dict)
    shown, default = extra["shown"], field.default
    if not isinstance(shown, str):
        shown = "unset" if default is None else f"{default:g}" if isinstance(default, float) else str(default)
    return SettingDoc(str(field.validation_alias), Group(str(extra["group"])), str(field.description), shown, _is_secret(field))
