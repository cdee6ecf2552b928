"""What operators do to chains of moderators: set the one of an application or of all, and look at those in force."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, NotRequired
from uuid import UUID, uuid4

from typing_extensions import TypedDict

from gateway.admission.chains import DEFAULT, NONE, NamedModerator, name_of, parse_moderators
from gateway.bindings import applications
from gateway.bindings.vault import Vault, validate_token
from gateway.domain.audit import THE_GATEWAY, Act, Actor, Entry, TargetKind
from gateway.domain.faults import invalid
from gateway.domain.times import rfc3339
from gateway.json_shapes import Time
from gateway.store import audit
from gateway.store import moderation as store
from gateway.store.database import Database
from gateway.store.moderation import ChainRow, ModeratorRow
from gateway.store.which import Which

_OF_ALL: Final = (TargetKind.GATEWAY, "moderation")


class ModeratorJson(TypedDict):
    """Who is asked. `token`, of a service: `readable`, `none`, `no_key`, `damaged`, or `not_checked` where there are no keys to try."""

    moderator: str
    token: NotRequired[str]


class ChainJson(TypedDict):
    """A chain in force. `app_id` null: of every application without its own; `since` null too: of the settings of this replica."""

    app_id: UUID | None
    app: str | None
    since: Time | None
    moderators: list[ModeratorJson]


class ChainsJson(TypedDict):
    """The chains in force; a later one wins over those before it."""

    chains: list[ChainJson]


@dataclass(frozen=True, slots=True)
class OperatorChains:
    """`vault` None: no token can be set or tried. `of_settings`: the chain of GATEWAY_MODERATION; None where that is not set."""

    db: Database
    vault: Vault | None
    trusted_hosts: Collection[str]
    of_settings: Sequence[str] | None

    async def set(
        self, which: Which | None, moderators: Sequence[str], raw_tokens: Sequence[str] = (), *, actor: Actor = THE_GATEWAY
    ) -> None:
        """Set the chain of one application, or with None that of all others; `default` takes it away. One commit with its audit entry.

        `raw_tokens`: one for each service, in their order, or none at all; then a service that was in the chain before keeps its token.
        Raises Refused: configuration_invalid, not_found.
        """
        named = None if tuple(moderators) == (DEFAULT,) else parse_moderators(moderators, self.trusted_hosts)
        services = [moderator for moderator in named or () if moderator.url is not None]
        if raw_tokens and len(raw_tokens) != len(services):
            raise invalid("tokens", "There is one for each service, in their order, or none at all.")
        tokens = [validate_token(raw) for raw in raw_tokens]
        application_id = None if which is None else (await applications.find(self.db, which)).application_id
        new = {moderator: await self._sealed(moderator, token) for moderator, token in zip(services, tokens, strict=False)}
        async with self.db.transaction() as tx:
            before = await store.end(tx, application_id)
            if named is not None:
                kept = {name_of(row.kind, row.url): row for row in before or ()}
                rows = [new.get(one) or kept.get(str(one)) or ModeratorRow(one.provider.value, one.url, None, None, None) for one in named]
                await store.create(tx, uuid4(), application_id, rows)
            target = _OF_ALL if application_id is None else (TargetKind.APPLICATION, str(application_id))
            detail = {"moderators": [DEFAULT] if named is None else [str(one) for one in named] or [NONE], "new_tokens": len(tokens)}
            await audit.record(tx, Entry(actor, Act.MODERATION_SET, *target, detail=detail))
            await tx.commit()

    async def shown(self) -> ChainsJson:
        """Every chain in force: that of the settings, that of all, those of applications by name."""
        found: list[ChainJson] = []
        if self.of_settings is not None:
            found.append({"app_id": None, "app": None, "since": None, "moderators": [{"moderator": name} for name in self.of_settings]})
        by_chain: dict[UUID, list[ChainRow]] = {}
        for row in await store.in_force(self.db):
            by_chain.setdefault(row.chain_id, []).append(row)
        for rows in by_chain.values():
            found.append(
                {
                    "app_id": rows[0].application_id,
                    "app": rows[0].application_name,
                    "since": rfc3339(rows[0].created_at),
                    "moderators": [await self._moderator(row) for row in rows if row.kind is not None],
                }
            )
        return {"chains": found}

    async def _sealed(self, moderator: NamedModerator, token: str) -> ModeratorRow:
        if self.vault is None:
            raise invalid("tokens", "Without API_ENCRYPTION_KEY none can be stored.")
        owner = uuid4()
        ciphertext, key_id = await self.vault.seal(owner, token)
        return ModeratorRow(moderator.provider.value, moderator.url, owner, ciphertext, key_id)

    async def _moderator(self, row: ChainRow) -> ModeratorJson:
        assert row.kind is not None
        if row.url is None:
            return {"moderator": row.kind}
        return {"moderator": name_of(row.kind, row.url), "token": await self._token(row)}

    async def _token(self, row: ChainRow) -> str:
        if row.token_owner is None:
            return "none"
        if self.vault is None:
            return "not_checked"
        fault = await self.vault.fault(row.token_owner, row.token_ciphertext, row.token_key_id)
        return "readable" if fault is None else fault.value
