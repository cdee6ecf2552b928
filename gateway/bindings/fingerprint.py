"""Fingerprints: what a native thread belongs to (contract C8). A changed fingerprint ends a binding for good."""

import hashlib
import json
from enum import StrEnum


class Profile(StrEnum):
    """How an upstream is spoken to: the AG-UI bridge, or LangGraph's own routes where `human_input` is on."""

    BRIDGE = "bridge"
    NATIVE = "native"


def profile_of(*, human_input: bool) -> Profile:
    """The profile of a langchain application."""
    return Profile.NATIVE if human_input else Profile.BRIDGE


def endpoint_fingerprint(base_url: str) -> bytes:
    """32 bytes for a normalised base URL: within it a thread id belongs to one conversation, whichever application asked."""
    return _sha256("endpoint", base_url)


def binding_fingerprint(base_url: str, assistant_id: str, profile: Profile) -> bytes:
    """32 bytes for endpoint, assistant and profile: what a binding was made with."""
    return _sha256("binding", base_url, assistant_id, profile.value)


def _sha256(*parts: str) -> bytes:
    # JSON keeps the parts apart; the number is the version of this form.
    return hashlib.sha256(json.dumps([1, *parts], ensure_ascii=True, separators=(",", ":")).encode("ascii")).digest()
