"""Access: account before visibility, one row a subject whoever makes it, operators by claim or by account."""

import asyncio
from uuid import uuid4

import pytest

from gateway.bindings.applications import Audience, Visibility
from gateway.domain.ids import ApplicationId
from gateway.domain.problems import Code, Refused
from gateway.identity import people
from gateway.identity.accounts import AccessCheck
from gateway.identity.tokens import Claims
from gateway.store import accounts
from gateway.store.accounts import AccountRow
from gateway.store.database import Database
from tests.db.world import world_on

pytestmark = pytest.mark.anyio
ALICE = Claims("alice", frozenset({"staff"}), operator=False)


async def refusal(check: AccessCheck, claims: Claims, application_id: ApplicationId | None = None) -> Code:
    act = check.account(claims) if application_id is None else check.application(claims, application_id)
    with pytest.raises(Refused) as caught:
        await act
    return caught.value.code


async def test_the_first_valid_token_makes_an_account(database: Database) -> None:
    check = AccessCheck(database, create_unknown=True)
    first = await check.account(ALICE)
    assert (first.subject, first.groups, first.operator) == ("alice", frozenset({"staff"}), False)
    assert await check.account(ALICE) == first
    found = await accounts.find(database, "alice")
    assert found is not None
    assert (found.state, found.groups, found.roles) == ("active", [], [])


async def test_replicas_that_make_the_same_account_agree(database_url: str) -> None:
    async with await Database.open(database_url, pool_max=8) as one, await Database.open(database_url, pool_max=8) as other:
        checks = [AccessCheck(db, create_unknown=True) for db in (one, other)]
        found = await asyncio.gather(*(check.account(ALICE) for check in checks * 8))
    assert len({access.account_id for access in found}) == 1


async def test_where_accounts_must_be_known_an_unknown_subject_is_inactive(database: Database) -> None:
    check = AccessCheck(database, create_unknown=False)
    assert await refusal(check, ALICE) is Code.ACCOUNT_INACTIVE
    assert await accounts.find(database, "alice") is None
    assert await accounts.create(database, "alice")
    assert (await check.account(ALICE)).subject == "alice"


async def test_suspension_counts_from_the_next_request_on(database: Database, database_url: str) -> None:
    world = world_on(database, database_url)
    await world.provider()
    application_id = await world.application()
    check = AccessCheck(database, create_unknown=True)
    await check.application(ALICE, application_id)
    assert await people.suspend(database, "alice")
    assert not await people.suspend(database, "alice")
    assert await refusal(check, ALICE) is Code.ACCOUNT_INACTIVE
    # Before visibility: a suspended caller learns nothing of what there is.
    assert await refusal(check, ALICE, application_id) is Code.ACCOUNT_INACTIVE
    assert await refusal(check, ALICE, ApplicationId(uuid4())) is Code.ACCOUNT_INACTIVE
    assert await people.activate(database, "alice")
    await check.application(ALICE, application_id)


async def test_groups_are_the_union_and_operators_are_known_by_either(database: Database) -> None:
    check = AccessCheck(database, create_unknown=True)
    await accounts.create(database, "alice", groups=["board"], roles=["operator"])
    access = await check.account(ALICE)
    assert (access.groups, access.operator) == (frozenset({"staff", "board"}), True)
    assert (await check.account(Claims("bob", frozenset(), operator=True))).operator
    assert await people.change(database, "alice", groups=None, roles=[])
    access = await check.account(ALICE)
    assert (access.groups, access.operator) == (frozenset({"staff", "board"}), False)
    assert await people.change(database, "alice", groups=[], roles=None)
    assert (await check.account(ALICE)).groups == frozenset({"staff"})


VISIBLE = [
    (Audience(), {"alice", "bob", "carol", "dave"}),
    (Audience(visibility=Visibility.GROUP, groups=("staff", "board")), {"alice", "carol"}),
    (Audience(visibility=Visibility.PRIVATE, owner_subject="alice"), {"alice"}),
    (Audience(visibility=Visibility.PRIVATE, owner_subject="alice", users=("bob",)), {"alice", "bob"}),
    (Audience(visibility=Visibility.PRIVATE, users=("dave",)), {"dave"}),
    # Groups do not open a private application, nor an owner one that is for groups.
    (Audience(visibility=Visibility.PRIVATE, owner_subject="bob", groups=("staff",)), {"bob"}),
    (Audience(visibility=Visibility.GROUP, groups=("none",), owner_subject="bob", users=("alice",)), set()),
]
PEOPLE = {
    "alice": frozenset({"staff"}),  # by claim
    "bob": frozenset[str](),
    "carol": frozenset[str](),  # board by account
    "dave": frozenset({"Staff", "staf", "staff "}),
}


async def test_visibility(database: Database, database_url: str) -> None:
    world = world_on(database, database_url)
    await world.provider()
    await accounts.create(database, "carol", groups=["board"])
    check = AccessCheck(database, create_unknown=True)
    for number, (audience, who) in enumerate(VISIBLE):
        application_id = await world.application(f"app {number}", audience=audience)
        for subject, groups in PEOPLE.items():
            claims = Claims(subject, groups, operator=subject == "dave")
            if subject in who:
                assert (await check.application(claims, application_id)).subject == subject, audience
            else:
                assert await refusal(check, claims, application_id) is Code.NOT_FOUND, audience
                assert await refusal(check, claims, ApplicationId(uuid4())) is Code.NOT_FOUND


async def test_pages_go_through_all_accounts_once(database: Database) -> None:
    subjects = [f"user-{number:02}" for number in range(7)]
    for subject in reversed(subjects):
        await accounts.create(database, subject)
    seen: list[AccountRow] = []
    while page := await accounts.page(database, after=seen[-1].account_id if seen else None, page_size=3):
        seen += page
    assert [row.subject for row in seen] == subjects
    assert await accounts.list_all(database) == seen
