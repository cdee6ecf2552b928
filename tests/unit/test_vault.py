"""The vault: a token opens for its application, with a key of the ring, unchanged; and nothing else opens."""

from itertools import chain
from uuid import UUID, uuid4

import pytest

from gateway.bindings.vault import KeyRing, TokenFault, TokenUnreadable, Vault, key_id, validate_token
from gateway.domain.problems import Code, Refused

OLD, NEW = b"o" * 32, b"n" * 32
APPLICATION = UUID("11111111-1111-1111-1111-111111111111")
TOKEN = "tok_X"


def vault(*keys: bytes) -> Vault:
    return Vault(KeyRing(keys))


def fault(opened_by: Vault, application_id: UUID, envelope: bytes, id_of_key: str) -> TokenFault:
    with pytest.raises(TokenUnreadable) as caught:
        opened_by.open(application_id, envelope, id_of_key)
    assert str(caught.value) == ""
    assert caught.value.__cause__ is None
    assert TOKEN not in repr(caught.value)
    return caught.value.fault


def test_what_was_sealed_opens() -> None:
    envelope, id_of_key = vault(NEW).seal(APPLICATION, TOKEN)
    assert id_of_key == key_id(NEW)
    assert len(id_of_key) == 8
    assert vault(NEW).open(APPLICATION, envelope, id_of_key) == TOKEN
    assert TOKEN.encode() not in envelope
    assert vault(NEW).seal(APPLICATION, TOKEN)[0] != envelope


def test_the_newest_key_seals_and_all_open() -> None:
    envelope, id_of_key = vault(OLD).seal(APPLICATION, TOKEN)
    assert vault(NEW, OLD).open(APPLICATION, envelope, id_of_key) == TOKEN
    assert vault(NEW, OLD).seal(APPLICATION, TOKEN)[1] == key_id(NEW)
    assert KeyRing([NEW, OLD]).key_ids == {key_id(NEW), key_id(OLD)}


def test_without_its_key_a_token_is_unreadable() -> None:
    envelope, id_of_key = vault(OLD).seal(APPLICATION, TOKEN)
    assert fault(vault(NEW), APPLICATION, envelope, id_of_key) is TokenFault.NO_KEY
    assert not vault(NEW).can_open(APPLICATION, envelope, id_of_key)
    assert vault(OLD).can_open(APPLICATION, envelope, id_of_key)
    assert not vault(OLD).can_open(APPLICATION, None, None)


def test_a_row_copied_to_another_application_does_not_open() -> None:
    envelope, id_of_key = vault(NEW).seal(APPLICATION, TOKEN)
    assert fault(vault(NEW), uuid4(), envelope, id_of_key) is TokenFault.DAMAGED


def test_the_wrong_key_id_does_not_open() -> None:
    envelope, _ = vault(OLD).seal(APPLICATION, TOKEN)
    assert fault(vault(NEW, OLD), APPLICATION, envelope, key_id(NEW)) is TokenFault.DAMAGED


def test_no_changed_byte_and_no_other_length_opens() -> None:
    envelope, id_of_key = vault(NEW).seal(APPLICATION, TOKEN)
    changed = (envelope[:at] + bytes([envelope[at] ^ 1]) + envelope[at + 1 :] for at in range(len(envelope)))
    cut = (envelope[:length] for length in range(len(envelope)))
    for wrong in chain(changed, cut, [envelope + b"\0"]):
        assert fault(vault(NEW), APPLICATION, wrong, id_of_key) is TokenFault.DAMAGED


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
