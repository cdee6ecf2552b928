"""What operators do to applications: make, change, switch, give a new token (contract A2, A7 to A9).

Each act is one transaction under the lock that admission takes, so no run is admitted between a check and its change. What users see of
an application is in `visible`, what a run uses of it in `resolve`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, Protocol
from uuid import UUID, uuid4

from gateway.bindings.config import ApplicationConfig, BackendType, checked_assistant_id
from gateway.bindings.fingerprint import binding_fingerprint, profile_of
from gateway.bindings.providers import ChangeReport, checked_name, refuse_while_runs_are_in_the_way, unique_names
from gateway.bindings.urls import origin
from gateway.bindings.vault import Vault, validate_token
from gateway.domain.audit import THE_GATEWAY, Act, Actor, Entry, TargetKind
from gateway.domain.faults import invalid
from gateway.domain.ids import ApplicationId
from gateway.domain.problems import Code, Refused
from gateway.domain.text import is_storable
from gateway.identity.tokens import is_name
from gateway.store import applications as rows
from gateway.store import audit
from gateway.store import providers as provider_rows
from gateway.store.applications import ApplicationRow
from gateway.store.database import Database, Transaction
from gateway.store.which import Which

MAX_DESCRIPTION_CHARACTERS: Final = 2000
MAX_PEOPLE: Final = 1000
"""Groups or users of one application."""
_UNIQUE_NAME: Final = "application_name_unique"


class Visibility(StrEnum):
    """Who sees an application (contract A6): any signed-in user; members of its groups; its owner and its users."""

    PUBLIC = "public"
    GROUP = "group"
    PRIVATE = "private"


@dataclass(frozen=True, slots=True)
class Audience:
    """What users are told about an application, and which users. `groups` counts with GROUP, owner and users with PRIVATE."""

    description: str = ""
    visibility: Visibility = Visibility.PUBLIC
    groups: tuple[str, ...] = ()
    owner_subject: str | None = None
    users: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NewApplication:
    """An application to be made; `provider` is the id or name of one. Without a token it is listed and not available."""

    name: str
    provider: Which
    config: ApplicationConfig
    audience: Audience
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ApplicationChange:
    """What to change; None leaves a thing as it is. `assistant_id` alone is short for the present `config` with another assistant.

    `drop_owner`: it has no owner any more.
    """

    name: str | None = None
    provider: Which | None = None
    config: ApplicationConfig | None = None
    assistant_id: str | None = None
    description: str | None = None
    visibility: Visibility | None = None
    groups: tuple[str, ...] | None = None
    owner_subject: str | None = None
    users: tuple[str, ...] | None = None
    enabled: bool | None = None
    drop_owner: bool = False


class CheckCapabilities(Protocol):
    """Asks an upstream whether it takes a token and names an assistant (GET /capabilities)."""

    async def __call__(self, *, base_url: str, assistant_id: str, token: str, human_input: bool) -> bool:
        """False for every answer but a good one, and for none."""
        ...


async def create(db: Database, vault: Vault, new: NewApplication, *, actor: Actor = THE_GATEWAY) -> ApplicationId:
    """A new, enabled application. Raises Refused: configuration_invalid, not_found (its provider), already_exists."""
    application_id = ApplicationId(uuid4())
    checked_name(new.name)
    _check_audience(new.audience)
    ciphertext, key_id = None, None
    if new.token is not None:
        _check_takes_token(new.config.backend_type)
        ciphertext, key_id = await vault.seal(application_id, validate_token(new.token))
    with unique_names(_UNIQUE_NAME):
        async with db.transaction() as tx:
            provider = await _held_provider(tx, new.provider)
            token = {"token_ciphertext": ciphertext, "token_key_id": key_id}
            wanted = _config_params(new.config) | _audience_params(new.audience) | token
            await rows.create(tx, {"application_id": application_id, "provider_id": provider.provider_id, "name": new.name, **wanted})
            detail = {"name": new.name, "provider": provider.name, "token": ciphertext is not None}
            await audit.record(tx, _entry(actor, Act.APP_CREATE, application_id, detail))
            await tx.commit()
    return application_id


async def find(db: Database, which: Which) -> ApplicationRow:
    """The application of that id or name. Raises Refused(NOT_FOUND)."""
    return _found(await rows.find(db, which))


async def change(db: Database, which: Which, wanted: ApplicationChange, *, actor: Actor = THE_GATEWAY) -> ChangeReport:
    """Change an application; nothing else happens when all is as wanted already.

    A changed endpoint, assistant or profile raises config_version and ends the bindings for good, and is refused while a run holds a slot
    or is not saved. Switched off: new use stops, running streams go on. Raises Refused: configuration_invalid, not_found (also the
    provider), already_exists, backend_type_fixed, change_blocked.
    """
    if wanted.name is not None:
        checked_name(wanted.name)
    with unique_names(_UNIQUE_NAME):
        async with db.transaction() as tx:
            # Providers are locked before applications, here as everywhere.
            provider = await _held_provider(tx, wanted.provider) if wanted.provider is not None else None
            row = _found(await rows.lock(tx, which))
            config, audience = _wanted_config(row, wanted), _wanted_audience(row, wanted)
            _check_audience(audience)
            fixed = (config.backend_type.value, config.human_input) != (row.backend_type, row.human_input)
            if fixed and await rows.has_history(tx, row.application_id):
                raise Refused(Code.BACKEND_TYPE_FIXED)
            base_url = row.base_url if provider is None else provider.base_url
            place = {
                "provider_id": row.provider_id if provider is None else provider.provider_id,
                "name": row.name if wanted.name is None else wanted.name,
                "enabled": row.enabled if wanted.enabled is None else wanted.enabled,
            }
            new = place | _config_params(config) | _audience_params(audience)
            report = ChangeReport(
                changed=_changed(row, new),
                moved=_served_by(base_url, config) != _served_by(row.base_url, config_of(row)),
                token_dropped=row.token_ciphertext is not None and origin(base_url) != origin(row.base_url),
            )
            if not report.changed:
                return report
            if report.moved:
                await refuse_while_runs_are_in_the_way(tx, [row.application_id])
                await rows.move(tx, [row.application_id], drop_token=report.token_dropped)
            await rows.save(tx, {"application_id": row.application_id, **new})
            for entry in _entries(actor, row, new, report):
                await audit.record(tx, entry)
            await tx.commit()
    return report


async def set_enabled(db: Database, which: Which, *, enabled: bool, actor: Actor = THE_GATEWAY) -> bool:
    """Allow or stop new use, as `change` does. False: it was so already."""
    return bool((await change(db, which, ApplicationChange(enabled=enabled), actor=actor)).changed)


async def set_token(
    db: Database, vault: Vault, which: Which, raw_token: str, check_capabilities: CheckCapabilities, *, actor: Actor = THE_GATEWAY
) -> None:
    """Replace the service token; bindings stay (contract A8). The upstream must take the new one first, with no transaction open.

    Raises Refused: configuration_invalid, not_found, change_blocked (with the runs in the way), upstream_check_failed (also when the
    application was changed in the meantime). In all of them the old token stays.
    """
    token = validate_token(raw_token)
    before = await find(db, which)
    _check_takes_token(BackendType(before.backend_type))
    assert before.assistant_id is not None, "application_langchain_has_assistant"
    await refuse_while_runs_are_in_the_way(db, [before.application_id])
    asked = {"base_url": before.base_url, "assistant_id": before.assistant_id, "token": token}
    if not await check_capabilities(**asked, human_input=before.human_input):
        raise Refused(Code.UPSTREAM_CHECK_FAILED)
    ciphertext, key_id = await vault.seal(before.application_id, token)
    async with db.transaction() as tx:
        row = _found(await rows.lock(tx, before.application_id))
        if (row.config_version, row.token_version) != (before.config_version, before.token_version):
            raise Refused(Code.UPSTREAM_CHECK_FAILED)
        await refuse_while_runs_are_in_the_way(tx, [row.application_id])
        await rows.set_token(tx, row.application_id, ciphertext=ciphertext, key_id=key_id)
        await audit.record(tx, _entry(actor, Act.APP_SET_TOKEN, row.application_id, {"name": row.name}))
        await tx.commit()


def _entry(actor: Actor, act: Act, application_id: UUID, detail: Mapping[str, object]) -> Entry:
    return Entry(actor, act, TargetKind.APPLICATION, str(application_id), detail=detail)


def _entries(actor: Actor, row: ApplicationRow, new: Mapping[str, object], report: ChangeReport) -> Iterator[Entry]:
    """What changed, by the names of the fields: what is in them is not for the trail, but for the name."""
    if settings := [field for field in report.changed if field != "enabled"]:
        detail: dict[str, object] = {"name": row.name, "changed": settings, "moved": report.moved, "token_dropped": report.token_dropped}
        if "name" in settings:
            detail["new_name"] = new["name"]
        yield _entry(actor, Act.APP_SET, row.application_id, detail)
    if "enabled" in report.changed:
        yield _entry(actor, Act.APP_ENABLE if new["enabled"] else Act.APP_DISABLE, row.application_id, {"name": new["name"]})


def _changed(row: ApplicationRow, new: Mapping[str, object]) -> tuple[str, ...]:
    place = {"provider_id": row.provider_id, "name": row.name, "enabled": row.enabled}
    before = place | _config_params(config_of(row)) | _audience_params(_wanted_audience(row, ApplicationChange()))
    return tuple(sorted(field for field in new if new[field] != before[field]))


def _found(row: ApplicationRow | None) -> ApplicationRow:
    if row is None:
        raise Refused(Code.NOT_FOUND, extra={"field": "application"})
    return row


async def _held_provider(tx: Transaction, which: Which) -> provider_rows.ProviderRow:
    provider = await provider_rows.hold(tx, which)
    if provider is None:
        raise Refused(Code.NOT_FOUND, extra={"field": "provider"})
    return provider


def _served_by(base_url: str, config: ApplicationConfig) -> object:
    """What bindings are made with, or, for a backend served elsewhere, what would change it."""
    if config.backend_type is BackendType.DIFY or config.assistant_id is None:
        return base_url, config.backend_type
    return binding_fingerprint(base_url, config.assistant_id, profile_of(human_input=config.human_input))


def config_of(row: ApplicationRow) -> ApplicationConfig:
    """The configuration that a row holds."""
    return ApplicationConfig(
        backend_type=BackendType(row.backend_type),
        assistant_id=row.assistant_id,
        human_input=row.human_input,
        app_type=row.app_type,
        is_marketplace_app=row.is_marketplace_app,
        tags=tuple(row.tags),
    )


def _wanted_config(row: ApplicationRow, wanted: ApplicationChange) -> ApplicationConfig:
    config = config_of(row) if wanted.config is None else wanted.config
    if wanted.assistant_id is None:
        return config
    if config.backend_type is not BackendType.LANGCHAIN:
        raise invalid("langchain.assistant_id", "Only a langchain application has an assistant.")
    return replace(config, assistant_id=checked_assistant_id(wanted.assistant_id))


def _wanted_audience(row: ApplicationRow, wanted: ApplicationChange) -> Audience:
    return Audience(
        description=row.description if wanted.description is None else wanted.description,
        visibility=Visibility(row.visibility) if wanted.visibility is None else wanted.visibility,
        groups=tuple(row.groups) if wanted.groups is None else wanted.groups,
        owner_subject=None if wanted.drop_owner else row.owner_subject if wanted.owner_subject is None else wanted.owner_subject,
        users=tuple(row.users) if wanted.users is None else wanted.users,
    )


def _check_audience(audience: Audience) -> None:
    if len(audience.description) > MAX_DESCRIPTION_CHARACTERS or not is_storable(audience.description):
        raise invalid("description", f"It has at most {MAX_DESCRIPTION_CHARACTERS} characters.")
    owner = () if audience.owner_subject is None else (audience.owner_subject,)
    for name, people in (("groups", audience.groups), ("owner", owner), ("users", audience.users)):
        if len(people) > MAX_PEOPLE or not all(is_name(person) for person in people):
            raise invalid(name, f"At most {MAX_PEOPLE} names, each of 1 to 200 characters without control characters.")
    if audience.visibility is Visibility.GROUP and not audience.groups:
        raise invalid("groups", "An application that is visible to groups names at least one.")
    if audience.visibility is Visibility.PRIVATE and not (audience.users or owner):
        raise invalid("owner", "A private application has an owner or users.")


def _check_takes_token(backend_type: BackendType) -> None:
    if backend_type is not BackendType.LANGCHAIN:
        raise invalid("token", "Only a langchain application has a token here.")


def _config_params(config: ApplicationConfig) -> dict[str, object]:
    return {
        "backend_type": config.backend_type.value,
        "assistant_id": config.assistant_id,
        "human_input": config.human_input,
        "app_type": config.app_type,
        "is_marketplace_app": config.is_marketplace_app,
        "tags": list(config.tags),
    }


def _audience_params(audience: Audience) -> dict[str, object]:
    return {
        "description": audience.description,
        "visibility": audience.visibility.value,
        "groups": sorted(set(audience.groups)),
        "owner_subject": audience.owner_subject,
        "users": sorted(set(audience.users)),
    }
