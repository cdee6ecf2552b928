"""Applications: what a change ends, what blocks it, what a run resolves, what users see."""

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from gateway.bindings import applications, providers
from gateway.bindings.applications import ApplicationChange, Audience, NewApplication, Visibility
from gateway.bindings.config import ApplicationConfig, BackendType, langchain_config, parse_config
from gateway.bindings.providers import ChangeReport, ProviderChange
from gateway.bindings.resolve import Resolve
from gateway.bindings.vault import KeyRing, Vault
from gateway.bindings.visible import VisibleApplications
from gateway.domain.ids import AccountId, ApplicationId, ConversationId
from gateway.domain.problems import Code, Refused
from gateway.domain.states import SLOT_HOLDING, Execution, Persistence
from gateway.identity.accounts import Access
from gateway.store.database import Database
from tests.db.world import BASE_URL, KEY, World, everything_in, until_waiting, world_on

pytestmark = pytest.mark.anyio

IN_THE_WAY = [(state.value, "none") for state in Execution if state in SLOT_HOLDING] + [
    ("unknown", "partial"),
    ("succeeded", "pending"),
    ("failed", "pending"),
    ("closed", "pending"),
]
NOT_IN_THE_WAY = [
    ("waiting", "none"),
    ("released", "none"),
    ("succeeded", "saved"),
    ("succeeded", "incomplete"),
    ("failed", "incomplete"),
    ("closed", "incomplete"),
]


@pytest.fixture
async def world(database: Database, database_url: str, anyio_backend: str) -> World:
    made = world_on(database, database_url)
    await made.provider()
    return made


async def takes_token(*, base_url: str, assistant_id: str, token: str, human_input: bool) -> bool:
    return True


async def refused(act: Any, code: Code) -> Refused:
    with pytest.raises(Refused) as caught:
        await act
    assert caught.value.code is code
    return caught.value


def binding(world: World, conversation_id: UUID) -> Any:
    with psycopg.connect(world.url) as connection:
        row = connection.execute("select invalidated_at from binding where conversation_id = %s", (conversation_id,)).fetchone()
    assert row is not None
    return row[0]


def caller(subject: str = "alice", *groups: str) -> Access:
    return Access(AccountId(uuid4()), subject, frozenset(groups), operator=False)


# --- resolving ------------------------------------------------------------------------------------------------------------------------


async def test_resolving_gives_all_of_one_moment(world: World) -> None:
    application_id = await world.application()
    usable = await world.resolve.usable(application_id)
    assert usable is not None
    assert (usable.endpoint.base_url, usable.endpoint.assistant_id) == (BASE_URL, "agent")
    assert usable.endpoint.authorization == "Bearer tok_X"
    assert (usable.config_version, usable.token_version, usable.thread_id, usable.binding_valid) == (1, 1, None, True)
    assert usable.capabilities_key.application_id == application_id
    assert "tok_X" not in f"{usable!r} {usable}"


async def test_resolving_a_conversation_gives_its_thread(world: World) -> None:
    application_id, other_id = await world.application(), await world.application("other")
    run = await world.admit(application_id)
    conversation_id = ConversationId(run.conversation_id)
    before = await world.resolve.usable(application_id, conversation_id)
    assert before is not None
    assert before.thread_id is None
    assert await world.fence(run, "thread-1") == "dispatched"
    after = await world.resolve.usable(application_id, conversation_id)
    assert after is not None
    assert (after.thread_id, after.binding_valid) == ("thread-1", True)
    # A conversation of another application lends it nothing.
    foreign = await world.resolve.usable(other_id, conversation_id)
    assert foreign is not None
    assert foreign.thread_id is None


async def test_nothing_resolves_that_may_not_be_used(world: World) -> None:
    assert await world.resolve.usable(ApplicationId(uuid4())) is None
    assert await world.resolve.usable(await world.application("no token", token=None)) is None
    assert await world.resolve.usable(await world.application("dify", config=parse_config({}), token=None)) is None
    application_id = await world.application()
    for switch, name in ((applications.set_enabled, "app"), (providers.set_enabled, "provider")):
        for enabled in (False, True):
            await switch(world.database, name, enabled=enabled)
            usable = await world.resolve.usable(application_id)
            assert usable is not None  # a disabled one takes nothing new; its runs are still looked up
            assert usable.enabled is enabled


async def test_o36_only_the_application_whose_key_is_gone_is_unusable(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    old_id = await world.application("old")
    ring = Vault(KeyRing([b"n" * 32]))
    new = NewApplication("new", "provider", langchain_config("agent"), Audience(), "tok_X")
    new_id = await applications.create(world.database, ring, new)
    resolve = Resolve(world.database, ring)
    assert await resolve.usable(old_id) is None
    assert await resolve.usable(new_id) is not None
    assert "tok_X" not in "".join(capsys.readouterr())
    views = (await VisibleApplications(world.database, ring, 2).visible(caller()))["apps"]
    assert {view["name"]: view["available"] for view in views} == {"old": False, "new": True}
    both = Resolve(world.database, Vault(KeyRing([b"n" * 32, KEY])))
    assert await both.usable(old_id) is not None


async def test_o36_a_ciphertext_copied_to_another_application_does_not_open(world: World) -> None:
    one, other = await world.application("one"), await world.application("other", token="tok_OTHER")
    with psycopg.connect(world.url, autocommit=True) as connection:
        connection.execute(
            """update application a set token_ciphertext = b.token_ciphertext from application b
               where a.application_id = %s and b.application_id = %s""",
            (one, other),
        )
    assert await world.resolve.usable(one) is None
    assert await world.resolve.usable(other) is not None


# --- what a change ends ---------------------------------------------------------------------------------------------------------------


async def moved_provider(world: World) -> object:
    return await providers.set_base_url(world.database, "provider", f"{BASE_URL}/v2", ())


async def moved_back(world: World) -> object:
    return await providers.set_base_url(world.database, "provider", BASE_URL, ())


async def other_assistant(world: World) -> object:
    return await applications.change(world.database, "app", ApplicationChange(assistant_id="other"))


async def first_assistant(world: World) -> object:
    return await applications.change(world.database, "app", ApplicationChange(config=langchain_config("agent")))


async def other_provider(world: World) -> object:
    await world.provider("elsewhere", f"{BASE_URL}/elsewhere")
    return await applications.change(world.database, "app", ApplicationChange(provider="elsewhere"))


async def first_provider(world: World) -> object:
    return await applications.change(world.database, "app", ApplicationChange(provider="provider"))


@pytest.mark.parametrize(
    ("change", "undo"),
    [(moved_provider, moved_back), (other_assistant, first_assistant), (other_provider, first_provider)],
)
async def test_a_change_ends_bindings_for_good(world: World, change: Callable[[World], Any], undo: Callable[[World], Any]) -> None:
    application_id, untouched_id = await world.application(), None
    await world.provider("far", "https://far.example")
    untouched_id = await world.application("untouched", provider="far")
    runs = [await world.run_in(application, "succeeded", "saved") for application in (application_id, untouched_id)]
    await change(world)
    ended_at = binding(world, runs[0].conversation_id)
    assert ended_at is not None
    assert binding(world, runs[1].conversation_id) is None
    usable = await world.resolve.usable(application_id, ConversationId(runs[0].conversation_id))
    assert usable is not None
    assert (usable.config_version, usable.token_version, usable.binding_valid) == (2, 1, False)
    await undo(world)
    assert binding(world, runs[0].conversation_id) == ended_at
    again = await world.resolve.usable(application_id, ConversationId(runs[0].conversation_id))
    assert again is not None
    assert (again.config_version, again.binding_valid) == (3, False)


async def test_what_is_as_wanted_already_ends_nothing(world: World) -> None:
    application_id = await world.application()
    run = await world.run_in(application_id, "succeeded", "saved")
    assert not await providers.set_base_url(world.database, "provider", f"{BASE_URL}:443/", ())
    wanted = ApplicationChange(
        assistant_id="agent", provider="provider", description="new", visibility=Visibility.PRIVATE, owner_subject="alice"
    )
    changed = ("description", "owner_subject", "visibility")
    assert await applications.change(world.database, "app", wanted) == ChangeReport(changed, moved=False, token_dropped=False)
    assert await applications.change(world.database, "app", wanted) == ChangeReport()
    assert binding(world, run.conversation_id) is None
    row = await applications.find(world.database, "app")
    assert (row.config_version, row.description, row.visibility, row.owner_subject) == (1, "new", "private", "alice")


async def test_a_changed_origin_drops_the_token(world: World) -> None:
    await world.application()
    assert await providers.set_base_url(world.database, "provider", f"{BASE_URL}/v2", ())
    row = await applications.find(world.database, "app")
    assert (row.token_ciphertext is not None, row.config_version, row.token_version) == (True, 2, 1)
    assert await providers.set_base_url(world.database, "provider", "https://agent.example:8443/v2", ())
    row = await applications.find(world.database, "app")
    assert (row.token_ciphertext, row.token_key_id, row.config_version, row.token_version) == (None, None, 3, 2)
    await world.application("second")
    await world.provider("elsewhere", "https://elsewhere.example")
    report = await applications.change(world.database, "second", ApplicationChange(provider="elsewhere"))
    assert report == ChangeReport(("provider_id",), moved=True, token_dropped=True)


async def test_a_rename_is_free_and_only_a_rename(world: World) -> None:
    application_id = await world.application()
    await world.application("other")
    await world.provider("second", "https://second.example")
    run = await world.run_in(application_id, "running")
    row = await applications.find(world.database, application_id)
    assert await applications.change(world.database, application_id, ApplicationChange(name="new")) == ChangeReport(("name",))
    assert await providers.change(world.database, row.provider_id, ProviderChange(name="moved?"), ()) == ChangeReport(("name",))
    renamed = await applications.find(world.database, "new")
    assert (renamed.application_id, renamed.provider_name, renamed.config_version) == (application_id, "moved?", 1)
    assert binding(world, run.conversation_id) is None
    await refused(applications.change(world.database, "new", ApplicationChange(name="other")), Code.ALREADY_EXISTS)
    await refused(providers.change(world.database, "moved?", ProviderChange(name="second"), ()), Code.ALREADY_EXISTS)
    for act in (
        applications.change(world.database, "new", ApplicationChange(name=" new")),
        providers.change(world.database, "moved?", ProviderChange(name=""), ()),
    ):
        assert (await refused(act, Code.CONFIGURATION_INVALID)).extra["field"] == "name"
    await refused(applications.find(world.database, "app"), Code.NOT_FOUND)


async def test_a_change_that_is_refused_in_one_part_changes_no_part(world: World) -> None:
    application_id = await world.application()
    await world.run_in(application_id, "unknown")
    before = await applications.find(world.database, "app")
    wanted = ApplicationChange(name="new", enabled=False, assistant_id="other", description="new")
    await refused(applications.change(world.database, "app", wanted), Code.CHANGE_BLOCKED)
    moving = ProviderChange(name="new", base_url=f"{BASE_URL}/v2", enabled=False)
    await refused(providers.change(world.database, "provider", moving, ()), Code.CHANGE_BLOCKED)
    assert await applications.find(world.database, "app") == before


async def test_an_owner_can_be_taken_away(world: World) -> None:
    await world.application(audience=Audience(visibility=Visibility.PRIVATE, owner_subject="alice", users=("bob",)))
    await applications.change(world.database, "app", ApplicationChange(drop_owner=True))
    assert (await applications.find(world.database, "app")).owner_subject is None
    nobody = ApplicationChange(users=())
    assert (await refused(applications.change(world.database, "app", nobody), Code.CONFIGURATION_INVALID)).extra["field"] == "owner"


# --- what blocks a change -------------------------------------------------------------------------------------------------------------


async def new_token(world: World) -> None:
    await applications.set_token(world.database, world.vault, "app", "tok_NEW", takes_token)


CHANGES = [moved_provider, other_assistant, new_token]


async def test_a_run_in_the_way_blocks_every_change(world: World) -> None:
    application_id = await world.application()
    await world.run_in(application_id, "succeeded", "saved")
    for execution, persistence in IN_THE_WAY:
        run = await world.run_in(application_id, execution, persistence)
        for change in CHANGES:
            refusal = await refused(change(world), Code.CHANGE_BLOCKED)
            assert refusal.extra == {"runs": [{"run_id": str(run.run_id), "execution": execution, "persistence": persistence}]}
        world.put(run, *(("released", "none") if execution == "reserved" else ("failed", "saved")))
    run = await world.run_in(application_id, "unknown")
    row = await applications.find(world.database, "app")
    assert (row.base_url, row.assistant_id, row.config_version, row.token_version) == (BASE_URL, "agent", 1, 1)
    # What does not move it is not blocked.
    await applications.change(world.database, "app", ApplicationChange(description="new"))
    await applications.set_enabled(world.database, "app", enabled=False)


async def test_runs_that_are_over_block_nothing(world: World) -> None:
    application_id = await world.application()
    for execution, persistence in NOT_IN_THE_WAY:
        await world.run_in(application_id, execution, persistence)
    await world.application("other")
    for change in CHANGES:
        await change(world)


def test_every_state_is_tested() -> None:
    assert {execution for execution, _ in IN_THE_WAY + NOT_IN_THE_WAY} == {state.value for state in Execution}
    assert {persistence for _, persistence in IN_THE_WAY + NOT_IN_THE_WAY} == {state.value for state in Persistence}


async def test_a_run_of_another_application_of_the_provider_blocks_moving_it(world: World) -> None:
    await world.application()
    run = await world.run_in(await world.application("other"), "unknown")
    refusal = await refused(moved_provider(world), Code.CHANGE_BLOCKED)
    assert str(run.run_id) in str(refusal.extra)
    await other_assistant(world)


async def test_a_change_waits_for_an_admission_and_then_sees_its_run(world: World) -> None:
    application_id = await world.application()
    await world.account()
    with psycopg.connect(world.url) as admission:
        admission.execute("select from application where application_id = %s for no key update", (application_id,))
        changing = asyncio.create_task(refused(other_assistant(world), Code.CHANGE_BLOCKED))
        await until_waiting(world.url)
        run_id = uuid4()
        admission.execute(
            """
            with made as (
                insert into conversation (conversation_id, application_id, account_id, title, last_sequence)
                select %(id)s, %(application_id)s, account_id, 'hi', 1 from account returning conversation_id, account_id
            )
            insert into run (run_id, account_id, application_id, conversation_id, submission_id, sequence, execution, attempt_token,
                correlation_id, config_version, token_version, user_slot, application_slot, lease_until)
            select %(id)s, account_id, %(application_id)s, conversation_id, 's', 1, 'reserved', %(id)s, %(id)s, 1, 1, 1, 1, now() from made
            """,
            {"id": run_id, "application_id": application_id},
        )
        admission.commit()
        refusal = await changing
    assert str(run_id) in str(refusal.extra)


async def test_a_change_that_waited_for_its_provider_to_move_goes_by_where_it_is_now(world: World) -> None:
    """From P to Q, where P was at Q's address when it began to wait, and is elsewhere when it goes on: that is a move."""
    application_id = await world.application()
    await world.provider("same place", f"{BASE_URL}/")
    run = await world.run_in(application_id, "succeeded", "saved")
    with psycopg.connect(world.url) as moving:
        moving.execute("select from application where application_id = %s for no key update", (application_id,))
        changing = asyncio.create_task(applications.change(world.database, "app", ApplicationChange(provider="same place")))
        await until_waiting(world.url)
        moving.execute("update provider set base_url = 'https://elsewhere.example' where name = 'provider'")
        moving.execute("update application set config_version = 2, token_ciphertext = null, token_key_id = null")
        moving.commit()
        report = await changing
    assert report == ChangeReport(("provider_id",), moved=True, token_dropped=False)
    assert (await applications.find(world.database, "app")).config_version == 3
    assert binding(world, run.conversation_id) is not None


async def test_backend_type_and_human_input_are_fixed_by_history(world: World) -> None:
    for name in ("fresh", "used"):
        await world.application(name)
    used = await applications.find(world.database, "used")
    await world.run_in(ApplicationId(used.application_id), "released")
    approving = ApplicationChange(config=langchain_config("agent", human_input=True))
    dify = ApplicationChange(config=parse_config({"backend_type": "dify"}))
    for change in (approving, dify):
        await refused(applications.change(world.database, "used", change), Code.BACKEND_TYPE_FIXED)
    assert (await applications.change(world.database, "fresh", approving)).moved
    row = await applications.find(world.database, "fresh")
    assert (row.human_input, row.config_version) == (True, 2)
    assert (await applications.change(world.database, "fresh", dify)).moved


# --- tokens ---------------------------------------------------------------------------------------------------------------------------


async def test_a_new_token_keeps_bindings_and_raises_its_version(world: World) -> None:
    application_id = await world.application()
    run = await world.run_in(application_id, "succeeded", "saved")
    asked: list[tuple[str, str, str]] = []

    async def check(*, base_url: str, assistant_id: str, token: str, human_input: bool) -> bool:
        asked.append((base_url, assistant_id, token))
        return True

    await applications.set_token(world.database, world.vault, "app", " tok_NEW\n", check)
    assert asked == [(BASE_URL, "agent", "tok_NEW")]
    usable = await world.resolve.usable(application_id, ConversationId(run.conversation_id))
    assert usable is not None
    assert (usable.endpoint.authorization, usable.token_version, usable.config_version) == ("Bearer tok_NEW", 2, 1)
    assert (usable.thread_id, usable.binding_valid) == (str(run.conversation_id), True)


async def test_a_token_that_the_service_refuses_changes_nothing(world: World) -> None:
    application_id = await world.application()

    async def check(*, base_url: str, assistant_id: str, token: str, human_input: bool) -> bool:
        return False

    await refused(applications.set_token(world.database, world.vault, "app", "tok_NEW", check), Code.UPSTREAM_CHECK_FAILED)
    usable = await world.resolve.usable(application_id)
    assert usable is not None
    assert (usable.endpoint.authorization, usable.token_version) == ("Bearer tok_X", 1)


async def test_a_token_checked_against_another_configuration_is_not_stored(world: World) -> None:
    await world.application()

    async def check(*, base_url: str, assistant_id: str, token: str, human_input: bool) -> bool:
        await providers.set_base_url(world.database, "provider", "https://elsewhere.example", ())
        return True

    await refused(applications.set_token(world.database, world.vault, "app", "tok_NEW", check), Code.UPSTREAM_CHECK_FAILED)
    assert (await applications.find(world.database, "app")).token_ciphertext is None


async def test_o34_a_token_that_no_header_can_hold_is_never_stored(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    await world.application(token="tok_X")
    for raw in ("tök_CANARY", "", "tok_CANARY\r\nX-Evil: 1"):
        wrong = NewApplication("wrong", "provider", langchain_config("agent"), Audience(), raw)
        assert "CANARY" not in repr(wrong)
        for act in (
            applications.create(world.database, world.vault, wrong),
            applications.set_token(world.database, world.vault, "app", raw, takes_token),
        ):
            refusal = await refused(act, Code.CONFIGURATION_INVALID)
            assert refusal.extra["field"] == "token"
            assert "CANARY" not in f"{refusal!r} {refusal.extra}"
    assert "CANARY" not in everything_in(world.url) + "".join(capsys.readouterr())


async def test_o34_no_row_holds_a_token_in_clear(world: World) -> None:
    await world.application(token="tok_CANARY\n")
    rows = everything_in(world.url)
    assert "app" in rows
    assert "CANARY" not in rows
    assert b"tok_CANARY".hex() not in rows


async def test_o34_a_url_with_a_password_is_never_stored(world: World) -> None:
    url = "https://u:pw_CANARY@agent.example"
    for act in (
        providers.create(world.database, name="wrong", base_url=url, trusted_hosts=()),
        providers.set_base_url(world.database, "provider", url, ()),
    ):
        refusal = await refused(act, Code.CONFIGURATION_INVALID)
        assert "CANARY" not in f"{refusal!r} {refusal.extra}"
    assert "CANARY" not in everything_in(world.url)


# --- making, and other refusals -------------------------------------------------------------------------------------------------------


async def test_names_are_taken_once(world: World) -> None:
    await world.application()
    await refused(world.application(), Code.ALREADY_EXISTS)
    await refused(world.provider(), Code.ALREADY_EXISTS)


async def test_what_is_not_there_is_not_found(world: World) -> None:
    await refused(world.application("x", provider="nowhere"), Code.NOT_FOUND)
    await world.application()
    for act in (
        applications.find(world.database, "nowhere"),
        applications.change(world.database, "nowhere", ApplicationChange()),
        applications.change(world.database, "app", ApplicationChange(provider="nowhere")),
        applications.set_enabled(world.database, "nowhere", enabled=True),
        applications.set_token(world.database, world.vault, "nowhere", "tok_X", takes_token),
        providers.find(world.database, "nowhere"),
        providers.set_base_url(world.database, "nowhere", BASE_URL, ()),
        providers.set_enabled(world.database, "nowhere", enabled=False),
    ):
        await refused(act, Code.NOT_FOUND)


FAULTY = [
    (NewApplication("", "provider", langchain_config("agent"), Audience()), "name"),
    (NewApplication("a\nb", "provider", langchain_config("agent"), Audience()), "name"),
    (NewApplication(" a", "provider", langchain_config("agent"), Audience()), "name"),
    (NewApplication("a" * 101, "provider", langchain_config("agent"), Audience()), "name"),
    (NewApplication("a", "provider", langchain_config("agent"), Audience(description="a" * 2001)), "description"),
    (NewApplication("a", "provider", langchain_config("agent"), Audience(description="\x00")), "description"),
    (NewApplication("a", "provider", langchain_config("agent"), Audience(visibility=Visibility.GROUP)), "groups"),
    (NewApplication("a", "provider", langchain_config("agent"), Audience(visibility=Visibility.PRIVATE)), "owner"),
    (NewApplication("a", "provider", langchain_config("agent"), Audience(groups=("a\x1b",))), "groups"),
    (NewApplication("a", "provider", langchain_config("agent"), Audience(users=("",))), "users"),
    (NewApplication("a", "provider", parse_config({}), Audience(), "tok_X"), "token"),
]


async def test_a_faulty_application_is_refused(world: World) -> None:
    for new, field in FAULTY:
        refusal = await refused(applications.create(world.database, world.vault, new), Code.CONFIGURATION_INVALID)
        assert refusal.extra["field"] == field


# --- what users see -------------------------------------------------------------------------------------------------------------------


async def test_users_see_the_display_fields_and_nothing_else(world: World) -> None:
    config = ApplicationConfig(BackendType.LANGCHAIN, "agent", True, "model", False, ("Agent",))
    application_id = await world.application(config=config, audience=Audience("about it"))
    assert await VisibleApplications(world.database, world.vault, 2).one(caller(), application_id) == {
        "app_id": application_id,
        "name": "app",
        "description": "about it",
        "app_type": "model",
        "is_marketplace_app": False,
        "tags": ["Agent"],
        "visibility": "public",
        "human_input": True,
        "available": True,
    }


async def test_users_see_what_is_for_them_by_name(world: World) -> None:
    await world.application("c public")
    await world.application("b group", audience=Audience(visibility=Visibility.GROUP, groups=("staff",)))
    hidden_id = await world.application("a private", audience=Audience(visibility=Visibility.PRIVATE, owner_subject="alice"))
    seen = VisibleApplications(world.database, world.vault, 2)
    assert [view["name"] for view in (await seen.visible(caller("alice", "staff")))["apps"]] == ["a private", "b group", "c public"]
    assert [view["name"] for view in (await seen.visible(caller("bob")))["apps"]] == ["c public"]
    await refused(seen.one(caller("bob"), hidden_id), Code.NOT_FOUND)
    await refused(seen.one(caller("bob"), ApplicationId(uuid4())), Code.NOT_FOUND)


async def test_available_says_whether_a_message_could_be_taken(world: World) -> None:
    seen = VisibleApplications(world.database, world.vault, 2)
    application_id = await world.application()
    dify_id = await world.application("dify", config=parse_config({}), token=None)
    bare_id = await world.application("bare", token=None)

    async def available(of: ApplicationId = application_id) -> bool:
        return (await seen.one(caller(), of))["available"]

    assert (await available(), await available(dify_id), await available(bare_id)) == (True, False, False)
    await applications.set_enabled(world.database, "app", enabled=False)
    assert not await available()
    await applications.set_enabled(world.database, "app", enabled=True)
    await providers.set_enabled(world.database, "provider", enabled=False)
    assert not await available()
    await providers.set_enabled(world.database, "provider", enabled=True)
    for execution in ("unknown", "running", "reserved"):
        await world.run_in(application_id, execution)
    # Runs that go on will end; unresolved ones hold their slots until somebody acts.
    assert await available()
    await world.run_in(application_id, "unknown")
    assert not await available()
