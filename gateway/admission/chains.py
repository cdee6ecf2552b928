"""Which moderators are asked: the chain of the settings, and those that operators set for an application or for all."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from gateway.admission.moderation import Moderator, NotJudged


@dataclass(frozen=True, slots=True)
class SettingsChain:
    """The chain of the settings alone."""

    moderators: Sequence[Moderator]

    async def chain_of(self, chain_id: UUID | None) -> Sequence[Moderator]:
        """Its moderators. Raises NotJudged for a chain that was set by an operator: what it asks for is not here."""
        if chain_id is not None:
            raise NotJudged("chain_not_served")
        return self.moderators
