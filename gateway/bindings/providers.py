"""What operators do to providers. A moved base URL moves every application of the provider (contract A7)."""

from collections.abc import Collection, Sequence
from typing import Final
from uuid import UUID, uuid4

from gateway.bindings.faults import invalid
from gateway.bindings.urls import normalise_base_url, origin
from gateway.domain.audit import THE_GATEWAY, Act, Actor, Entry, TargetKind
from gateway.domain.ids import ProviderId
from gateway.domain.problems import Code, Refused
from gateway.domain.text import is_storable
from gateway.store import applications as application_rows
from gateway.store import audit
from gateway.store import providers as rows
from gateway.store.database import Database, Transaction
from gateway.store.errors import ConstraintViolated

MAX_NAME_CHARACTERS: Final = 100


def checked_name(name: str) -> str:
    """The name of a provider or an application: 1 to 100 printable characters, no blank at its ends. Raises Refused."""
    if not 1 <= len(name) <= MAX_NAME_CHARACTERS or not is_storable(name) or not name.isprintable() or name != name.strip():
        raise invalid("name", f"It has 1 to {MAX_NAME_CHARACTERS} printable characters and no blank at its ends.")
    return name


async def create(db: Database, *, name: str, base_url: str, trusted_hosts: Collection[str], actor: Actor = THE_GATEWAY) -> ProviderId:
    """A new, enabled provider. Raises Refused: configuration_invalid, already_exists."""
    provider_id = ProviderId(uuid4())
    try:
        wanted = {"name": checked_name(name), "base_url": normalise_base_url(base_url, trusted_hosts)}
        async with db.transaction() as tx:
            await rows.create(tx, provider_id, **wanted)
            await audit.record(tx, Entry(actor, Act.PROVIDER_CREATE, TargetKind.PROVIDER, str(provider_id), detail=wanted))
            await tx.commit()
    except ConstraintViolated as violated:
        if violated.constraint == "provider_name_unique":
            raise Refused(Code.ALREADY_EXISTS) from None
        raise
    return provider_id


async def find(db: Database, name: str) -> rows.ProviderRow:
    """The provider of that name. Raises Refused(NOT_FOUND)."""
    return _found(await rows.find(db, name))


async def set_base_url(db: Database, name: str, base_url: str, trusted_hosts: Collection[str], *, actor: Actor = THE_GATEWAY) -> bool:
    """Move a provider. False: it was there already, and nothing was changed.

    All its applications get a new configuration version and lose their bindings for good; with a changed origin also their tokens, which
    were given for another server. Raises Refused: configuration_invalid, not_found, change_blocked (with the runs in the way).
    """
    wanted = normalise_base_url(base_url, trusted_hosts)
    async with db.transaction() as tx:
        provider = _found(await rows.lock(tx, name))
        if provider.base_url == wanted:
            return False
        application_ids = await application_rows.lock_of_provider(tx, provider.provider_id)
        await refuse_while_runs_are_in_the_way(tx, application_ids)
        await rows.set_base_url(tx, provider.provider_id, wanted)
        await application_rows.move(tx, application_ids, drop_token=origin(provider.base_url) != origin(wanted))
        detail = {"name": name, "was_base_url": provider.base_url, "base_url": wanted}
        await audit.record(tx, Entry(actor, Act.PROVIDER_SET, TargetKind.PROVIDER, str(provider.provider_id), detail=detail))
        await tx.commit()
    return True


async def set_enabled(db: Database, name: str, *, enabled: bool, actor: Actor = THE_GATEWAY) -> bool:
    """Allow or stop new use of all its applications; running streams go on. False: it was so already. Raises Refused(NOT_FOUND)."""
    async with db.transaction() as tx:
        provider = _found(await rows.lock(tx, name))
        if not await rows.set_enabled(tx, name, enabled=enabled):
            return False
        act = Act.PROVIDER_ENABLE if enabled else Act.PROVIDER_DISABLE
        await audit.record(tx, Entry(actor, act, TargetKind.PROVIDER, str(provider.provider_id), detail={"name": name}))
        await tx.commit()
    return True


async def refuse_while_runs_are_in_the_way(within: Database | Transaction, application_ids: Sequence[UUID]) -> None:
    """Raise Refused(CHANGE_BLOCKED) with the oldest runs that hold a slot or are not saved. Binding only under the applications' locks."""
    runs = await application_rows.runs_in_the_way(within, application_ids)
    if runs:
        shown = [{"run_id": str(run.run_id), "execution": run.execution, "persistence": run.persistence} for run in runs]
        raise Refused(Code.CHANGE_BLOCKED, extra={"runs": shown})


def _found(row: rows.ProviderRow | None) -> rows.ProviderRow:
    if row is None:
        raise Refused(Code.NOT_FOUND)
    return row
