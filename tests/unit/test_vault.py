"""The vault: a token opens for its application, with a key of the ring, unchanged; and nothing else opens."""

import asyncio
from itertools import chain
from uuid import UUID, uuid4

import pytest

from gateway.bindings.vault import KeyRing, TokenFault, TokenUnreadable, Vault, key_id, validate_token
from gateway.domain.problems import Code, Refused
from tests.support.at_once import at_once

pytestmark = pytest.mark.anyio

OLD, NEW = b"o" * 32, b"n" * 32
APPLICATION = UUID("11111111-1111-1111-1111-111111111111")
TOKEN = "tok_X"


def vault(*keys: bytes) -> Vault:
    return Vault(KeyRing(keys))


def fault(opened_by: Vault, application_id: UUID, envelope: bytes, id_of_key: str) -> TokenFault:
    with pytest.raises(TokenUnreadable) as caught:
        at_once(opened_by.open(application_id, envelope, id_of_key))
    assert str(caught.value) == ""
    assert caught.value.__cause__ is None
    assert TOKEN not in repr(caught.value)
    return caught.value.fault


def test_what_was_sealed_opens() -> None:
    envelope, id_of_key = at_once(vault(NEW).seal(APPLICATION, TOKEN))
    assert id_of_key == key_id(NEW)
    assert len(id_of_key) == 8
    assert at_once(vault(NEW).open(APPLICATION, envelope, id_of_key)) == TOKEN
    assert TOKEN.encode() not in envelope
    assert at_once(vault(NEW).seal(APPLICATION, TOKEN))[0] != envelope


def test_the_newest_key_seals_and_all_open() -> None:
    envelope, id_of_key = at_once(vault(OLD).seal(APPLICATION, TOKEN))
    assert at_once(vault(NEW, OLD).open(APPLICATION, envelope, id_of_key)) == TOKEN
    assert at_once(vault(NEW, OLD).seal(APPLICATION, TOKEN))[1] == key_id(NEW)
    assert KeyRing([NEW, OLD]).key_ids == (key_id(NEW), key_id(OLD))


def test_without_its_key_a_token_is_unreadable() -> None:
    envelope, id_of_key = at_once(vault(OLD).seal(APPLICATION, TOKEN))
    assert fault(vault(NEW), APPLICATION, envelope, id_of_key) is TokenFault.NO_KEY
    assert at_once(vault(NEW).fault(APPLICATION, envelope, id_of_key)) is TokenFault.NO_KEY
    assert at_once(vault(OLD).fault(APPLICATION, envelope, id_of_key)) is None
    assert at_once(vault(OLD).fault(APPLICATION, None, None)) is TokenFault.NONE


def test_a_row_copied_to_another_application_does_not_open() -> None:
    envelope, id_of_key = at_once(vault(NEW).seal(APPLICATION, TOKEN))
    assert fault(vault(NEW), uuid4(), envelope, id_of_key) is TokenFault.DAMAGED


def test_the_wrong_key_id_does_not_open() -> None:
    envelope, _ = at_once(vault(OLD).seal(APPLICATION, TOKEN))
    assert fault(vault(NEW, OLD), APPLICATION, envelope, key_id(NEW)) is TokenFault.DAMAGED


def test_no_changed_byte_and_no_other_length_opens() -> None:
    envelope, id_of_key = at_once(vault(NEW).seal(APPLICATION, TOKEN))
    changed = (envelope[:at] + bytes([envelope[at] ^ 1]) + envelope[at + 1 :] for at in range(len(envelope)))
    cut = (envelope[:length] for length in range(len(envelope)))
    for wrong in chain(changed, cut, [envelope + b"\0"]):
        assert fault(vault(NEW), APPLICATION, wrong, id_of_key) is TokenFault.DAMAGED


class KeyService:
    """A key service that holds the root key, as the vault sees it: it answers later, and its wrapped keys are longer."""

    def __init__(self, before: KeyRing) -> None:
        self._root, self._before = KeyRing([NEW]), before

    @property
    def key_ids(self) -> tuple[str, ...]:
        return ("root-7", *self._before.key_ids)

    async def wrap(self, key: bytes) -> bytes:
        await asyncio.sleep(0)
        return b"wrapped by root-7:" + await self._root.wrap(key)

    async def unwrap(self, wrapped: bytes, key_id: str) -> bytes:
        await asyncio.sleep(0)
        if key_id != "root-7":
            return await self._before.unwrap(wrapped, key_id)
        return await self._root.unwrap(wrapped.removeprefix(b"wrapped by root-7:"), self._root.key_ids[0])


async def test_another_wrapper_may_hold_the_root_key_and_tokens_move_to_it_and_back() -> None:
    before = KeyRing([OLD])
    ring, service = Vault(before), Vault(KeyService(before))
    sealed = await ring.seal(APPLICATION, TOKEN)
    assert await service.open(APPLICATION, *sealed) == TOKEN
    envelope, id_of_key = await service.rewrap(APPLICATION, *sealed)
    assert id_of_key == "root-7"
    assert await service.open(APPLICATION, envelope, id_of_key) == TOKEN
    assert await ring.fault(APPLICATION, envelope, id_of_key) is TokenFault.NO_KEY
    for at in range(len(envelope)):
        wrong = envelope[:at] + bytes([envelope[at] ^ 1]) + envelope[at + 1 :]
        assert await service.fault(APPLICATION, wrong, id_of_key) is TokenFault.DAMAGED
        assert await service.fault(APPLICATION, envelope[:at], id_of_key) is TokenFault.DAMAGED


def test_a_token_is_wrapped_anew_and_not_sealed_anew() -> None:
    envelope, id_of_key = at_once(vault(OLD).seal(APPLICATION, TOKEN))
    again, id_of_newest = at_once(vault(NEW, OLD).rewrap(APPLICATION, envelope, id_of_key))
    assert id_of_newest == key_id(NEW)
    assert at_once(vault(NEW).open(APPLICATION, again, id_of_newest)) == TOKEN
    assert again[41:] == envelope[41:]
    for owner, raw in ((uuid4(), envelope), (APPLICATION, envelope[:-1] + b"x")):
        with pytest.raises(TokenUnreadable):
            at_once(vault(NEW, OLD).rewrap(owner, raw, id_of_key))


def test_a_ring_has_keys_of_the_right_size() -> None:
    for keys in ([], [b"short"], [NEW, b""]):
        with pytest.raises(ValueError):
            KeyRing(keys)


@pytest.mark.parametrize("raw", ["tok_X", "tok_X\n", " tok_X", "\ttok_X \r\n"])
def test_o34_outer_blanks_are_removed(raw: str) -> None:
    assert validate_token(raw) == "tok_X"


@pytest.mark.parametrize(
    "raw", ["", " \n", "tök_X", "tok_X\r\nX-Evil: 1", "tok_X y", "tok_X\x00", "tok_X\x7f", "tok_X\u2028", "\u00a0tok_X", "tok_X" * 820]
)
def test_o34_what_no_header_can_hold_is_refused(raw: str) -> None:
    with pytest.raises(Refused) as caught:
        validate_token(raw)
    assert caught.value.code is Code.CONFIGURATION_INVALID
    assert "tok_X" not in f"{caught.value!r} {caught.value.extra}"
    assert "tök" not in f"{caught.value!r} {caught.value.extra}"
