"""The vault: service tokens encrypted at rest (contract A4), and what a service token may be.

Each token has a key of its own, which encrypts it with AES-256-GCM; that key is wrapped (AES-KW, RFC 3394) by a key of the ring. So a new
ring key, or a key service that never gives its key away, only means wrapping again. The associated data bind a ciphertext to its
application, purpose and format: a row copied to another application does not open.

Envelope, version 1: 1 byte version, 40 bytes wrapped key, 12 bytes nonce, ciphertext with its 16-byte tag. Version 2, for wrapped keys of
another length, as key services make them: 1 byte version, 2 bytes length of the wrapped key, the rest as in 1. Beside it: the key's id.
"""

import hashlib
import os
import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple, Protocol, Self
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap, aes_key_wrap

from gateway.domain.faults import invalid
from gateway.upstream.endpoint import MAX_TOKEN_CHARACTERS

PURPOSE: Final = b"service-token"
KEY_BYTES: Final = 32

_SEALED_FORM: Final = 1
"""The form of what is sealed, bound in as associated data; an envelope's version says only how long its wrapped key is."""
_WRAPPED_BYTES: Final = KEY_BYTES + 8
_LENGTH_BYTES: Final = 2
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_TOKEN: Final = re.compile(rf"[\x21-\x7e]{{1,{MAX_TOKEN_CHARACTERS}}}")


class TokenFault(StrEnum):
    """Why there is no token to use: none is stored, its key is not in the ring, or the bytes are not what was sealed for this owner."""

    NONE = "none"
    NO_KEY = "no_key"
    DAMAGED = "damaged"


class TokenUnreadable(Exception):
    """A stored token does not open. It has no text; `fault` and the ring key's id are safe to show to an operator."""

    def __init__(self, fault: TokenFault, key_id: str) -> None:
        super().__init__()
        self.fault = fault
        self.key_id = key_id


class KeyWrapper(Protocol):
    """Wraps the keys of single tokens: a local ring, or a key service that holds the root key. Never called inside a transaction.

    A key service keeps what it unwrapped for a while in memory: a token is opened for each run, and for each look at an application.
    """

    @property
    def key_ids(self) -> tuple[str, ...]:
        """The ids of all keys that unwrap, first the one that wraps. Not secret: replicas compare them through the database."""
        ...

    async def wrap(self, key: bytes) -> bytes:
        """`key` (32 bytes) wrapped by the first key: at most 65535 bytes."""
        ...

    async def unwrap(self, wrapped: bytes, key_id: str) -> bytes:
        """The inverse. Raises TokenUnreadable."""
        ...


class KeyRing:
    """Keys from the settings: the first wraps, all unwrap."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys or any(len(key) != KEY_BYTES for key in keys):
            raise ValueError(f"a key ring has at least one key, and keys have {KEY_BYTES} bytes")
        self._keys = {key_id(key): key for key in keys}

    @property
    def key_ids(self) -> tuple[str, ...]:
        """See KeyWrapper."""
        return tuple(self._keys)

    async def wrap(self, key: bytes) -> bytes:
        """See KeyWrapper."""
        return aes_key_wrap(next(iter(self._keys.values())), key)

    async def unwrap(self, wrapped: bytes, key_id: str) -> bytes:
        """See KeyWrapper."""
        ring_key = self._keys.get(key_id)
        if ring_key is None:
            raise TokenUnreadable(TokenFault.NO_KEY, key_id)
        try:
            return aes_key_unwrap(ring_key, wrapped)
        except (InvalidUnwrap, ValueError):
            raise TokenUnreadable(TokenFault.DAMAGED, key_id) from None


class _Envelope(NamedTuple):
    """The parts of a stored token."""

    wrapped: bytes
    nonce: bytes
    sealed: bytes

    @classmethod
    def read(cls, raw: bytes, key_id: str) -> Self:
        """The parts of `raw`. Raises TokenUnreadable."""
        head, length = 1, _WRAPPED_BYTES
        if raw[:1] == b"\x02":
            head += _LENGTH_BYTES
            length = int.from_bytes(raw[1:head], "big")
        nonce_at = head + length
        sealed_at = nonce_at + _NONCE_BYTES
        if raw[:1] not in (b"\x01", b"\x02") or len(raw) <= sealed_at + _TAG_BYTES:
            raise TokenUnreadable(TokenFault.DAMAGED, key_id)
        return cls(raw[head:nonce_at], raw[nonce_at:sealed_at], raw[sealed_at:])

    def written(self) -> bytes:
        head = b"\x01" if len(self.wrapped) == _WRAPPED_BYTES else b"\x02" + len(self.wrapped).to_bytes(_LENGTH_BYTES, "big")
        return head + self.wrapped + self.nonce + self.sealed


class Vault:
    """Seals and opens tokens. Holds no token. `owner_id`: the application, or whatever else a token belongs to and opens for alone."""

    def __init__(self, wrapper: KeyWrapper) -> None:
        self._wrapper = wrapper

    @property
    def key_ids(self) -> tuple[str, ...]:
        """See KeyWrapper."""
        return self._wrapper.key_ids

    async def seal(self, owner_id: UUID, token: str) -> tuple[bytes, str]:
        """The envelope of `token`, which opens for this owner only, and the id of the ring key."""
        key, nonce = AESGCM.generate_key(KEY_BYTES * 8), os.urandom(_NONCE_BYTES)
        sealed = AESGCM(key).encrypt(nonce, token.encode("ascii"), _associated(owner_id))
        return await self._wrapped(key, nonce, sealed)

    async def open(self, owner_id: UUID, envelope: bytes, key_id: str) -> str:
        """The token. Raises TokenUnreadable: its key is not in the ring, or the bytes are not what was sealed for this owner."""
        _, token = await self._opened(owner_id, _Envelope.read(envelope, key_id), key_id)
        return token

    async def rewrap(self, owner_id: UUID, envelope: bytes, key_id: str) -> tuple[bytes, str]:
        """The same token under the newest key of the ring. Raises TokenUnreadable, as for what does not open nothing is worth keeping."""
        parts = _Envelope.read(envelope, key_id)
        key, _ = await self._opened(owner_id, parts, key_id)
        return await self._wrapped(key, parts.nonce, parts.sealed)

    async def fault(self, owner_id: UUID, envelope: bytes | None, key_id: str | None) -> TokenFault | None:
        """Why a stored token cannot be used; None when it opens (some microseconds with a local ring)."""
        if envelope is None or key_id is None:
            return TokenFault.NONE
        try:
            await self.open(owner_id, envelope, key_id)
        except TokenUnreadable as unreadable:
            return unreadable.fault
        return None

    async def _wrapped(self, key: bytes, nonce: bytes, sealed: bytes) -> tuple[bytes, str]:
        return _Envelope(await self._wrapper.wrap(key), nonce, sealed).written(), self._wrapper.key_ids[0]

    async def _opened(self, owner_id: UUID, parts: _Envelope, key_id: str) -> tuple[bytes, str]:
        key = await self._wrapper.unwrap(parts.wrapped, key_id)
        try:
            return key, AESGCM(key).decrypt(parts.nonce, parts.sealed, _associated(owner_id)).decode("ascii")
        except (InvalidTag, ValueError):
            raise TokenUnreadable(TokenFault.DAMAGED, key_id) from None


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


def _associated(owner_id: UUID) -> bytes:
    return PURPOSE + bytes([_SEALED_FORM]) + owner_id.bytes
