"""Base URLs of providers (contract A1): judged and normalised once, when an operator sets them.

What lives here: the text of a URL. What does not: which addresses may be reached (`domain.addresses`), and what a name resolves to, which
only the connection knows (`http_client`, `upstream.one_post`).
"""

import re
from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from gateway.domain.addresses import Address, Reach, address_of, canonical_host, canonical_hosts, reach_of
from gateway.domain.faults import invalid

FIELD: Final = "base_url"
MAX_URL_CHARACTERS: Final = 2000
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")
_HOST_NAME: Final = re.compile(r"(?=.{1,253}\Z)([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*")
# Only what is an address stands in brackets, and nothing beside them: the library takes [::1].example for ::1, and [v1.a] for a name.
_BRACKETS: Final = re.compile(r"\[[0-9a-f:.]+\](:[0-9]*)?", re.IGNORECASE)
_PATH: Final = re.compile(r"(/[A-Za-z0-9._~!$&'()*+,;=:@-]+)*")
# Resolvers take 127.1, 0x7f000001 and 2130706433 for addresses; such a last label is read as an address or not at all.
_NUMERIC_LABEL: Final = re.compile(r"\d+|0x[0-9a-f]*")
_METADATA_NAMES: Final = frozenset({"metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal"})


def normalise_base_url(raw: str, trusted_hosts: Collection[str]) -> str:
    """The one form of a base URL: host in lower case, no default port, no trailing slash. Raises Refused(CONFIGURATION_INVALID).

    `trusted_hosts` (GATEWAY_TRUSTED_UPSTREAM_HOSTS) may use plain HTTP and private addresses; link-local and metadata addresses nobody may.
    """
    text = raw.strip(" \t\r\n")
    if not _VISIBLE.fullmatch(text) or len(text) > MAX_URL_CHARACTERS or "\\" in text:
        raise invalid(FIELD, f"It has 1 to {MAX_URL_CHARACTERS} visible ASCII characters and no backslash.")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise invalid(FIELD, "It is not a URL.") from None
    scheme = parts.scheme.lower()
    if scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise invalid(FIELD, "It begins with https://, or with http:// for a trusted host, and names a host.")
    if "@" in parts.netloc:
        raise invalid(FIELD, "It must not hold a user name or a password.")
    if "[" in parts.netloc and (not _BRACKETS.fullmatch(parts.netloc) or ":" not in parts.hostname):
        raise invalid(FIELD, "Only an IPv6 address stands in brackets, and nothing but a port after them.")
    if "?" in text or "#" in text:
        raise invalid(FIELD, "It must not hold a query or a fragment.")
    if port == 0 or parts.netloc.endswith(":"):
        raise invalid(FIELD, "Its port is a number from 1 to 65535, or is left out.")
    host, address = _judged_host(parts.hostname)
    trusted = host in canonical_hosts(trusted_hosts)
    _forbid(host, address, trusted=trusted)
    if scheme == "http" and not trusted:
        raise invalid(FIELD, "Plain HTTP is only for hosts named in GATEWAY_TRUSTED_UPSTREAM_HOSTS; use https://.")
    path = parts.path.rstrip("/")
    if not _PATH.fullmatch(path) or {".", ".."}.intersection(path.split("/")):
        raise invalid(FIELD, "Its path has plain segments only: no empty ones, no dots alone, no percent signs.")
    shown_host = f"[{host}]" if ":" in host else host
    shown_port = "" if port in (None, _DEFAULT_PORTS[scheme]) else f":{port}"
    return f"{scheme}://{shown_host}{shown_port}{path}"


def origin(base_url: str) -> str:
    """Scheme, host and port of a normalised base URL: a token is never sent to another one."""
    parts = urlsplit(base_url)
    return f"{parts.scheme}://{parts.netloc}"


def _judged_host(hostname: str) -> tuple[str, Address | None]:
    host = canonical_host(hostname)
    address = address_of(host)
    if address is not None:
        return host, address
    if not _HOST_NAME.fullmatch(host) or _NUMERIC_LABEL.fullmatch(host.rpartition(".")[2]):
        raise invalid(FIELD, "Its host is a name in ASCII, or an IP address in its usual form.")
    return host, None


def _forbid(host: str, address: Address | None, *, trusted: bool) -> None:
    if address is None:
        if host in _METADATA_NAMES:
            raise invalid(FIELD, "Metadata services are never upstreams.")
        local = host == "localhost" or host.endswith((".localhost", ".local"))
    else:
        reach = reach_of(address)
        if reach is Reach.NOBODY:
            raise invalid(FIELD, "Link-local, metadata, multicast and unspecified addresses are never upstreams.")
        local = reach is Reach.TRUSTED
    if local and not trusted:
        raise invalid(FIELD, "Private and loopback addresses are only for hosts named in GATEWAY_TRUSTED_UPSTREAM_HOSTS.")
