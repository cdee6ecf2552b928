"""Applications: rows and statements. The rules (what a change invalidates, what blocks it, who sees what) are in `bindings`."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

from gateway.domain.ids import ApplicationId, ConversationId
from gateway.domain.limits import PAGE_MAX
from gateway.store.database import Database, Params, Transaction
from gateway.store.statements import statement
from gateway.store.which import Which, all_pages, which_params

_CREATE: Final = statement("applications.create")
_ONE: Final = statement("applications.one")
_PAGE: Final = statement("applications.page")
_LOCK: Final = statement("applications.lock")
_LOCK_OF_PROVIDER: Final = statement("applications.lock_of_provider")
_RUNS_IN_THE_WAY: Final = statement("applications.runs_in_the_way")
_HAS_HISTORY: Final = statement("applications.has_history")
_SAVE: Final = statement("applications.save")
_MOVE: Final = statement("applications.move")
_INVALIDATE_BINDINGS: Final = statement("applications.invalidate_bindings")
_SET_TOKEN: Final = statement("applications.set_token")
_VISIBLE: Final = statement("applications.visible")
_USABLE: Final = statement("applications.usable")

RUNS_SHOWN: Final = 20
"""How many runs in the way are listed: enough to see which, not a way to read a whole table."""


@dataclass(frozen=True, slots=True)
class ApplicationRow:
    """One application as operators see it, with its provider. The token is in there only encrypted.

    `closed`: why it takes no new task, as far as SQL can tell; `unknown_runs` hold slots until somebody acts.
    """

    application_id: UUID
    name: str
    description: str
    visibility: str
    groups: list[str]
    owner_subject: str | None
    users: list[str]
    backend_type: str
    assistant_id: str | None
    human_input: bool
    app_type: str
    is_marketplace_app: bool
    tags: list[str]
    enabled: bool
    config_version: int
    token_version: int
    token_ciphertext: bytes | None = field(repr=False)
    token_key_id: str | None
    created_at: datetime
    updated_at: datetime
    provider_id: UUID
    provider_name: str
    base_url: str
    provider_enabled: bool
    closed: str | None
    unknown_runs: int


@dataclass(frozen=True, slots=True)
class RunInTheWay:
    """A run that holds a slot of the application, or whose save is pending."""

    run_id: UUID
    execution: str
    persistence: str


@dataclass(frozen=True, slots=True)
class VisibleRow:
    """What a caller may see of an application, and what its availability depends on."""

    application_id: UUID
    name: str
    description: str
    app_type: str
    is_marketplace_app: bool
    tags: list[str]
    visibility: str
    human_input: bool
    closed: str | None
    token_ciphertext: bytes | None = field(repr=False)
    token_key_id: str | None
    unknown_runs: int


@dataclass(frozen=True, slots=True)
class UsableRow:
    """Configuration and token at one moment, and the conversation's binding when it has one."""

    application_id: UUID
    enabled: bool
    backend_type: str
    assistant_id: str | None
    human_input: bool
    config_version: int
    token_version: int
    token_ciphertext: bytes | None = field(repr=False)
    token_key_id: str | None
    base_url: str
    thread_id: str | None
    bound_fingerprint: bytes | None
    binding_invalidated: bool


@dataclass(frozen=True, slots=True)
class _Found:
    found: bool


@dataclass(frozen=True, slots=True)
class _Locked:
    application_id: UUID


async def create(tx: Transaction, params: Params) -> None:
    """Raises ConstraintViolated: application_name_unique, or a form."""
    await tx.execute(_CREATE, params)


async def find(db: Database, which: Which) -> ApplicationRow | None:
    """The application of that id or name."""
    return await db.one(_ONE, ApplicationRow, which_params(which), reading=True)


async def page(db: Database, *, after: UUID | None, page_size: int) -> list[ApplicationRow]:
    """The next applications in the order of names; `after` None begins."""
    return await db.all(_PAGE, ApplicationRow, {"after": after, "page_size": page_size}, reading=True)


async def list_all(db: Database) -> list[ApplicationRow]:
    """All of them, by name."""
    return await all_pages(lambda after: page(db, after=after, page_size=PAGE_MAX), lambda row: row.application_id)


async def lock(tx: Transaction, which: Which) -> ApplicationRow | None:
    """The application under the lock that admission takes: no run of it is admitted until the transaction ends.

    It is read after the lock, in a statement of its own: what waited for the lock would see its provider as it was before.
    """
    locked = await tx.one(_LOCK, _Locked, which_params(which))
    return None if locked is None else await tx.one(_ONE, ApplicationRow, which_params(locked.application_id))


async def lock_of_provider(tx: Transaction, provider_id: UUID) -> list[UUID]:
    """The ids of all applications of a locked provider, each under the lock that admission takes."""
    return [row.application_id for row in await tx.all(_LOCK_OF_PROVIDER, _Locked, {"provider_id": provider_id})]


async def runs_in_the_way(within: Database | Transaction, application_ids: Sequence[UUID]) -> list[RunInTheWay]:
    """Up to RUNS_SHOWN runs that block a change, oldest first. Binding only under the lock."""
    return await within.all(_RUNS_IN_THE_WAY, RunInTheWay, {"application_ids": list(application_ids), "page_size": RUNS_SHOWN})


async def has_history(tx: Transaction, application_id: UUID) -> bool:
    """Whether it ever had a conversation."""
    row = await tx.one(_HAS_HISTORY, _Found, {"application_id": application_id})
    return row is not None and row.found


async def save(tx: Transaction, params: Params) -> None:
    """Write a locked application as it shall be. Raises ConstraintViolated: application_name_unique, or a form."""
    await tx.execute(_SAVE, params)


async def move(tx: Transaction, application_ids: Sequence[UUID], *, drop_token: bool) -> None:
    """Locked applications answer from elsewhere: raise their versions and end their bindings for good."""
    await tx.execute(_MOVE, {"application_ids": list(application_ids), "drop_token": drop_token})
    await tx.execute(_INVALIDATE_BINDINGS, {"application_ids": list(application_ids)})


async def set_token(tx: Transaction, application_id: UUID, *, ciphertext: bytes, key_id: str) -> None:
    """Replace the token of a locked application and raise its version."""
    await tx.execute(_SET_TOKEN, {"application_id": application_id, "token_ciphertext": ciphertext, "token_key_id": key_id})


async def visible(db: Database, *, subject: str, groups: Collection[str], application_id: ApplicationId | None) -> list[VisibleRow]:
    """What the caller may see, by name; with an id that one or nothing."""
    params = {"subject": subject, "groups": sorted(groups), "application_id": application_id}
    return await db.all(_VISIBLE, VisibleRow, params, reading=True)


async def usable(db: Database, application_id: ApplicationId, conversation_id: ConversationId | None) -> UsableRow | None:
    """One frozen read, in one statement. None: there is no such application."""
    return await db.one(_USABLE, UsableRow, {"application_id": application_id, "conversation_id": conversation_id}, reading=True)
