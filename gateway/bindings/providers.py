"""What operators do to providers. A moved base URL moves every application of the provider (contract A7)."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID, uuid4

from gateway.bindings.urls import normalise_base_url, origin
from gateway.domain.audit import THE_GATEWAY, Act, Actor, Entry, TargetKind
from gateway.domain.faults import invalid
from gateway.domain.ids import ProviderId
from gateway.domain.problems import Code, Refused
from gateway.domain.text import is_storable
from gateway.store import applications as application_rows
from gateway.store import audit
from gateway.store import providers as rows
from gateway.store.database import Database, Transaction
from gateway.store.errors import ConstraintViolated
from gateway.store.which import Which

MAX_NAME_CHARACTERS: Final = 100
_UNIQUE_NAME: Final = "provider_name_unique"


def checked_name(name: str) -> str:
    """The name of a provider or an application: 1 to 100 printable characters, no blank at its ends. Raises Refused."""
    if not 1 <= len(name) <= MAX_NAME_CHARACTERS or not is_storable(name) or not name.isprintable() or name != name.strip():
        raise invalid("name", f"It has 1 to {MAX_NAME_CHARACTERS} printable characters and no blank at its ends.")
    return name


@dataclass(frozen=True, slots=True)
class ProviderChange:
    """What to change; None leaves a thing as it is."""

    name: str | None = None
    base_url: str | None = None
    enabled: bool | None = None


@dataclass(frozen=True, slots=True)
class ChangeReport:
    """What a change came to. `changed`: names of fields, empty when all was as wanted already. `moved`: bindings were ended for good.

    `token_dropped`: the origin changed, so a token for the new one is needed.
    """

    changed: tuple[str, ...] = ()
    moved: bool = False
    token_dropped: bool = False


@contextmanager
def unique_names(constraint: str) -> Iterator[None]:
    """Where `constraint` is violated, the name is taken: Refused(ALREADY_EXISTS)."""
    try:
        yield
    except ConstraintViolated as violated:
        if violated.constraint == constraint:
            raise Refused(Code.ALREADY_EXISTS) from None
        raise


async def create(db: Database, *, name: str, base_url: str, trusted_hosts: Collection[str], actor: Actor = THE_GATEWAY) -> ProviderId:
    """A new, enabled provider. Raises Refused: configuration_invalid, already_exists."""
    provider_id = ProviderId(uuid4())
    wanted = {"name": checked_name(name), "base_url": normalise_base_url(base_url, trusted_hosts)}
    with unique_names(_UNIQUE_NAME):
        async with db.transaction() as tx:
            await rows.create(tx, provider_id, **wanted)
            await audit.record(tx, Entry(actor, Act.PROVIDER_CREATE, TargetKind.PROVIDER, str(provider_id), detail=wanted))
            await tx.commit()
    return provider_id


async def find(db: Database, which: Which) -> rows.ProviderRow:
    """The provider of that id or name. Raises Refused(NOT_FOUND)."""
    return _found(await rows.find(db, which))


async def change(
    db: Database, which: Which, wanted: ProviderChange, trusted_hosts: Collection[str], *, actor: Actor = THE_GATEWAY
) -> ChangeReport:
    """Rename, move, switch; nothing else happens when all is as wanted already.

    Moved: all its applications get a new configuration version and lose their bindings for good; with a changed origin also their tokens,
    which were given for another server. Switched off: new use stops, running streams go on. Raises Refused: configuration_invalid,
    not_found, already_exists, change_blocked (a move, with the runs in the way).
    """
    name = None if wanted.name is None else checked_name(wanted.name)
    base_url = None if wanted.base_url is None else normalise_base_url(wanted.base_url, trusted_hosts)
    with unique_names(_UNIQUE_NAME):
        async with db.transaction() as tx:
            row = _found(await rows.lock(tx, which))
            new = replace(
                row,
                name=name or row.name,
                base_url=base_url or row.base_url,
                enabled=row.enabled if wanted.enabled is None else wanted.enabled,
            )
            report = _report(row, new)
            if not report.changed:
                return report
            if report.moved:
                application_ids = await application_rows.lock_of_provider(tx, row.provider_id)
                await refuse_while_runs_are_in_the_way(tx, application_ids)
                await application_rows.move(tx, application_ids, drop_token=report.token_dropped)
            await rows.save(tx, row.provider_id, name=new.name, base_url=new.base_url, enabled=new.enabled)
            for entry in _entries(actor, row, new):
                await audit.record(tx, entry)
            await tx.commit()
    return report


async def set_base_url(db: Database, which: Which, base_url: str, trusted_hosts: Collection[str], *, actor: Actor = THE_GATEWAY) -> bool:
    """Move a provider, as `change` does. False: it was there already."""
    return (await change(db, which, ProviderChange(base_url=base_url), trusted_hosts, actor=actor)).moved


async def set_enabled(db: Database, which: Which, *, enabled: bool, actor: Actor = THE_GATEWAY) -> bool:
    """Allow or stop new use of all its applications, as `change` does. False: it was so already."""
    return bool((await change(db, which, ProviderChange(enabled=enabled), (), actor=actor)).changed)


def _report(row: rows.ProviderRow, new: rows.ProviderRow) -> ChangeReport:
    changed = tuple(field for field in ("name", "base_url", "enabled") if getattr(row, field) != getattr(new, field))
    return ChangeReport(changed, moved="base_url" in changed, token_dropped=origin(row.base_url) != origin(new.base_url))


def _entries(actor: Actor, row: rows.ProviderRow, new: rows.ProviderRow) -> Iterator[Entry]:
    target_id = str(row.provider_id)
    detail = {"name": row.name}
    if new.name != row.name:
        detail |= {"new_name": new.name}
    if new.base_url != row.base_url:
        detail |= {"was_base_url": row.base_url, "base_url": new.base_url}
    if len(detail) > 1:
        yield Entry(actor, Act.PROVIDER_SET, TargetKind.PROVIDER, target_id, detail=detail)
    if new.enabled != row.enabled:
        act = Act.PROVIDER_ENABLE if new.enabled else Act.PROVIDER_DISABLE
        yield Entry(actor, act, TargetKind.PROVIDER, target_id, detail={"name": new.name})


async def refuse_while_runs_are_in_the_way(within: Database | Transaction, application_ids: Sequence[UUID]) -> None:
    """Raise Refused(CHANGE_BLOCKED) with the oldest runs that hold a slot or are not saved. Binding only under the applications' locks."""
    runs = await application_rows.runs_in_the_way(within, application_ids)
    if runs:
        shown = [{"run_id": str(run.run_id), "execution": run.execution, "persistence": run.persistence} for run in runs]
        raise Refused(Code.CHANGE_BLOCKED, extra={"runs": shown})


def _found(row: rows.ProviderRow | None) -> rows.ProviderRow:
    if row is None:
        raise Refused(Code.NOT_FOUND, extra={"field": "provider"})
    return row
