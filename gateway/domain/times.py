"""Moments as text, in the one form in which they go out."""

from datetime import UTC, datetime


def rfc3339(moment: datetime) -> str:
    """RFC 3339 in UTC with microseconds and a Z, as all times of the interface."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
