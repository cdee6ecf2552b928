"""Resolving: one frozen read of an application's configuration and token, and of a conversation's binding.

A run pins the versions at admission; whoever resolves compares them, and the fence compares them again.
"""

from dataclasses import dataclass, field
from uuid import UUID

from gateway.bindings.config import BackendType
from gateway.bindings.fingerprint import Profile, binding_fingerprint, endpoint_fingerprint, profile_of
from gateway.bindings.vault import TokenFault, TokenUnreadable, Vault
from gateway.domain.ids import ApplicationId, ConversationId, ThreadId
from gateway.domain.problems import Code
from gateway.domain.reasons import Reason
from gateway.store import applications as rows
from gateway.store.database import Database


@dataclass(frozen=True, slots=True)
class UsableApplication:
    """Everything that a run needs of its application, as it was at one moment.

    `thread_id`: the conversation's native thread, when it is bound; `binding_valid` is false when that binding was invalidated or was made
    with another fingerprint: the fence would refuse it.
    """

    application_id: ApplicationId
    base_url: str
    assistant_id: str
    profile: Profile
    token: str = field(repr=False)
    config_version: int
    token_version: int
    endpoint_fingerprint: bytes
    fingerprint: bytes
    thread_id: ThreadId | None
    binding_valid: bool


class NotUsable(Exception):
    """An application cannot be used now. `code`: as a refusal before admission; `reason`: as the end of a run after it.

    `token_fault`: the stored token does not open with the keys that are here (O-36); an operator must hear of it.
    """

    def __init__(self, code: Code, *, reason: Reason = Reason.APP_DISABLED, token_fault: TokenFault | None = None) -> None:
        super().__init__(code.value)
        self.code = code
        self.reason = reason
        self.token_fault = token_fault


async def usable(
    db: Database, vault: Vault, application_id: ApplicationId, conversation_id: ConversationId | None = None
) -> UsableApplication:
    """Read and decrypt, in one round trip. Raises NotUsable: no such application, disabled, served elsewhere, no token or none that opens.

    Never returns an empty token, so nothing is ever sent with one.
    """
    row = await rows.usable(db, application_id, conversation_id)
    if row is None:
        raise NotUsable(Code.NOT_FOUND)
    if row.backend_type != BackendType.LANGCHAIN or row.assistant_id is None:
        raise NotUsable(Code.BACKEND_NOT_SERVED)
    if not row.enabled:
        raise NotUsable(Code.APP_DISABLED)
    profile = profile_of(human_input=row.human_input)
    fingerprint = binding_fingerprint(row.base_url, row.assistant_id, profile)
    return UsableApplication(
        application_id=application_id,
        base_url=row.base_url,
        assistant_id=row.assistant_id,
        profile=profile,
        token=_opened(vault, row.application_id, row.token_ciphertext, row.token_key_id),
        config_version=row.config_version,
        token_version=row.token_version,
        endpoint_fingerprint=endpoint_fingerprint(row.base_url),
        fingerprint=fingerprint,
        thread_id=None if row.thread_id is None else ThreadId(row.thread_id),
        binding_valid=not row.binding_invalidated and row.bound_fingerprint in (None, fingerprint),
    )


def _opened(vault: Vault, application_id: UUID, envelope: bytes | None, key_id: str | None) -> str:
    if envelope is None or key_id is None:
        raise NotUsable(Code.APP_DISABLED)
    try:
        return vault.open(application_id, envelope, key_id)
    except TokenUnreadable as unreadable:
        raise NotUsable(Code.APP_DISABLED, token_fault=unreadable.fault) from None
