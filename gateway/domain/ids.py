"""Identifiers as distinct types. All UUIDs are ours; thread and native run ids are upstream's, opaque, and never leave the gateway."""

import re
from typing import Final, NewType
from uuid import UUID

AccountId = NewType("AccountId", UUID)
ProviderId = NewType("ProviderId", UUID)
ApplicationId = NewType("ApplicationId", UUID)
ConversationId = NewType("ConversationId", UUID)
RunId = NewType("RunId", UUID)
ItemId = NewType("ItemId", UUID)
InterruptId = NewType("InterruptId", UUID)
CorrelationId = NewType("CorrelationId", UUID)
"""The AG-UI `runId` that we send upstream (contract B4): fresh for each run, no idempotency key."""
AttemptToken = NewType("AttemptToken", UUID)
"""Written at admission; only the process that holds it in memory may execute, renew or complete the run."""
SubmissionId = NewType("SubmissionId", str)
"""The client's idempotency key: 1 to 200 visible ASCII characters, unique per user and application."""
ClientThread = NewType("ClientThread", str)
"""What an AG-UI client calls a conversation (its `threadId`): 1 to 200 characters, unique per user and application."""
ThreadId = NewType("ThreadId", str)
NativeRunId = NewType("NativeRunId", str)

_UUID_FORM: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
OPAQUE_ID: Final = r"[\x21-\x7e]{1,200}"
"""1 to 200 visible ASCII characters, as a regular expression."""
_OPAQUE: Final = re.compile(OPAQUE_ID)


def uuid_of(text: str) -> UUID | None:
    """The UUID in its one form with hyphens; None for any other text, also for what `UUID` itself would take."""
    return UUID(text) if _UUID_FORM.fullmatch(text) else None


def is_opaque_id(text: str) -> bool:
    """True for 1 to 200 visible ASCII characters: the form of submission, thread and native run ids (interface.md)."""
    return _OPAQUE.fullmatch(text) is not None
