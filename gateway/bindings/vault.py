"""The vault: service tokens encrypted at rest (contract A4), and what a service token may be.

Each token has a key of its own, which encrypts it with AES-256-GCM; that key is wrapped (AES-KW, RFC 3394) by a key of the ring. So a new
ring key, or a key service that never gives its key away, only means wrapping again. The associated data bind a ciphertext to its
application, purpose and format: a row copied to another application does not open.

Envelope, version 1: 1 byte version, 40 bytes wrapped key, 12 bytes nonce, ciphertext with its 16-byte tag. Beside it: the ring key's id.
"""

import hashlib
import os
import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, Protocol
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap, aes_key_wrap

from gateway.bindings.faults import invalid
from gateway.upstream.endpoint import MAX_TOKEN_CHARACTERS

VERSION: Final = 1
PURPOSE: Final = b"service-token"
KEY_BYTES: Final = 32

_WRAPPED_BYTES: Final = KEY_BYTES + 8
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_HEAD_BYTES: Final = 1 + _WRAPPED_BYTES + _NONCE_BYTES
_TOKEN: Final = re.compile(rf"[\x21-\x7e]{{1,{MAX_TOKEN_CHARACTERS}}}")


class TokenFault(StrEnum):
    """Why a stored token does not open."""

    NO_KEY = "no_key"
    DAMAGED = "damaged"


class TokenUnreadable(Exception):
    """A stored token does not open. It has no text; `fault` and the ring key's id are safe to show to an operator."""

    def __init__(self, fault: TokenFault, key_id: str) -> None:
        super().__init__()
        self.fault = fault
        self.key_id = key_id


class KeyWrapper(Protocol):
    """Wraps the keys of single tokens: a local ring, or a key service."""

    @property
    def key_id(self) -> str:
        """The id of the key that wraps."""
        ...

    def wrap(self, key: bytes) -> bytes:
        """`key` (32 bytes) wrapped by the newest key: 40 bytes."""
        ...

    def unwrap(self, wrapped: bytes, key_id: str) -> bytes:
        """The inverse. Raises TokenUnreadable."""
        ...


class KeyRing:
    """Keys from the settings: the first wraps, all unwrap."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys or any(len(key) != KEY_BYTES for key in keys):
            raise ValueError(f"a key ring has at least one key, and keys have {KEY_BYTES} bytes")
        self._keys = {key_id(key): key for key in reversed(keys)}
        self._newest = keys[0]

    @property
    def key_id(self) -> str:
        """See KeyWrapper."""
        return key_id(self._newest)

    @property
    def key_ids(self) -> frozenset[str]:
        """The ids of all keys; not secret, and alike on all replicas that share the ring."""
        return frozenset(self._keys)

    def wrap(self, key: bytes) -> bytes:
        """See KeyWrapper."""
        return aes_key_wrap(self._newest, key)

    def unwrap(self, wrapped: bytes, key_id: str) -> bytes:
        """See KeyWrapper."""
        ring_key = self._keys.get(key_id)
        if ring_key is None:
            raise TokenUnreadable(TokenFault.NO_KEY, key_id)
        try:
            return aes_key_unwrap(ring_key, wrapped)
        except InvalidUnwrap:
            raise TokenUnreadable(TokenFault.DAMAGED, key_id) from None


class Vault:
    """Seals and opens service tokens. Holds no token."""

    def __init__(self, wrapper: KeyWrapper) -> None:
        self._wrapper = wrapper

    def seal(self, application_id: UUID, token: str) -> tuple[bytes, str]:
        """The envelope of `token`, which opens for this application only, and the id of the ring key."""
        key, nonce = AESGCM.generate_key(KEY_BYTES * 8), os.urandom(_NONCE_BYTES)
        sealed = AESGCM(key).encrypt(nonce, token.encode("ascii"), _associated(application_id))
        return bytes([VERSION]) + self._wrapper.wrap(key) + nonce + sealed, self._wrapper.key_id

    def open(self, application_id: UUID, envelope: bytes, key_id: str) -> str:
        """The token. Raises TokenUnreadable: its key is not in the ring, or the bytes are not what was sealed for this application."""
        if len(envelope) <= _HEAD_BYTES + _TAG_BYTES or envelope[0] != VERSION:
            raise TokenUnreadable(TokenFault.DAMAGED, key_id)
        wrapped, nonce, sealed = envelope[1 : 1 + _WRAPPED_BYTES], envelope[1 + _WRAPPED_BYTES : _HEAD_BYTES], envelope[_HEAD_BYTES:]
        key = self._wrapper.unwrap(wrapped, key_id)
        try:
            return AESGCM(key).decrypt(nonce, sealed, _associated(application_id)).decode("ascii")
        except (InvalidTag, ValueError):
            raise TokenUnreadable(TokenFault.DAMAGED, key_id) from None

    def can_open(self, application_id: UUID, envelope: bytes | None, key_id: str | None) -> bool:
        """Whether there is a token and it opens (some microseconds)."""
        if envelope is None or key_id is None:
            return False
        try:
            self.open(application_id, envelope, key_id)
        except TokenUnreadable:
            return False
        return True


def key_id(key: bytes) -> str:
    """The public id of a ring key: the first 8 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(key).hexdigest()[:8]


def validate_token(raw: str) -> str:
    """A service token as it is stored and sent: without outer blanks and line ends. Raises Refused(CONFIGURATION_INVALID).

    What remains is 1 to 4096 visible ASCII characters: no header can be cut in two by it, and no HTTP library refuses it with its text.
    """
    token = raw.strip(" \t\r\n")
    if not _TOKEN.fullmatch(token):
        raise invalid("token", f"It has 1 to {MAX_TOKEN_CHARACTERS} visible ASCII characters, no blank or line end inside.")
    return token


def _associated(application_id: UUID) -> bytes:
    return PURPOSE + bytes([VERSION]) + application_id.bytes
