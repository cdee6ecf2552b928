"""Cursors of pages: opaque to clients, tied to the list that they came from. No secret: rights are in the SQL."""

import base64
import binascii
import hashlib
import struct
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from gateway.domain.problems import Code, Refused

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_SEAL_BYTES: Final = 4
"""Ties a cursor to the list it came from, so that a mix-up is refused instead of giving odd pages."""
_MOMENT: Final = struct.Struct(">q16s")


def sealed(payload: bytes, scope: str) -> str:
    """The cursor with `payload` for the list `scope`."""
    return base64.urlsafe_b64encode(payload + _seal(payload, scope)).rstrip(b"=").decode()


def opened(cursor: str, scope: str, size: int) -> bytes:
    """The payload of `size` bytes. Raises Refused(malformed_request) for what `sealed` did not make for this list."""
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise Refused(Code.MALFORMED_REQUEST) from None
    payload = raw[:-_SEAL_BYTES]
    if len(payload) != size or raw[-_SEAL_BYTES:] != _seal(payload, scope):
        raise Refused(Code.MALFORMED_REQUEST)
    return payload


def sealed_moment(at: datetime, row_id: UUID, scope: str) -> str:
    """The cursor after the row of that time and id."""
    return sealed(_MOMENT.pack((at - _EPOCH) // _MICROSECOND, row_id.bytes), scope)


def opened_moment(cursor: str, scope: str) -> tuple[datetime, UUID]:
    """The time and id of `sealed_moment`. Raises Refused(malformed_request)."""
    microseconds, row_id = _MOMENT.unpack(opened(cursor, scope, _MOMENT.size))
    try:
        return _EPOCH + microseconds * _MICROSECOND, UUID(bytes=row_id)
    except OverflowError:
        raise Refused(Code.MALFORMED_REQUEST) from None


def _seal(payload: bytes, scope: str) -> bytes:
    return hashlib.sha256(scope.encode() + b"\0" + payload).digest()[:_SEAL_BYTES]
