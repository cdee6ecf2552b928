"""Where an application's agent service is and how we may call it: base URL, assistant, service token. One frozen read of a configuration.

Not here: who may configure which host (bindings), encryption of the token (bindings.vault), requests.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import quote, urlsplit

MAX_TOKEN_CHARACTERS: Final = 4096
"""Fits one header line of any common server (8 KiB) beside its name and scheme."""

_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,4096}")
_HOST: Final = re.compile(r"[A-Za-z0-9._:-]{1,253}")
_PATH: Final = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class EndpointFault(StrEnum):
    """Why an endpoint cannot be used: faults of the configuration, found before anything is sent. None carries a value."""

    BASE_URL = "base_url"
    """Not http(s)://host[:port][/path]: a relative URL, credentials, a query, a fragment, characters that need encoding (contract A1)."""
    ASSISTANT_ID = "assistant_id"
    """Empty."""
    TOKEN = "token"
    """Empty, longer than MAX_TOKEN_CHARACTERS, or anything but visible ASCII: a newline from a secret file, a space, an umlaut (O-34)."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Scheme, host and port of an endpoint; `host` without brackets."""

    tls: bool
    host: str
    port: int

    @property
    def host_header(self) -> str:
        """The Host header: the port only where it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS["https" if self.tls else "http"] else f"{host}:{self.port}"


class ServiceToken:
    """A bearer token whose text shows in no repr, no str and no pickle. Make it through `endpoint_of`."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        if _TOKEN.fullmatch(text) is None:
            raise ValueError("a service token is 1 to 4096 visible ASCII characters")
        self._text = text

    def authorization(self) -> str:
        """The value of the Authorization header (contract B1)."""
        return f"Bearer {self._text}"

    def __repr__(self) -> str:
        return "ServiceToken(hidden)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ServiceToken) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> str:
        raise TypeError("a service token is not written anywhere")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One usable endpoint; only `endpoint_of` makes it."""

    base_url: str
    """Without a trailing slash: real servers answer 307 to a doubled one."""
    assistant_id: str
    token: ServiceToken
    origin: Origin
    base_path: str

    @property
    def authorization(self) -> str:
        """The value of the Authorization header (contract B1). Hand it to a transport and to nothing else."""
        return self.token.authorization()

    def url(self, path: str) -> str:
        """The absolute URL of `path`, which starts with a slash and is percent-encoded."""
        return self.base_url + path


def endpoint_of(*, base_url: str, assistant_id: str, token: str) -> Endpoint | EndpointFault:
    """The endpoint of one read of the configuration, or the first fault in it. Never raises, never quotes what it was given."""
    located = _located(base_url)
    if located is None:
        return EndpointFault.BASE_URL
    if not assistant_id:
        return EndpointFault.ASSISTANT_ID
    if _TOKEN.fullmatch(token) is None:
        return EndpointFault.TOKEN
    origin, base_path = located
    scheme = "https" if origin.tls else "http"
    return Endpoint(
        base_url=f"{scheme}://{origin.host_header}{base_path}",
        assistant_id=assistant_id,
        token=ServiceToken(token),
        origin=origin,
        base_path=base_path,
    )


def _located(base_url: str) -> tuple[Origin, str] | None:
    try:
        parts = urlsplit(base_url)
        port = parts.port
    except ValueError:
        return None
    # urlsplit drops tabs and newlines silently; a "?" or "#" with nothing behind it leaves no trace in the parts either.
    if not base_url.isascii() or not base_url.isprintable() or "?" in base_url or "#" in base_url:
        return None
    if parts.scheme not in _DEFAULT_PORTS or "@" in parts.netloc or parts.hostname is None:
        return None
    if _HOST.fullmatch(parts.hostname) is None or _PATH.fullmatch(parts.path) is None or port == 0:
        return None
    tls = parts.scheme == "https"
    return Origin(tls=tls, host=parts.hostname, port=port or _DEFAULT_PORTS[parts.scheme]), parts.path.rstrip("/")


def path_segment(opaque_id: str) -> str | None:
    """An id of upstream's as one path segment; None for the two ids that every URL library reads as a step in the path."""
    return None if opaque_id in {".", ".."} else quote(opaque_id, safe="")
