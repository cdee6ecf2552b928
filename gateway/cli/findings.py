"""What `gateway check` looked at, one thing at a time."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `says` is a fixed word or sentence, never text from a service or a driver."""

    about: str
    ok: bool
    says: str
