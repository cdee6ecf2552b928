"""Access: what a verified caller may do here. Account first, then visibility, in one round trip; tokens are verified in `tokens`.

Unknown subjects: with `create_unknown` (GATEWAY_ACCOUNTS=auto) the first valid token makes an active account. Without it the subject is
told account_inactive, as a suspended one is: its identity is proven, so it is no 401, and what is missing is an operator's act.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from gateway.domain.ids import AccountId, ApplicationId
from gateway.domain.problems import Code, Refused
from gateway.identity.tokens import OPERATOR_ROLE, Claims
from gateway.store import accounts as rows
from gateway.store.database import Database


class AccountState(StrEnum):
    """Whether an account may do anything at all."""

    ACTIVE = "active"
    SUSPENDED = "suspended"


@dataclass(frozen=True, slots=True)
class Access:
    """An active account as it is used by one request. `groups`: the union of the claim's and ours; `operator`: by claim or by account.

    `claimed_groups`: the claim's alone, for who asks again what ours are.
    """

    account_id: AccountId
    subject: str
    groups: frozenset[str]
    operator: bool
    claimed_groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class AccessCheck:
    """Asks the database, every time: a suspension or a lost group counts from the next request on."""

    db: Database
    create_unknown: bool

    async def account(self, claims: Claims) -> Access:
        """The caller's access to its own things. Raises Refused(ACCOUNT_INACTIVE)."""
        return access_of(claims, await self._row(claims, None))

    async def application(self, claims: Claims, application_id: ApplicationId) -> Access:
        """As `account`; raises Refused(NOT_FOUND) too, when the application is not visible to the caller or is not there."""
        row = await self._row(claims, application_id)
        access = access_of(claims, row)
        if row is None or not row.visible:
            raise Refused(Code.NOT_FOUND)
        return access

    async def _row(self, claims: Claims, application_id: ApplicationId | None) -> rows.AccessRow | None:
        row = await rows.access(self.db, claims.subject, claims.groups, application_id)
        if row is None and await self.make_account(claims):
            row = await rows.access(self.db, claims.subject, claims.groups, application_id)
        return row

    async def make_account(self, claims: Claims) -> bool:
        """Make the unknown caller's account where that is allowed: True when there is one now, whichever replica made it."""
        if self.create_unknown:
            await rows.create(self.db, claims.subject)
        return self.create_unknown


def access_of(claims: Claims, row: rows.AccessRow | None) -> Access:
    """The access that a row gives. Raises Refused(ACCOUNT_INACTIVE) for no account and for one that is not active."""
    if row is None or row.account_state != AccountState.ACTIVE:
        raise Refused(Code.ACCOUNT_INACTIVE)
    return build_access(claims, AccountId(row.account_id), row.all_groups, row.account_roles)


def build_access(claims: Claims, account_id: AccountId, all_groups: Collection[str], account_roles: Collection[str]) -> Access:
    """An Access of parts that another statement brought (admission reads them together with everything else)."""
    return Access(
        account_id=account_id,
        subject=claims.subject,
        groups=frozenset(all_groups),
        operator=claims.operator or OPERATOR_ROLE in account_roles,
        claimed_groups=claims.groups,
    )
