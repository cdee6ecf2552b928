"""The trail of operators' acts as values: who did what to what. Writing and reading it is `store.audit`; the chain is made in SQL.

A detail holds ids, states and words of closed lists, names that operators gave, and numbers: no secret, no message text.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NewType

Actor = NewType("Actor", str)
"""Who acted, and by which way in: `web:SUBJECT`, `cli:NAME`; so that no subject of the web passes for a name of a terminal."""

THE_GATEWAY: Final = Actor("gateway")
"""The program itself, as when the demo sets itself up."""


def web_actor(subject: str) -> Actor:
    """An operator who came over HTTP, with a verified token."""
    return Actor(f"web:{subject}")


def cli_actor(name: str) -> Actor:
    """An operator at a terminal: whoever has DATABASE_URL. The name is what they say, or what their system calls them."""
    return Actor(f"cli:{name}")


class Act(StrEnum):
    """All that is audited."""

    # The schema's audit_act_known has the same list, and a test compares them.

    RUN_TEXT_READ = "run_text_read"
    RUN_LOOKUP = "run_lookup"
    RUN_SAVE_RETRY = "run_save_retry"
    RUN_RESOLVE = "run_resolve"
    PROVIDER_CREATE = "provider_create"
    PROVIDER_SET = "provider_set"
    PROVIDER_DISABLE = "provider_disable"
    PROVIDER_ENABLE = "provider_enable"
    APP_CREATE = "app_create"
    APP_SET = "app_set"
    APP_DISABLE = "app_disable"
    APP_ENABLE = "app_enable"
    APP_SET_TOKEN = "app_set_token"
    ACCOUNT_CREATE = "account_create"
    ACCOUNT_SET = "account_set"
    ACCOUNT_SUSPEND = "account_suspend"
    ACCOUNT_ACTIVATE = "account_activate"
    QUOTA_SET = "quota_set"
    QUOTA_REMOVE = "quota_remove"
    MODERATION_SET = "moderation_set"
    KEYS_REKEY = "keys_rekey"
    ADMISSION_CLOSE = "admission_close"
    ADMISSION_OPEN = "admission_open"
    AUDIT_PRUNE = "audit_prune"


class TargetKind(StrEnum):
    """What an act was done to; GATEWAY is all of it."""

    RUN = "run"
    PROVIDER = "provider"
    APPLICATION = "application"
    ACCOUNT = "account"
    QUOTA_RULE = "quota_rule"
    GATEWAY = "gateway"


@dataclass(frozen=True, slots=True)
class Entry:
    """One act, about to be recorded. `target_id`: its id as text. `reason`: in the operator's own words."""

    actor: Actor
    act: Act
    target_kind: TargetKind
    target_id: str
    reason: str | None = None
    detail: Mapping[str, object] = field(default_factory=dict)
