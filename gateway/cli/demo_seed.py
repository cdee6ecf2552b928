"""What the demo's database holds to begin with: one provider, three applications, three people. Safe to run at every start.

What people changed in the meantime stays as it is: only what is missing is made, and what the agent's address and token make necessary.
"""

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from gateway.bindings import applications, providers
from gateway.bindings.applications import Audience, NewApplication, Visibility
from gateway.bindings.config import langchain_config
from gateway.bindings.vault import TokenUnreadable, Vault
from gateway.cli.demo_agent import APPROVALS, ASSISTANT, HOST
from gateway.cli.output import CommandFailed
from gateway.cli.session import open_database, vault_of
from gateway.cli.upstream_check import capabilities_check
from gateway.domain.ids import ApplicationId
from gateway.domain.problems import Code, Refused
from gateway.identity import people
from gateway.settings import Settings
from gateway.store import applications as application_rows
from gateway.store import providers as provider_rows
from gateway.store.applications import ApplicationRow
from gateway.store.database import Database

PROVIDER: Final = "demo-agent"
GROUP: Final = "research"


@dataclass(frozen=True, slots=True)
class Person:
    """One of the demo's users. `about`: what others read about them."""

    subject: str
    about: str
    groups: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()


PEOPLE: Final = (
    Person("ada", f"sees all applications, as a member of the group {GROUP}", groups=(GROUP,)),
    Person("ben", "sees the public applications only"),
    Person("olga", "operator", roles=("operator",)),
)


@dataclass(frozen=True, slots=True)
class DemoApplication:
    """One of the demo's applications, over one of the agent's assistants."""

    name: str
    assistant: str
    audience: Audience
    human_input: bool = False


ASKING: Final = DemoApplication(
    "Approvals",
    APPROVALS,
    Audience(description="Asks you before it acts; the act is pretended. One task a conversation. For everybody."),
    human_input=True,
)
TASK: Final = "Send the March report to finance within 10 minutes"
"""For the application that asks: with a time until which it may be approved."""
APPLICATIONS: Final = (
    DemoApplication("Assistant", ASSISTANT, Audience(description="Made-up weather and times of any city. For everybody.")),
    DemoApplication(
        "Research assistant",
        ASSISTANT,
        Audience(
            description=f"The same agent, for members of the group {GROUP}.",
            visibility=Visibility.GROUP,
            groups=(GROUP,),
        ),
    ),
    ASKING,
)


@dataclass(frozen=True, slots=True)
class Seeded:
    """The applications by name. `moved`: the agent has another address than before, so conversations bound before have ended."""

    application_ids: dict[str, ApplicationId]
    moved: bool


async def seed(settings: Settings, *, base_url: str, token: str) -> Seeded:
    """Make what is missing. `base_url`, `token`: the running agent's. Raises CommandFailed for names that others use, and Refused."""
    vault = vault_of(settings)
    async with open_database(settings) as db:
        moved = await _provider(db, settings, base_url)
        for person in PEOPLE:
            await people.create(db, person.subject, groups=person.groups, roles=person.roles)
        ids = {wanted.name: await _application(db, settings, vault, wanted, token) for wanted in APPLICATIONS}
    return Seeded(ids, moved)


async def _provider(db: Database, settings: Settings, base_url: str) -> bool:
    row = await provider_rows.find(db, PROVIDER)
    if row is None:
        await providers.create(db, name=PROVIDER, base_url=base_url, trusted_hosts=settings.trusted_upstream_hosts)
        return False
    if urlsplit(row.base_url).hostname != HOST:
        raise _taken("provider", PROVIDER)
    try:
        return await providers.set_base_url(db, PROVIDER, base_url, settings.trusted_upstream_hosts)
    except Refused as refused:
        if refused.code is not Code.CHANGE_BLOCKED:
            raise
        raise CommandFailed(
            f"The agent was at {row.base_url}, where it cannot be now, and it cannot move while runs are not over or not saved.",
            "Free that port and start again, or begin anew in another folder: --data DIR",
            code=refused.code.value,
            details=refused.extra,
        ) from None


async def _application(db: Database, settings: Settings, vault: Vault, wanted: DemoApplication, token: str) -> ApplicationId:
    row = await application_rows.find(db, wanted.name)
    if row is None:
        config = langchain_config(wanted.assistant, human_input=wanted.human_input)
        new = NewApplication(name=wanted.name, provider=PROVIDER, config=config, audience=wanted.audience, token=token)
        return await applications.create(db, vault, new)
    if row.provider_name != PROVIDER:
        raise _taken("application", wanted.name)
    if not await _holds(vault, row, token):
        async with capabilities_check(settings) as check_capabilities:
            await applications.set_token(db, vault, wanted.name, token, check_capabilities)
    return ApplicationId(row.application_id)


async def _holds(vault: Vault, row: ApplicationRow, token: str) -> bool:
    """Whether the stored token is the agent's: not after a move, nor when a key file was lost."""
    if row.token_ciphertext is None or row.token_key_id is None:
        return False
    try:
        return await vault.open(row.application_id, row.token_ciphertext, row.token_key_id) == token
    except TokenUnreadable:
        return False


def _taken(kind: str, name: str) -> CommandFailed:
    return CommandFailed(
        f'The database holds {kind} "{name}" that is not the demo\'s.',
        "Let DATABASE_URL lead to a database of the demo's own, or unset it.",
    )
