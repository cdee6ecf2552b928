"""Which moderators are asked: the chain of the settings, and those that operators set for an application or for all.

An application's own chain comes first, then the one for all, then that of the settings. A chain is never changed, so what was made of one
is kept for as long as this replica lives.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from gateway.admission.moderation import Moderator, NotJudged, Provider
from gateway.admission.moderator_services import OpenAIModerator, Service, WebhookModerator
from gateway.bindings.urls import normalise_base_url
from gateway.bindings.vault import TokenUnreadable, Vault
from gateway.domain.faults import invalid
from gateway.domain.problems import Refused
from gateway.http_client import HttpClient
from gateway.store import moderation as store
from gateway.store.database import Database
from gateway.store.moderation import ModeratorRow
from gateway.upstream.endpoint import ServiceToken

NONE: Final = "none"
"""In place of moderators: nobody is asked."""
DEFAULT: Final = "default"
"""In place of moderators: the chain is taken away, and what is below it counts again."""
MAX_MODERATORS: Final = 8

_FIELD: Final = "moderators"
_KNOWN: Final = "Each is local, openai:URL or webhook:URL; or the only one is none or default."
_KEPT_CHAINS: Final = 1000
"""Far more than there are applications with a chain of their own; the rest is of chains that are over."""


@dataclass(frozen=True, slots=True)
class NamedModerator:
    """A moderator as it is named: `url` is where it is asked, for all but `local`."""

    provider: Provider
    url: str | None = None

    def __str__(self) -> str:
        return self.provider.value if self.url is None else f"{self.provider.value}:{self.url}"


def parse_moderators(named: Sequence[str], trusted_hosts: Collection[str]) -> tuple[NamedModerator, ...]:
    """The moderators that `named` names, in order; `none` alone is nobody. Raises Refused(configuration_invalid)."""
    if tuple(named) == (NONE,):
        return ()
    if not 0 < len(named) <= MAX_MODERATORS:
        raise invalid(_FIELD, f"There are 1 to {MAX_MODERATORS} of them.")
    moderators = tuple(_parse(text, trusted_hosts) for text in named)
    if len(set(moderators)) < len(moderators):
        raise invalid(_FIELD, "Each is there once.")
    return moderators


def _parse(text: str, trusted_hosts: Collection[str]) -> NamedModerator:
    if text == Provider.LOCAL:
        return NamedModerator(Provider.LOCAL)
    kind, _, raw_url = text.partition(":")
    if kind not in (Provider.OPENAI, Provider.WEBHOOK):
        raise invalid(_FIELD, _KNOWN)
    try:
        url = normalise_base_url(raw_url, trusted_hosts)
    except Refused as refused:
        raise invalid(_FIELD, f"Of a URL: {refused.extra['rule']}") from None
    if kind == Provider.OPENAI:
        return NamedModerator(Provider.OPENAI, _moderations_url(url))
    # Some servers answer only with the slash at the end, and redirects are not followed.
    return NamedModerator(Provider.WEBHOOK, f"{url}/" if raw_url.endswith("/") else url)


def _moderations_url(url: str) -> str:
    """Whoever names a service of that shape gives its address, that of its version, or the whole one."""
    if url.endswith("/moderations"):
        return url
    return f"{url}/moderations" if url.endswith("/v1") else f"{url}/v1/moderations"


@dataclass(frozen=True, slots=True)
class SettingsChain:
    """The chain of the settings alone."""

    moderators: Sequence[Moderator]

    async def chain_of(self, chain_id: UUID | None) -> Sequence[Moderator]:
        """Its moderators. Raises NotJudged for a chain that was set by an operator: what it asks for is not here."""
        if chain_id is not None:
            raise NotJudged("chain_not_served")
        return self.moderators


@dataclass(frozen=True, slots=True)
class Chains:
    """Makes moderators of chains. `local`: the rules of this replica; `seconds`: of one call; `instead_of_settings`: given by a caller."""

    database: Database
    vault: Vault
    client: HttpClient
    local: Moderator
    named_in_settings: Sequence[NamedModerator]
    trusted_hosts: Collection[str]
    seconds: float
    instead_of_settings: Sequence[Moderator] | None = None
    _made: dict[UUID, Sequence[Moderator]] = field(default_factory=dict)

    async def chain_of(self, chain_id: UUID | None) -> Sequence[Moderator]:
        """The moderators of a chain, None being that of the settings. Raises NotJudged: one of them cannot be asked from here."""
        if chain_id is None:
            if self.instead_of_settings is not None:
                return self.instead_of_settings
            return [self.named(moderator) for moderator in self.named_in_settings]
        if (made := self._made.get(chain_id)) is not None:
            return made
        moderators = [await self._moderator(row) for row in await store.moderators(self.database, chain_id)]
        if len(self._made) >= _KEPT_CHAINS:
            self._made.clear()
        self._made[chain_id] = moderators
        return moderators

    def named(self, moderator: NamedModerator, token: ServiceToken | None = None) -> Moderator:
        """The moderator of that name."""
        if moderator.url is None:
            return self.local
        service = Service(self.client, moderator.url, token, self.seconds)
        return OpenAIModerator(service) if moderator.provider is Provider.OPENAI else WebhookModerator(service)

    async def _moderator(self, row: ModeratorRow) -> Moderator:
        try:
            # Hosts may have lost the trust that they had when the chain was set.
            [moderator] = parse_moderators([name_of(row.kind, row.url)], self.trusted_hosts)
        except Refused:
            raise NotJudged("url_not_allowed") from None
        try:
            return self.named(moderator, await self._token(row))
        except TokenUnreadable as unreadable:
            raise NotJudged(f"token_{unreadable.fault.value}") from None

    async def _token(self, row: ModeratorRow) -> ServiceToken | None:
        if row.token_owner is None or row.token_ciphertext is None or row.token_key_id is None:
            return None
        return ServiceToken(await self.vault.open(row.token_owner, row.token_ciphertext, row.token_key_id))


def name_of(kind: str, url: str | None) -> str:
    """A stored moderator as it is named."""
    return kind if url is None else f"{kind}:{url}"
