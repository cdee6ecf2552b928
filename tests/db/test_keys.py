"""Field case O-36: keys change, tokens are encrypted anew while others use them, and what does not open is told."""

import asyncio
from collections.abc import Sequence
from uuid import UUID, uuid4

import psycopg
import pytest
from structlog.testing import capture_logs

from gateway.admission.operator_chains import OperatorChains
from gateway.bindings import applications, keys
from gateway.bindings.keys import KeyNotEverywhere, Rekeyed
from gateway.bindings.resolve import Resolve
from gateway.bindings.vault import KeyRing, Vault, key_id
from gateway.domain.audit import cli_actor
from gateway.domain.ids import ApplicationId, ConversationId
from gateway.store import leases, tokens
from gateway.store.database import Database
from tests.db.world import KEY, World, everything_in, until_waiting, world_on

pytestmark = pytest.mark.anyio

NEW = b"n" * 32
OLGA = cli_actor("olga")


@pytest.fixture
async def world(database: Database, database_url: str, anyio_backend: str) -> World:
    made = world_on(database, database_url)
    await made.provider()
    return made


class _BrokenOff(Exception):
    """The command was stopped."""


class Interrupted(Vault):
    """A vault that does something else at its first tokens, before it has wrapped them anew."""

    def __init__(self, *acts: object) -> None:
        super().__init__(KeyRing([NEW, KEY]))
        self._acts = list(acts)

    async def rewrap(self, owner_id: UUID, envelope: bytes, key_id: str) -> tuple[bytes, str]:
        act = self._acts.pop(0) if self._acts else None
        if isinstance(act, Exception):
            raise act
        if callable(act):
            await act(owner_id)
        return await super().rewrap(owner_id, envelope, key_id)


async def rekey(world: World, vault: Vault | None = None, *, dry_run: bool = False) -> Rekeyed:
    both = Vault(KeyRing([NEW, KEY]))
    return await keys.rekey(world.database, vault or both, lease_seconds=30.0, dry_run=dry_run, actor=OLGA)


def under(world: World, id_of_key: str) -> int:
    with psycopg.connect(world.url) as connection:
        row = connection.execute("select count(*) from application where token_key_id = %s", (id_of_key,)).fetchone()
    assert row is not None
    return int(row[0])


def rekey_entries(world: World) -> list[tuple[str, str, dict[str, str]]]:
    with psycopg.connect(world.url) as connection:
        return connection.execute("select actor, target_id, detail from audit where act = 'keys_rekey' order by audit_id").fetchall()


async def test_o36_every_token_moves_and_nothing_else_changes(world: World) -> None:
    ids = [await world.application(f"app {number}", token=f"tok_CANARY_{number}") for number in range(3)]
    await world.application("without", token=None)
    run = await world.run_in(ids[0], "running")
    before = [await applications.find(world.database, application_id) for application_id in ids]
    assert await rekey(world, dry_run=True) == Rekeyed(key_id(NEW), 3, [])
    assert [await applications.find(world.database, application_id) for application_id in ids] == before
    assert (rekey_entries(world), under(world, key_id(KEY))) == ([], 3)
    # A run is under way, and is in the way of nothing: its token stays what it is.
    assert (await rekey(world)).moved == 3
    assert (await rekey(world)).moved == 0
    resolve = Resolve(world.database, Vault(KeyRing([NEW])))
    for number, application_id in enumerate(ids):
        usable = await resolve.usable(application_id)
        assert usable is not None
        assert usable.endpoint.authorization == f"Bearer tok_CANARY_{number}"
        assert (usable.config_version, usable.token_version) == (1, 1)
    assert (await resolve.usable(ids[0], ConversationId(run.conversation_id))).binding_valid  # type: ignore[union-attr]
    entries = rekey_entries(world)
    assert {actor for actor, _, _ in entries} == {OLGA}
    assert {target for _, target, _ in entries} == {str(application_id) for application_id in ids}
    assert entries[0][2] == {"name": entries[0][2]["name"], "was_key": key_id(KEY), "key": key_id(NEW)}
    assert "CANARY" not in everything_in(world.url)


async def test_o36_two_at_once_move_each_token_once(world: World) -> None:
    for number in range(6):
        await world.application(f"app {number}")
    done = await asyncio.gather(*(rekey(world) for _ in range(2)))
    assert sum(one.moved for one in done) == under(world, key_id(NEW)) == len(rekey_entries(world)) == 6


async def test_o36_what_was_broken_off_goes_on_where_it_was(world: World) -> None:
    for number in range(4):
        await world.application(f"app {number}")

    async def nothing(_: UUID) -> None: ...

    with pytest.raises(_BrokenOff):
        await rekey(world, Interrupted(nothing, nothing, _BrokenOff()))
    assert (under(world, key_id(NEW)), under(world, key_id(KEY))) == (2, 2)
    assert (await rekey(world)).moved == 2


async def test_o36_a_token_that_is_set_meanwhile_wins(world: World) -> None:
    await world.application(token="tok_OLD")

    async def takes_token(*, base_url: str, assistant_id: str, token: str, human_input: bool) -> bool:
        return True

    async def set_token(owner_id: UUID) -> None:
        # Through a replica that still encrypts under the old key.
        await applications.set_token(world.database, Vault(KeyRing([KEY, NEW])), owner_id, "tok_NEW", takes_token)

    assert (await rekey(world, Interrupted(set_token))).moved == 1
    usable = await Resolve(world.database, Vault(KeyRing([NEW]))).usable(
        ApplicationId((await applications.find(world.database, "app")).application_id)
    )
    assert usable is not None
    assert (usable.endpoint.authorization, usable.token_version) == ("Bearer tok_NEW", 2)


async def test_o36_a_chain_that_is_set_meanwhile_keeps_the_token_as_it_was_moved(world: World) -> None:
    both, named = Vault(KeyRing([NEW, KEY])), ["webhook:https://moderator.example"]
    chains = OperatorChains(world.database, world.vault, (), None)
    await chains.set(None, named, ["tok_MODERATOR"])
    [row] = await tokens.page(world.database, after=None)
    envelope, moved_to = await both.rewrap(row.owner_id, row.envelope, row.key_id)
    with psycopg.connect(world.url) as moving:
        moving.execute("update moderator set token_ciphertext = %s, token_key_id = %s", (envelope, moved_to))
        setting = asyncio.create_task(chains.set(None, [*named, "local"]))
        await until_waiting(world.url)
        moving.commit()
        await setting
    assert [one.key_id for one in await tokens.page(world.database, after=None)] == [key_id(NEW)]
    assert (await rekey(world)).moved == 0


async def test_o36_what_does_not_open_is_told_and_stops_nothing_else(world: World) -> None:
    damaged, lost = await world.application("damaged"), await world.application("lost")
    await world.application("good")
    with psycopg.connect(world.url, autocommit=True) as connection:
        connection.execute("update application set token_ciphertext = '\\x00' where application_id = %s", (damaged,))
        connection.execute("update application set token_key_id = 'ffffffff' where application_id = %s", (lost,))
    for moved in (1, 0):
        done = await rekey(world)
        assert done.moved == moved
        assert {token.row.name: token.fault.value for token in done.unreadable} == {"damaged": "damaged", "lost": "no_key"}
    with capture_logs() as logged:
        await keys.report_unreadable(world.database, Vault(KeyRing([NEW])), pause_seconds=1.0)
    assert {(line["event"], line["application_id"], line["fault"]) for line in logged} == {
        ("token_unreadable", str(damaged), "damaged"),
        ("token_unreadable", str(lost), "no_key"),
    }


async def replica(world: World, key_ids: Sequence[str] | None, *, age_seconds: int = 0) -> UUID:
    replica_id = uuid4()
    await leases.beat(world.database, replica_id, [], key_ids=key_ids or (), lease_seconds=30.0, deadline_seconds=5.0)
    with psycopg.connect(world.url, autocommit=True) as connection:
        connection.execute(
            "update replica set heartbeat_at = heartbeat_at - make_interval(secs => %s), key_ids = %s where replica_id = %s",
            (age_seconds, key_ids and list(key_ids), replica_id),
        )
    return replica_id


async def test_o36_nothing_is_encrypted_under_a_key_that_a_living_replica_lacks(world: World) -> None:
    await world.application()
    await replica(world, [key_id(KEY), key_id(NEW)])
    await replica(world, [key_id(KEY)], age_seconds=31)
    assert (await rekey(world, dry_run=True)).moved == 1
    lacking = [await replica(world, [key_id(KEY)]), await replica(world, None)]
    for dry_run in (False, True):
        with pytest.raises(KeyNotEverywhere) as caught:
            await rekey(world, dry_run=dry_run)
        assert [one.replica_id for one in caught.value.replicas] == lacking
    assert under(world, key_id(NEW)) == 0


async def test_rings_are_the_same_when_the_same_key_encrypts_and_the_same_keys_decrypt(world: World) -> None:
    a, b, c = "aaaaaaaa", "bbbbbbbb", "cccccccc"
    for ring in ([a, b, c], [a, c, b]):
        await replica(world, ring)
    others = [await replica(world, ring) for ring in ([b, a, c], [a, b], [a, b, c, "dddddddd"], None)]
    await replica(world, [b], age_seconds=31)
    found = await keys.other_rings(world.database, (a, b, c), lease_seconds=30.0)
    assert [one.replica_id for one in found] == others
