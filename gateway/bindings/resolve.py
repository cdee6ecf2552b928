"""Resolving: one frozen read of an application's configuration and token, and of a conversation's binding.

A run pins the versions at admission; whoever resolves compares them, and the fence compares them again.
"""

from dataclasses import dataclass
from typing import Final

import structlog

from gateway.bindings.config import BackendType
from gateway.bindings.fingerprint import Profile, binding_fingerprint, endpoint_fingerprint, profile_of
from gateway.bindings.vault import TokenUnreadable, Vault
from gateway.domain.ids import ApplicationId, ConversationId, ThreadId
from gateway.store import applications as rows
from gateway.store.database import Database
from gateway.upstream.capabilities import CapabilitiesKey
from gateway.upstream.endpoint import Endpoint, EndpointFault, endpoint_of

_log: Final[structlog.stdlib.BoundLogger] = structlog.get_logger("gateway.bindings.resolve")


@dataclass(frozen=True, slots=True)
class UsableApplication:
    """Everything that a run needs of its application, as it was at one moment.

    `enabled`: it and its provider take new work. `thread_id`: the conversation's native thread, when it is bound; `binding_valid` is
    false when that binding was invalidated or was made with another fingerprint: the fence would refuse it.
    """

    application_id: ApplicationId
    enabled: bool
    endpoint: Endpoint
    profile: Profile
    config_version: int
    token_version: int
    endpoint_fingerprint: bytes
    fingerprint: bytes
    thread_id: ThreadId | None
    binding_valid: bool

    @property
    def capabilities_key(self) -> CapabilitiesKey:
        """What a remembered answer of GET /capabilities belongs to."""
        return CapabilitiesKey(application_id=self.application_id, fingerprint=self.fingerprint, token_version=self.token_version)


@dataclass(frozen=True, slots=True)
class Resolve:
    """Reads, in one round trip, and decrypts."""

    db: Database
    vault: Vault

    async def usable(self, application_id: ApplicationId, conversation_id: ConversationId | None = None) -> UsableApplication | None:
        """None: no such application, served elsewhere, without a token or with one that does not open; to a person all of these are an
        application that is switched off. Never gives an empty token. A disabled one takes nothing new; its runs are still looked up.
        """
        row = await rows.usable(self.db, application_id, conversation_id)
        return None if row is None else await self.opened(row)

    async def opened(self, row: rows.UsableRow) -> UsableApplication | None:
        """As `usable`, of a row that was read before."""
        if row.backend_type != BackendType.LANGCHAIN or row.assistant_id is None:
            return None
        endpoint = await self._endpoint(row)
        if endpoint is None:
            return None
        profile = profile_of(human_input=row.human_input)
        fingerprint = binding_fingerprint(row.base_url, row.assistant_id, profile)
        return UsableApplication(
            application_id=ApplicationId(row.application_id),
            enabled=row.enabled,
            endpoint=endpoint,
            profile=profile,
            config_version=row.config_version,
            token_version=row.token_version,
            endpoint_fingerprint=endpoint_fingerprint(row.base_url),
            fingerprint=fingerprint,
            thread_id=None if row.thread_id is None else ThreadId(row.thread_id),
            binding_valid=not row.binding_invalidated and row.bound_fingerprint in (None, fingerprint),
        )

    async def _endpoint(self, row: rows.UsableRow) -> Endpoint | None:
        if row.token_ciphertext is None or row.token_key_id is None or row.assistant_id is None:
            return None
        try:
            token = await self.vault.open(row.application_id, row.token_ciphertext, row.token_key_id)
        except TokenUnreadable as unreadable:
            # Loud, because only an operator can help: a key is missing from the ring, or the row was tampered with (O-36).
            _log.error("token_unreadable", application_id=str(row.application_id), fault=unreadable.fault.value, key_id=unreadable.key_id)
            return None
        endpoint = endpoint_of(base_url=row.base_url, assistant_id=row.assistant_id, token=token)
        if isinstance(endpoint, EndpointFault):
            _log.error("endpoint_unusable", application_id=str(row.application_id), fault=endpoint.value)
            return None
        return endpoint
